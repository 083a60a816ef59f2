"""Much of the reserved memory lies idle in pieces while more is asked for.

## Detects
A large difference between reserved and active memory at the moment most memory is active, together with allocations
that fail, are tried again, or still take memory from the driver in steady steps.

## Why it matters
Free pieces that are too small for what is asked are lost until they can be joined: the program needs more memory than
it uses, and runs out of it early.

## How it is measured
(reserved − active) / reserved at the peak of active memory, from a memory snapshot; the largest free block against all
free memory from its final state. Growth is what was reserved between the first and the last event.

## Does not apply when
There is no memory snapshot.

## How to fix
Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, keep sizes stable (pad shapes to a few buckets), or forbid to
split large blocks with `max_split_size_mb`. `torch.cuda.empty_cache()` does not help.

## Limits and false positives
Reserved memory that nobody asks for costs nothing: without failing or growing allocations the rule is quiet. Sizes in
the history are those asked for, so active memory is understated by up to a percent.

## References
PyTorch, "CUDA semantics, memory management", `PYTORCH_CUDA_ALLOC_CONF`.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.memory import DeviceMemory
from traceanalyzer.results.vocabulary import FindingKind, Severity
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.memory import device_memory, moment
from traceanalyzer.rules.outcome import fails, not_applicable, passed
from traceanalyzer.units import format_bytes, format_share

META = Meta(
    code="TA404",
    slug="memory-fragmentation",
    kind=FindingKind.FAULT,
    category="memory",
    fail_title="Reserved memory lies in pieces that do not fit",
    pass_title="Reserved memory serves what is asked for",
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
    """Where memory counts as fragmented."""

    # twice the 6 to 14 % that YOLO11n with fixed shapes leaves at its peak on an H200
    fragmentation: float = 0.25
    # growth of reserved memory over the history that counts as still growing: above one 20 MiB large-pool segment
    growth_bytes: int = 32 << 20


_FIX = [
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts.",
    "Keep sizes stable: pad images and batches to a few shapes instead of a new one per step.",
    "Where neither is possible set max_split_size_mb; empty_cache() does not help.",
]


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    device = device_memory(measures)
    if device is None or device.fragmentation is None:
        return not_applicable(META, measures, thresholds, "a memory snapshot")
    growth = _growth(device)
    failing = (device.retries or 0) + device.ooms + (device.retries_since_start or 0) + (device.ooms_since_start or 0)
    observed: dict[str, Scalar] = {
        "fragmentation": round(device.fragmentation, 4),
        "peak_active_bytes": device.peak_active_bytes,
        "peak_reserved_bytes": device.peak_reserved_bytes,
        "reserved_growth_bytes": growth,
        "retries_and_errors": failing,
        "final_largest_free_bytes": device.final_largest_free_bytes,
        "final_free_bytes": device.final_reserved_bytes - device.final_active_bytes,
    }
    share = format_share(device.fragmentation, 1.0)
    in_pieces = [error for error in device.oom_events if error.fits_joined]
    if in_pieces:
        error = max(in_pieces, key=lambda one: one.free_bytes)
        largest = f", the largest of {format_bytes(error.largest_free_bytes)}" if error.largest_free_bytes else ""
        return fails(
            META,
            measures,
            thresholds,
            f"{len(in_pieces)} allocations failed that free memory in one piece would have served: "
            f"{format_bytes(error.asked_bytes)} were asked for by {error.where}, and {format_bytes(error.free_bytes)} "
            f"of the reserved {format_bytes(error.reserved_bytes)} were free in pieces{largest}.",
            severity=Severity.HIGH,
            observed=observed | {"failed_for_pieces": len(in_pieces)},
            evidence=[place for one in in_pieces for place in moment(one.time_ns, "an allocation failed", one.where)],
            fix=_FIX,
            device_id=device.device_id,
            confidence=0.9,
        )
    if device.fragmentation < thresholds.fragmentation:
        message = f"At the peak {share} of the reserved memory was free."
        return passed(META, measures, thresholds, message, observed=observed)
    if not failing and growth < thresholds.growth_bytes:
        message = f"At the peak {share} of the reserved memory was free, but nothing failed and no more was taken."
        return passed(META, measures, thresholds, message, observed=observed)
    idle = round(device.fragmentation * device.peak_reserved_bytes)
    why = f"{failing} allocations failed at first" if failing else f"{format_bytes(growth)} more were taken"
    free = device.final_reserved_bytes - device.final_active_bytes
    return fails(
        META,
        measures,
        thresholds,
        f"When most memory is active {format_bytes(idle)} of the reserved memory ({share}) is free in pieces, and yet "
        f"{why}. In the end {format_bytes(free)} are free; the largest piece has "
        f"{format_bytes(device.final_largest_free_bytes)}.",
        severity=Severity.HIGH if device.ooms else Severity.MEDIUM,
        observed=observed,
        evidence=moment(device.peak_time_ns, "most memory active"),
        fix=_FIX,
        device_id=device.device_id,
        confidence=0.8,
    )


def _growth(device: DeviceMemory) -> int:
    curve = device.curve
    if curve is None or not curve.reserved_bytes:
        return 0
    return max(curve.reserved_bytes) - curve.reserved_bytes[0]
