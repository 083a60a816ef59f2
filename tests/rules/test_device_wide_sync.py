"""TA502."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import device_wide_sync as rule
from traceanalyzer.rules import sync_in_step


def waiting(refill_us: float) -> Measures:
    """The host waits for the device, then needs some time to launch what comes next."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.kernel("gemm", at + 5, at + 5_000, launch=(at + 1, at + 3))
        b.call("cudaDeviceSynchronize", at + 10, at + 5_000)
        back = at + 5_000 + refill_us
        b.kernel("gemm", back, at + LENGTH + 5, launch=(back - 4, back - 2))

    return loop(step)


def fires() -> Measures:
    """The device waits 2,000 µs for work after every wait."""
    return waiting(2_000)


def quiet() -> Measures:
    """The next kernel is there 10 µs later."""
    return waiting(10)


def test_the_saving_is_the_idle_time_until_the_queue_is_filled_again() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 2_000
    assert finding.observed["waits_per_step"] == 1


def test_the_same_wait_is_not_counted_twice() -> None:
    assert judge(sync_in_step, fires()).status is Status.PASS


@pytest.mark.parametrize(("refill_us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_on(refill_us: float, status: Status) -> None:
    assert judge(rule, waiting(refill_us)).status is status


def test_kernels_without_calls_and_an_empty_recording_are_not_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100)
    assert judge(rule, Measures(builder.build())).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
    assert judge(rule, healthy()).status is Status.PASS


def test_the_wait_a_profiler_makes_before_it_stops_is_not_the_loops() -> None:
    def step(b: TraceBuilder, number: int, at: float) -> None:
        b.kernel("gemm", at + 5, at + 5_000, launch=(at + 1, at + 3))
        if number == 4:
            b.call("cudaDeviceSynchronize", at + 10, at + 5_000)

    assert judge(rule, loop(step)).message == "No step waits for the whole device."
