"""TA803."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import logging_stall as rule


def logging(log_us: float) -> Measures:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation("log", at, at + log_us)
        work(b, at + log_us, at + log_us, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """Logging takes 800 µs of every step."""
    return logging(800)


def quiet() -> Measures:
    """Logging takes 20 µs."""
    return logging(20)


def test_the_saving_is_the_idle_time_inside_the_logging_range() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 800


@pytest.mark.parametrize(("log_us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_on(log_us: float, status: Status) -> None:
    assert judge(rule, logging(log_us)).status is status


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, quiet()).status is Status.PASS
    assert judge(rule, healthy()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
