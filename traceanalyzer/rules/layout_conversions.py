"""Tensors are converted between memory layouts over and over, and the device has better things to do.

## Detects
Kernels that only turn one tensor layout into another (NCHW and NHWC), where the next kernel was waiting for them.

## Why it matters
Convolutions on tensor cores want channels last. Fed with the other layout, the library converts before and after each
of them: memory traffic that computes nothing.

## How it is measured
Time of such kernels, known by name, in the judged steps, as far as the following kernel had already been launched when
they ended. Where the device waits for the host anyway, leaving them out wins nothing.

## Does not apply when
There is no GPU activity.

## How to fix
`model.to(memory_format=torch.channels_last)` and the same for the input batch; keep every operator in between able to
carry that layout.

## Limits and false positives
Conversions that fp32 kernels without tensor cores ask for are folded under TA601. Plain `copy_` kernels that permute
dimensions have no telling name and are not counted.

## References
PyTorch tutorial, "Channels Last Memory Format in PyTorch".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.kernel_names import Precision
from traceanalyzer.measures.kernels import PRECISIONS
from traceanalyzer.replay.bounds import bound, judged_steps
from traceanalyzer.results.finding import Evidence, Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.critical import is_waited_for
from traceanalyzer.rules.evidence import longest
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA603",
    slug="layout-conversions",
    kind=FindingKind.FAULT,
    category="compute",
    fail_title="The device keeps converting tensor layouts",
    pass_title="No time is lost to layout conversions",
    remedy=Remedy(
        settings=("memory_format=torch.channels_last",),
        before="""
        model = model.to("cuda")
        images = images.to("cuda", non_blocking=True)
        """,
        after="""
        model = model.to("cuda", memory_format=torch.channels_last)
        images = images.to("cuda", non_blocking=True, memory_format=torch.channels_last)
        """,
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
    kernels = measures.kernels
    mine = judged.holds(kernels.window) & (kernels.device == judged.device_id)
    converting = mine & (kernels.is_layout_conversion == 1)
    time_ns = int(kernels.duration_ns[converting].sum())
    if not time_ns:
        return passed(META, measures, thresholds, "No kernel converts between tensor layouts.", judged=judged)
    in_fp32 = converting & (kernels.precision == PRECISIONS.index(Precision.FP32))
    critical = np.flatnonzero(converting & is_waited_for(measures, judged.device_id))
    waited = int(kernels.duration_ns[critical].sum())
    all_ns = int(kernels.duration_ns[mine].sum())
    families: Counter[str] = Counter()
    for row in critical.tolist():
        families[kernels.families[int(kernels.family[row])]] += int(kernels.duration_ns[row])
    observed: dict[str, Scalar] = {
        "conversion_time_per_step_ns": judged.per_step(time_ns),
        "waited_for_per_step_ns": judged.per_step(waited),
        "share_of_kernel_time": round(time_ns / all_ns, 4),
        "fp32_share": round(int(kernels.duration_ns[in_fp32].sum()) / time_ns, 4),
        "conversions_per_step": round(int(np.count_nonzero(converting)) / judged.count, 1),
        "steps": judged.count,
    }
    starts = measures.facts.activity_starts(kernels.activity[critical])
    evidence = [
        Evidence(
            start_ns=int(starts[at]),
            end_ns=int(starts[at] + kernels.duration_ns[critical[at]]),
            stream=measures.facts.stream(int(kernels.activity[critical[at]])),
            what=measures.facts.activity_name(int(kernels.activity[critical[at]])),
        )
        for at in longest(kernels.duration_ns[critical])
    ]
    named = ", ".join(f"{name} {format_ns(judged.per_step(ns))}" for name, ns in families.most_common(2))
    case = Case(
        saving=bound(judged, likely_ns=waited),
        message=(
            f"{observed['conversions_per_step']} kernels per step only convert tensor layouts: "
            f"{format_ns(judged.per_step(time_ns))} ({format_share(time_ns, all_ns)} of kernel time); for "
            f"{format_ns(judged.per_step(waited))} of the {format_ns(judged.mean_step_ns)} step the next kernel was "
            f"waiting for them ({named})."
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=len(critical),
        fix=[
            "Keep model and input in channels last: model.to(memory_format=torch.channels_last), and the batch alike.",
            "Find the operator that falls back to the other layout: conversions surround it on the timeline.",
        ],
        confidence=0.8,
    )
    quiet = (
        f"Layout conversions take {format_ns(judged.per_step(time_ns))} per step, and the device waits for only "
        f"{format_ns(judged.per_step(waited))} of it."
    )
    return decide(META, measures, thresholds, judged, case, quiet)
