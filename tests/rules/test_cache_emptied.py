"""TA402."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import allocator_churn, sync_in_step
from traceanalyzer.rules import cache_emptied as rule


def emptying(
    frees: int = 5,
    *,
    in_steps: tuple[int, ...] = (0, 1, 2, 3, 4),
    mallocs: int = 5,
    failed_before: bool = False,
    call_us: float = 100,
    then_us: float = 500,
    asks_again: bool = False,
) -> Measures:
    """A step that begins with frees, allocates again, then works until the next step."""

    def step(b: TraceBuilder, number: int, at: float) -> None:
        if number not in in_steps:
            work(b, at, at + 5, at + LENGTH)
            return
        t = at
        if failed_before:
            b.call("cudaMalloc", t, t + 50)
            t += 60
        for _ in range(frees):
            b.call("cudaFree", t, t + call_us)
            t += call_us
        t += then_us
        if asks_again:
            b.operator("aten::empty", at - 1, t + 2)
        for _ in range(mallocs):
            b.call("cudaMalloc", t, t + call_us)
            t += call_us
        work(b, t, t + 5, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """Five frees and five allocations of 100 µs in every step."""
    return emptying()


def quiet() -> Measures:
    """Nothing is freed."""
    return healthy()


def test_the_saving_is_the_idle_time_inside_frees_and_allocations() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 1_000
    assert finding.observed["frees_per_step"] == 5
    assert finding.evidence_count == 5


def test_the_same_calls_are_not_counted_again_as_churn() -> None:
    finding = judge(allocator_churn, fires())
    assert finding.status is Status.PASS
    assert "TA402" in finding.message


def test_the_wait_before_the_frees_belongs_to_the_emptied_cache() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.call("cudaDeviceSynchronize", at, at + 300)
        for k in range(5):
            b.call("cudaFree", at + 300 + 10 * k, at + 310 + 10 * k)
            b.call("cudaMalloc", at + 900 + 10 * k, at + 910 + 10 * k)
        work(b, at + 950, at + 955, at + LENGTH)

    measures = loop(step)
    assert likely_us(judge(rule, measures)) == 400
    assert judge(sync_in_step, measures).status is Status.PASS


@pytest.mark.parametrize(("frees", "status"), [(2, Status.PASS), (3, Status.FAIL)])
def test_a_burst_has_at_least_three_frees(frees: int, status: Status) -> None:
    assert judge(rule, emptying(frees)).status is status


@pytest.mark.parametrize(("in_steps", "status"), [((0, 1), Status.PASS), ((0, 1, 2), Status.FAIL)])
def test_bursts_must_come_in_half_of_the_steps(in_steps: tuple[int, ...], status: Status) -> None:
    assert judge(rule, emptying(in_steps=in_steps)).status is status


@pytest.mark.parametrize(("mallocs", "status"), [(1, Status.PASS), (2, Status.FAIL)])
def test_half_of_the_segments_must_come_back(mallocs: int, status: Status) -> None:
    # four bursts of five frees are followed by another step; five steps allocate
    assert judge(rule, emptying(mallocs=mallocs)).status is status


def test_frees_right_after_a_failed_allocation_are_a_retry() -> None:
    assert judge(rule, emptying(failed_before=True)).status is Status.PASS


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(("asks_again", "status"), [(True, Status.PASS), (False, Status.FAIL)])
def test_frees_inside_the_operator_that_then_allocates_are_the_allocator_trying_again(
    asks_again: bool, status: Status
) -> None:
    # 16 µs after the last free under a memory cap, 24 µs after empty_cache() elsewhere: time does not tell them apart
    assert judge(rule, emptying(then_us=20, asks_again=asks_again)).status is status
