"""The loader delivers in bursts: full speed for some steps, then the queue runs dry, in a rhythm.

## Detects
Steps that alternate between batches that are ready and batches that are late, at even distances, although the workers
together make batches fast enough on average.

## Why it matters
Worker processes hand out batches in a fixed order. One slow batch holds back the finished ones behind it, and a queue
too short to bridge it runs dry every time. More workers hardly help; a longer queue does.

## How it is measured
Idle time waiting for worker processes, by step. A step starves when its wait exceeds the floor; the stretches of
starved steps must begin at distances that differ by at most one step. Where the recorder timed the workers, their mean
time per batch divided by their number must be below the step without its waits: else they are too slow on average
(TA102). Where it did not, a rhythm of exactly one stretch per round of workers says the same.

## Does not apply when
The recording has no loader or step ranges, or fewer than 8 steps.

## How to fix
Raise `prefetch_factor`, so that the queue outlasts the slow batch; make batches equally expensive (sort or cache the
large images, move rare heavy work out of the loader).

## Limits and false positives
A rhythm needs three stretches to be seen. Two kinds of images in turn make a rhythm by design.

## References
torch.utils.data, "Multi-process data loading", `prefetch_factor`; batches are returned in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray, IntArray
from traceanalyzer.replay.bounds import bound, judged_steps
from traceanalyzer.results.finding import Episode, Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy, floor_ns
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.rules.settings import setting
from traceanalyzer.rules.supply import epoch_starts, has_loader, loader_wait
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA103",
    slug="input-bursts",
    kind=FindingKind.FAULT,
    category="input",
    fail_title="The loader delivers in bursts and the device starves between them",
    pass_title="Batches arrive evenly, or no rhythm is seen",
    remedy=Remedy(
        settings=("DataLoader(prefetch_factor=…)",),
        before="""
        loader = DataLoader(dataset, batch_size=16, num_workers=8)
        """,
        after="""
        loader = DataLoader(dataset, batch_size=16, num_workers=8, prefetch_factor=8)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # three stretches of starved steps need at least this many steps around them
    min_steps: int = 8
    # two distances between stretches can be equal by chance; fewer say nothing
    min_stretches: int = 3
    # a loader that starves more steps than not is too slow, not uneven
    max_starved_share: float = 0.5


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not has_loader(measures):
        return not_applicable(META, measures, thresholds, "loader ranges (DataLoader `next`) or step ranges")
    if judged.count < thresholds.min_steps:
        return not_applicable(
            META, measures, thresholds, f"{thresholds.min_steps} steady steps (it has {judged.count})"
        )
    idle = measures.idle
    mask = loader_wait(measures, judged).workers & ~epoch_starts(measures)[np.maximum(idle.window, 0)]
    waits = idle.per_window(mask, len(measures.steps))[judged.is_judged]
    starved = waits >= floor_ns(judged.mean_step_ns)
    begins = np.flatnonzero(starved & ~np.concatenate([[False], starved[:-1]]))
    lost = int(waits.sum())
    workers = measures.input.worker_processes or setting(measures, "workers")
    supply_ns = _supply_ns(measures, workers)
    rest_ns = max(judged.mean_step_ns - lost / judged.count, 1.0)
    observed: dict[str, Scalar] = {
        "input_wait_per_step_ns": judged.per_step(lost),
        "starved_steps": int(starved.sum()),
        "steps": judged.count,
        "workers": workers,
        "prefetch_factor": setting(measures, "prefetch_factor"),
        "worker_time_per_batch_and_worker_ns": None if supply_ns is None else round(supply_ns),
        "step_without_waiting_ns": round(rest_ns),
    }
    reason = _no_rhythm(starved, begins, thresholds)
    period = int(np.median(np.diff(begins))) if not reason else 0
    if not reason and supply_ns is not None and supply_ns > rest_ns:
        reason = "the workers are too slow on average, which is TA102"
    if not reason and supply_ns is None and workers and period == workers:
        reason = "one starved stretch per round of workers means that they are too slow on average, which is TA102"
    if reason:
        return passed(META, measures, thresholds, f"No bursts: {reason}.", judged=judged, observed=observed)
    length = float(starved.sum()) / len(begins)
    observed |= {"period_steps": period, "starved_steps_in_a_row": round(length, 2)}
    evidence, count = idle_evidence(measures, mask, lambda _: "device idle while the loop waits for a late batch")
    each = round(lost / len(begins))
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            f"Every {period} steps the queue of batches runs dry: {len(begins)} times in {judged.count} steps the "
            f"device waits {format_ns(each)}, {format_ns(judged.per_step(lost))} per step on average "
            f"({format_share(judged.per_step(lost), judged.mean_step_ns)}); in between batches are ready."
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=count,
        fix=[
            f"Raise prefetch_factor until the queue outlasts {format_ns(each)} of lateness: about "
            f"{max(1, round(each / rest_ns + 0.5))} more batches ready.",
            "Make batches equally expensive: find what every late batch has in common (large images, one slow file).",
        ],
        confidence=0.8 if supply_ns is not None else 0.6,
        episode=Episode(ns=each, per_1000_steps=round(1000 * len(begins) / judged.count, 3)),
    )
    quiet = f"The bursts leave the device idle only {format_ns(judged.per_step(lost))} per step."
    return decide(META, measures, thresholds, judged, case, quiet)


def _no_rhythm(starved: BoolArray, begins: IntArray, thresholds: Thresholds) -> str:
    """Say why the starved steps are no rhythm; empty where they are one."""
    if len(begins) < thresholds.min_stretches:
        return f"the loader was late {len(begins)} times"
    if float(starved.mean()) > thresholds.max_starved_share:
        return f"{int(starved.sum())} of {len(starved)} steps starve"
    distances = np.diff(begins)
    if int(distances.max() - distances.min()) > 1:
        return f"late batches come after {int(distances.min())} to {int(distances.max())} steps, in no rhythm"
    return ""


def _supply_ns(measures: Measures, workers: int | None) -> float | None:
    """Mean time between two batches of all workers together, ns; None where it was not timed."""
    stages = measures.worker_stages
    return stages.batch_ns / workers if stages is not None and workers else None
