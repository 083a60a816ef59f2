"""More memory is held at the start of every step than at the start of the one before.

## Detects
Allocated memory at the starts of steady steps that rises steadily.

## Why it matters
Whatever is kept from each step adds up until the device is full, often hours into a run. A kept loss keeps its whole
graph alive.

## How it is measured
Allocated bytes in force when each steady step starts, from allocator events or the history of a memory snapshot. Steps
a few apart are compared (gradient accumulation and a batch loaded ahead make levels take turns): nearly all have to
start higher, and by much the same. With a snapshot the call sites are named whose blocks outlived the next step.

## Does not apply when
There are neither allocator events nor a snapshot with history, or fewer than four steps start in them.

## How to fix
Detach what is kept (`loss.item()` or `loss.detach()`), clear lists of outputs, and keep logs on the host.

## Limits and false positives
Caches that fill during the first steps look the same; record after the warm-up. Images of growing size raise it too.

## References
PyTorch, "Frequently asked questions: my model reports cuda runtime error(2): out of memory".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import IntArray
from traceanalyzer.measures.steps import STEADY
from traceanalyzer.results.finding import Evidence, Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind, Severity
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import MOST
from traceanalyzer.rules.memory import EVENTS, device_bytes, device_memory
from traceanalyzer.rules.outcome import fails, not_applicable, passed
from traceanalyzer.units import format_bytes, format_share

META = Meta(
    code="TA406",
    slug="memory-creep",
    kind=FindingKind.FAULT,
    category="memory",
    fail_title="Every step keeps some memory",
    pass_title="Memory returns to the same level after each step",
    remedy=Remedy(
        settings=("Tensor.detach",),
        before="""
        history = []
        for images, targets in loader:
            loss = criterion(model(images), targets)
            history.append(loss)  # keeps the graph of every step
        """,
        after="""
        history = []
        for images, targets in loader:
            loss = criterion(model(images), targets)
            history.append(loss.detach())
        """,
        record=("--memory",),
    ),
)


_MOST_APART = 8


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What counts as creeping."""

    # fewer starts cannot tell a trend from a level that changed once
    steps: int = 4
    # allocator rounding and odd-sized batches move the level by less than this
    growth_per_step_bytes: int = 1 << 20
    # share of steps that start higher than the one they are compared with; levels without a trend give about a half
    rising_share: float = 0.8


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    at_step, start = _levels(measures)
    if not len(at_step):
        return not_applicable(META, measures, thresholds, EVENTS)
    if len(at_step) < thresholds.steps:
        missing = f"allocator events at the starts of {thresholds.steps} steady steps (here: {len(at_step)})"
        return not_applicable(META, measures, thresholds, missing)
    lag, slope, rising = _trend(at_step, thresholds)
    observed: dict[str, Scalar] = {
        "growth_per_step_bytes": round(slope),
        "rising_share": round(rising, 3),
        "compared_steps_apart": lag,
        "steps": len(at_step),
        "first_level_bytes": int(at_step[0]),
        "last_level_bytes": int(at_step[-1]),
    }
    if slope < thresholds.growth_per_step_bytes or rising < thresholds.rising_share:
        message = f"Over {len(at_step)} steps the level at their start moves by {format_bytes(slope)} per step."
        return passed(META, measures, thresholds, message, observed=observed)
    device = device_memory(measures, with_history=True)
    kept = device.growth[:3] if device is not None else []
    total, reserved = device_bytes(measures, device), measures.allocator.report.peak_reserved_bytes
    if reserved is None and device is not None:
        reserved = device.peak_reserved_bytes
    until = ""
    if total and reserved and total > reserved:
        observed["steps_until_full"] = int((total - reserved) / slope)
        until = f" At this rate the device is full after {observed['steps_until_full']:,} more steps."
    sites = "".join(f"; {format_bytes(s.size_bytes)} from {s.where}" for s in kept)
    named = f" Allocated in one of these steps and not let go in the next: {sites[2:]}." if kept else ""
    places = [
        Evidence(
            start_ns=int(start[i]),
            end_ns=int(start[i + lag]),
            what=f"{format_bytes(int(at_step[i + lag] - at_step[i]))} more at its end than at its start",
            where=kept[0].where if kept else None,
        )
        for i in np.flatnonzero(at_step[lag:] > at_step[:-lag]).tolist()
    ]
    return fails(
        META,
        measures,
        thresholds,
        f"Each step leaves {format_bytes(slope)} more allocated (steps {lag} apart: {format_share(rising, 1.0)} of "
        f"{len(at_step) - lag} start higher).{named}{until}",
        severity=Severity.MEDIUM,
        observed=observed,
        evidence=places[:MOST],
        evidence_count=len(places),
        fix=[
            "Find what is kept from each step: lists of losses or outputs, hooks, graphs kept with retain_graph=True.",
            "Keep numbers (loss.item(), seldom) or detached copies on the host (loss.detach().cpu()), not tensors.",
        ],
        device_id=device.device_id if device is not None else None,
        confidence=0.8,
    )


def _trend(level: IntArray, thresholds: Thresholds) -> tuple[int, float, float]:
    """Find how many steps apart levels rise evenly: that distance, the growth per step and the share that rises."""
    best = (1, 0.0, float((np.diff(level) > 0).mean()))
    for lag in range(1, min(len(level) // 2, _MOST_APART) + 1):
        change = level[lag:] - level[:-lag]
        slope, rising = float(np.median(change)) / lag, float((change > 0).mean())
        is_even = float(np.quantile(change, 0.1)) >= 0.5 * float(np.median(change))
        if is_even and slope >= thresholds.growth_per_step_bytes and rising >= thresholds.rising_share:
            return lag, slope, rising
        if lag == 1:
            best = (lag, slope, rising)
    return best


def _levels(measures: Measures) -> tuple[IntArray, IntArray]:
    """Allocated bytes at the start of each steady step, and those starts."""
    steps = measures.steps
    steady = steps.step_class == STEADY
    at_step = measures.allocator.allocated_at_step_start
    by_snapshot = measures.memory_at_step_start
    if np.count_nonzero(by_snapshot[steady] >= 0) > np.count_nonzero(at_step[steady] >= 0):
        at_step = by_snapshot
    chosen = steady & (at_step >= 0)
    return at_step[chosen], steps.start_ns[chosen]
