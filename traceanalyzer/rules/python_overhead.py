"""The host spends its time in Python between operators.

## Detects
Device idle time in which the launching thread runs Python code outside any operator.

## Why it matters
Interpreting the training loop, hooks and module calls costs host time that no kernel hides when the step is bound by
the host.

## How it is measured
Idle time of cause `python`, compared with what remains of the step after other waits are taken out, as in TA201. With
recorded stacks the innermost frames are listed, and one of the user's own that alone costs more than the floor makes
this a fault.

## Does not apply when
The recording holds no operators: then everything on the host looks like Python.

## How to fix
Move per-step Python work out of the loop, vectorise it, or compile the step with `torch.compile`.

## Limits and false positives
Recording stacks makes Python itself slower, often by half.

## References
PyTorch, `torch.compile`; Python documentation, "The Python Profilers".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec
import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray
from traceanalyzer.replay.bounds import ceiling, idle_total, judged_idle, judged_steps
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import CAUSE_CODE, Cause, FindingKind, Status
from traceanalyzer.rules.base import Meta, Remedy, floor_ns
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.launch_bound import DISPATCH_CAUSES
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.rules.supply import before_epoch
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA204",
    slug="python-overhead",
    kind=FindingKind.LIMITER,
    category="launch",
    fail_title="Python between operators bounds the step",
    pass_title="Python between operators does not bound the step",
    remedy=Remedy(
        settings=("torch.compile",),
        before="""
        for images, targets in loader:
            loss = criterion(model(images), targets)
            loss.backward()
        """,
        after="""
        @torch.compile
        def loss_of(images, targets):
            return criterion(model(images), targets)


        for images, targets in loader:
            loss = loss_of(images, targets)
            loss.backward()
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # as TA201: below it the device is busy, or waits for something else, more than four fifths of the time
    min_share_of_remaining_step: float = 0.2
    # frames listed by name in the finding
    listed_frames: int = 5


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.facts.has_operators:
        return not_applicable(META, measures, thresholds, "operators (record with torch.profiler, CPU activities)")
    idle = measures.idle
    everything = judged_idle(measures, judged, with_episode_phases=True)
    base = judged_idle(measures, judged)
    dispatch = idle_total(measures, base & idle.mask(*DISPATCH_CAUSES))
    remaining = judged.mean_step_ns * judged.count - (idle_total(measures, everything) - dispatch)
    mask = base & (idle.cause == CAUSE_CODE[Cause.PYTHON]) & ~before_epoch(measures)
    lost = idle_total(measures, mask)
    per_step = judged.per_step(lost)
    share = lost / remaining if remaining > 0 else 0.0
    frames = _frames(measures, mask)
    top, top_ns = next(((name, time) for name, time in frames.most_common() if _is_users_own(name)), ("", 0))
    has_culprit = judged.per_step(top_ns) >= floor_ns(judged.mean_step_ns)
    observed: dict[str, Scalar] = {
        "python_idle_per_step_ns": per_step,
        "share_of_remaining_step": round(float(share), 4),
        "steps": judged.count,
    }
    for number, (name, time) in enumerate(frames.most_common(int(thresholds.listed_frames)), start=1):
        observed[f"frame_{number}"] = name
        observed[f"frame_{number}_per_step_ns"] = judged.per_step(time)
    if share < thresholds.min_share_of_remaining_step and not has_culprit:
        message = f"Python between operators is {format_share(lost, remaining)} of the step that other waits leave."
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    evidence, count = idle_evidence(measures, mask)
    named = f" One frame alone takes {format_ns(judged.per_step(top_ns))}: {top}." if has_culprit else ""
    fix = ["Compile the step with torch.compile, or capture it in a CUDA graph: Python then runs once per step."]
    if has_culprit:
        fix.insert(0, f"Move the work of {top} out of the step, or vectorise it.")
    elif not measures.locations.has_stacks:
        fix.append("Record with_stack=True to see which functions it is.")
    case = Case(
        saving=ceiling(judged, high_ns=lost),
        message=(
            f"The device is idle {format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step while the "
            f"launching thread runs Python outside any operator: {format_share(lost, remaining)} of the step without "
            f"other waits.{named}"
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=count,
        fix=fix,
        confidence=0.8,
    )
    finding = decide(
        META, measures, thresholds, judged, case, f"Python between operators costs {format_ns(per_step)} a step."
    )
    if has_culprit and finding.status is Status.FAIL:
        return msgspec.structs.replace(finding, kind=FindingKind.FAULT)
    return finding


def _frames(measures: Measures, mask: BoolArray) -> Counter[str]:
    """Idle time by innermost Python frame, ns; empty without stacks."""
    idle, facts = measures.idle, measures.facts
    times: Counter[str] = Counter()
    if not measures.locations.has_stacks:
        return times
    rows = np.flatnonzero(mask & (idle.slice_row >= 0))
    times.update(facts.time_by_frame(idle.slice_row[rows], idle.duration_ns[rows]))
    return times


def _is_users_own(frame: str) -> bool:
    """Whether a frame lies in a file outside installed packages and the standard library."""
    is_file = ".py(" in frame
    return is_file and not any(
        part in frame for part in ("site-packages", "dist-packages", "lib/python", "torch/", "ultralytics/", "<")
    )
