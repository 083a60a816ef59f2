"""Loader workers exist, but their queue runs dry.

## Detects
Device idle time in which the training loop waits for worker processes to deliver the next batch.

## Why it matters
When all workers together make fewer batches per second than the device could use, the step is as long as the input
takes, whatever the model does.

## How it is measured
Idle time inside the outermost `next` of a `_MultiProcessingDataLoaderIter`, mean over the judged steps. In an nsys
recording it is the idle time between two `step` ranges. Taking a batch that is ready costs some 0.1 ms and stays
below the floor. Where the recorder timed steps without the profiler, their wait for the input counts instead, if the
workers' own seconds per batch say that they fall behind: a few recorded steps may live on batches that were ready,
and the step that a used-up queue leads to is as long as the workers take for a batch. Where the recorder timed the
workers, the stages of a batch, the workers it needs and what a cheaper
stage could win are read off their times. At least two steps must have starved: one late batch among many is an
accident, not a rate.

## Does not apply when
The recording has neither loader ranges nor step ranges. Waiting inside validation belongs to TA801, waiting for an
epoch's first batch to TA104.

## How to fix
More workers while cores are free; else cheaper batches: smaller source images, a faster decoder, data cached in
memory or in one memory-mapped file (LMDB), decoding on the GPU. More workers do not help a disk that is the limit.

## Limits and false positives
The recording of the main process does not say whether workers wait for the disk or compute. Between two nsys step
ranges other work of the loop cannot be told from waiting.

## References
torch.utils.data, "Multi-process data loading"; Ultralytics settings `workers` and `cache`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import JudgedSteps, bound, idle_total, judged_steps
from traceanalyzer.replay.timed import input_price
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy, floor_ns
from traceanalyzer.rules.batch_cost import batch_cost
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.rules.supply import epoch_starts, has_loader, loader_wait
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA102",
    slug="loader-too-slow",
    kind=FindingKind.FAULT,
    category="input",
    fail_title="The loader's workers do not keep up with the device",
    pass_title="The loader's workers keep up",
    remedy=Remedy(
        settings=("DataLoader(num_workers=…)", "Ultralytics: workers, cache"),
        before="""
        loader = DataLoader(dataset, 16, num_workers=2)
        # Ultralytics: model.train(data="data.yaml", workers=2)
        """,
        after="""
        loader = DataLoader(dataset, 16, num_workers=$workers_needed, pin_memory=True, persistent_workers=True)
        # Ultralytics: model.train(data="data.yaml", workers=$workers_needed, cache="disk")
        """,
        yolo=("--workers=$workers_needed",),
        stand_ins={"workers_needed": 8},
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # one late batch says nothing about how fast the workers are
    min_starved_steps: int = 2


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not has_loader(measures):
        return not_applicable(META, measures, thresholds, "loader ranges (DataLoader `next`) or step ranges")
    if (settled := _by_timers(measures, judged, thresholds)) is not None:
        return settled
    wait = loader_wait(measures, judged)
    idle = measures.idle
    # with one batch an epoch or none known, every step is as good as another
    first = epoch_starts(measures)
    mask = wait.workers & ~first[np.maximum(idle.window, 0)] if np.any(judged.is_judged & ~first) else wait.workers
    lost = idle_total(measures, mask)
    if not lost:
        return passed(META, measures, thresholds, "The device never waited for loader workers.", judged=judged)
    per_step = judged.per_step(lost)
    starved = int(np.count_nonzero(idle.per_window(mask, len(measures.steps)) >= floor_ns(judged.mean_step_ns)))
    if starved < min(thresholds.min_starved_steps, judged.count):
        message = f"Only {starved} of {judged.count} steps waited for a batch: {format_ns(lost)} in all."
        return passed(META, measures, thresholds, message, judged=judged, observed={"input_wait_per_step_ns": per_step})
    processes = measures.input.worker_processes
    evidence, count = idle_evidence(measures, mask, lambda _: "device idle while the loop waits for a batch")
    # the wait itself is what the workers lack, so the step without it is what they have to keep up with
    cost = batch_cost(measures, max(judged.mean_step_ns - lost / judged.count, 1.0))
    fix = cost.fix or [
        "Raise num_workers (Ultralytics: workers) while cores are free, up to three quarters of them.",
        "Make a batch cheaper: store images near training size, cache decoded data (Ultralytics: cache=ram or disk), "
        "pack small files into LMDB or another memory-mapped file, decode on the GPU.",
        "If storage is the limit, more workers will not help: copy the data to a local disk first.",
    ]
    if wait.is_guessed:
        fix.insert(0, "The recording does not show worker processes: if num_workers is 0, set it first.")
    place = "between two step ranges" if wait.is_between_steps else "in the loader's `next`"
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            f"The device is idle {format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)}) {place}, waiting for a batch, in {starved} of "
            f"{judged.count} steps.{cost.message}"
        ),
        observed={
            "input_wait_per_step_ns": per_step,
            "starved_steps": starved,
            "steps": judged.count,
            "worker_processes": processes,
            **cost.observed,
        },
        evidence=evidence,
        evidence_count=count,
        fix=fix,
        confidence=0.5 if wait.is_guessed else 0.7 if wait.is_between_steps else 0.9,
    )
    quiet = f"Waiting for loader workers leaves the device idle only {format_ns(per_step)} per step."
    return decide(META, measures, thresholds, judged, case, quiet)


def _by_timers(measures: Measures, judged: JudgedSteps, thresholds: Thresholds) -> Finding | None:
    """Judge by the steps timed without the profiler where the recorded ones hardly waited; None to judge the latter."""
    times, price = measures.unprofiled, input_price(measures, META.code)
    recorded = judged.per_step(idle_total(measures, loader_wait(measures, judged).workers))
    if times is None or price is None or recorded >= (price.saving.likely or 0) / 2:
        return None
    starved = int(np.count_nonzero(times.wait_ns >= floor_ns(times.step_ns)))
    if starved < thresholds.min_starved_steps:
        return None
    cost = batch_cost(measures, times.mean_rest_ns)
    case = Case(
        saving=price.saving,
        unprofiled_step_ns=float(price.step_ns),
        message=(
            f"The recorded steps lived on batches that were ready ({format_ns(recorded)} of waiting per step). "
            f"{price.said}{cost.message}"
        ),
        observed={
            "input_wait_per_step_ns": round(times.mean_wait_ns),
            "recorded_wait_per_step_ns": recorded,
            "starved_steps": starved,
            "steps": times.steps,
            **cost.observed,
        },
        fix=cost.fix,
        confidence=0.9,
    )
    return decide(META, measures, thresholds, judged, case, "Loader workers keep up in the steps without the profiler.")
