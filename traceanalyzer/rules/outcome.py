"""How a rule states its outcome: one function per status, so that every finding is filled in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import JudgedSteps
from traceanalyzer.results.finding import Episode, Evidence, Finding, Saving, Scalar
from traceanalyzer.results.vocabulary import Severity, Status
from traceanalyzer.rules.base import Meta, floor_ns, severity_of, thresholds_dict

NO_DEVICE = "GPU activity (the recording holds none, or no whole step)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a rule found before it decides whether that is enough to fire.

    Attributes:
        saving: What removing the cause would win.
        message: Sentences with the numbers, used when it fires.
        observed: Measured values.
        evidence: Places, already capped.
        evidence_count: Places in all.
        fix: Steps, most useful first.
        confidence: 0 to 1.
        episode: Cost per occurrence where it does not come every step.
        unprofiled_step_ns: Mean step without the profiler, where the saving is stated against it already.
    """

    saving: Saving
    message: str
    observed: Mapping[str, Scalar]
    evidence: list[Evidence] = field(default_factory=list)
    evidence_count: int = 0
    fix: list[str] = field(default_factory=list)
    confidence: float = 0.9
    episode: Episode = field(default_factory=Episode)
    unprofiled_step_ns: float | None = None


def not_applicable(meta: Meta, measures: Measures, thresholds: Any, missing: str) -> Finding:
    """State that the rule lacks an input, and which one would decide it."""
    return _finding(
        meta,
        measures,
        Status.NOT_APPLICABLE,
        f"Not judged: it needs {missing}.",
        thresholds=thresholds_dict(thresholds),
    )


def passed(
    meta: Meta,
    measures: Measures,
    thresholds: Any,
    message: str,
    *,
    judged: JudgedSteps | None = None,
    observed: Mapping[str, Scalar] | None = None,
) -> Finding:
    """State that the cause is absent or costs less than the floor."""
    return _finding(
        meta,
        measures,
        Status.PASS,
        message,
        device_id=judged.device_id if judged else None,
        observed=dict(observed or {}),
        thresholds=_with_floor(thresholds, judged),
    )


def informative(
    meta: Meta,
    measures: Measures,
    thresholds: Any,
    message: str,
    *,
    judged: JudgedSteps | None = None,
    observed: Mapping[str, Scalar] | None = None,
    fix: list[str] | None = None,
) -> Finding:
    """State something worth knowing that is neither fault nor limiter."""
    return _finding(
        meta,
        measures,
        Status.INFORMATIVE,
        message,
        device_id=judged.device_id if judged else None,
        observed=dict(observed or {}),
        thresholds=_with_floor(thresholds, judged),
        fix=fix or [],
    )


def fails(
    meta: Meta,
    measures: Measures,
    thresholds: Any,
    message: str,
    *,
    severity: Severity,
    observed: Mapping[str, Scalar],
    evidence: list[Evidence],
    fix: list[str],
    device_id: int | None,
    evidence_count: int | None = None,
    confidence: float = 0.9,
) -> Finding:
    """State a fault whose price is no time (memory, or the danger of running out of it): no saving is claimed."""
    return _finding(
        meta,
        measures,
        Status.FAIL,
        message,
        device_id=device_id,
        severity=severity,
        confidence=confidence,
        observed=dict(observed),
        thresholds=thresholds_dict(thresholds),
        evidence=evidence,
        evidence_count=len(evidence) if evidence_count is None else evidence_count,
        fix=fix,
    )


def decide(
    meta: Meta, measures: Measures, thresholds: Any, judged: JudgedSteps, case: Case, quiet_message: str
) -> Finding:
    """Fire when the saving reaches the floor, pass otherwise.

    A cause whose saving is only known as an upper limit is judged by that limit.

    Args:
        meta: The rule.
        measures: One rank.
        thresholds: Its thresholds.
        judged: The windows it judged.
        case: What it found.
        quiet_message: Said when the saving stays below the floor.
    """
    inflation = max(1.0, measures.observer.report.inflation or 1.0)
    if case.unprofiled_step_ns is None:
        stated, mean_step_ns = (
            _without_profiler(case.saving, judged.mean_step_ns, inflation),
            judged.mean_step_ns / inflation,
        )
    else:
        stated, mean_step_ns = case.saving, case.unprofiled_step_ns
    saving = expected_ns(stated)
    if saving < floor_ns(mean_step_ns):
        return passed(meta, measures, thresholds, quiet_message, judged=judged, observed=case.observed)
    return _finding(
        meta,
        measures,
        Status.FAIL,
        case.message + (_inflation_note(measures) if case.unprofiled_step_ns is None else ""),
        device_id=judged.device_id,
        severity=severity_of(saving, mean_step_ns),
        confidence=case.confidence,
        observed=dict(case.observed),
        thresholds={**thresholds_dict(thresholds), "floor_ns": floor_ns(mean_step_ns)},
        saving_per_step_ns=stated,
        episode=case.episode,
        evidence=case.evidence,
        evidence_count=case.evidence_count,
        fix=case.fix,
    )


def _finding(meta: Meta, measures: Measures, status: Status, message: str, **rest: Any) -> Finding:
    """Fill in what every outcome shares."""
    raised = status in (Status.FAIL, Status.INFORMATIVE)
    return Finding(
        code=meta.code,
        slug=meta.slug,
        kind=meta.kind,
        status=status,
        title=meta.fail_title if raised else meta.pass_title,
        message=message,
        rank=measures.rank,
        **rest,
    )


def expected_ns(saving: Saving) -> int:
    """The value a saving is ranked by: likely, else the upper limit, else 0."""
    if saving.likely is not None:
        return saving.likely
    return saving.high if saving.high is not None else 0


def _with_floor(thresholds: Any, judged: JudgedSteps | None) -> dict[str, Scalar]:
    values = thresholds_dict(thresholds)
    if judged is not None:
        values["floor_ns"] = floor_ns(judged.mean_step_ns)
    return values


def _inflation_note(measures: Measures) -> str:
    inflation = measures.observer.report.inflation
    if inflation is None:
        return " Times are as recorded: how much the profiler itself slowed the host is not known."
    # below that it would read "1.00 times as long"
    if inflation < 1.005:
        return ""
    return (
        f" Times are as recorded; the profiler made the step {inflation:.2f} times as long, and the saving is stated "
        "against the step without it."
    )


def _without_profiler(saving: Saving, mean_step_ns: float, inflation: float) -> Saving:
    """State a saving against the step without the profiler.

    The device's own work is not slowed, so idle time shrinks at least as much as the step does. Waiting that the
    profiler does not slow (a loader, a disk) may keep its length: that is the upper end of a likely saving.
    """

    def scaled(value: int | None) -> int | None:
        return None if value is None else round(value / inflation)

    high = scaled(saving.high)
    if saving.likely is not None and saving.high is not None:
        high = max(scaled(saving.likely) or 0, min(saving.high, round(mean_step_ns / inflation)))
    return Saving(low=scaled(saving.low), likely=scaled(saving.likely), high=high, basis=saving.basis)
