"""Launch sequences aligned by name."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.measures.handmade import profiler_steps, recording, steps_of
from traceanalyzer.measures.positions import MAX_CELLS, MAX_STEPS, measure_positions


def _step(builder: TraceBuilder, start: float, kernels: str, *, gap: float = 10, call: float = 4) -> None:
    for index, name in enumerate(kernels):
        at = start + index * gap
        builder.kernel(name, at + 5, at + 6, launch=(at, at + call))


def test_equal_steps_align_position_by_position() -> None:
    builder = TraceBuilder()
    _step(builder, 0, "abc")
    _step(builder, 100, "abc", gap=20, call=6)
    report = measure_positions(builder.build(), steps_of((0, 100), (100, 200))).report
    assert report.name == ["a", "b", "c"]
    assert report.launch_call_ns == [[4_000, 6_000]] * 3
    # previous launch's end to this launch's end; the first has none inside its step
    assert report.interval_ns == [[None, None], [10_000, 20_000], [10_000, 20_000]]


def test_a_step_that_lacks_a_launch_has_null_there() -> None:
    builder = TraceBuilder()
    for number, kernels in enumerate(("abcd", "abcd", "abd")):
        _step(builder, 100 * number, kernels)
    report = measure_positions(builder.build(), steps_of((0, 100), (100, 200), (200, 300))).report
    assert report.name == ["a", "b", "c", "d"]
    assert report.launch_call_ns[2] == [4_000, 4_000, None]
    assert report.interval_ns[3] == [10_000, 10_000, 10_000]


def test_an_extra_launch_shifts_nothing() -> None:
    builder = TraceBuilder()
    for number, kernels in enumerate(("abcd", "abcd", "abxcd")):
        _step(builder, 100 * number, kernels)
    report = measure_positions(builder.build(), steps_of((0, 100), (100, 200), (200, 300))).report
    assert report.name == ["a", "b", "c", "d"]
    assert [row[2] for row in report.launch_call_ns] == [4_000] * 4


def test_the_most_frequent_sequence_is_the_reference() -> None:
    builder = TraceBuilder()
    for number, kernels in enumerate(("ab", "abc", "abc")):
        _step(builder, 100 * number, kernels)
    assert measure_positions(builder.build(), steps_of((0, 100), (100, 200), (200, 300))).report.name == ["a", "b", "c"]


def test_repeated_names_align_in_order() -> None:
    builder = TraceBuilder()
    for number, kernels in enumerate(("aaaab", "aaaab", "aab")):
        _step(builder, 100 * number, kernels)
    column = [
        r[2]
        for r in measure_positions(builder.build(), steps_of((0, 100), (100, 200), (200, 300))).report.launch_call_ns
    ]
    assert sum(v is None for v in column) == 2
    assert column[4] is not None


def test_only_steady_steps_and_launches_inside_them_count() -> None:
    builder = TraceBuilder()
    _step(builder, 0, "abc")
    _step(builder, 100, "abc")
    _step(builder, 150, "z")  # between the windows
    _step(builder, 200, "abc")
    found = measure_positions(builder.build(), steps_of((0, 90), (100, 145), (200, 300), classes=[0, 1, 1]))
    assert found.window.tolist() == [1, 2]
    assert found.report.name == ["a", "b", "c"]


def test_a_graph_launch_is_one_position() -> None:
    builder = TraceBuilder()
    _step(builder, 0, "a")
    correlation = builder.call("cudaGraphLaunch", 20, 25, correlation=9)
    for index in range(5):
        builder.activity(f"k{index}", 30 + index, 31 + index, correlation=correlation)
    assert measure_positions(builder.build(), steps_of((0, 100))).report.name == ["a", "cudaGraphLaunch"]


def test_without_steady_steps_there_are_no_positions() -> None:
    builder = TraceBuilder()
    _step(builder, 0, "abc")
    assert measure_positions(builder.build(), steps_of()).report.name == []
    assert measure_positions(builder.build(), steps_of((50, 90))).report.name == []


def test_many_steps_are_thinned_evenly() -> None:
    builder = TraceBuilder()
    for number in range(500):
        _step(builder, 10 * number, "a")
    steps = steps_of(*((10 * n, 10 * n + 10) for n in range(500)))
    found = measure_positions(builder.build(), steps)
    assert len(found.window) == MAX_STEPS
    assert (found.window[0], found.window[-1]) == (0, 499)
    assert MAX_CELLS // MAX_STEPS == 4_000


@pytest.mark.shared
def test_real_steps_align_with_few_missing_positions() -> None:
    trace = recording("traces/h200/good.pt.trace.json.gz")
    report = measure_positions(trace, profiler_steps(trace)).report
    assert len(report.name) == 2_160
    missing = [sum(row[step] is None for row in report.launch_call_ns) for step in range(5)]
    # the first recorded step has two kernels and two memsets fewer
    assert missing == [4, 0, 0, 0, 0]
