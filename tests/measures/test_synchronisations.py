"""Calls in which the host waited for the device."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.measures.handmade import devices_of, profiler_steps, recording, steps_of
from traceanalyzer.measures.copies import measure_copies
from traceanalyzer.measures.host_nesting import nest_host
from traceanalyzer.measures.steps import Steps
from traceanalyzer.measures.synchronisations import Synchronisations, measure_synchronisations
from traceanalyzer.model.schema import CopyDirection
from traceanalyzer.model.trace import Trace


def _measure(trace: Trace, steps: Steps) -> Synchronisations:
    nesting = nest_host(trace)
    return measure_synchronisations(trace, steps, measure_copies(trace, devices_of(trace), steps, nesting), nesting)


def test_item_shows_as_the_outermost_operator_and_as_a_copy() -> None:
    builder = TraceBuilder()
    builder.operator("aten::item", 0, 100)
    builder.operator("aten::_local_scalar_dense", 10, 90)
    builder.copy(30, 31, launch=(20, 25), direction=CopyDirection.D2H, size_bytes=4)
    builder.call("cudaStreamSynchronize", 40, 80)
    trace = builder.build()
    found = _measure(trace, steps_of((0, 200)))
    assert [trace.names[c] for c in found.operator] == ["aten::item"]
    assert found.in_copy.tolist() == [1]
    assert found.copy.tolist() == [0]
    assert found.window.tolist() == [0]
    assert (found.end_ns - found.start_ns).tolist() == [40_000]


def test_device_wide_waits_are_told_apart() -> None:
    builder = TraceBuilder()
    builder.call("cudaDeviceSynchronize", 0, 5)
    builder.call("cudaStreamSynchronize", 6, 7)
    builder.call("cudaEventSynchronize", 8, 9)
    builder.call("cuCtxSynchronize", 10, 11)
    found = _measure(builder.build(), steps_of())
    assert found.is_device_wide.tolist() == [1, 0, 0, 1]
    assert found.operator.tolist() == [-1, -1, -1, -1]
    assert found.window.tolist() == [-1, -1, -1, -1]


def test_making_a_stream_wait_is_no_wait_of_the_host() -> None:
    builder = TraceBuilder()
    builder.call("cudaStreamWaitEvent", 0, 5)
    builder.call("cudaEventRecord", 6, 7)
    assert len(_measure(builder.build(), steps_of()).call) == 0


@pytest.mark.shared
def test_item_run_waits_41_times_more_per_step_in_item() -> None:
    waits = {}
    for name in ("good", "item"):
        trace = recording(f"traces/h200/{name}.pt.trace.json.gz")
        steps = profiler_steps(trace)
        found = _measure(trace, steps)
        in_item = [c >= 0 and trace.names[c] == "aten::item" for c in found.operator.tolist()]
        waits[name] = [
            sum(i and w == window for i, w in zip(in_item, found.window, strict=True)) for window in range(3)
        ]
    assert waits["good"] == [7, 7, 7]
    assert waits["item"] == [48, 48, 48]
