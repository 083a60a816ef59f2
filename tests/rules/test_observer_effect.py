"""TA902."""

from __future__ import annotations

import pytest

from tests.rules.support import busy_step, empty, healthy, judge, loop
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import observer_effect as rule


def timed(unprofiled_us: float) -> Measures:
    """Recorded steps of 10,000 µs, and what they took without the profiler."""
    return loop(busy_step, unprofiled={"step_ns": [unprofiled_us * 1000] * 20})


def fires() -> Measures:
    """The profiler doubled the step."""
    return timed(5_000)


def quiet() -> Measures:
    """The profiler added a tenth."""
    return timed(9_091)


def test_the_inflation_is_recorded_over_unprofiled_step_time() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.INFORMATIVE
    assert finding.observed["inflation"] == 2
    assert "2.00 times" in finding.message


@pytest.mark.parametrize(("unprofiled_us", "status"), [(8_000, Status.PASS), (7_999, Status.INFORMATIVE)])
def test_it_speaks_above_a_quarter(unprofiled_us: float, status: Status) -> None:
    assert judge(rule, timed(unprofiled_us)).status is status


def test_a_light_profiler_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_without_steps_timed_by_the_recorder_it_says_what_is_missing() -> None:
    for measures in (healthy(), empty()):
        finding = judge(rule, measures)
        assert finding.status is Status.NOT_APPLICABLE
        assert "traceanalyzer record" in finding.message
