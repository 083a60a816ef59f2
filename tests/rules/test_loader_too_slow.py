"""TA102."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from tests.rules.test_loader_in_main_process import nsys
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import loader_restart
from traceanalyzer.rules import loader_too_slow as rule

WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def starved(wait_us: float, numbers: tuple[int, ...] = (0, 1, 2, 3, 4)) -> Measures:
    def step(b: TraceBuilder, number: int, at: float) -> None:
        wait = wait_us if number in numbers else 2
        b.annotation(WORKERS, at, at + wait)
        work(b, at + wait, at + wait + 5, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """The queue is dry in two of five steps, 3,000 µs each."""
    return starved(3_000, (1, 3))


def quiet() -> Measures:
    """Every batch is ready within 2 µs."""
    return starved(2)


def test_the_saving_is_the_mean_wait_over_all_steps() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == (2 * 3_000 + 3 * 2) / 5
    assert finding.observed["steps"] == 5


def test_a_full_queue_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


@pytest.mark.parametrize(("wait_us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_on(wait_us: float, status: Status) -> None:
    assert judge(rule, starved(wait_us)).status is status


def test_between_step_ranges_workers_are_named_when_the_recording_shows_them() -> None:
    finding = judge(rule, nsys(workers=8))
    assert finding.status is Status.FAIL
    assert finding.observed["worker_processes"] == 8


def test_not_knowing_whether_workers_exist_lowers_confidence_and_is_said() -> None:
    finding = judge(rule, nsys(workers=None))
    assert finding.status is Status.FAIL
    assert finding.confidence == 0.5
    assert "does not show worker processes" in finding.fix[0]


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


def test_one_late_batch_is_an_accident_and_two_are_a_rate() -> None:
    assert judge(rule, starved(5_000, (2,))).status is Status.PASS
    assert "Only 1 of 5 steps" in judge(rule, starved(5_000, (2,))).message
    assert judge(rule, starved(5_000, (2, 4))).status is Status.FAIL


def test_the_first_batch_of_an_epoch_is_left_to_the_restart() -> None:
    def step(b: TraceBuilder, number: int, at: float) -> None:
        wait = 5_000 if number in (0, 3) else 2
        b.annotation(WORKERS, at, at + wait)
        work(b, at + wait, at + wait + 5, at + LENGTH)

    assert judge(rule, loop(step)).status is Status.FAIL
    measures = loop(step, configuration={"batches_per_epoch": 3})
    assert judge(rule, measures).status is Status.PASS
    finding = judge(loader_restart, measures)
    assert finding.status is Status.FAIL
    assert finding.observed["times"] == 2
