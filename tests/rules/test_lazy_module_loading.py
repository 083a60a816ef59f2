"""TA203."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import lazy_module_loading as rule


def loading(call_us: float) -> Measures:
    def step(b: TraceBuilder, number: int, at: float) -> None:
        begin = at + (call_us if number == 2 else 0)
        if number == 2:
            b.call("cuModuleLoadData", at, at + call_us)
        work(b, begin, begin, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """One of five steps loads a module for 2,000 µs."""
    return loading(2_000)


def quiet() -> Measures:
    """Nothing is loaded."""
    return healthy()


def test_the_saving_is_the_mean_and_the_episode_what_one_load_costs() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 400
    assert finding.episode.ns == 2_000_000
    assert "EAGER" in finding.fix[0]


@pytest.mark.parametrize(("call_us", "status"), [(499, Status.PASS), (500, Status.FAIL)])
def test_it_fires_from_the_floor_on(call_us: float, status: Status) -> None:
    assert judge(rule, loading(call_us)).status is status


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, quiet()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
