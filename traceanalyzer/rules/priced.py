"""Prices the findings that fire: measured where the recorder tried the fix, else replayed, else the bound stays."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import judged_steps
from traceanalyzer.replay.pricing import replayer
from traceanalyzer.replay.trials import Trial, measured_savings
from traceanalyzer.results.analysis import PlanStep
from traceanalyzer.results.finding import Finding, Saving
from traceanalyzer.results.vocabulary import Basis, FindingKind, Status
from traceanalyzer.rules.base import floor_ns, severity_of
from traceanalyzer.rules.outcome import expected_ns
from traceanalyzer.rules.run import order
from traceanalyzer.units import format_ns

# a trial's unchanged steps may be this much longer or shorter than the run's (a host's speed drifts by a third within
# minutes) before they are taken for steps without the cause
STEPS_ALIKE = 2.0


def price(measures: Measures, findings: Sequence[Finding]) -> tuple[list[Finding], list[PlanStep]]:
    """Replace bounds by better-founded savings and plan the order of fixes.

    Args:
        measures: One rank.
        findings: What its rules said.

    Returns:
        The findings, ordered again, and the plan: the step as it is, then one entry per fix (empty without one). A
        finding whose saving turns out to lie below the floor no longer fires.
    """
    judged = judged_steps(measures)
    firing = frozenset(
        f.code for f in findings if f.status is Status.FAIL and f.saving_per_step_ns.basis is not Basis.NONE
    )
    if judged is None or not firing:
        return list(findings), []
    trials = measured_savings(measures.recorder)
    player = replayer(measures, firing)
    priced: list[Finding] = []
    for finding in findings:
        if finding.code not in firing or finding.status is not Status.FAIL:
            priced.append(finding)
            continue
        found = player.price(finding.code) if player is not None else None
        if found is not None:
            left = f" What stays: {found.left}." if found.left else ""
            said = f"{found.said or _said(found.saving, found.step_ns)}{left}"
            said = left.strip() if found.said and found.said in finding.message else said
            finding = _restated(finding, _sane(found.saving), found.step_ns, said)
        trial = trials.get(finding.code)
        if trial is not None and finding.status is Status.FAIL:
            finding = _tried(finding, trial, measures.observer.report.unprofiled_step_ns)
        priced.append(finding)
    faults = [f.code for f in priced if f.status is Status.FAIL and f.kind is FindingKind.FAULT]
    return order(priced), player.plan(faults) if player is not None else []


def _sane(saving: Saving) -> Saving:
    """Removing a cause cannot cost time in a replay; small negative ends come from the spread of the steps."""
    likely = max(saving.likely or 0, 0)
    high = None if saving.high is None else max(saving.high, likely)
    return msgspec.structs.replace(saving, low=min(max(saving.low or 0, 0), likely), likely=likely, high=high)


def _said(saving: Saving, step_ns: float) -> str:
    left = max(step_ns - (saving.likely or 0), 0)
    return f"Replayed without it, the step takes {format_ns(left)} instead of {format_ns(step_ns)}."


def _restated(finding: Finding, saving: Saving, step_ns: float, said: str) -> Finding:
    expected, floor = expected_ns(saving), floor_ns(step_ns)
    if expected < floor and (saving.high is None or saving.high < floor):
        return msgspec.structs.replace(
            finding,
            status=Status.PASS,
            severity=None,
            saving_per_step_ns=saving,
            message=f"{finding.message} {said} That is below the floor of {format_ns(floor)}, so nothing is claimed.",
        )
    return msgspec.structs.replace(
        finding, severity=severity_of(expected, step_ns), saving_per_step_ns=saving, message=f"{finding.message} {said}"
    )


def _tried(finding: Finding, trial: Trial, unprofiled_ns: int | None) -> Finding:
    """State what the recorder measured; a trial that could not see the expected effect is said and decides nothing."""
    saving, step_ns = trial.saving, float(trial.baseline_step_ns)
    what = f"Tried ({trial.changes}): "
    if unprofiled_ns and not 1 / STEPS_ALIKE <= step_ns / unprofiled_ns <= STEPS_ALIKE:
        strange = (
            f"{what}the unchanged steps beside it took {format_ns(step_ns)}, those of the run "
            f"{format_ns(unprofiled_ns)}, so it says nothing about this run."
        )
        return msgspec.structs.replace(finding, message=f"{finding.message} {strange}")
    if not trial.is_measurable and trial.smallest_effect_ns > expected_ns(finding.saving_per_step_ns):
        noisy = (
            f"{what}too noisy to decide, an effect below {format_ns(trial.smallest_effect_ns)} would not have shown."
        )
        return msgspec.structs.replace(finding, message=f"{finding.message} {noisy}")
    if not trial.is_measurable or (saving.likely or 0) < floor_ns(step_ns):
        return msgspec.structs.replace(
            finding,
            status=Status.PASS,
            severity=None,
            saving_per_step_ns=saving,
            message=f"{finding.message} {what}no measurable saving, so nothing is promised.",
        )
    return _restated(
        finding, saving, step_ns, f"{what}saves {format_ns(saving.likely or 0)} of {format_ns(step_ns)} per step."
    )
