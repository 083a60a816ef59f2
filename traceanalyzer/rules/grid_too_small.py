"""Kernels are too small to use the whole device.

## Detects
Most of the kernel time goes to kernels with fewer thread blocks than the device has multiprocessors.

## Why it matters
Each block runs on one multiprocessor. A kernel of twenty blocks leaves most of a large device unused for as long as it
runs: the device counts as busy but does little.

## How it is measured
Share of kernel time in such kernels in the judged steps; kernels launched inside validation, checkpoints and logging
are not counted. The upper limit of the saving is the part of the device they
leave unused, as if it could be filled.

## Does not apply when
The recording does not say how many multiprocessors the device has, or no kernel's grid.

## How to fix
A larger batch or larger images: as many kernels, each with more blocks. A smaller device would do as well.

## Limits and false positives
A block can fill a multiprocessor only with enough threads; occupancy within it is not judged.

## References
CUDA best practices guide, "Execution configuration optimizations".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import EPISODE_PHASES, ceiling, judged_steps
from traceanalyzer.results.finding import Evidence, Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.critical import issued_in
from traceanalyzer.rules.evidence import longest
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA602",
    slug="grid-too-small",
    kind=FindingKind.LIMITER,
    category="compute",
    fail_title="Kernels are too small for the device",
    pass_title="Most kernel time fills the device",
    remedy=Remedy(
        settings=("DataLoader(batch_size=…)", "Ultralytics: batch, imgsz"),
        before="""
        loader = DataLoader(dataset, batch_size=2)
        # Ultralytics: model.train(data="data.yaml", batch=2)
        """,
        after="""
        loader = DataLoader(dataset, batch_size=32)
        # Ultralytics: model.train(data="data.yaml", batch=32)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # most of the kernel time; 37 % for a detector at batch 16 on 132 multiprocessors, 70 % at batch 2
    min_share_of_kernel_time: float = 0.5


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    device = measures.facts.device(judged.device_id)
    if device is None or not device.multiprocessors:
        return not_applicable(META, measures, thresholds, "the device's number of multiprocessors")
    kernels = measures.kernels
    mine = judged.holds(kernels.window) & (kernels.device == judged.device_id) & (kernels.is_communication == 0)
    mine &= kernels.grid_blocks >= 0
    # a validation with small batches says nothing about the training step
    mine &= ~issued_in(measures, kernels.activity, EPISODE_PHASES)
    known = np.flatnonzero(mine)
    if not len(known):
        return not_applicable(META, measures, thresholds, "the kernels' grid sizes")
    blocks, time = kernels.grid_blocks[known], kernels.duration_ns[known]
    small = blocks < device.multiprocessors
    all_ns, small_ns = int(time.sum()), int(time[small].sum())
    share = small_ns / all_ns if all_ns else 0.0
    observed: dict[str, Scalar] = {
        "share_of_kernel_time": round(share, 4),
        "median_grid_blocks": round(float(np.median(blocks))),
        "multiprocessors": device.multiprocessors,
        "small_kernel_time_per_step_ns": judged.per_step(small_ns),
        "steps": judged.count,
    }
    if share < thresholds.min_share_of_kernel_time:
        message = f"{format_share(small_ns, all_ns)} of the kernel time leaves multiprocessors without a block."
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    unused = float((time[small] * (1 - blocks[small] / device.multiprocessors)).sum())
    rows = known[small]
    starts = measures.facts.activity_starts(kernels.activity[rows])
    evidence = [
        Evidence(
            start_ns=int(starts[at]),
            end_ns=int(starts[at] + kernels.duration_ns[rows[at]]),
            stream=measures.facts.stream(int(kernels.activity[rows[at]])),
            what=f"{int(kernels.grid_blocks[rows[at]])} blocks: "
            f"{measures.facts.activity_name(int(kernels.activity[rows[at]]))}",
        )
        for at in longest(kernels.duration_ns[rows])
    ]
    case = Case(
        saving=ceiling(judged, high_ns=unused),
        message=(
            f"{format_share(small_ns, all_ns)} of the kernel time is spent in kernels with fewer blocks than the "
            f"device's {device.multiprocessors} multiprocessors (median of all kernels {np.median(blocks):.0f} "
            f"blocks). They leave the equivalent of {format_ns(judged.per_step(unused))} per step of "
            "the whole device unused."
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=len(rows),
        fix=[
            "Raise the batch size (or image size): as many kernels, each with more blocks.",
            "Or run several trainings on one device, or a smaller device.",
        ],
        confidence=0.8,
    )
    quiet = f"Small kernels leave only {format_ns(judged.per_step(unused))} per step of the device unused."
    return decide(META, measures, thresholds, judged, case, quiet)
