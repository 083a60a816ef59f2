"""Profiled against unprofiled step time."""

from __future__ import annotations

import pytest

from tests.measures.handmade import steps_of
from traceanalyzer.measures.observer_effect import measure_observer_effect

_TIMES = {
    "unprofiled": {"step_ns": [50_000, 70_000], "phase_ns": {"forward": [20_000, 30_000], "data": [0, 0]}},
    "profiled": {"step_ns": [90_000], "phase_ns": {"forward": [50_000], "backward": [7]}},
}


def test_inflation_is_the_ratio_of_mean_steps() -> None:
    report = measure_observer_effect(steps_of((0, 500)), dict(_TIMES)).report
    assert (report.profiled_step_ns, report.unprofiled_step_ns) == (90_000, 60_000)
    assert report.inflation == pytest.approx(1.5)


def test_phases_timed_on_both_sides_have_their_own_inflation() -> None:
    report = measure_observer_effect(steps_of(), dict(_TIMES)).report
    assert report.inflation_by_phase == {"forward": pytest.approx(2.0)}  # data took nothing: no ratio


def test_steady_windows_stand_in_for_untimed_profiled_steps() -> None:
    steps = steps_of((0, 100), (100, 200), (200, 900), classes=[1, 1, 2])
    report = measure_observer_effect(steps, {"unprofiled": {"step_ns": [80_000]}}).report
    assert report.profiled_step_ns == 100_000
    assert report.inflation == pytest.approx(1.25)


def test_without_a_recorder_nothing_is_claimed() -> None:
    report = measure_observer_effect(steps_of((0, 100)), {}).report
    assert report.unprofiled_step_ns is None
    assert report.inflation is None
    assert report.inflation_by_phase == {}


def test_without_step_markers_the_whole_span_is_no_step() -> None:
    report = measure_observer_effect(steps_of(), {"unprofiled": {"step_ns": [80_000]}}).report
    assert report.profiled_step_ns is None
    assert report.inflation is None


@pytest.mark.parametrize(
    "recorder",
    [
        {"unprofiled": None},
        {"unprofiled": {"step_ns": []}},
        {"unprofiled": {"step_ns": "fast"}},
        {"unprofiled": {"step_ns": [True, None]}},
        {"unprofiled": [1, 2]},
        {"passes": []},
        {"passes": "none", "pass": "first"},
    ],
)
def test_odd_recorder_facts_are_no_facts(recorder: dict[str, object]) -> None:
    assert measure_observer_effect(steps_of((0, 100)), recorder).report.inflation is None


def test_the_pass_of_a_whole_run_document_is_found() -> None:
    passes = [{"unprofiled": {"step_ns": [1]}}, _TIMES]
    assert measure_observer_effect(steps_of(), {"passes": passes, "pass": 1}).report.unprofiled_step_ns == 60_000
    assert measure_observer_effect(steps_of(), {"passes": passes}).report.unprofiled_step_ns == 1
