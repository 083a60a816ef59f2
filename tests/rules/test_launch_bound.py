"""TA201."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, launch_bound, loop
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import launch_bound as rule


def fires() -> Measures:
    """100 kernels of 20 µs per step, one every 100 µs."""
    return loop(lambda b, _number, at: launch_bound(b, at, at + LENGTH))


def quiet() -> Measures:
    """One long kernel per step, launched ahead."""
    return healthy()


def waiting(share_percent: int) -> Measures:
    """Kernels of 100 µs minus the given share, one every 100 µs."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        for k in range(100):
            t = at + 100 * k
            b.operator("aten::add", t, t + 16)
            b.kernel("add", t + 20, t + 120 - share_percent, launch=(t + 10, t + 15) if share_percent > 10 else None)

    return loop(step)


def test_the_upper_limit_is_all_idle_time_before_launches() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    # 80 of every 100 µs; how much of that can be won is not known
    assert finding.saving_per_step_ns.high == 8_000_000
    assert finding.saving_per_step_ns.likely is None
    assert finding.observed["kernels_per_step"] == 100
    assert finding.observed["median_kernel_ns"] == 20_000
    assert finding.observed["median_launch_call_ns"] == 5_000
    assert finding.observed["step_time_per_kernel_ns"] == 100_000


@pytest.mark.parametrize(("share", "status"), [(19, Status.PASS), (20, Status.FAIL)])
def test_it_fires_from_a_fifth_of_the_step_on(share: int, status: Status) -> None:
    assert judge(rule, waiting(share)).status is status


def test_idle_time_of_other_causes_is_set_aside_first() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 9_000)
        launch_bound(b, at + 9_000, at + LENGTH)

    finding = judge(rule, loop(step))
    assert finding.status is Status.FAIL
    # the step without loading lasts 1,000 µs plus nothing; 800 of it wait for launches
    assert finding.observed["share_of_remaining_step"] == pytest.approx(0.8, abs=0.001)


def test_it_says_that_mixed_precision_would_not_help() -> None:
    assert "Mixed precision would not shorten" in judge(rule, fires()).message


def test_kernels_without_launches_are_not_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100)
    finding = judge(rule, Measures(builder.build()))
    assert finding.status is Status.NOT_APPLICABLE
    assert "launch calls" in finding.message


def test_a_busy_device_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, quiet()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


def test_what_the_profiler_added_to_the_step_is_taken_off_the_share() -> None:
    measures = waiting(25)
    assert judge(rule, measures).status is Status.FAIL
    # 10,000 µs recorded, 9,000 without the profiler: 1,500 of 9,000 wait for launches
    facts = {"unprofiled": {"step_ns": [9_000_000]}, "profiled": {"step_ns": [10_000_000]}}
    finding = judge(rule, Measures(measures.trace, recorder=dict(facts)))
    assert finding.status is Status.PASS
    assert finding.observed["share_of_remaining_step"] == pytest.approx(1_500 / 9_000, abs=0.002)


def test_where_is_the_operator_with_most_time_in_total_not_the_longest_piece() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        # 50 short waits in one operator: 50 x 80 µs; one long wait of 900 µs in another
        launch_bound(b, at, at + 5_000)
        b.operator("aten::once", at + 5_000, at + 5_905)
        b.kernel("once", at + 5_910, at + 6_000, launch=(at + 5_900, at + 5_905))

    finding = judge(rule, loop(step))
    assert finding.status is Status.FAIL
    assert finding.observed["most_time_in"] == "aten::add"
