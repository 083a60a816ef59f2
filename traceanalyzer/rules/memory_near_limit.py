"""The allocator holds nearly all of the device's memory.

## Detects
Reserved memory above nine tenths of the device at its peak.

## Why it matters
Libraries (cuDNN and cuBLAS workspaces, NCCL) and the context need memory beside the allocator. Near the limit plans
that need a workspace are refused, allocations are tried again, and one larger batch ends in an out-of-memory error.

## How it is measured
Peak of reserved bytes, from allocator events or a memory snapshot, against the device's memory as the recording or the
recorder states it. What holds it comes from the call sites of a snapshot.

## Does not apply when
There are neither allocator events nor a snapshot, or nobody states how much memory the device has.

## How to fix
Smaller batch or image size, gradient accumulation, mixed precision, activation checkpointing.

## Limits and false positives
A program that fills the device on purpose and never fails is told so too; then ignore this code.

## References
PyTorch, "Understanding CUDA memory usage".
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind, Severity
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.memory import EVENTS, device_bytes, device_memory, moment
from traceanalyzer.rules.outcome import fails, not_applicable, passed
from traceanalyzer.units import format_bytes, format_share

META = Meta(
    code="TA405",
    slug="memory-near-limit",
    kind=FindingKind.FAULT,
    category="memory",
    fail_title="Nearly all of the device's memory is taken",
    pass_title="The device has memory to spare",
    remedy=Remedy(
        settings=("DataLoader(batch_size=…)", "torch.autocast", "Ultralytics: batch, amp"),
        before="""
        loss = criterion(model(images), targets)
        """,
        after="""
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), targets)
        """,
        record=("--memory",),
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where memory counts as nearly full."""

    # the catalogue's limit; a context and library workspaces take up to a few GB beside the allocator
    reserved_share: float = 0.90


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    device, report = device_memory(measures), measures.allocator.report
    reserved = max((device.peak_reserved_bytes if device else 0), report.peak_reserved_bytes or 0)
    if not reserved:
        return not_applicable(META, measures, thresholds, EVENTS)
    total = device_bytes(measures, device)
    if not total:
        return not_applicable(META, measures, thresholds, "the size of the device's memory, which nothing here states")
    share = reserved / total
    observed: dict[str, Scalar] = {
        "peak_reserved_bytes": reserved,
        "device_bytes": total,
        "reserved_share": round(share, 4),
    }
    phases = sorted(measures.memory_by_phase.items(), key=lambda item: -item[1])
    observed |= {f"peak_allocated_in_{phase}_bytes": size for phase, size in phases[:4]}
    text = f"At most {format_bytes(reserved)} of {format_bytes(total)} are reserved ({format_share(share, 1.0)})"
    if share <= thresholds.reserved_share:
        return passed(META, measures, thresholds, f"{text}.", observed=observed)
    holders = ""
    if device is not None and device.sites_at_peak:
        top = device.sites_at_peak[:3]
        holders = " Most of what is active then: " + ", ".join(
            f"{format_bytes(site.size_bytes)} from {site.where}" for site in top
        )
    if phases:
        holders += f" The most is allocated in the {phases[0][0]} phase ({format_bytes(phases[0][1])})"
    time, at = measures.allocator.curve, None
    if device is not None and device.peak_time_ns is not None:
        at = device.peak_time_ns
    elif time is not None and time.time_ns:
        at = time.time_ns[time.reserved_bytes.index(max(time.reserved_bytes))]
    failed = device is not None and bool(device.ooms or device.retries or device.retries_since_start)
    return fails(
        META,
        measures,
        thresholds,
        f"{text}.{holders}{'.' if holders else ''}",
        severity=Severity.MEDIUM if failed else Severity.LOW,
        observed=observed,
        evidence=moment(
            at, "most memory taken", device.sites_at_peak[0].where if device and device.sites_at_peak else None
        ),
        fix=[
            "Use a smaller batch or image size, or accumulate gradients over smaller batches.",
            "Use mixed precision, or recompute activations (torch.utils.checkpoint).",
        ],
        device_id=device.device_id if device else None,
    )
