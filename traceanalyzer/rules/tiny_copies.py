"""Hundreds of small copies per step, each with a launch of its own.

## Detects
A large number of host-to-device copies of at most 64 KiB per step whose preparation leaves the device idle.

## Why it matters
A small copy costs the host as much as a large one: an operator, a call, often a wait. Targets sent one by one are the
usual source.

## How it is measured
Idle time that ends with such a copy and was caused by the host preparing it, mean over the judged steps, where there
are at least a hundred such copies per step.

## Does not apply when
The recording holds no host-to-device copies with sizes.

## How to fix
Collect the values into one tensor on the host and copy that once.

## Limits and false positives
Waiting for small copies is TA302; only preparing them is counted here.

## References
CUDA best practices guide, "Data transfer between host and device".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import among
from traceanalyzer.replay.bounds import judged_idle, judged_steps
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import Cause, FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.outcome import NO_DEVICE, not_applicable, passed
from traceanalyzer.rules.stalls import judge_stall
from traceanalyzer.rules.transfers import uploads
from traceanalyzer.units import format_count

META = Meta(
    code="TA304",
    slug="tiny-copies",
    kind=FindingKind.FAULT,
    category="copy",
    fail_title="Hundreds of small copies per step",
    pass_title="Small copies cost no device time",
    remedy=Remedy(
        settings=("one torch.tensor for all values",),
        before="""
        boxes = [torch.tensor(box, device="cuda") for box in boxes]  # one copy per box
        """,
        after="""
        boxes = torch.tensor(boxes, device="cuda").unbind()  # one copy for all
        """,
    ),
)

_PREPARING = (Cause.OPERATOR_DISPATCH, Cause.PYTHON, Cause.LAUNCH_CALL, Cause.COPY_CALL, Cause.LAUNCH_LATENCY)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # "small": below it a copy takes longer to launch than to run on any current link
    max_bytes: int = 65_536
    # "hundreds"; a usual detection step copies a dozen small tensors
    min_copies_per_step: int = 100


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    copies, idle = measures.copies, measures.idle
    sent = uploads(measures, judged) & (copies.size_bytes >= 0)
    if not np.any(sent):
        return not_applicable(META, measures, thresholds, "host-to-device copies with their sizes")
    small = sent & (copies.size_bytes <= thresholds.max_bytes)
    per_step = int(np.count_nonzero(small)) / judged.count
    observed: dict[str, Scalar] = {"small_copies_per_step": round(per_step, 2)}
    if per_step < thresholds.min_copies_per_step:
        message = f"{format_count(per_step)} small host-to-device copies per step."
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    observed["median_bytes"] = round(float(np.median(copies.size_bytes[small])))
    mask = judged_idle(measures, judged) & among(idle.activity, copies.activity[small])
    mask &= idle.mask(*_PREPARING)
    fix = [
        f"Collect the {per_step:.0f} small tensors into one on the host and copy it once, then split it on the device.",
        "Create constants on the device instead of copying them in every step.",
    ]
    during = f"the host prepares {per_step:.0f} small copies"
    return judge_stall(META, measures, thresholds, judged, mask, during, fix, observed)
