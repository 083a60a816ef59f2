"""Runs every rule over one rank and orders what they say."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec

from traceanalyzer.errors import UsageError
from traceanalyzer.measures import Measures
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind, Status
from traceanalyzer.rules import RULES
from traceanalyzer.rules.base import RuleModule
from traceanalyzer.rules.folding import fold
from traceanalyzer.rules.outcome import expected_ns

NOTHING_TO_FIX = "TA903"
_PACKAGE = Path(__file__).resolve().parents[1]


def check_all(
    measures: Measures,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    overrides: Mapping[str, Mapping[str, Scalar]] | None = None,
) -> list[Finding]:
    """Judge one rank by every rule.

    Args:
        measures: One rank.
        select: Codes, slugs or beginnings of codes (``TA3``) to run; empty runs all.
        ignore: Codes, slugs or beginnings of codes to leave out.
        overrides: Threshold values by code, then threshold name.

    Returns:
        Faults that fire by falling likely saving, then limiters that fire likewise, then everything else by code.
        A rule that raises gives a finding of status ``error`` and the others still run.

    Raises:
        UsageError: A selector matches no rule, or an override names no rule or no threshold of it.
    """
    chosen = _choose(select, ignore)
    by_code = {rule.META.code: rule for rule in RULES}
    for code in overrides or {}:
        if code not in by_code:
            raise UsageError(f"thresholds: there is no rule {code!r}; known are {', '.join(sorted(by_code))}")
    findings = [_check_one(rule, measures, (overrides or {}).get(rule.META.code, {})) for rule in chosen]
    return order(_settle_nothing_to_fix(fold(findings)))


def order(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings as the document lists them."""

    def key(finding: Finding) -> tuple[int, int, str, int]:
        if finding.status is not Status.FAIL:
            return 2, 0, finding.code, finding.rank
        group = 0 if finding.kind is FindingKind.FAULT else 1
        return group, -expected_ns(finding.saving_per_step_ns), finding.code, finding.rank

    return sorted(findings, key=key)


def _choose(select: Sequence[str], ignore: Sequence[str]) -> list[RuleModule]:
    def matches(rule: RuleModule, selector: str) -> bool:
        return rule.META.code.startswith(selector.upper()) or rule.META.slug == selector.lower()

    for selector in (*select, *ignore):
        if not selector or not any(matches(rule, selector) for rule in RULES):
            raise UsageError(f"no rule matches {selector!r}; `traceanalyzer rules` lists them")
    return [
        rule
        for rule in RULES
        if (not select or any(matches(rule, s) for s in select)) and not any(matches(rule, s) for s in ignore)
    ]


def _thresholds(rule: RuleModule, values: Mapping[str, Scalar]) -> Any:
    thresholds = rule.Thresholds()
    known = {f.name for f in fields(thresholds)}
    for name in values:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise UsageError(f"thresholds: {rule.META.code} has no {name!r}; it has {listed}")
        if isinstance(values[name], bool) or not isinstance(values[name], int | float):
            raise UsageError(f"thresholds: {rule.META.code}.{name} must be a number, not {values[name]!r}")
    return replace(thresholds, **values)


def _check_one(rule: RuleModule, measures: Measures, values: Mapping[str, Scalar]) -> Finding:
    thresholds = _thresholds(rule, values)
    try:
        return rule.check(measures, thresholds)
    # the one place that catches everything: a mistake in one rule must not cost the user the other answers
    except Exception as error:
        return Finding(
            code=rule.META.code,
            slug=rule.META.slug,
            kind=rule.META.kind,
            status=Status.ERROR,
            title=f"{rule.META.code} could not be checked",
            message=f"The rule failed with {type(error).__name__}: {error}. The other rules are not affected.",
            rank=measures.rank,
            confidence=0.0,
            observed={"error": f"{type(error).__name__}: {error}", "at": _place(error)},
        )


def _place(error: Exception) -> str:
    """Where a rule broke: file relative to the package and line; a report must not tell the machine's folders."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    frame = (own or frames)[-1]
    name = Path(frame.filename)
    return f"{name.relative_to(_PACKAGE.parent) if own else name.name}:{frame.lineno}"


def _settle_nothing_to_fix(findings: list[Finding]) -> list[Finding]:
    """Withdraw "nothing to fix" where something fires: the rule itself sees only how busy the device is."""
    firing = sorted(f.code for f in findings if f.status is Status.FAIL)
    if not firing:
        return findings
    return [
        msgspec.structs.replace(
            finding,
            status=Status.PASS,
            title="Something can be won back or limits the step",
            message=f"Not claimed, because these fire: {', '.join(firing)}.",
        )
        if finding.code == NOTHING_TO_FIX and finding.status is Status.INFORMATIVE
        else finding
        for finding in findings
    ]
