"""Launches: overhead, delay, queue depth and whether the host was late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import TraceBuilder, ns
from tests.measures.handmade import devices_of, recording
from traceanalyzer.measures.launches import Launches, measure_launches


def _measure(builder: TraceBuilder) -> Launches:
    trace = builder.build()
    return measure_launches(trace, devices_of(trace))


def test_overhead_and_delay_are_the_call_and_the_wait_after_it() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 20, 30, launch=(5, 12))
    launches = _measure(builder)
    assert launches.overhead_ns.tolist() == [7_000]
    assert launches.delay_ns.tolist() == [8_000]
    assert launches.report.overhead_ns.p50 == 7_000
    assert launches.report.delay_ns.p99 == 8_000


def test_a_start_inside_the_call_is_normal_and_has_no_delay() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 8, 30, launch=(5, 12))
    launches = _measure(builder)
    assert launches.delay_ns.tolist() == [0]
    assert launches.report.started_during_call == 1
    assert launches.report.clock_skew == 0


def test_only_a_start_before_the_call_is_clock_skew() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 4, 30, launch=(5, 12))
    launches = _measure(builder)
    assert launches.report.clock_skew == 1
    assert launches.report.started_during_call == 0


def test_queue_depth_counts_earlier_launches_that_have_not_finished() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 50, launch=(0, 2))
    builder.kernel("b", 50, 60, launch=(3, 5))  # a is queued
    builder.kernel("c", 60, 70, launch=(20, 22))  # a runs, b is queued
    builder.kernel("d", 80, 90, launch=(55, 57))  # b runs, c is queued
    assert _measure(builder).queue_depth.tolist() == [0, 1, 2, 2]


def test_a_launch_that_began_in_an_idle_device_is_host_bound() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 20, launch=(0, 5))
    builder.kernel("b", 40, 50, launch=(30, 35))  # idle since 20: 10 of 20 µs before the call
    builder.kernel("c", 53, 60, launch=(36, 38))  # queued behind b
    launches = _measure(builder)
    assert launches.host_bound.tolist() == [0, 1, 0]
    assert launches.report.host_bound_share_of_activities == pytest.approx(1 / 3)
    # idle: 20 (20 → 40) + 3 (50 → 53); of that 10 lie before the late launch
    assert launches.report.host_bound_share_of_idle == pytest.approx(10 / 23)


def test_a_launch_falling_into_the_turnaround_between_queued_kernels_is_not_late() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 20, launch=(0, 1))
    builder.kernel("b", 22, 40, launch=(2, 3))  # queued long before
    builder.kernel("c", 40, 50, launch=(21, 23))  # begins inside the 2 µs between a and b
    assert _measure(builder).host_bound.tolist() == [0, 0, 0]


def test_the_first_launch_of_a_recording_is_not_late() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 20, launch=(0, 1))
    launches = _measure(builder)
    assert launches.host_bound.tolist() == [0]
    assert launches.report.host_bound_share_of_idle is None  # no idle to share


def test_a_graph_launch_is_one_launch_with_many_activities() -> None:
    builder = TraceBuilder()
    correlation = builder.call("cudaGraphLaunch", 0, 5, correlation=9)
    for index in range(40):
        builder.activity(f"k{index}", 10 + 3 * index, 12 + 3 * index, correlation=correlation)
    launches = _measure(builder)
    assert len(launches.activity) == 40
    assert launches.report.count == 1
    assert launches.is_first.sum() == 1
    # later nodes of the graph were not delayed by the launch
    assert launches.report.delay_ns.p99 == ns(5)


def test_launches_without_activity_are_counted_by_kind() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 20, launch=(0, 1))
    builder.call("cudaLaunchKernel", 2, 3, correlation=7)
    builder.call("cudaMemsetAsync", 4, 5, correlation=8)  # of no bytes
    builder.call("cudaStreamSynchronize", 6, 7, correlation=9)  # enqueues nothing
    launches = _measure(builder)
    assert launches.launches_without_activity == 2
    assert launches.kernel_launches_without_activity == 1


def test_launches_captured_into_a_graph_are_not_missed() -> None:
    builder = TraceBuilder()
    builder.call("cudaStreamBeginCapture_v10000", 0, 1)
    builder.call("cudaLaunchKernel", 2, 3, correlation=7)
    builder.call("cudaLaunchKernel", 2, 3, correlation=8, thread=1)  # another thread captures nothing
    builder.call("cudaStreamEndCapture", 4, 5)
    builder.call("cudaLaunchKernel", 6, 7, correlation=9)
    launches = _measure(builder)
    assert launches.launches_without_activity == 3
    assert launches.kernel_launches_without_activity == 2


def test_an_activity_without_a_launch_is_counted_and_gets_no_row() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 20)
    launches = _measure(builder)
    assert len(launches.activity) == 0
    assert launches.activities_without_launch == 1
    assert launches.report.overhead_ns.p50 is None
    assert launches.report.host_bound_share_of_activities is None


def test_each_device_has_its_own_queue() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 50, launch=(0, 2), device=0)
    builder.kernel("b", 60, 70, launch=(30, 32), device=1)
    assert _measure(builder).queue_depth.tolist() == [0, 0]


def test_an_empty_recording_has_no_launches() -> None:
    assert _measure(TraceBuilder()).report.count == 0


@pytest.mark.shared
def test_public_recording_launches_4876_of_6095_activities_before_its_last_step() -> None:
    trace = recording("traces/public/hta/ns_resolution_rank-0.pt.trace.json.gz")
    launches = measure_launches(trace, ())
    last = max(
        int(trace.slices.start_ns[row])
        for row in range(len(trace.slices))
        if trace.names[trace.slices.name[row]].startswith("ProfilerStep#")
    )
    assert len(launches.activity) == len(trace.activities) == 6_095
    assert int((launches.call_start_ns < last).sum()) == 4_876


@pytest.mark.shared
def test_graph_of_425_kernels_shares_one_launch() -> None:
    trace = recording("traces/public/tracelens/vllm_decode_graph.json.gz")
    launches = measure_launches(trace, devices_of(trace))
    graph = [c for c in set(launches.call.tolist()) if "GraphLaunch" in trace.names[trace.calls.name[c]]]
    assert len(graph) == 1
    assert launches.report.count == len(set(launches.call.tolist()))
    assert int((launches.call == graph[0]).sum()) == len(trace.activities) - (launches.report.count - 1)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5), st.integers(0, 20), st.integers(1, 15)), max_size=12))
def test_depth_and_lateness_agree_with_looking_at_every_pair(rows: list[tuple[int, int, int, int]]) -> None:
    builder = TraceBuilder()
    for began, call, delay, length in rows:
        builder.kernel("k", began + call + delay, began + call + delay + length, launch=(began, began + call))
    trace = builder.build()
    devices = devices_of(trace)
    launches = measure_launches(trace, devices)
    starts, ends = trace.activities.start_ns.tolist(), trace.activities.end_ns.tolist()
    for row, began in enumerate(launches.call_start_ns.tolist()):
        earlier = [i for i, other in enumerate(launches.call_start_ns.tolist()) if other < began and ends[i] > began]
        assert launches.queue_depth[row] == len(earlier)
        has_run = any(end < began for end in ends)
        runs_or_will_end = any(s <= began < e for s, e in zip(starts, ends, strict=True))
        just_ended = any(end == began for end in ends)
        idle_then = has_run and not runs_or_will_end and not just_ended and any(s > began for s in starts)
        next_start = min((s for s in starts if s > began), default=None)
        expected = idle_then and (not earlier or starts[row] == next_start)
        assert bool(launches.host_bound[row]) == expected
