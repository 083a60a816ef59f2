"""Running all rules: order, selection, thresholds and a rule that breaks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.rules.support import LENGTH, healthy, launch_bound, loop
from tests.rules.test_loader_in_main_process import SINGLE, fires, starved
from traceanalyzer.errors import UsageError
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import FindingKind, Severity, Status
from traceanalyzer.rules import RULES, loader_in_main_process, run
from traceanalyzer.rules.base import floor_ns, severity_of
from traceanalyzer.rules.run import check_all


def several() -> Measures:
    """A loop with a slow loader, driver allocations and launch-bound work."""

    def step(b: object, _number: int, at: float) -> None:
        b.annotation(SINGLE, at, at + 1_000)  # type: ignore[attr-defined]
        b.call("cudaMalloc", at + 1_000, at + 3_000)  # type: ignore[attr-defined]
        launch_bound(b, at + 3_000, at + LENGTH)  # type: ignore[arg-type]

    return loop(step)


def test_faults_come_first_by_falling_saving_then_limiters_then_the_rest_by_code() -> None:
    findings = check_all(several())
    firing = [f.code for f in findings if f.status is Status.FAIL]
    # 2,000 µs of allocations, 1,000 µs of loading, then limiters although a bound of theirs is the largest
    assert firing == ["TA401", "TA101", "TA201", "TA204"]
    rest = [f.code for f in findings if f.status is not Status.FAIL]
    assert rest == sorted(rest)
    assert len(findings) == len(RULES)


def test_where_no_fault_fires_the_first_limiter_is_the_answer() -> None:
    findings = check_all(loop(lambda b, _number, at: launch_bound(b, at, at + LENGTH)))
    assert findings[0].code == "TA201"
    assert findings[0].kind is FindingKind.LIMITER


def test_a_rule_that_raises_becomes_an_error_and_the_others_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_measures: Measures, _thresholds: object) -> None:
        raise KeyError("lost")

    stub = SimpleNamespace(
        META=loader_in_main_process.META, Thresholds=loader_in_main_process.Thresholds, check=broken, __doc__=""
    )
    monkeypatch.setattr(run, "RULES", (stub, *RULES[1:]))
    findings = {f.code: f for f in check_all(healthy())}
    assert findings["TA101"].status is Status.ERROR
    assert "KeyError: 'lost'" in str(findings["TA101"].observed["error"])
    assert "KeyError" in findings["TA101"].message
    assert findings["TA903"].status is Status.INFORMATIVE


def test_rules_are_selected_by_code_beginning_or_slug_and_ignored_alike() -> None:
    measures = healthy()
    assert [f.code for f in check_all(measures, select=["TA3"])] == ["TA301", "TA302", "TA303", "TA304"]
    assert [f.code for f in check_all(measures, select=["plan-search"])] == ["TA202"]
    assert [f.code for f in check_all(measures, select=["TA3"], ignore=["ta301", "tiny-copies"])] == ["TA302", "TA303"]


@pytest.mark.parametrize("selector", ["TA999", "", "no-such-rule"])
def test_a_selector_that_matches_nothing_is_refused(selector: str) -> None:
    with pytest.raises(UsageError, match="no rule matches"):
        check_all(healthy(), select=[selector])


def test_thresholds_can_be_overridden_and_are_reported() -> None:
    finding = check_all(fires(), select=["TA101"], overrides={"TA101": {"worker_contention_share": 0.0}})[0]
    assert finding.thresholds["worker_contention_share"] == 0.0
    assert finding.saving_per_step_ns.low == finding.saving_per_step_ns.likely


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"TA999": {}}, "there is no rule 'TA999'"),
        ({"TA101": {"speed": 1}}, "TA101 has no 'speed'"),
        ({"TA104": {"speed": 1}}, "it has none"),
        ({"TA101": {"worker_contention_share": "much"}}, "must be a number"),
    ],
)
def test_a_wrong_override_is_refused_with_what_would_be_right(
    overrides: dict[str, dict[str, object]], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        check_all(healthy(), overrides=overrides)  # type: ignore[arg-type]


def test_the_floor_is_one_percent_of_the_step_but_at_least_a_tenth_of_a_millisecond() -> None:
    assert floor_ns(50_000_000) == 500_000
    assert floor_ns(1_000_000) == 100_000


def test_severity_follows_the_share_of_the_step() -> None:
    assert severity_of(20, 100) is Severity.HIGH
    assert severity_of(19.9, 100) is Severity.MEDIUM
    assert severity_of(5, 100) is Severity.MEDIUM
    assert severity_of(4.9, 100) is Severity.LOW
    assert severity_of(1, 0) is Severity.LOW


def test_a_firing_rule_says_that_the_profilers_share_is_unknown_unless_it_was_measured() -> None:
    told = check_all(fires(), select=["TA101"])[0]
    assert "how much the profiler itself slowed the host is not known" in told.message
    measured = check_all(starved(4_000, unprofiled={"step_ns": [5_000_000]}), select=["TA101"])[0]
    assert "is not known" not in measured.message
    assert "2.00 times as long" in measured.message


def test_savings_are_stated_against_the_step_without_the_profiler() -> None:
    # recorded steps of 10,000 µs took 5,000 without the profiler
    saving = check_all(starved(4_000, unprofiled={"step_ns": [5_000_000]}), select=["TA101"])[0].saving_per_step_ns
    assert saving.likely == 2_000_000
    # waiting for a loader may not have been slowed at all
    assert saving.high == 4_000_000
    limiter = loop(lambda b, _number, at: launch_bound(b, at, at + LENGTH), unprofiled={"step_ns": [5_000_000]})
    assert check_all(limiter, select=["TA201"])[0].saving_per_step_ns.high == 4_000_000


def test_a_recording_faster_than_its_unprofiled_steps_is_not_scaled_up() -> None:
    measured = check_all(starved(4_000, unprofiled={"step_ns": [20_000_000]}), select=["TA101"])[0]
    assert measured.saving_per_step_ns.likely == 4_000_000
