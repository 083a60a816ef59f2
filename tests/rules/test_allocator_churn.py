"""TA401."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import allocator_churn as rule


def allocating(call_us: float, call: str = "cudaMalloc") -> Measures:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.operator("aten::empty", at, at + call_us)
        b.call(call, at, at + call_us)
        work(b, at + call_us, at + call_us + 5, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """One driver allocation of 500 µs per step while the device idles."""
    return allocating(500)


def quiet() -> Measures:
    """The same call while the device is busy with the previous step."""

    def step(b: TraceBuilder, number: int, at: float) -> None:
        if number:
            b.call("cudaMalloc", at, at + 500)
        work(b, at + (500 if number else 0), at + (1_000 if number else 5), at + LENGTH + 1_000)

    return loop(step)


def test_the_saving_is_the_idle_time_inside_the_calls() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 500
    assert finding.observed["calls_per_step"] == 1
    assert finding.observed["cudaMalloc_calls"] == 5


def test_allocations_under_a_busy_device_are_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_host_allocations_are_not_device_allocations() -> None:
    assert judge(rule, allocating(500, "cudaHostAlloc")).status is Status.PASS


@pytest.mark.parametrize(("call_us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_on(call_us: float, status: Status) -> None:
    assert judge(rule, allocating(call_us)).status is status


def test_kernels_without_calls_and_an_empty_recording_are_not_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100)
    assert judge(rule, Measures(builder.build())).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


def test_a_healthy_loop_is_quiet() -> None:
    assert judge(rule, healthy()).status is Status.PASS
