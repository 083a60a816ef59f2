"""Flattening nested slices and calls of host threads."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import MAIN, TraceBuilder, ns
from traceanalyzer.measures import phases
from traceanalyzer.measures.host_timeline import HostTimeline, flatten_host
from traceanalyzer.model.schema import SliceKind
from traceanalyzer.model.trace import Thread, Trace
from traceanalyzer.results.vocabulary import CAUSES, Phase


def stretches(trace: Trace, thread: int = MAIN) -> list[tuple[float, float, str, str]]:
    """Return (start, end, innermost slice, innermost call) of a thread."""
    host = flatten_host(trace)

    def name(codes, row: int) -> str:  # type: ignore[no-untyped-def]
        return trace.names[codes[row]] if row >= 0 else ""

    return [
        (
            host.start_ns[i] / 1000,
            host.end_ns[i] / 1000,
            name(trace.slices.name, int(host.slice_row[i])),
            name(trace.calls.name, int(host.call_row[i])),
        )
        for i in range(host.offsets[thread], host.offsets[thread + 1])
    ]


def test_each_moment_belongs_to_the_innermost_slice_and_call() -> None:
    b = TraceBuilder()
    b.operator("outer", 0, 100)
    b.operator("inner", 20, 60)
    b.call("cudaLaunchKernel", 30, 40)
    b.operator("later", 150, 160)
    assert stretches(b.build()) == [
        (0, 20, "outer", ""),
        (20, 30, "inner", ""),
        (30, 40, "inner", "cudaLaunchKernel"),
        (40, 60, "inner", ""),
        (60, 100, "outer", ""),
        (150, 160, "later", ""),
    ]


def test_of_slices_that_start_together_the_longer_is_outside_and_calls_are_inside() -> None:
    b = TraceBuilder()
    b.call("cudaMalloc", 0, 10)
    b.operator("short", 0, 10)
    b.operator("long", 0, 20)
    assert stretches(b.build()) == [(0, 10, "short", "cudaMalloc"), (10, 20, "long", "")]


def test_threads_are_flattened_apart() -> None:
    b = TraceBuilder()
    b.operator("a", 0, 10)
    b.operator("b", 5, 15, thread=2)
    trace = b.build()
    assert stretches(trace, 0) == [(0, 10, "a", "")]
    assert stretches(trace, 1) == []
    assert stretches(trace, 2) == [(5, 15, "b", "")]


def test_operating_system_calls_can_be_found_without_hiding_the_slice_around_them() -> None:
    b = TraceBuilder()
    b.operator("aten::add", 0, 20)
    b.slice("futex", 5, 10, SliceKind.OS_CALL)
    trace = b.build()
    host = flatten_host(trace)
    assert [s[2] for s in stretches(trace)] == ["aten::add"] * 3
    assert [int(row) for row in host.os_row] == [-1, 1, -1]


def test_a_thread_the_engine_evaluates_on_is_an_autograd_thread_by_slices_or_by_name() -> None:
    b = TraceBuilder()
    b.operator("aten::add", 0, 10)
    b.operator("autograd::engine::evaluate_function: AddBackward0", 0, 10, thread=1)
    trace = b.build()
    assert flatten_host(trace).autograd.tolist() == [0, 1]
    named = Trace.build(names=[], threads=[Thread(1, 1, "python"), Thread(1, 2, "pt_autograd_0")])
    assert flatten_host(named).autograd.tolist() == [0, 1]


def test_names_of_phases_are_exact() -> None:
    assert phases.phase_of("phase:forward") is Phase.FORWARD
    assert phases.phase_of("validate") is Phase.VALIDATE
    assert phases.phase_of("Optimizer.step#AdamW.step") is Phase.OPTIMIZER
    assert phases.phase_of("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__") is Phase.DATA
    assert phases.phase_of("forward_hook") is None
    assert phases.phase_of("aten::log") is None


def open_at(pairs: list[tuple[int, int, int]], moment: int) -> int:
    """Return which pair is innermost at a moment: the last to start, of equals the shortest; -1 without any."""
    best = (-1, 0, -1)
    for i, (start, length, _) in enumerate(pairs):
        if start <= moment < start + length:
            best = max(best, (start, -length, i))
    return best[2]


@given(
    st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 40), st.integers(0, 5)), max_size=14, unique_by=lambda p: p[:2]
    )
)
@settings(deadline=None, max_examples=200)
def test_flattening_agrees_with_asking_every_moment(pairs: list[tuple[int, int, int]]) -> None:
    b = TraceBuilder()
    for i, (start, length, _) in enumerate(pairs):
        b.python(f"f{i}", start, start + length)
    trace = b.build()
    expected = {t: open_at(pairs, t) for t in range(130)}
    found = dict.fromkeys(range(130), -1)
    host: HostTimeline = flatten_host(trace)
    for i in range(len(host.start_ns)):
        name = trace.names[trace.slices.name[host.slice_row[i]]]
        for t in range(int(host.start_ns[i]) // ns(1), int(host.end_ns[i]) // ns(1)):
            assert found[t] == -1
            found[t] = int(name[1:])
        assert CAUSES[host.cause[i]].value == "python"
    assert found == expected
