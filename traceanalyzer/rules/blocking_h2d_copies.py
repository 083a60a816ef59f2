"""The host waits for copies from pinned memory that it could have left running.

## Detects
Host-to-device copies from pinned memory, or of at most 64 KiB, that are followed by a synchronisation or issued by a
call that is not asynchronous, where letting the host run on would win time.

## Why it matters
`tensor.to(device)` without `non_blocking=True` waits until the copy, and everything queued before it on that stream,
has finished. The host loses the lead it had over the device.

## How it is measured
As TA501: each such copy is taken out, everything after it is issued earlier, and the idle time caused by the host that
follows is won, up to the next wait that stays.

## Does not apply when
The recording holds no host-to-device copies with their calls. Large pageable copies are TA301.

## How to fix
`.to(device, non_blocking=True)` on pinned tensors.

## Limits and false positives
A loop that changes the host tensor right after the copy must wait for it. Values built on the host in every step
(`torch.tensor(x, device=…)`) copy and wait as well: create them on the device once.

## References
PyTorch tutorial "A guide on good usage of non_blocking and pin_memory()".
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
from traceanalyzer.rules.transfers import blocking_uploads, copy_evidence, uploads
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA302",
    slug="blocking-h2d-copies",
    kind=FindingKind.FAULT,
    category="copy",
    fail_title="The host waits for its input copies",
    pass_title="No time is lost to waiting for input copies",
    remedy=Remedy(
        settings=("Tensor.to(non_blocking=True)",),
        before="""
        for images, targets in loader:
            images = images.to("cuda")
            scale = torch.tensor([1.0, 0.5], device="cuda")  # made and copied in every step
        """,
        after="""
        scale = torch.tensor([1.0, 0.5], device="cuda")
        for images, targets in loader:
            images = images.to("cuda", non_blocking=True)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # CUDA runtime API: pageable copies up to 64 KB return before they have run, larger ones are TA301
    async_bytes: int = 65_536


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    copies = measures.copies
    sent = uploads(measures, judged) & (copies.call >= 0)
    if not np.any(sent):
        return not_applicable(META, measures, thresholds, "host-to-device copies with the calls that issued them")
    is_small = (copies.size_bytes >= 0) & (copies.size_bytes <= thresholds.async_bytes)
    found = blocking_uploads(measures, judged, sent & ((copies.host_memory != MemoryKind.PAGEABLE) | is_small))
    total = int(np.count_nonzero(sent))
    if not len(found.row):
        message = f"None of {total} host-to-device copies holds the host without need."
        return passed(META, measures, thresholds, message, judged=judged)
    won = int(found.won_ns.sum())
    per_step = judged.per_step(won)
    blocked = int((found.end_ns - found.start_ns).sum())
    evidence, places = copy_evidence(measures, found, "host waits for a copy it could have left running")
    case = Case(
        saving=bound(judged, likely_ns=won, low_ns=min(found.idle_ns, won)),
        message=(
            f"The host waits for {len(found.row)} of {total} host-to-device copies, "
            f"{format_ns(judged.per_step(blocked))} per step. Left running, they would win about "
            f"{format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)})."
        ),
        observed={
            "blocking_copies": len(found.row),
            "h2d_copies": total,
            "host_blocked_per_step_ns": judged.per_step(blocked),
            "won_per_step_ns": per_step,
            "steps": judged.count,
        },
        evidence=evidence,
        evidence_count=places,
        fix=[
            "Copy with .to(device, non_blocking=True): pinned or this small, the copy need not hold the host.",
            "Create constants on the device once instead of torch.tensor(…, device=…) in every step.",
        ],
        confidence=0.8,
    )
    quiet = f"The host waits for {len(found.row)} copies, but that costs only {format_ns(per_step)} per step."
    return decide(META, measures, thresholds, judged, case, quiet)
