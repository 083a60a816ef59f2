"""What the recorder tried beats replay and bounds, unless it was too noisy to see the effect."""

from __future__ import annotations

from typing import Any

from traceanalyzer.replay.trials import ANSWERS, measured_savings, measured_trials
from traceanalyzer.results.finding import Finding, Saving
from traceanalyzer.results.vocabulary import Basis, FindingKind, Status
from traceanalyzer.rules import RULES
from traceanalyzer.rules.priced import _tried

MS = 1_000_000


def entry(**other: Any) -> dict[str, Any]:
    return {
        "name": "empty_cache_off",
        "changes": "torch.cuda.empty_cache() does nothing",
        "status": "measured",
        "reason": None,
        "blocks": 8,
        "steps_per_block": 5,
        "seed": 1,
        "baseline_step_ns": 80 * MS,
        "changed_step_ns": 57 * MS,
        "difference_ns": {"low": 20 * MS, "likely": 23 * MS, "high": 26 * MS},
        "smallest_effect_ns": 4 * MS,
    } | other


def test_a_measured_trial_answers_its_rule() -> None:
    found = measured_savings({"trials": [entry()]})
    assert list(found) == ["TA402"]
    saving = found["TA402"].saving
    assert (saving.low, saving.likely, saving.high, saving.basis) == (20 * MS, 23 * MS, 26 * MS, Basis.MEASURED)
    assert found["TA402"].is_measurable


def test_trials_of_the_recordings_own_pass_are_read() -> None:
    assert [t.name for t in measured_trials({"passes": [{"trials": [entry()]}], "pass": 0})] == ["empty_cache_off"]


def test_an_interval_around_zero_is_not_measurable() -> None:
    (trial,) = measured_trials({"trials": [entry(difference_ns={"low": -MS, "likely": 0, "high": MS})]})
    assert not trial.is_measurable


def test_an_interval_ends_at_the_whole_step() -> None:
    (trial,) = measured_trials({"trials": [entry(difference_ns={"low": MS, "likely": 23 * MS, "high": 95 * MS})]})
    assert trial.saving.high == 80 * MS


def test_failed_and_damaged_trials_are_left_out() -> None:
    listed = [
        entry(status="failed", difference_ns=None),
        entry(smallest_effect_ns=None),
        "text",
        entry(difference_ns=3),
        entry(difference_ns={"low": 10**15, "likely": 10**15, "high": 10**15}),  # more than the step
        entry(difference_ns={"low": 26 * MS, "likely": 23 * MS, "high": 20 * MS}),
        entry(baseline_step_ns=10**24, difference_ns={"low": 0, "likely": 10**23, "high": 10**23}),
        entry(baseline_step_ns=0),
        entry(baseline_step_ns=-80 * MS),
        entry(smallest_effect_ns=-1),
    ]
    assert measured_trials({"trials": listed}) == []
    assert measured_trials({"trials": "text"}) == []
    assert measured_trials({}) == []


def fired() -> Finding:
    return Finding(
        code="TA402",
        slug="cache-emptied",
        kind=FindingKind.FAULT,
        status=Status.FAIL,
        title="t",
        message="m",
        saving_per_step_ns=Saving(low=0, likely=30 * MS, high=40 * MS, basis=Basis.BOUND),
    )


def tried(unprofiled_ns: int | None, **other: Any) -> Finding:
    (trial,) = measured_trials({"trials": [entry(**other)]})
    return _tried(fired(), trial, unprofiled_ns)


def test_a_measured_saving_replaces_the_estimate() -> None:
    found = tried(82 * MS)
    assert found.saving_per_step_ns == Saving(low=20 * MS, likely=23 * MS, high=26 * MS, basis=Basis.MEASURED)
    assert found.status is Status.FAIL


def test_a_change_that_measurably_saves_nothing_silences_the_finding() -> None:
    found = tried(82 * MS, difference_ns={"low": -MS, "likely": 0, "high": MS})
    assert found.status is Status.PASS
    assert "no measurable saving" in found.message


def test_a_trial_whose_unchanged_steps_lack_the_cause_decides_nothing() -> None:
    # collections in every step made the run's steps 487 ms long; those beside the trial took 88 ms
    found = tried(487 * MS, baseline_step_ns=88 * MS, difference_ns={"low": -MS, "likely": 0, "high": MS})
    assert found.status is Status.FAIL
    assert found.saving_per_step_ns == fired().saving_per_step_ns
    assert "took 88.0 ms, those of the run 487 ms" in found.message


def test_every_answered_code_is_a_rule() -> None:
    assert {code for codes in ANSWERS.values() for code in codes} <= {rule.META.code for rule in RULES}
