"""Kernels wait for input copies that could have run beside earlier kernels.

## Detects
Asynchronous host-to-device copies that run while no kernel does, when the next kernel had been launched already.

## Why it matters
On one stream a copy and the kernels after it run one after the other. On a stream of its own, one batch ahead, the copy
disappears behind the previous step's kernels.

## How it is measured
For each copy the time between the later of its start and the launch of the next kernel, and its end: only that long
did the device lack nothing but the data. A copy during which the host was still preparing the kernel costs nothing.

## Does not apply when
The recording holds no host-to-device copies with their calls. Copies that hold the host are TA301 and TA302.

## How to fix
Copy the next batch on a side stream from pinned memory while the current one is computed (a prefetcher).

## Limits and false positives
The copy engine shares memory bandwidth with kernels, so hidden copies slow them a little.

## References
PyTorch tutorial "A guide on good usage of non_blocking and pin_memory()"; torch.cuda.Stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import IntArray
from traceanalyzer.replay.bounds import bound, judged_steps
from traceanalyzer.results.finding import Evidence, Finding
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import longest
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.rules.transfers import blocking_uploads, uploads
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA303",
    slug="exposed-h2d-copies",
    kind=FindingKind.FAULT,
    category="copy",
    fail_title="Kernels wait for input copies",
    pass_title="Input copies hold no kernel up",
    remedy=Remedy(
        settings=("torch.cuda.Stream",),
        before="""
        for images in loader:
            images = images.to("cuda", non_blocking=True)
            train_step(images)
        """,
        after='''
        def prefetched(loader):
            """Copy the next batch on a stream of its own while the current one is computed."""
            aside = torch.cuda.Stream()
            ready = None
            for images in loader:
                with torch.cuda.stream(aside):
                    coming = images.to("cuda", non_blocking=True)
                if ready is not None:
                    yield ready
                torch.cuda.current_stream().wait_stream(aside)
                coming.record_stream(torch.cuda.current_stream())
                ready = coming
            if ready is not None:
                yield ready


        for images in prefetched(loader):
            train_step(images)
        ''',
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
    copies = measures.copies
    sent = uploads(measures, judged) & (copies.call >= 0)
    if not np.any(sent):
        return not_applicable(META, measures, thresholds, "host-to-device copies with the calls that issued them")
    free = sent.copy()
    free[blocking_uploads(measures, judged, sent).row] = False
    rows = np.flatnonzero(free)
    exposed = (copies.end_ns - copies.start_ns - copies.overlapped_ns)[rows]
    if not int(exposed.sum()):
        message = "Every asynchronous host-to-device copy runs beside kernels."
        return passed(META, measures, thresholds, message, judged=judged)
    held = np.minimum(_held_ns(measures, judged.device_id, copies.start_ns[rows], copies.end_ns[rows]), exposed)
    lost = int(held.sum())
    per_step = judged.per_step(lost)
    time_ns = int((copies.end_ns - copies.start_ns)[rows].sum())
    costly = rows[held > 0]
    evidence = [
        Evidence(
            start_ns=int(copies.start_ns[costly[at]]),
            end_ns=int(copies.end_ns[costly[at]]),
            stream=measures.facts.stream(int(copies.activity[costly[at]])),
            what="kernels wait for this copy",
        )
        for at in longest(held[held > 0])
    ]
    case = Case(
        saving=bound(judged, likely_ns=lost, high_ns=max(lost, int(exposed.sum()))),
        message=(
            f"{format_share(int(exposed.sum()), time_ns)} of the time of asynchronous host-to-device copies lies "
            f"outside kernels, and for {format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)}) the next kernel was launched and waited for nothing else."
        ),
        observed={
            "copies": len(rows),
            "exposed_per_step_ns": judged.per_step(int(exposed.sum())),
            "held_per_step_ns": per_step,
            "steps": judged.count,
        },
        evidence=evidence,
        evidence_count=len(costly),
        fix=["Copy the next batch on a stream of its own while the current one is computed (a prefetcher)."],
        confidence=0.8,
    )
    quiet = f"Kernels wait for input copies only {format_ns(per_step)} per step."
    return decide(META, measures, thresholds, judged, case, quiet)


def _held_ns(measures: Measures, device_id: int, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """How long each copy alone held the next kernel of its device up, ns."""
    kernels, launches = measures.kernels, measures.launches
    mine = kernels.activity[kernels.device == device_id]
    kernel_start = measures.facts.activity_starts(mine)
    launched = np.full(measures.facts.activity_count, np.iinfo(np.int64).max, dtype=np.int64)
    launched[launches.activity] = launches.call_end_ns
    following = np.searchsorted(kernel_start, end_ns, side="left")
    exists = following < len(mine)
    ready = np.full(len(end_ns), np.iinfo(np.int64).max, dtype=np.int64)
    ready[exists] = launched[mine[following[exists]]]
    return np.maximum(end_ns - np.minimum(np.maximum(ready, start_ns), end_ns), 0)
