"""Phases of idle pieces, ranges that cross, and the sum over whatever was recorded."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import MAIN, TraceBuilder, ns
from tests.measures.test_gap_attribution import (
    EVALUATE,
    LOADER,
    backward,
    causes,
    launched_after,
    ledger_of,
    started,
)
from traceanalyzer.measures.device_timeline import measure_device_timelines
from traceanalyzer.measures.gap_attribution import attribute_idle
from traceanalyzer.measures.host_timeline import flatten_host
from traceanalyzer.measures.steps import find_steps
from traceanalyzer.model.schema import ActivityKind, CopyDirection, SliceKind
from traceanalyzer.results.vocabulary import CAUSES, PHASES, Cause, Phase

# Phases


def phase_times(builder: TraceBuilder) -> dict[Phase, int]:
    ledger = ledger_of(builder.build())
    keep = ledger.in_span == 1
    return {
        PHASES[code]: int(ledger.duration_ns[keep & (ledger.phase == code)].sum()) // 1000
        for code in np.unique(ledger.phase[keep])
    }


def test_the_innermost_range_names_the_phase_with_or_without_its_prefix() -> None:
    b = started()
    b.annotation("phase:forward", 10, 30)
    b.annotation("loss", 20, 25)
    b.annotation("Optimizer.step#SGD.step", 30, 36)
    b.annotation("Optimizer.zero_grad#SGD.zero_grad", 36, 40)
    assert phase_times(launched_after(b, 45)) == {
        Phase.FORWARD: 15,
        Phase.LOSS: 5,
        Phase.OPTIMIZER: 10,
        Phase.OTHER: 5,
    }


def test_an_outer_validation_checkpoint_or_log_range_keeps_its_phase() -> None:
    b = started()
    b.annotation("validate", 10, 40)
    b.annotation(LOADER, 12, 20)
    b.annotation("forward", 20, 30)
    b.annotation(LOADER, 40, 44)
    assert phase_times(launched_after(b, 45)) == {Phase.VALIDATE: 30, Phase.DATA: 4, Phase.OTHER: 1}


def test_an_autograd_thread_is_backward() -> None:
    assert phase_times(backward()) == {Phase.BACKWARD: 25}


def test_a_handed_over_wait_has_the_phase_of_the_thread_that_explains_it() -> None:
    b = backward()
    b.annotation(LOADER, 25, 35)
    assert phase_times(b) == {Phase.BACKWARD: 15, Phase.DATA: 10}


# Ranges that do not nest, and the sum over everything


def test_ranges_that_cross_are_open_exactly_while_they_last() -> None:
    b = started()
    b.annotation(LOADER, 10, 20)
    b.annotation("crossing", 15, 30)
    b.operator("aten::add", 18, 25)
    assert causes(launched_after(b, 30)) == [
        (10, 20, "input_wait"),
        (20, 25, "operator_dispatch"),
        (25, 30, "python"),
    ]


SPAN = st.tuples(st.integers(0, 300), st.integers(0, 60))


@given(
    st.lists(st.tuples(SPAN, SPAN, st.integers(0, 2), st.booleans(), st.integers(0, 1)), min_size=1, max_size=12),
    st.lists(st.tuples(SPAN, st.integers(0, 5), st.integers(0, 2)), max_size=16),
    st.lists(SPAN, max_size=4),
    st.lists(st.integers(0, 300), max_size=5, unique=True),
)
@settings(deadline=None, max_examples=150)
def test_the_causes_sum_to_idle_exactly_whatever_was_recorded(
    kernels: list[tuple[tuple[int, int], tuple[int, int], int, bool, int]],
    slices: list[tuple[tuple[int, int], int, int]],
    overheads: list[tuple[int, int]],
    steps: list[int],
) -> None:
    b = TraceBuilder()
    for (start, length), (launch, call), thread, linked, device in kernels:
        times = (float(launch), float(launch + call)) if linked else None
        b.kernel("k", start, start + length, launch=times, thread=thread, device=device)
    names = ("aten::conv2d", LOADER, EVALUATE, "phase:checkpoint", "model.py(1): f", "gc")
    for (start, length), which, thread in slices:
        kind = (0, 1, 0, 1, 2, 3)[which]
        b.slice(names[which], start, start + length, SliceKind(kind), thread=thread)
    for start, length in overheads:
        b.overhead("Buffer Flush", start, start + length)
        b.scheduled_out(start + 3, start + length + 3)
    for i, start in enumerate(sorted(steps)):
        b.step(i, start, start + 1)
    trace = b.build()
    windows = find_steps(trace, None, None)
    devices = measure_device_timelines(trace)
    ledger = attribute_idle(trace, windows, flatten_host(trace), devices)
    assert bool((ledger.duration_ns > 0).all())
    for device in devices:
        mine = ledger.device == device.device_id
        inside = mine & (ledger.in_span == 1)
        assert int(ledger.duration_ns[inside].sum()) == device.idle_ns
        starts, ends = ledger.start_ns[mine], ledger.end_ns[mine]
        assert bool((starts[1:] >= ends[:-1]).all())
        per_window = ledger.per_window(mine, len(windows))
        for w in range(len(windows)):
            low, high = windows.start_ns[w], windows.end_ns[w]
            clipped = np.clip(device.busy_end_ns, low, high) - np.clip(device.busy_start_ns, low, high)
            assert int(per_window[w]) == int(high - low - clipped.sum())


def test_a_recording_without_a_device_has_an_empty_ledger() -> None:
    b = TraceBuilder()
    b.step(1, 0, 10)
    assert len(ledger_of(b.build()).start_ns) == 0


def test_copies_and_hidden_graphs_end_gaps_like_kernels() -> None:
    b = started()
    b.copy(20, 25, launch=(10, 15), direction=CopyDirection.D2H)
    correlation = b.next_correlation()
    b.call("cudaGraphLaunch", 25, 30, correlation=correlation)
    b.activity("graph", 32, 40, kind=ActivityKind.GRAPH, correlation=correlation)
    assert causes(b) == [
        (10, 15, "launch_call"),
        (15, 20, "launch_latency"),
        (25, 30, "graph_launch"),
        (30, 32, "launch_latency"),
    ]
    assert Cause.GRAPH_LAUNCH in CAUSES


def test_windows_before_the_devices_first_work_end_where_they_end() -> None:
    b = TraceBuilder()
    b.step(1, 0, 10)
    b.step(2, 10, 20)
    b.kernel("late", 50, 60, launch=(45, 46))
    ledger = ledger_of(b.build())
    assert ledger.per_window(ledger.mask(), 2).tolist() == [ns(10), ns(10)]
    assert int(ledger.duration_ns.sum()) == ns(20)


def test_details_of_a_piece_say_which_thread_slice_call_and_activity_it_comes_from() -> None:
    b = started()
    b.operator("aten::add", 10, 24)
    b.kernel("k", 30, 40, launch=(20, 23))
    trace = b.build()
    ledger = ledger_of(trace)
    assert [CAUSES[c].value for c in ledger.cause] == ["operator_dispatch", "launch_call", "launch_latency"]
    assert [trace.names[trace.slices.name[row]] for row in ledger.slice_row] == ["aten::add"] * 3
    assert ledger.call_row.tolist() == [-1, 1, 1]
    assert [trace.names[trace.activities.name[row]] for row in ledger.activity] == ["k"] * 3
    assert ledger.thread.tolist() == [MAIN] * 3
    assert ledger.gap.tolist() == [0, 0, 0]
