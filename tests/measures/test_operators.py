"""Own time of operators, and the nesting it comes from."""

from __future__ import annotations

import pytest

from tests.builders import AUTOGRAD, TraceBuilder
from tests.measures.handmade import recording
from traceanalyzer.measures.host_nesting import nest_host
from traceanalyzer.measures.operators import Operators, measure_operators
from traceanalyzer.model.schema import SliceKind


def _own(builder: TraceBuilder) -> dict[str, int]:
    operators = measure_operators(builder.build())
    return dict(zip(operators.name, operators.own_ns.tolist(), strict=True))


def test_own_time_leaves_out_nested_operators_and_calls() -> None:
    builder = TraceBuilder()
    builder.operator("aten::linear", 0, 100)
    builder.operator("aten::addmm", 10, 60)
    builder.call("cudaLaunchKernel", 20, 35)
    builder.call("cudaLaunchKernel", 70, 75)
    assert _own(builder) == {"aten::linear": 45_000, "aten::addmm": 35_000}


def test_a_call_nested_in_a_call_is_taken_off_once() -> None:
    builder = TraceBuilder()
    builder.operator("aten::add", 0, 100)
    builder.call("cudaLaunchKernel", 10, 50)
    builder.call("cuLaunchKernel", 20, 40)
    assert _own(builder) == {"aten::add": 60_000}


def test_threads_do_not_nest_in_each_other() -> None:
    builder = TraceBuilder()
    builder.operator("aten::main", 0, 100)
    builder.operator("aten::other", 10, 60, thread=AUTOGRAD)
    assert _own(builder) == {"aten::main": 100_000, "aten::other": 50_000}


def test_operator_and_call_with_equal_times_nest_with_the_operator_outside() -> None:
    builder = TraceBuilder()
    builder.operator("aten::add", 0, 10)
    builder.call("cudaLaunchKernel", 0, 10)
    assert _own(builder) == {"aten::add": 0}


def test_a_child_that_outlives_its_parent_takes_only_the_common_part() -> None:
    builder = TraceBuilder()
    builder.operator("aten::parent", 0, 50)
    builder.operator("aten::child", 40, 70)
    assert _own(builder) == {"aten::child": 30_000, "aten::parent": 40_000}


def test_median_and_longest_own_time_are_per_call() -> None:
    builder = TraceBuilder()
    for start, length in ((0, 5), (10, 1), (20, 3)):
        builder.operator("aten::x", start, start + length)
    operators: Operators = measure_operators(builder.build())
    assert (operators.count.tolist(), operators.own_ns.tolist()) == ([3], [9_000])
    assert (operators.median_own_ns.tolist(), operators.max_own_ns.tolist()) == ([3_000], [5_000])
    assert operators.max_row.tolist() == [0]


def test_operators_are_ranked_by_own_time() -> None:
    builder = TraceBuilder()
    builder.operator("aten::short", 0, 1)
    builder.operator("aten::long", 2, 9)
    assert measure_operators(builder.build()).name == ("aten::long", "aten::short")


def test_ranges_that_old_recordings_write_as_operators_are_left_out() -> None:
    builder = TraceBuilder()
    builder.operator("ProfilerStep#3", 0, 100)
    builder.operator("Optimizer.step#SGD.step", 10, 20)
    builder.operator("aten::add", 30, 40)
    assert _own(builder) == {"aten::add": 10_000}


def test_calls_know_their_innermost_and_outermost_operator() -> None:
    builder = TraceBuilder()
    builder.annotation("phase:forward", 0, 200)
    builder.operator("aten::item", 0, 100)
    builder.operator("aten::_local_scalar_dense", 10, 60)
    builder.call("cudaMemcpyAsync", 20, 30)
    builder.call("cudaStreamSynchronize", 150, 160)
    trace = builder.build()
    nesting = nest_host(trace)
    names = [trace.names[trace.slices.name[r]] if r >= 0 else "" for r in nesting.call_innermost.tolist()]
    outer = [trace.names[trace.slices.name[r]] if r >= 0 else "" for r in nesting.call_outermost.tolist()]
    assert names == ["aten::_local_scalar_dense", ""]
    assert outer == ["aten::item", ""]


def test_an_empty_recording_has_no_operators() -> None:
    assert measure_operators(TraceBuilder().build()).name == ()


@pytest.mark.shared
def test_new_input_shape_shows_as_own_time_of_convolutions() -> None:
    operators = measure_operators(recording("traces/h200/last_batch_yolo11x.pt.trace.json.gz"))
    assert {"aten::convolution_backward", "aten::cudnn_convolution"} & set(operators.name[:2])


@pytest.mark.shared
def test_own_times_and_call_times_sum_to_the_time_any_operator_or_call_is_open() -> None:
    trace = recording("traces/h200/good.pt.trace.json.gz")
    nesting = nest_host(trace)
    opened = 0
    for thread in range(len(trace.threads)):
        intervals = sorted(
            (int(a), -int(b))
            for table in (trace.slices.take(trace.slices.kind == SliceKind.OPERATOR), trace.calls)
            for a, b, t in zip(table.start_ns, table.end_ns, table.thread, strict=True)
            if t == thread
        )
        reach = -(1 << 62)
        for start, minus_end in intervals:
            opened += max(0, -minus_end - max(start, reach))
            reach = max(reach, -minus_end)
    calls = trace.calls
    outermost_calls = 0
    reach_of: dict[int, int] = {}
    for row in range(len(calls)):
        thread, start, end = int(calls.thread[row]), int(calls.start_ns[row]), int(calls.end_ns[row])
        outermost_calls += max(0, end - max(start, reach_of.get(thread, start)))
        reach_of[thread] = max(reach_of.get(thread, end), end)
    assert int(nesting.own_ns.sum()) + outermost_calls == opened
