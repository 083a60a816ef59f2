"""Steps get slower and slower over the recording.

## Detects
Steady steps whose time rises from the first to the last quarter of the recording, beyond what chance explains.

## Why it matters
A slowdown over hours hides in no single step. What grows (memory, waiting for data, clocks that fall) tells what to do,
and the cost at the recording's end is not the cost at the run's end.

## How it is measured
A Mann-Kendall test for a monotonic rise over means of ten equal stretches of steady steps (step times of neighbours
hang together, stretches much less), and the difference of the last and the first quarter's medians. The saving is the
mean step less the first quarter's median.

## Does not apply when
There are fewer than 40 steady steps, or steps were not marked.

## How to fix
Follow the cause that grew: it has its own rule. Where the device's own work grew, look at its clocks and temperature
(nvidia-smi), where memory grew, at TA404 and TA406.

## Limits and false positives
Progressive image sizes or curricula make steps longer by design. A host that others use more and more looks alike.

## References
Mann, "Nonparametric tests against trend", Econometrica 13, 1945; Kendall, "Rank Correlation Methods", 1975.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import IntArray
from traceanalyzer.replay.bounds import JudgedSteps, bound, judged_idle, judged_steps
from traceanalyzer.results.finding import Evidence, Finding, Scalar
from traceanalyzer.results.vocabulary import CAUSES, FindingKind, StepSource
from traceanalyzer.rules.base import Meta
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA804",
    slug="slowdown-over-time",
    kind=FindingKind.FAULT,
    category="life cycle",
    fail_title="Steps get slower over the recording",
    pass_title="Steps do not get slower",
)

DEVICE_WORK = "device_work"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # ten stretches of four steps
    min_steps: int = 40
    # 297 steps of one sound run drift by -21 %; sound runs rose by up to 6 % within a recording
    min_rise_share: float = 0.10
    # one false alarm in a thousand recordings without a trend
    max_p: float = 0.001
    # neighbours' times hang together over three steps and more, so stretches are longer than that
    stretches: int = 10


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
    quarter = len(chosen) // 4
    first, last = float(np.median(length[:quarter])), float(np.median(length[-quarter:]))
    # medians, so that one slow step moves no stretch
    means = np.array([float(np.median(part)) for part in np.array_split(length, int(thresholds.stretches))])
    p = rising_p(means)
    rise = last / first - 1 if first else 0.0
    observed: dict[str, Scalar] = {
        "first_quarter_step_ns": round(first),
        "last_quarter_step_ns": round(last),
        "rise_share": round(rise, 4),
        "p_of_trend": round(p, 6),
        "steps": judged.count,
    }
    if rise < thresholds.min_rise_share or p > thresholds.max_p:
        message = (
            f"Steps take {format_ns(first)} in the first and {format_ns(last)} in the last quarter: "
            f"{'no steady rise' if p > thresholds.max_p else 'a rise too small to matter'}."
        )
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    grown, by = _grown(measures, judged, chosen[:quarter], chosen[-quarter:])
    observed |= {"grown_cause": grown, "grown_ns": by}
    lost = float(np.maximum(length - first, 0).sum())
    what = "the device's own work" if grown == DEVICE_WORK else f"idle time by {grown.replace('_', ' ')}"
    evidence = [
        Evidence(
            start_ns=int(steps.start_ns[row]),
            end_ns=int(steps.end_ns[row]),
            thread=measures.facts.tid(steps.thread),
            what=f"step of {format_ns(int(steps.end_ns[row] - steps.start_ns[row]))}",
            where=steps.names[row] or None,
        )
        for row in (int(chosen[0]), int(chosen[-1]))
    ]
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            f"Steps rise steadily from {format_ns(first)} in the first quarter to {format_ns(last)} in the last "
            f"(+{rise:.0%}); that costs {format_ns(judged.per_step(lost))} per step on average "
            f"({format_share(judged.per_step(lost), judged.mean_step_ns)}). What grew most is {what}: {format_ns(by)} "
            "more per step."
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=len(evidence),
        fix=[
            "Look at the clocks and the temperature over the run (nvidia-smi --query-gpu=clocks.sm,temperature.gpu)."
            if grown == DEVICE_WORK
            else f"Follow what causes {grown.replace('_', ' ')}: compare an early with a late step on the timeline.",
            "Record again later in the run: if steps are slower still, the cause accumulates (memory, logs, lists).",
        ],
        confidence=0.7,
    )
    quiet = f"The slowdown costs only {format_ns(judged.per_step(lost))} per step so far."
    return decide(META, measures, thresholds, judged, case, quiet)


def rising_p(values: npt.NDArray[np.float64]) -> float:
    """One-sided p-value of Mann and Kendall's test for a rise, by its normal approximation without ties.

    Args:
        values: At least three values in time order.
    """
    n = len(values)
    s = float(sum(np.sign(values[i + 1 :] - values[i]).sum() for i in range(n - 1)))
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    # continuity correction: S moves in steps of two
    z = (s - math.copysign(1.0, s)) / deviation if s else 0.0
    return 0.5 * math.erfc(z / math.sqrt(2))


def _grown(measures: Measures, judged: JudgedSteps, early: IntArray, late: IntArray) -> tuple[str, int]:
    """Cause of idle time that grew most from early to late steps (or the device's own work), by how much, ns."""
    idle, steps = measures.idle, measures.steps
    base = judged_idle(measures, judged, with_episode_phases=True)
    length = steps.end_ns - steps.start_ns
    everything = idle.per_window(base, len(steps))
    busy = length - everything
    best, most = DEVICE_WORK, round(float(busy[late].mean() - busy[early].mean()))
    for code in np.unique(idle.cause[base]).tolist():
        sums = idle.per_window(base & (idle.cause == code), len(steps))
        grown = round(float(sums[late].mean() - sums[early].mean()))
        if grown > most:
            best, most = CAUSES[code].value, grown
    return best, most
