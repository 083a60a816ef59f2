"""A range's projection spans the GPU work launched inside it on its own thread; idle inside intervals is exact."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import AUTOGRAD, TraceBuilder
from traceanalyzer.measures.device_timeline import measure_device_timelines
from traceanalyzer.measures.range_projection import idle_inside, project_ranges, report_ranges, sum_ranges
from traceanalyzer.model.trace import Trace


def projected(trace: Trace) -> dict[str, tuple[int, int, int]]:
    """Name → (activities, first start, last end), µs."""
    rows = project_ranges(trace)
    return {
        trace.names[trace.slices.name[row]]: (count, start // 1000, end // 1000)
        for row, count, start, end in zip(
            rows.slice.tolist(), rows.activities.tolist(), rows.start_ns.tolist(), rows.end_ns.tolist(), strict=True
        )
    }


def test_a_projection_runs_from_the_first_start_to_the_last_end_of_what_was_launched_inside() -> None:
    trace = TraceBuilder()
    trace.annotation("step", 0, 100)
    trace.annotation("forward", 0, 50)
    trace.annotation("backward", 50, 100)
    trace.kernel("a", 200, 220, launch=(10, 12))
    trace.kernel("b", 210, 300, launch=(40, 42), stream=8)
    trace.kernel("c", 230, 240, launch=(60, 62))
    assert projected(trace.build()) == {"step": (3, 200, 300), "forward": (2, 200, 300), "backward": (1, 230, 240)}


def test_work_launched_by_another_thread_or_after_the_range_does_not_count() -> None:
    trace = TraceBuilder()
    trace.annotation("forward", 0, 50)
    trace.kernel("autograd", 20, 30, launch=(10, 12), thread=AUTOGRAD)
    trace.kernel("later", 60, 70, launch=(51, 52))
    assert projected(trace.build()) == {"forward": (0, -1, -1)}


def test_a_call_that_outlives_its_range_is_not_inside_it() -> None:
    trace = TraceBuilder()
    trace.annotation("cut", 0, 50)
    trace.kernel("inside", 20, 30, launch=(10, 12))
    trace.kernel("straddling", 60, 70, launch=(48, 55))
    assert projected(trace.build()) == {"cut": (1, 20, 30)}


def test_a_kernel_without_a_launch_belongs_to_no_range() -> None:
    trace = TraceBuilder()
    trace.annotation("forward", 0, 50)
    trace.kernel("unlinked", 10, 20)
    assert projected(trace.build()) == {"forward": (0, -1, -1)}


def test_sums_keep_domains_apart_and_order_by_host_time() -> None:
    trace = TraceBuilder()
    for start in (0, 100):
        trace.annotation("step", start, start + 60)
        trace.kernel("k", start + 5, start + 9, launch=(start + 1, start + 2))
    trace.annotation("log", 200, 210)
    built = trace.build()
    step, log = sum_ranges(built, project_ranges(built))
    assert (step.name, step.count, step.time_ns, step.projected_count, step.projected_ns) == (
        "step",
        2,
        120_000,
        2,
        8_000,
    )
    assert (log.name, log.count, log.time_ns, log.projected_count, log.projected_ns) == ("log", 1, 10_000, 0, 0)


def test_the_report_states_idle_inside_projections() -> None:
    trace = TraceBuilder()
    trace.annotation("step", 0, 100)
    trace.kernel("a", 20, 30, launch=(10, 12))
    trace.kernel("b", 70, 90, launch=(60, 62))
    built = trace.build()
    (step,) = report_ranges(built, measure_device_timelines(built))
    assert (step.name, step.domain, step.count, step.activities) == ("step", "", 1, 2)
    assert (step.time_ns, step.projected_ns, step.projected_idle_ns) == (100_000, 70_000, 40_000)


def test_a_trace_without_ranges_has_no_projections() -> None:
    trace = TraceBuilder()
    trace.kernel("k", 0, 10, launch=(0, 1))
    built = trace.build()
    assert sum_ranges(built, project_ranges(built)) == ()


_MOMENTS = st.lists(st.integers(0, 60), max_size=12, unique=True).map(sorted)


@given(gaps=_MOMENTS, intervals=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=6))
def test_idle_inside_intervals_equals_counting_nanosecond_by_nanosecond(
    gaps: list[int], intervals: list[tuple[int, int]]
) -> None:
    starts, ends = gaps[: len(gaps) // 2 * 2 : 2], gaps[1::2]
    idle = {t for a, b in zip(starts, ends, strict=True) for t in range(a, b)}
    columns = [np.array(values, dtype=np.int64) for values in (starts, ends)]
    start = np.array([a for a, _ in intervals], dtype=np.int64)
    end = start + np.array([length for _, length in intervals], dtype=np.int64)
    want = [len(idle & set(range(a, a + length))) for a, length in intervals]
    assert idle_inside(start, end, *columns).tolist() == want
