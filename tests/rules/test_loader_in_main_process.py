"""TA101."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, launch_bound, likely_us, loop, work
from traceanalyzer.measures import Measures, Options
from traceanalyzer.results.vocabulary import Severity, Status
from traceanalyzer.rules import loader_in_main_process as rule

SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def starved(batch_us: float, **facts: object) -> Measures:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation(SINGLE, at, at + batch_us)
        work(b, at + batch_us, at + batch_us + 5, at + LENGTH)

    return loop(step, **facts)


def fires() -> Measures:
    """4,000 µs of every step go to making a batch."""
    return starved(4_000)


def quiet() -> Measures:
    """The same loader, but the device still has the previous step's work to do."""

    def step(b: TraceBuilder, number: int, at: float) -> None:
        begin = at if number == 0 else at + 4_000
        if number:
            b.annotation(SINGLE, at, at + 4_000)
        work(b, begin, at + 5 if number == 0 else at + 4_005, at + LENGTH + 4_005)

    return loop(step)


def nsys(workers: int | None) -> Measures:
    """NVTX step ranges that leave 4,000 µs between them, and no loader range."""
    builder = TraceBuilder(metadata={} if workers is None else {"loader_workers": str(workers)})
    for number in range(5):
        at = number * LENGTH
        builder.annotation("train_step", at, at + 6_000)
        builder.kernel("gemm", at + 5, at + 6_000, launch=(at + 1, at + 3))
    return Measures(builder.build(), Options(step_marker="train_step"))


def test_the_saving_is_the_idle_time_inside_the_loader() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 4_000
    assert finding.severity is Severity.HIGH
    # the low end gives back 40 % of the remaining 6,000 µs to contention with the workers
    assert finding.saving_per_step_ns.low == (4_000 - 2_400) * 1000


def test_one_worker_is_enough_when_a_batch_takes_less_than_the_rest_of_the_step() -> None:
    assert judge(rule, fires()).observed["workers_needed"] == 1


def test_workers_needed_are_batch_time_over_the_rest_of_the_step_rounded_up() -> None:
    # a batch takes 7,000 µs, the rest of the step 3,000
    assert judge(rule, starved(7_000)).observed["workers_needed"] == 3


def test_too_few_cores_for_the_workers_needed_is_said() -> None:
    assert any("cores" in step for step in judge(rule, starved(7_000, cpu_cores=2)).fix)
    assert not any("cores" in step for step in judge(rule, starved(7_000, cpu_cores=16)).fix)


def test_a_loader_that_keeps_up_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


@pytest.mark.parametrize(("batch_us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_of_one_percent_of_the_step_on(batch_us: float, status: Status) -> None:
    assert judge(rule, starved(batch_us)).status is status


def test_loading_inside_validation_is_left_to_the_validation_rule() -> None:
    def step(b: TraceBuilder, number: int, at: float) -> None:
        if number == 3:
            b.annotation("validate", at, at + 4_100)
            b.annotation(SINGLE, at + 10, at + 4_000)
            work(b, at + 4_050, at + 4_060, at + LENGTH + 5)
        else:
            work(b, at, at + 5, at + LENGTH + (5 if number != 2 else 0))

    assert judge(rule, loop(step)).status is Status.PASS


def test_waiting_for_worker_processes_is_not_loading_in_the_main_process() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, at + 4_000)
        launch_bound(b, at + 4_000, at + LENGTH)

    assert judge(rule, loop(step)).status is Status.PASS


def test_without_loader_ranges_the_time_between_step_ranges_counts_when_there_are_no_workers() -> None:
    finding = judge(rule, nsys(workers=0))
    assert finding.status is Status.FAIL
    # four gaps of 4,000 µs between five ranges; the launch at the next step's start is not part of them
    assert likely_us(finding) == 4 * 4_000 / 5
    assert finding.confidence < 0.9


@pytest.mark.parametrize("workers", [8, None])
def test_without_loader_ranges_workers_or_not_knowing_acquits_the_main_process(workers: int | None) -> None:
    assert judge(rule, nsys(workers)).status is Status.PASS


def test_a_recording_without_loader_or_step_ranges_is_not_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100, launch=(0, 5))
    finding = judge(rule, Measures(builder.build()))
    assert finding.status is Status.NOT_APPLICABLE
    assert "loader ranges" in finding.message


def test_an_empty_recording_is_not_judged() -> None:
    finding = judge(rule, empty())
    assert finding.status is Status.NOT_APPLICABLE
    assert "GPU activity" in finding.message


def test_a_healthy_loop_is_not_accused() -> None:
    assert judge(rule, healthy()).status is not Status.FAIL
