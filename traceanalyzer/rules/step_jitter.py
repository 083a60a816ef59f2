"""Some steady steps take much longer than most.

## Detects
A wide distribution of steady step times: the slow tail costs more than the floor on average.

## Why it matters
A mean hides a tail. Steps that are slow now and then have a cause of their own, which the mean of all causes blurs.

## How it is measured
The 99th percentile of steady step times over their median, and which cause of idle time grew most in the slow steps.
The saving is the mean step less the mean with slow steps cut to the median.

## Does not apply when
There are fewer than 20 steady steps, or steps were not marked.

## How to fix
Look at the slow steps named in the evidence; the cause that grew in them has its own rule.

## Limits and false positives
Varying image sizes or sequence lengths make steps differ by design.

## References
Dean and Barroso, "The Tail at Scale", Communications of the ACM, 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import IntArray
from traceanalyzer.replay.bounds import JudgedSteps, bound, judged_idle, judged_steps
from traceanalyzer.results.finding import Episode, Evidence, Finding
from traceanalyzer.results.vocabulary import CAUSES, FindingKind, StepSource
from traceanalyzer.rules.base import Meta
from traceanalyzer.rules.evidence import longest
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA805",
    slug="step-jitter",
    kind=FindingKind.FAULT,
    category="life cycle",
    fail_title="Some steps take much longer than most",
    pass_title="Steps take about equally long",
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # with fewer steps the 99th percentile is one step
    min_steps: int = 20
    # 297 steady steps of one sound, launch-bound run have 1.42; shorter sound runs 1.0 to 1.2
    max_p99_over_p50: float = 1.5
    # a step counts as slow from here on, so that the body of the distribution is not blamed
    slow_over_p50: float = 1.25


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    steps = measures.steps
    if steps.source is StepSource.NONE:
        return not_applicable(META, measures, thresholds, "marked steps")
    if judged.count < thresholds.min_steps:
        return not_applicable(
            META, measures, thresholds, f"{thresholds.min_steps} steady steps (it has {judged.count})"
        )
    chosen = np.flatnonzero(judged.is_judged)
    length = (steps.end_ns - steps.start_ns)[chosen]
    p50, p99 = (float(v) for v in np.percentile(length, [50, 99]))
    ratio = p99 / p50 if p50 else 1.0
    observed = {"p50_step_ns": round(p50), "p99_step_ns": round(p99), "p99_over_p50": round(ratio, 3)}
    if ratio <= thresholds.max_p99_over_p50:
        message = f"The 99th percentile of steady steps is {ratio:.2f} times their median of {format_ns(p50)}."
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    is_slow = length > thresholds.slow_over_p50 * p50
    slow = chosen[is_slow]
    lost = float((length[is_slow] - p50).sum())
    cause, grown = _grown_cause(measures, judged, slow, chosen[~is_slow])
    per_step = judged.per_step(lost)
    evidence = [
        Evidence(
            start_ns=int(steps.start_ns[slow[at]]),
            end_ns=int(steps.end_ns[slow[at]]),
            thread=measures.facts.tid(steps.thread),
            what=f"step of {format_ns(int(length[is_slow][at]))}",
            where=steps.names[slow[at]] or None,
        )
        for at in longest(length[is_slow])
    ]
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            f"{len(slow)} of {judged.count} steady steps take more than {thresholds.slow_over_p50:.3g} times the "
            f"median of {format_ns(p50)}; the 99th percentile is {format_ns(p99)}. That costs {format_ns(per_step)} "
            f"per step on average ({format_share(per_step, judged.mean_step_ns)}). What grew most in the slow steps is "
            f"idle time by {cause.replace('_', ' ')}: {format_ns(grown)} more each."
        ),
        observed={**observed, "slow_steps": len(slow), "grown_cause": cause, "grown_ns": grown, "steps": judged.count},
        evidence=evidence,
        evidence_count=len(slow),
        fix=[f"Open the slow steps on the timeline and remove what causes {cause.replace('_', ' ')} in them."],
        confidence=0.6,
        episode=Episode(ns=round(lost / len(slow)), per_1000_steps=round(1000 * len(slow) / judged.count, 3)),
    )
    quiet = f"Slow steps cost only {format_ns(per_step)} per step on average."
    return decide(META, measures, thresholds, judged, case, quiet)


def _grown_cause(measures: Measures, judged: JudgedSteps, slow: IntArray, others: IntArray) -> tuple[str, int]:
    """Cause of idle time that differs most between slow and other steps, and by how much per step, ns."""
    idle = measures.idle
    base = judged_idle(measures, judged, with_episode_phases=True)
    best, most = "unknown", 0
    for code in np.unique(idle.cause[base]).tolist():
        sums = idle.per_window(base & (idle.cause == code), len(measures.steps))
        usual = float(sums[others].mean()) if len(others) else 0.0
        grown = round(float(sums[slow].mean()) - usual)
        if grown > most:
            best, most = CAUSES[code].value, grown
    return best, most
