"""Allocator: driver calls, totals and the memory curve."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.measures.handmade import profiler_steps, recording, steps_of
from traceanalyzer.measures.allocator import CURVE_POINTS, measure_allocator
from traceanalyzer.model.schema import CallKind


def test_calls_are_counted_by_what_they_allocate() -> None:
    builder = TraceBuilder()
    builder.call("cudaMalloc", 0, 10)
    builder.call("cudaMallocAsync", 10, 12)
    builder.call("cudaFree", 12, 15)
    builder.call("cudaHostAlloc", 20, 27)
    builder.call("cudaFreeHost", 30, 31)
    builder.call("cudaLaunchKernel", 40, 41)
    allocator = measure_allocator(builder.build(), steps_of((0, 11), (11, 50)))
    report = allocator.report
    assert (report.device_malloc.count, report.device_malloc.time_ns) == (2, 12_000)
    assert (report.device_free.count, report.device_free.time_ns) == (1, 3_000)
    assert (report.host_alloc.count, report.host_alloc.time_ns) == (1, 7_000)
    assert allocator.kind.tolist() == [
        CallKind.DEVICE_MALLOC,
        CallKind.DEVICE_MALLOC,
        CallKind.DEVICE_FREE,
        CallKind.HOST_ALLOC,
        CallKind.HOST_FREE,
    ]
    assert allocator.window.tolist() == [0, 0, 1, 1, 1]


def test_a_driver_call_under_its_runtime_call_counts_once() -> None:
    builder = TraceBuilder()
    builder.call("cudaMalloc", 0, 10)
    builder.call("cuMemAlloc_v2", 2, 8)
    builder.call("cudaMalloc", 2, 8, thread=1)
    report = measure_allocator(builder.build(), steps_of()).report
    assert (report.device_malloc.count, report.device_malloc.time_ns) == (2, 16_000)


def test_without_allocator_events_totals_are_unknown_not_zero() -> None:
    allocator = measure_allocator(TraceBuilder().build(), steps_of((0, 10)))
    assert allocator.curve is None
    assert allocator.report.allocations is None
    assert allocator.report.peak_allocated_bytes is None
    assert allocator.report.retries is None
    assert allocator.largest_steady_growth_bytes is None
    assert allocator.allocated_at_step_start.tolist() == [-1]


def test_events_give_counts_and_peaks() -> None:
    builder = TraceBuilder()
    builder.memory(1, 512, allocated=512, reserved=2048)
    builder.memory(2, 1024, allocated=1536, reserved=2048)
    builder.memory(3, -512, allocated=1024, reserved=4096)
    allocator = measure_allocator(builder.build(), steps_of())
    report = allocator.report
    assert (report.allocations, report.frees) == (2, 1)
    assert (report.peak_allocated_bytes, report.peak_reserved_bytes) == (1536, 4096)
    assert allocator.curve is not None
    assert allocator.curve.time_ns == [1_000, 2_000, 3_000]
    assert allocator.curve.allocated_bytes == [512, 1536, 1024]
    assert not allocator.curve_is_driver


def test_growth_is_between_the_starts_of_consecutive_steady_steps() -> None:
    builder = TraceBuilder()
    builder.memory(0, 100, allocated=100, reserved=900)
    builder.memory(15, 50, allocated=150, reserved=900)
    builder.memory(25, 400, allocated=550, reserved=900)
    builder.memory(28, -390, allocated=160, reserved=900)
    allocator = measure_allocator(builder.build(), steps_of((10, 20), (20, 30), (30, 40)))
    assert allocator.allocated_at_step_start.tolist() == [100, 150, 160]
    assert allocator.largest_steady_growth_bytes == 50


def test_trend_sees_a_leak_but_not_two_alternating_levels() -> None:
    leaking, alternating = TraceBuilder(), TraceBuilder()
    for step in range(8):
        leaking.memory(10 * step, 100, allocated=1_000 + 100 * step, reserved=9_000)
        alternating.memory(10 * step, 100, allocated=1_000 + 500 * (step % 2), reserved=9_000)
    steps = steps_of(*((10 * n + 5, 10 * n + 15) for n in range(8)))
    assert measure_allocator(leaking.build(), steps).steady_growth_per_step_bytes == 100.0
    assert measure_allocator(alternating.build(), steps).steady_growth_per_step_bytes == 0.0
    assert measure_allocator(leaking.build(), steps_of((5, 15), (15, 25))).steady_growth_per_step_bytes is None


def test_growth_across_a_window_that_is_not_steady_does_not_count() -> None:
    builder = TraceBuilder()
    builder.memory(0, 100, allocated=100, reserved=900)
    builder.memory(25, 400, allocated=550, reserved=900)
    steps = steps_of((10, 20), (20, 30), (30, 40), classes=[1, 2, 1])  # steady, episodic, steady
    assert measure_allocator(builder.build(), steps).largest_steady_growth_bytes is None


def test_long_curve_is_thinned_but_keeps_its_peaks_and_its_end() -> None:
    builder = TraceBuilder()
    for index in range(20_000):
        allocated = 999_999 if index == 12_345 else index % 97
        builder.memory(index, 1, allocated=allocated, reserved=1_000_000 if index == 777 else 500_000)
    curve = measure_allocator(builder.build(), steps_of()).curve
    assert curve is not None
    assert len(curve.time_ns) <= CURVE_POINTS
    assert curve.time_ns == sorted(curve.time_ns)
    assert max(curve.allocated_bytes) == 999_999
    assert max(curve.reserved_bytes) == 1_000_000
    assert curve.time_ns[-1] == 19_999_000


@pytest.mark.shared
def test_emptied_cache_shows_527_mallocs_and_527_frees_in_5_steps() -> None:
    trace = recording("traces/h200/empty.pt.trace.json.gz")
    allocator = measure_allocator(trace, profiler_steps(trace))
    assert allocator.report.device_malloc.count == 527
    assert allocator.report.device_free.count == 527
    assert set(allocator.window.tolist()) == {0, 1, 2, 3, 4}


@pytest.mark.shared
def test_allocator_events_of_a_real_recording_give_peaks() -> None:
    allocator = measure_allocator(trace := recording("traces/h200/empty.pt.trace.json.gz"), profiler_steps(trace))
    assert (allocator.report.allocations or 0) + (allocator.report.frees or 0) == int((trace.memory.device >= 0).sum())
    assert allocator.report.peak_allocated_bytes == int(trace.memory.allocated_bytes.max())
    assert allocator.curve is not None
    assert max(allocator.curve.allocated_bytes) == allocator.report.peak_allocated_bytes
    assert max(allocator.curve.reserved_bytes) == allocator.report.peak_reserved_bytes
