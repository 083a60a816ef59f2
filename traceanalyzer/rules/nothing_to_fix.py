"""The device is busy and no cause of idle time can be won back.

## Detects
Steps in which the device is busy nearly all the time, when no other rule fires.

## Why it matters
A healthy run deserves a clear answer: what remains is the work itself.

## How it is measured
Busy share of the judged steps on the busiest device. The claim is withdrawn when any fault or limiter fires.

## Does not apply when
The recording holds no GPU activity or no whole step.

## How to fix
Nothing in the loop. Shorter steps need less or cheaper work: lower precision, a compiled model, a smaller model, a
faster device.

## Limits and false positives
Busy means that something ran, not that the device's units were well used.

## References
The definitions of busy and idle time in this project's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import idle_total, judged_idle, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, floor_ns
from traceanalyzer.rules.outcome import NO_DEVICE, informative, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA903",
    slug="nothing-to-fix",
    kind=FindingKind.NOTE,
    category="recording",
    fail_title="Nothing to fix: the device is busy",
    pass_title="The device is not busy throughout",
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # a choice: with less than a tenth idle, all causes together are worth less than one medium finding of each kind
    min_busy_share: float = 0.9


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge how busy the device is; ``run.check_all`` withdraws the claim where another rule fires."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    idle = idle_total(measures, judged_idle(measures, judged, with_episode_phases=True))
    whole = judged.mean_step_ns * judged.count
    busy_share = 1 - idle / whole if whole else 0.0
    observed = {"busy_share": round(busy_share, 4), "idle_per_step_ns": judged.per_step(idle), "steps": judged.count}
    if busy_share < thresholds.min_busy_share:
        message = f"The device is busy {format_share(busy_share, 1)} of the step."
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    message = (
        f"The device is busy {format_share(busy_share, 1)} of the step; the idle rest is "
        f"{format_ns(judged.per_step(idle))} per step and no cause of it is worth more than the floor of "
        f"{format_ns(floor_ns(judged.mean_step_ns))}."
    )
    fix = ["Shorter steps now need less work on the device: lower precision, torch.compile, a smaller model."]
    return informative(META, measures, thresholds, message, judged=judged, observed=observed, fix=fix)
