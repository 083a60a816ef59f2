"""Idle time in which the training loop waited for its next batch, by who was loading it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import among
from traceanalyzer.measures.gap_attribution import BoolArray
from traceanalyzer.measures.steps import EPISODIC
from traceanalyzer.replay.bounds import JudgedSteps, judged_idle
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, Phase, StepSource
from traceanalyzer.rules.settings import setting

# what the host can be seen doing between two step ranges while it waits for, or makes, the next batch
_BETWEEN_STEPS = (Cause.INPUT_WAIT, Cause.PYTHON, Cause.UNKNOWN, Cause.PREEMPTED)

MAIN_PROCESS, WORKERS = 1, 0
_NUMBER = re.compile(r"#(\d+)$")


@dataclass(frozen=True, slots=True)
class LoaderWait:
    """Selections of the idle ledger.

    Attributes:
        main: Waiting while the main process itself made the batch.
        workers: Waiting for worker processes.
        is_between_steps: The recording holds no loader ranges; the wait is what lies between two step ranges.
        is_guessed: The recording does not show whether there are worker processes; counted as ``workers``.
    """

    main: BoolArray
    workers: BoolArray
    is_between_steps: bool
    is_guessed: bool


def loader_wait(measures: Measures, judged: JudgedSteps) -> LoaderWait:
    """Find the idle time of the judged windows that belongs to the training loader.

    Loading inside validation is left to the validation rule. Where a recording has no loader ranges (nsys), idle
    between the end of one step range and the start of the next is taken as the wait for the next batch.

    Args:
        measures: One rank.
        judged: The windows.
    """
    return measures.kept(("loader wait", *judged.key), lambda: _loader_wait(measures, judged))


def _loader_wait(measures: Measures, judged: JudgedSteps) -> LoaderWait:
    idle, supply = measures.idle, measures.input
    base = judged_idle(measures, judged)
    nobody = np.zeros(len(base), dtype=np.bool_)
    if len(supply.start_ns):
        waiting = base & (idle.cause == CAUSE_CODE[Cause.INPUT_WAIT])
        at = np.searchsorted(supply.start_ns, idle.start_ns, side="right") - 1
        owner = np.maximum(at, 0)
        waiting &= (at >= 0) & (idle.start_ns < supply.end_ns[owner]) & (supply.in_validation[owner] == 0)
        kind = supply.in_main_process[owner]
        unknown = waiting & (kind < 0)
        main, workers = waiting & (kind == MAIN_PROCESS), waiting & (kind == WORKERS)
        return _place(measures, main, workers, unknown, is_between_steps=False)
    if measures.steps.source in (StepSource.NVTX, StepSource.NAMED):
        between = base & (idle.boundary == 1) & idle.mask(*_BETWEEN_STEPS)
        return _place(measures, nobody, nobody, between, is_between_steps=True)
    return LoaderWait(nobody, nobody, is_between_steps=False, is_guessed=False)


def epoch_starts(measures: Measures) -> BoolArray:
    """Say which step windows take the first batch of an epoch.

    Where the recorder says how many batches an epoch has, the number in the marker's name decides (both count batches
    from the run's beginning); else the episodic windows, which hold an epoch's edge.
    """
    steps = measures.steps
    batches = setting(measures, "batches_per_epoch")
    numbers = [_NUMBER.search(name) for name in steps.names]
    if batches and batches > 1 and all(numbers) and len(numbers) == len(steps):
        return np.array([int(found.group(1)) % batches == 0 for found in numbers if found], dtype=np.bool_)
    edges: BoolArray = steps.step_class == EPISODIC
    return edges


def before_epoch(measures: Measures) -> BoolArray:
    """Select Python's idle time outside every phase in the windows just before an epoch's first batch.

    There the loop turns over its epoch: the old workers are ended and the new ones are started.
    """
    idle, steps = measures.idle, measures.steps
    follows = np.append(epoch_starts(measures)[1:], False)
    windows = np.flatnonzero(follows & (steps.step_class != EPISODIC))
    outside = (idle.cause == CAUSE_CODE[Cause.PYTHON]) & (idle.phase == PHASE_CODE[Phase.OTHER])
    chosen: BoolArray = outside & among(idle.window, windows)
    return chosen


def has_loader(measures: Measures) -> bool:
    """Whether the recording can show waiting for a loader at all."""
    return bool(len(measures.input.start_ns)) or measures.steps.source in (StepSource.NVTX, StepSource.NAMED)


def _place(
    measures: Measures, main: BoolArray, workers: BoolArray, unknown: BoolArray, *, is_between_steps: bool
) -> LoaderWait:
    processes = measures.input.worker_processes
    if processes is None:
        processes = setting(measures, "workers")
    if processes == 0:
        return LoaderWait(main | unknown, workers, is_between_steps, is_guessed=False)
    is_guessed = processes is None and bool(np.any(unknown))
    return LoaderWait(main, workers | unknown, is_between_steps, is_guessed)
