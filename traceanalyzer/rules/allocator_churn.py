"""Device memory is taken from and given back to the driver in steady steps.

## Detects
Driver allocations and frees (`cudaMalloc`, `cudaFree`, `cuMemMap` …) in steady steps that leave the device idle.

## Why it matters
The caching allocator should serve every step after the first few from memory it already holds. A driver allocation
costs hundreds of microseconds and a free waits for the device.

## How it is measured
Idle time inside these calls, mean over the judged steps. The upper limit is the whole time of the calls.

## Does not apply when
The recording holds no runtime calls. Where the cache is emptied in the loop (TA402) the same calls are counted there.

## How to fix
Keep shapes stable, reuse buffers, or set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

## Limits and false positives
A recording that starts with the first steps shows the cache being filled, which happens once.

## References
PyTorch, "CUDA semantics, memory management".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import CallKind
from traceanalyzer.replay.bounds import bound, idle_total, judged_idle, judged_steps
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import CAUSE_CODE, Cause, FindingKind
from traceanalyzer.rules import cache_emptied
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import idle_evidence, where
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_count, format_ns, format_share

META = Meta(
    code="TA401",
    slug="allocator-churn",
    kind=FindingKind.FAULT,
    category="memory",
    fail_title="Steady steps take memory from the driver",
    pass_title="Steady steps are served from cached memory",
    remedy=Remedy(
        settings=("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",),
        before="""
        import torch
        """,
        after="""
        import os

        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before torch is imported

        import torch
        """,
        record=("--memory",),
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with: only the floor."""


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.launches.report.count:
        return not_applicable(META, measures, thresholds, "runtime calls (CUDA API rows)")
    alloc, idle = measures.allocator, measures.idle
    kinds = [CallKind.DEVICE_FREE, CallKind.DEVICE_MALLOC]
    rows = judged.holds(alloc.window) & np.isin(alloc.kind, kinds)
    calls, call_ns = int(np.count_nonzero(rows)), int((alloc.end_ns - alloc.start_ns)[rows].sum())
    mask = judged_idle(measures, judged) & (idle.cause == CAUSE_CODE[Cause.ALLOCATOR])
    mask[mask] = np.isin(measures.facts.call_kinds(idle.call_row[mask].astype(np.int64)), kinds)
    lost = idle_total(measures, mask)
    per_step = judged.per_step(lost)
    names = Counter(measures.facts.call_name(int(row)) for row in alloc.call[rows])
    observed: dict[str, Scalar] = {
        "calls_per_step": round(calls / judged.count, 2),
        "call_time_per_step_ns": judged.per_step(call_ns),
        "idle_per_step_ns": per_step,
        "steps": judged.count,
    }
    observed |= {f"{name}_calls": count for name, count in names.most_common(4)}
    settings = cache_emptied.Thresholds()
    if cache_emptied.is_emptied(measures, judged, cache_emptied.find_bursts(measures, settings), settings):
        message = "The driver calls of these steps come from an emptied cache and are counted under TA402."
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    evidence, count = idle_evidence(measures, mask)
    places = Counter(
        where(measures, int(idle.thread[row]), int(idle.start_ns[row])) or "" for row in np.flatnonzero(mask)[:1000]
    )
    place = next((name for name, _ in places.most_common(1) if name), "")
    case = Case(
        saving=bound(judged, likely_ns=lost, high_ns=max(lost, call_ns)),
        message=(
            f"{format_count(calls / judged.count)} driver allocations and frees per step "
            f"({', '.join(f'{count} {name}' for name, count in names.most_common(2))}) leave the device idle "
            f"{format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)}){f', most often at {place}' if place else ''}."
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=count,
        fix=[
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
            "Keep tensor shapes the same from step to step and reuse large buffers.",
        ],
    )
    quiet = f"Driver allocations leave the device idle only {format_ns(per_step)} per step."
    return decide(META, measures, thresholds, judged, case, quiet)
