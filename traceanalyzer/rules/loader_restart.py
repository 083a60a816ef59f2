"""The loader starts its workers again at an epoch's edge, and the device waits for the first batch.

## Detects
Device idle time waiting for worker processes in the first step of an epoch, beyond what a usual step waits.

## Why it matters
A DataLoader ends its workers with the epoch unless told otherwise. Starting processes, importing libraries and filling
the queue takes seconds, every epoch.

## How it is measured
Waiting for loader workers in the steps that take an epoch's first batch, less the mean wait of the other steps, mean
over both. Those steps are known from the recorder's number of batches per epoch, or from a loader that is asked once
more. What Python does outside every phase just before them (ending and starting processes) is the upper end.

## Does not apply when
The recording has no loader ranges, or no step at an epoch's edge.

## How to fix
`persistent_workers=True`.

## Limits and false positives
Ultralytics' own loader keeps its workers alive, so there the wait has another reason (for instance a dataset that is
rebuilt). Validation and checkpoints in the same step are not counted.

## References
torch.utils.data.DataLoader, `persistent_workers`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import among
from traceanalyzer.replay.bounds import bound, judged_idle, judged_steps
from traceanalyzer.results.finding import Episode, Finding
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable
from traceanalyzer.rules.supply import before_epoch, epoch_starts, loader_wait
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA104",
    slug="loader-restart",
    kind=FindingKind.FAULT,
    category="input",
    fail_title="The loader starts again at every epoch",
    pass_title="An epoch's edge does not wait for the loader",
    remedy=Remedy(
        settings=("DataLoader(persistent_workers=True)",),
        before="""
        loader = DataLoader(dataset, batch_size=16, num_workers=8)
        for epoch in range(epochs):
            for batch in loader:  # starts eight processes every time
                train_step(batch)
        """,
        after="""
        loader = DataLoader(dataset, batch_size=16, num_workers=8, persistent_workers=True)
        for epoch in range(epochs):
            for batch in loader:
                train_step(batch)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with: only the floor."""


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures, with_episodes=True)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not len(measures.input.start_ns):
        return not_applicable(META, measures, thresholds, "loader ranges (DataLoader `next`)")
    is_edge = epoch_starts(measures) & judged.is_judged
    edges, steady = np.flatnonzero(is_edge), np.flatnonzero(judged.is_judged & ~is_edge)
    if not len(edges):
        return not_applicable(META, measures, thresholds, "a step at an epoch's edge")
    idle = measures.idle
    mask = loader_wait(measures, judged).workers
    waited = idle.per_window(mask, len(measures.steps))
    usual = float(waited[steady].mean()) if len(steady) else 0.0
    lost = float(np.maximum(waited[edges] - usual, 0).sum())
    times = int(np.count_nonzero(waited[edges] > usual))
    per_step, each = judged.per_step(lost), round(lost / times) if times else 0
    turning = idle.per_window(judged_idle(measures, judged) & before_epoch(measures), len(measures.steps))
    lead = float(turning.sum()) if times else 0.0
    evidence, count = idle_evidence(
        measures, mask & among(idle.window, edges), lambda _: "device idle until the first batch arrives"
    )
    before = (
        f" Python works {format_ns(lead / times)} outside every phase before each of them, as it does to end and start "
        "workers."
        if lead
        else ""
    )
    case = Case(
        saving=bound(judged, likely_ns=lost, high_ns=lost + lead),
        message=(
            f"At an epoch's edge the device waits {format_ns(each)} longer for its batch than usual, {times} "
            f"time{'s' if times != 1 else ''} in {judged.count} steps: {format_ns(per_step)} per step on average "
            f"({format_share(per_step, judged.mean_step_ns)}).{before}"
        ),
        observed={
            "wait_each_time_ns": each,
            "usual_wait_ns": round(usual),
            "times": times,
            "python_before_each_ns": round(lead / times) if times else 0,
            "idle_per_step_ns": per_step,
            "steps": judged.count,
        },
        evidence=evidence,
        evidence_count=count,
        fix=[
            "Set persistent_workers=True in the DataLoader.",
            "With Ultralytics' loader, which keeps its workers: look for a dataset or loader rebuilt at each epoch.",
        ],
        confidence=0.8,
        episode=Episode(ns=each, per_1000_steps=round(1000 * times / judged.count, 3)),
    )
    quiet = f"An epoch's edge waits only {format_ns(per_step)} per step longer for its batch."
    return decide(META, measures, thresholds, judged, case, quiet)
