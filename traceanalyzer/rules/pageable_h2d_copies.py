"""Input is copied to the device from pageable memory.

## Detects
Host-to-device copies from pageable memory that stop the host or run slower than pinned ones, where that time can be
won.

## Why it matters
A copy from pageable memory is staged through a driver buffer: the host has to stay until the data has been read, and
`non_blocking=True` has no effect.

## How it is measured
Each copy that stops the host is taken out as in TA501: everything after it would be issued earlier, which wins the idle
time caused by the host that follows, up to the next wait that stays. Added to that is the part of the copy time outside
kernels that pinned memory would save, by the bandwidth of pinned copies in the same recording; without such copies
only the upper end holds it.

## Does not apply when
The recording does not say which host memory its copies used, or holds no host-to-device copies.

## How to fix
`pin_memory=True` in the DataLoader (or `tensor.pin_memory()` where batches are built by hand), and
`non_blocking=True` in the copy; clone or convert a batch on the device, not before the copy.

## Limits and false positives
Copies up to 64 KiB are not counted: they are staged at once, and where the loop waits for them TA302 says so. On a
launch-bound step the gain was too small to measure in a controlled comparison: the low end is only the idle time
inside the calls.

## References
PyTorch tutorial "A guide on good usage of non_blocking and pin_memory()"; CUDA runtime API, "API synchronization
behavior".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import MemoryKind
from traceanalyzer.replay.bounds import bound, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.rules.transfers import bandwidth, blocking_uploads, copy_evidence, uploads
from traceanalyzer.units import format_bytes, format_count, format_ns, format_share

META = Meta(
    code="TA301",
    slug="pageable-h2d-copies",
    kind=FindingKind.FAULT,
    category="copy",
    fail_title="Input is copied from pageable memory",
    pass_title="No time is lost to copies from pageable memory",
    remedy=Remedy(
        settings=("DataLoader(pin_memory=True)", "Tensor.to(non_blocking=True)"),
        before="""
        loader = DataLoader(dataset, batch_size=16, num_workers=8)
        for images, targets in loader:
            images = images.to("cuda")
        """,
        after="""
        loader = DataLoader(dataset, batch_size=16, num_workers=8, pin_memory=True)
        for images, targets in loader:
            images = images.to("cuda", non_blocking=True)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # CUDA runtime API: pageable copies to the device up to 64 KB return before they have run
    async_bytes: int = 65_536
    # smaller pinned copies measure latency, not the link
    min_reference_bytes: int = 262_144


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    copies = measures.copies
    sent = uploads(measures, judged)
    if not np.any(sent):
        return not_applicable(META, measures, thresholds, "host-to-device copies in the judged steps")
    if np.all(copies.host_memory[sent] == MemoryKind.UNKNOWN):
        return not_applicable(META, measures, thresholds, "the host memory kind of its copies")
    pageable = sent & (copies.host_memory == MemoryKind.PAGEABLE)
    # small ones are staged at once: what can hold the host there is a synchronisation, which is TA302's business
    pageable &= (copies.size_bytes > thresholds.async_bytes) | (copies.size_bytes < 0)
    count, total = int(np.count_nonzero(pageable)), int(np.count_nonzero(sent))
    if not count:
        return passed(
            META, measures, thresholds, f"None of {total} host-to-device copies is pageable and large.", judged=judged
        )
    found = blocking_uploads(measures, judged, pageable)
    exposed = int((copies.end_ns - copies.start_ns - copies.overlapped_ns)[pageable].sum())
    reference = bandwidth(
        measures,
        (copies.host_memory == MemoryKind.PINNED)
        & (copies.direction == copies.direction[sent][0])
        & (copies.size_bytes >= thresholds.min_reference_bytes),
    )
    speed = bandwidth(measures, pageable)
    faster = 0.0
    if reference and speed and reference > speed:
        # an overlapped part of the gain may already be in the head start, so the larger of the two is counted
        faster = exposed * (1 - speed / reference)
    won = int(found.won_ns.sum())
    likely = max(won, faster)
    size = int(copies.size_bytes[pageable & (copies.size_bytes > 0)].sum())
    blocked = int((found.end_ns - found.start_ns).sum())
    evidence, places = copy_evidence(measures, found, "host waits for a copy from pageable memory")
    per_step = judged.per_step(likely)
    compared = f" (pinned copies here reach {format_count(reference / 1e9)} GB/s)" if reference else ""
    rate = f" at {format_count(speed / 1e9)} GB/s{compared}" if speed else ""
    case = Case(
        saving=bound(judged, likely_ns=likely, low_ns=min(found.idle_ns, likely), high_ns=max(likely, won + exposed)),
        message=(
            f"{count} of {total} host-to-device copies are large and come from pageable memory: "
            f"{format_bytes(size / judged.count)} per step{rate}. "
            f"They hold the host for {format_ns(judged.per_step(blocked))} per step; pinned and "
            f"asynchronous they would win about {format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)})."
        ),
        observed={
            "pageable_copies": count,
            "h2d_copies": total,
            "bytes_per_step": judged.per_step(size),
            "bytes_per_second": None if speed is None else round(speed),
            "pinned_bytes_per_second": None if reference is None else round(reference),
            "host_blocked_per_step_ns": judged.per_step(blocked),
            "exposed_per_step_ns": judged.per_step(exposed),
            "idle_inside_calls_per_step_ns": judged.per_step(found.idle_ns),
            "steps": judged.count,
        },
        evidence=evidence,
        evidence_count=places,
        fix=[
            "Set pin_memory=True in the DataLoader and copy with .to(device, non_blocking=True).",
            "Do not clone or convert a pinned batch on the host before the copy: that makes it pageable again.",
        ],
        confidence=0.8,
    )
    quiet = (
        f"{count} of {total} host-to-device copies are pageable, but that costs only {format_ns(per_step)} per step."
    )
    return decide(META, measures, thresholds, judged, case, quiet)
