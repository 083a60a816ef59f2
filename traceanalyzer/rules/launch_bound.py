"""The device waits for the host to dispatch many short kernels.

## Detects
A step in which, once other waits are set aside, the device spends a large share of its time waiting for the host to
prepare and launch the next kernel.

## Why it matters
An eager framework needs several microseconds of host time per kernel. Where kernels are shorter than that, a faster
device changes nothing: the step is as long as the host takes.

## How it is measured
Idle time caused by operator dispatch, Python between operators, launch calls, launch latency and the autograd
engine, compared with what remains of the step after all other idle time (input, copies, validation) is taken out. The
upper limit of the saving is that idle time: with CUDA graphs the device would run its kernels back to back.

## Does not apply when
The recording holds no launches linked to their kernels.

## How to fix
Launch less or launch cheaper: CUDA graphs, `torch.compile(mode="reduce-overhead")`, a larger batch so that kernels
grow while their number stays, fused optimizers.

## Limits and false positives
The profiler slows the host and so enlarges this share; where the recorder timed steps without the profiler, the time it
added is taken off the idle time before the share is judged. Mixed precision makes kernels shorter and adds casts: in a
launch-bound step it wins nothing and often costs time.

## References
PyTorch, "Accelerating PyTorch with CUDA Graphs"; torch.compile, mode "reduce-overhead".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray
from traceanalyzer.replay.bounds import ceiling, idle_total, judged_idle, judged_steps
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import Cause, FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import idle_evidence, most_time_in
from traceanalyzer.rules.optimizer import optimizer_step
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA201",
    slug="launch-bound",
    kind=FindingKind.LIMITER,
    category="launch",
    fail_title="The step is bound by the host launching kernels",
    pass_title="Launching kernels does not bound the step",
    remedy=Remedy(
        settings=('torch.compile(mode="reduce-overhead")', "DataLoader(batch_size=…)", "Ultralytics: compile, batch"),
        before="""
        for images, targets in loader:
            loss = criterion(model(images), targets)
            loss.backward()
            optimizer.step()
        """,
        after="""
        compiled = torch.compile(model, mode="reduce-overhead")  # CUDA graphs: a few launches instead of hundreds
        for images, targets in loader:
            loss = criterion(compiled(images), targets)
            loss.backward()
            optimizer.step()
        # or a larger batch: as many launches, each with more work
        """,
    ),
)

DISPATCH_CAUSES = (
    Cause.OPERATOR_DISPATCH,
    Cause.PYTHON,
    Cause.LAUNCH_CALL,
    Cause.LAUNCH_LATENCY,
    Cause.AUTOGRAD_ENGINE,
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # the severity "high": below it the device is busy more than four fifths of the remaining step
    min_share_of_remaining_step: float = 0.2


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not len(measures.launches.activity):
        return not_applicable(META, measures, thresholds, "launch calls linked to their kernels")
    idle = measures.idle
    in_windows = judged_idle(measures, judged, with_episode_phases=True)
    dispatch = judged_idle(measures, judged) & idle.mask(*DISPATCH_CAUSES)
    all_idle, lost = idle_total(measures, in_windows), idle_total(measures, dispatch)
    remaining = judged.mean_step_ns * judged.count - (all_idle - lost)
    # the device's own work takes as long without the profiler, so whatever it added to the step is idle time
    added = judged.mean_step_ns * judged.count * (1 - 1 / max(1.0, measures.observer.report.inflation or 1.0))
    # ... of every cause alike
    added *= lost / all_idle if all_idle else 0.0
    share = max(0.0, lost - added) / (remaining - added) if remaining > added else 0.0

    kernels = measures.kernels
    rows = judged.holds(kernels.window) & (kernels.device == judged.device_id)
    per_step_kernels = int(np.count_nonzero(rows)) / judged.count
    median_kernel = float(np.median(kernels.duration_ns[rows])) if np.any(rows) else None
    call_ns = _median_launch_call(measures, judged.is_judged)
    host_ns = remaining / int(np.count_nonzero(rows)) if np.any(rows) else None
    per_step = judged.per_step(lost)
    observed: dict[str, Scalar] = {
        "dispatch_idle_per_step_ns": per_step,
        "share_of_remaining_step": round(float(share), 4),
        "kernels_per_step": round(per_step_kernels, 1),
        "median_kernel_ns": None if median_kernel is None else round(median_kernel),
        "median_launch_call_ns": call_ns,
        "step_time_per_kernel_ns": None if host_ns is None else round(host_ns),
        "host_bound_share_of_activities": measures.launches.report.host_bound_share_of_activities,
        "steps": judged.count,
    }
    if share < thresholds.min_share_of_remaining_step:
        return passed(
            META,
            measures,
            thresholds,
            f"Waiting for launches is {format_share(share, 1)} of the step that other waits leave.",
            judged=judged,
            observed=observed,
        )
    evidence, count = idle_evidence(measures, dispatch)
    place, in_place = most_time_in(measures, dispatch)
    if place:
        observed |= {"most_time_in": place, "most_time_in_per_step_ns": judged.per_step(in_place)}
    fix = [
        'Capture the step in a CUDA graph, or use torch.compile(model, mode="reduce-overhead").',
        "Raise the batch size: as many launches, longer kernels.",
    ]
    updating, advice = "", "Use a fused optimizer (fused=True or foreach=True) and fewer small operations in the loss."
    step = optimizer_step(measures, judged)
    if step is not None:
        in_optimizer = idle_total(measures, dispatch & step.idle_inside(measures))
        observed |= {
            "optimizer": step.name,
            "optimizer_idle_per_step_ns": judged.per_step(in_optimizer),
            "optimizer_single_kernels_per_step": round(step.single_per_step, 1),
            "optimizer_matrix_products_per_step": round(step.matrix_per_step, 1),
        }
        updating = f" {format_share(in_optimizer, lost)} of that idle time is {step.name}'s own step."
        if step.matrix_per_step:
            updating += (
                f" It multiplies matrices for every parameter ({step.matrix_per_step:.0f} products among "
                f"{step.single_per_step:.0f} single kernels) and has no fused form."
            )
            advice = (
                f"An optimizer with a fused form (AdamW or SGD with fused=True) would shorten {step.name}'s "
                f"{format_ns(judged.per_step(in_optimizer))}, if the training stands it; use fewer small operations in "
                "the loss."
            )
    fix.append(advice)
    case = Case(
        saving=ceiling(judged, high_ns=lost),
        message=(
            f"The device is idle {format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step because the host "
            f"has not launched the next kernel yet: {format_share(lost, remaining)} of the step without other waits. "
            f"It launches {per_step_kernels:.0f} kernels per step; their median is {format_ns(median_kernel)}, while "
            f"the host takes {format_ns(host_ns)} from one to the next (the launch call alone "
            f"{format_ns(call_ns)}). Mixed precision would not shorten this step: it makes kernels shorter and adds "
            f"casts to launch.{updating}"
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=count,
        fix=fix,
        confidence=0.9,
    )
    return decide(META, measures, thresholds, judged, case, f"Waiting for launches costs {format_ns(per_step)} a step.")


def _median_launch_call(measures: Measures, is_judged: BoolArray) -> int | None:
    """Median length of a launch call begun inside the judged windows, ns; None without any."""
    start, length = measures.facts.launch_calls()
    at = np.searchsorted(measures.steps.start_ns, start, side="right") - 1
    rows = (at >= 0) & is_judged[np.maximum(at, 0)] & (start < measures.steps.end_ns[np.maximum(at, 0)])
    return round(float(np.median(length[rows]))) if np.any(rows) else None
