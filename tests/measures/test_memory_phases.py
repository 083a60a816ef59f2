"""Memory by phase."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.readers import open_recording

MIB = 1024**2


def test_the_highest_value_inside_each_phase_of_the_loops_thread_is_kept() -> None:
    builder = TraceBuilder()
    for number in range(3):
        at = number * 1_000
        builder.step(number, at, at + 1_000)
        builder.annotation("forward", at + 100, at + 400)
        builder.annotation("backward", at + 400, at + 900)
        builder.kernel("k", at + 500, at + 600, launch=(at + 450, at + 460))
        for time, size in ((50, 10), (200, 30 + number), (300, 20), (500, 60), (600, 50 - number), (950, 5)):
            builder.memory(at + time, 1, allocated=size * MIB, reserved=100 * MIB, address=1)
    found = Measures(builder.build()).memory_by_phase
    assert found == {"forward": 32 * MIB, "backward": 60 * MIB, "other": 10 * MIB}


def test_without_allocator_events_nothing_is_known() -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 10)
    builder.kernel("k", 5, 6, launch=(1, 2))
    assert Measures(builder.build()).memory_by_phase == {}


@pytest.mark.shared
def test_a_real_training_step_holds_most_memory_at_the_end_of_its_forward_pass() -> None:
    (trace,) = open_recording(shared("traces/h200/stack_mem.pt.trace.json.gz")).traces
    measures = Measures(trace)
    found = measures.memory_by_phase
    assert max(found.values()) <= (measures.allocator.report.peak_allocated_bytes or 0)
    assert max(found, key=lambda phase: found[phase]) in ("forward", "loss", "backward")
    assert found["optimizer"] < found["forward"]
