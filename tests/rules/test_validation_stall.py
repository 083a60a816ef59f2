"""TA801."""

from __future__ import annotations

import pytest

import traceanalyzer
from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import loader_in_main_process, plan_search
from traceanalyzer.rules import validation_stall as rule


def validating(idle_us: float, name: str = "validate") -> Measures:
    """The fourth step holds a validation during which the device idles."""

    def step(b: TraceBuilder, number: int, at: float) -> None:
        begin = at
        if number == 3:
            b.annotation(name, at, at + idle_us + 100)
            b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + idle_us)
            begin = at + idle_us
        work(b, begin, begin, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """Validation idles for 6,000 µs once."""
    return validating(6_000)


def quiet() -> Measures:
    """Validation keeps the device busy."""
    return validating(0)


def test_the_saving_is_a_mean_over_all_steps_and_the_episode_its_own_cost() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert finding.episode.ns == 6_000_000
    assert finding.episode.per_1000_steps == 200
    assert likely_us(finding) == 1_200
    assert finding.observed["idle_input_wait_ns"] == 6_000_000


def test_a_validation_loader_without_workers_is_named_in_the_fix() -> None:
    assert "validation loader workers" in judge(rule, fires()).fix[0]


@pytest.mark.shared
def test_the_larger_part_comes_first_in_the_fix() -> None:
    # during validation operators search for plans for 1.19 s here, and the loader takes 0.22 s
    analysis = traceanalyzer.analyze(shared("traces/h200/boundary.pt.trace.json.gz"))
    finding = next(f for f in analysis.findings if f.code == "TA801")
    assert "input shapes" in finding.fix[0]
    assert "validation loader workers" in finding.fix[1]


def test_the_same_idle_time_is_not_charged_to_the_training_loader_or_plan_search() -> None:
    assert judge(loader_in_main_process, fires()).status is Status.PASS
    assert judge(plan_search, fires()).status is Status.PASS


def test_a_busy_validation_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


@pytest.mark.parametrize(("idle_us", "status"), [(499, Status.PASS), (500, Status.FAIL)])
def test_it_fires_from_the_floor_on(idle_us: float, status: Status) -> None:
    # a floor of 100 µs per step is 500 µs once in five steps
    assert judge(rule, validating(idle_us)).status is status


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
