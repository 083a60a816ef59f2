"""Consequences are folded under their cause, and only when both fire."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traceanalyzer.results.finding import Finding, Saving
from traceanalyzer.results.vocabulary import FindingKind, Severity, Status
from traceanalyzer.rules import RULES
from traceanalyzer.rules.folding import FOLDS, fold


def finding(code: str, status: Status = Status.FAIL, **observed: object) -> Finding:
    return Finding(
        code=code,
        slug=code.lower(),
        kind=FindingKind.FAULT,
        status=status,
        title=f"title of {code}",
        message=f"message of {code}",
        severity=Severity.HIGH if status is Status.FAIL else None,
        observed=dict(observed),  # type: ignore[arg-type]
        saving_per_step_ns=Saving(likely=1_000),
        fix=["do it"],
    )


def test_a_consequence_passes_says_under_what_and_keeps_what_was_measured() -> None:
    found = fold([finding("TA401", calls_per_step=12.0), finding("TA403")])
    assert [f.status for f in found] == [Status.PASS, Status.FAIL]
    assert found[0].observed == {"calls_per_step": 12.0, "folded_into": "TA403"}
    assert found[0].message.endswith("message of TA401")
    assert found[0].saving_per_step_ns == Saving()
    assert found[0].severity is None
    assert found[0].fix == []


def test_nothing_is_folded_under_what_does_not_fire() -> None:
    both = [finding("TA401"), finding("TA403", Status.PASS)]
    assert fold(both) == both


@pytest.mark.parametrize(("grown", "status"), [("input_wait", Status.PASS), ("sync_wait", Status.FAIL)])
@pytest.mark.parametrize("code", ["TA804", "TA805"])
def test_slow_steps_are_folded_under_the_cause_that_grew_in_them(code: str, grown: str, status: Status) -> None:
    assert fold([finding("TA102"), finding(code, grown_cause=grown)])[1].status is status


def test_every_row_names_two_rules_a_reason_and_no_cause_is_folded_under_its_own_consequence() -> None:
    known = {rule.META.code for rule in RULES}
    pairs = {(row.consequence, row.cause) for row in FOLDS}
    assert len(pairs) == len(FOLDS)
    for row in FOLDS:
        assert {row.consequence, row.cause} <= known
        assert len(row.why) > 20
        assert (row.cause, row.consequence) not in pairs


def test_the_reviewed_matrix_shows_no_pair_that_should_have_been_folded() -> None:
    golden = (Path(__file__).parent / "golden" / "co_firing.json").read_text(encoding="utf-8")
    rows = json.loads(golden)
    always = {(row.consequence, row.cause) for row in FOLDS if row.consequence not in ("TA804", "TA805")}
    for firing in rows.values():
        assert not [(a, b) for a, b in always if a in firing and b in firing]


# who may fire beside whom in the made traces, reviewed; a rule fires beside itself, unless it is folded
LIMITER = "a limiter bounds the step once the fault is gone, and is listed apart"
NOTES = "notes inform and exclude nothing"
BESIDE: dict[tuple[str, str], str] = {
    **{(code, "TA201"): LIMITER for code in ("TA204", "TA206", "TA207", "TA301", "TA302", "TA304", "TA502", "TA604")},
    **{(code, "TA201"): LIMITER for code in ("TA703", "TA704")},
    **{(code, "TA204"): LIMITER for code in ("TA201", "TA301", "TA302")},
    ("TA702", "TA701"): "the late rank's own collective is exposed too; that limits, lateness is the fault",
    ("TA805", "TA103"): "the slow steps come in the loader's rhythm: the jitter is folded under it",
    ("TA901", "TA903"): NOTES,
    ("TA902", "TA903"): NOTES,
}


def test_every_pair_that_fires_together_was_reviewed_and_no_two_faults_do() -> None:
    rows = json.loads((Path(__file__).parent / "golden" / "co_firing.json").read_text(encoding="utf-8"))
    pairs = {(code, other) for code, firing in rows.items() for other in firing if other != code}
    assert pairs == set(BESIDE)
    kinds = {rule.META.code: rule.META.kind for rule in RULES}
    for code, firing in rows.items():
        faults = [other for other in firing if kinds[other] is FindingKind.FAULT]
        assert len(faults) == (kinds[code] is FindingKind.FAULT), code
        assert code in firing or any(row.consequence == code and row.cause in firing for row in FOLDS)


@pytest.mark.parametrize(("bursts", "retries", "status"), [(3, 3, Status.PASS), (5, 3, Status.FAIL)])
def test_an_emptied_cache_is_explained_by_as_many_retries(bursts: int, retries: int, status: Status) -> None:
    found = fold([finding("TA402", bursts=bursts), finding("TA403", retries=retries)])
    assert [f.status for f in found] == [status, Status.FAIL]


@pytest.mark.parametrize(("for_pieces", "status"), [(3, Status.PASS), (0, Status.FAIL)])
def test_retries_are_explained_by_pieces_only_where_an_allocation_failed_for_them(
    for_pieces: int, status: Status
) -> None:
    found = fold([finding("TA403", retries=3), finding("TA404", failed_for_pieces=for_pieces)])
    assert [f.status for f in found] == [status, Status.FAIL]
