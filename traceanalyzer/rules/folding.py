"""Findings that are only the consequence of another: folded under it and not reported on their own.

The table is reviewed: each row says why the one follows from the other. ``tests/rules/golden/co_firing.json`` shows
which rules fire beside each other once it has been applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from traceanalyzer.results.finding import Episode, Finding, Saving
from traceanalyzer.results.vocabulary import Cause, Status


@dataclass(frozen=True, slots=True)
class Fold:
    """One consequence.

    Attributes:
        consequence: Code of the finding that is folded.
        cause: Code of the finding it is folded under.
        why: Why it is a consequence, as a reader is told.
        holds: Looks at both findings (consequence, cause); by default firing together is enough.
    """

    consequence: str
    cause: str
    why: str
    holds: Callable[[Finding, Finding], bool] = lambda _consequence, _cause: True


def _grew_by(*causes: Cause) -> Callable[[Finding, Finding], bool]:
    """Say whether what grew in the slow steps is the cause the other finding is about."""
    names = {cause.value for cause in causes}
    return lambda consequence, _cause: consequence.observed.get("grown_cause") in names


def _count(finding: Finding, name: str) -> int:
    value = finding.observed.get(name)
    return value if isinstance(value, int) else 0


# rules about a distribution of step times, and which rule explains what grew
_EXPLAINED: tuple[tuple[str, tuple[Cause, ...]], ...] = (
    ("TA101", (Cause.INPUT_WAIT,)),
    ("TA102", (Cause.INPUT_WAIT,)),
    ("TA103", (Cause.INPUT_WAIT,)),
    ("TA104", (Cause.INPUT_WAIT,)),
    ("TA105", (Cause.INPUT_WAIT,)),
    ("TA202", (Cause.PLAN_SEARCH,)),
    ("TA203", (Cause.MODULE_LOAD,)),
    ("TA205", (Cause.GARBAGE_COLLECTION,)),
    ("TA206", (Cause.PREEMPTED,)),
    ("TA401", (Cause.ALLOCATOR,)),
    ("TA402", (Cause.ALLOCATOR,)),
    ("TA403", (Cause.ALLOCATOR,)),
    ("TA501", (Cause.SYNC_WAIT,)),
    ("TA502", (Cause.SYNC_WAIT,)),
    ("TA802", (Cause.CHECKPOINT,)),
    ("TA803", (Cause.LOGGING,)),
)

FOLDS: tuple[Fold, ...] = (
    Fold("TA102", "TA105", "the workers are slow because of what they compute"),
    Fold("TA102", "TA103", "the workers are fast enough on average; the queue is too short"),
    Fold(
        "TA603",
        "TA601",
        "fp32 kernels without tensor cores want the other layout, so every convolution converts",
        lambda conversions, _fp32: float(conversions.observed.get("fp32_share") or 0.0) > 0.5,
    ),
    Fold("TA401", "TA403", "memory is given back and taken again because an allocation did not fit"),
    Fold("TA401", "TA402", "memory is taken again because the cache was emptied"),
    Fold(
        "TA402",
        "TA403",
        "the allocator gave its cache back itself, because an allocation did not fit",
        lambda emptied, retried: _count(retried, "retries") >= _count(emptied, "bursts"),
    ),
    Fold(
        "TA403",
        "TA404",
        "what was asked for did not fit because free memory lies in pieces",
        lambda _retried, pieces: _count(pieces, "failed_for_pieces") > 0,
    ),
    *(
        Fold(
            "TA805",
            cause,
            f"what grew in the slow steps is idle time by {causes[0].value.replace('_', ' ')}",
            _grew_by(*causes),
        )
        for cause, causes in _EXPLAINED
    ),
    *(
        Fold(
            "TA804",
            cause,
            f"what grew over time is idle time by {causes[0].value.replace('_', ' ')}",
            _grew_by(*causes),
        )
        for cause, causes in _EXPLAINED
    ),
)


def fold(findings: list[Finding]) -> list[Finding]:
    """Withdraw findings that another firing one explains.

    Args:
        findings: All findings of one rank.

    Returns:
        The same findings in the same order; a folded one passes, says under which it was folded and keeps what it
        measured.
    """
    firing = {finding.code: finding for finding in findings if finding.status is Status.FAIL}
    folded: dict[str, Fold] = {}
    for rule in FOLDS:
        consequence, cause = firing.get(rule.consequence), firing.get(rule.cause)
        if consequence and cause and rule.consequence not in folded and rule.holds(consequence, cause):
            folded[rule.consequence] = rule
    return [_withdraw(f, folded[f.code]) if f.status is Status.FAIL and f.code in folded else f for f in findings]


def _withdraw(finding: Finding, rule: Fold) -> Finding:
    return msgspec.structs.replace(
        finding,
        status=Status.PASS,
        severity=None,
        title=f"{finding.title}: explained by {rule.cause}",
        message=f"Not reported on its own, for {rule.cause} explains it: {rule.why}. {finding.message}",
        observed={**finding.observed, "folded_into": rule.cause},
        saving_per_step_ns=Saving(),
        episode=Episode(),
        fix=[],
    )
