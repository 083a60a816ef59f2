"""The drawn timeline: what is kept exact, what is merged, and that nothing is lost on the way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import MAIN, TraceBuilder
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.host_timeline import HostTimeline
from traceanalyzer.measures.steps import STEADY, Steps
from traceanalyzer.measures.timeline import build_timeline
from traceanalyzer.measures.timeline_rows import make_row, nest
from traceanalyzer.model.schema import Counters
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import Gaps
from traceanalyzer.results.timeline import Timeline, Track
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, Phase, StepSource

US = 1_000


def steps_of(*windows: tuple[int, int]) -> Steps:
    start, end = (np.array([w[i] * US for w in windows], dtype=np.int64) for i in (0, 1))
    return Steps(
        source=StepSource.PROFILER,
        start_ns=start,
        end_ns=end,
        marker_end_ns=end,
        step_class=np.full(len(windows), STEADY, dtype=np.int8),
        names=tuple(f"ProfilerStep#{i}" for i in range(len(windows))),
        thread=MAIN,
    )


def no_host(trace: Trace) -> HostTimeline:
    none = np.zeros(0, dtype=np.int64)
    codes = none.astype(np.int8)
    return HostTimeline(
        offsets=np.zeros(len(trace.threads) + 1, dtype=np.int64),
        start_ns=none,
        end_ns=none,
        cause=codes,
        phase=codes,
        slice_row=none,
        call_row=none,
        os_row=none,
        autograd=np.zeros(len(trace.threads), dtype=np.int8),
        traits=np.zeros(len(trace.slices), dtype=np.int16),
    )


def ledger_of(*pieces: tuple[int, int, Cause, Phase]) -> IdleLedger:
    size = len(pieces)
    column = {
        "start_ns": np.array([p[0] * US for p in pieces], dtype=np.int64),
        "end_ns": np.array([p[1] * US for p in pieces], dtype=np.int64),
        "cause": np.array([CAUSE_CODE[p[2]] for p in pieces], dtype=np.int8),
        "phase": np.array([PHASE_CODE[p[3]] for p in pieces], dtype=np.int8),
    }
    zeros = {
        name: np.zeros(size, dtype=kind)
        for name, kind in (
            ("device", np.int32),
            ("window", np.int32),
            ("step_class", np.int8),
            ("boundary", np.int8),
            ("in_span", np.int8),
            ("gap", np.int32),
            ("activity", np.int64),
            ("thread", np.int32),
            ("slice_row", np.int64),
            ("call_row", np.int64),
        )
    }
    return IdleLedger(**column, **zeros)


def device_of(trace: Trace) -> tuple[DeviceTimeline, ...]:
    """One device whose activities do not overlap."""
    activities = trace.activities
    none = np.zeros(0, dtype=np.int64)
    busy = int((activities.end_ns - activities.start_ns).sum())
    first, last = int(activities.start_ns[0]), int(activities.end_ns[-1])
    return (
        DeviceTimeline(
            device_id=0,
            name="",
            rows=np.arange(len(activities)),
            span_start_ns=first,
            span_end_ns=last,
            busy_start_ns=activities.start_ns,
            busy_end_ns=activities.end_ns,
            busy_ns=busy,
            idle_ns=last - first - busy,
            compute_start_ns=none,
            compute_end_ns=none,
            compute_ns=busy,
            communication_ns=0,
            exposed_communication_ns=0,
            copy_ns=0,
            exposed_copy_ns=0,
            kernel_start_ns=none,
            kernel_end_ns=none,
            gap_start_ns=none,
            gap_end_ns=none,
            gaps=Gaps(count=0),
        ),
    )


def two_step_trace() -> Trace:
    builder = TraceBuilder()
    for step in range(2):
        base = 1_000 * step
        builder.step(step, base, base + 1_000)
        builder.operator("aten::conv2d", base + 100, base + 140)
        builder.kernel("conv_kernel", base + 150, base + 400, launch=(base + 120, base + 130))
        builder.kernel("relu_kernel", base + 400, base + 600, launch=(base + 135, base + 139))
    return builder.build()


def timeline_of(trace: Trace, **options: int) -> Timeline:
    ledger = ledger_of((600, 1_100, Cause.PYTHON, Phase.BACKWARD), (1_100, 1_150, Cause.LAUNCH_CALL, Phase.FORWARD))
    return build_timeline(
        trace, steps_of((0, 1_000), (1_000, 2_000)), ledger, device_of(trace), no_host(trace), **options
    )


def track(timeline: Timeline, identifier: str) -> Track:
    return next(t for t in timeline.tracks if t.id == identifier)


def named(timeline: Timeline, identifier: str) -> list[tuple[str, str, int, int, int]]:
    slices = track(timeline, identifier).slices
    assert slices is not None
    return [
        (timeline.strings[n], timeline.strings[c], s, d, depth)
        for n, c, s, d, depth in zip(
            slices.name, slices.category, slices.start_ns, slices.duration_ns, slices.depth, strict=True
        )
    ]


def test_a_small_trace_is_drawn_exactly_and_unmerged() -> None:
    timeline = timeline_of(two_step_trace())
    assert (timeline.start_ns, timeline.end_ns) == (0, 2_000 * US)
    assert (timeline.merged_slices, timeline.binned_below_ns, timeline.details) == (0, 0, [])
    assert named(timeline, "stream:0:7")[:2] == [
        ("conv_kernel", "kernel", 150 * US, 250 * US, 0),
        ("relu_kernel", "kernel", 400 * US, 200 * US, 0),
    ]
    assert named(timeline, "idle:0") == [
        ("backward", "python", 600 * US, 500 * US, 0),
        ("forward", "launch_call", 1_100 * US, 50 * US, 0),
    ]
    assert [row[0] for row in named(timeline, "steps")] == ["ProfilerStep#0", "ProfilerStep#1"]


def test_calls_lie_below_the_operator_that_made_them_and_that_below_its_step() -> None:
    first = named(timeline_of(two_step_trace()), "thread:1")[:4]
    assert [(name, category, depth) for name, category, _, _, depth in first] == [
        ("ProfilerStep#0", "annotation", 0),
        ("aten::conv2d", "operator", 1),
        ("cudaLaunchKernel", "launch", 2),
        ("cudaLaunchKernel", "launch", 2),
    ]


def test_a_launch_and_its_kernel_share_a_link_and_nothing_else_does() -> None:
    timeline = timeline_of(two_step_trace())
    host, device = track(timeline, "thread:1").slices, track(timeline, "stream:0:7").slices
    assert host is not None
    assert device is not None
    launches = [link for link in host.link if link >= 0]
    assert sorted(launches) == sorted(device.link)
    assert len(set(launches)) == 4


def test_python_frames_get_a_track_of_their_own() -> None:
    builder = TraceBuilder()
    builder.python("train.py(12): main", 0, 100)
    builder.operator("aten::add", 10, 20)
    builder.kernel("k", 30, 40, launch=(12, 14))
    trace = builder.build()
    timeline = build_timeline(trace, steps_of((0, 100)), ledger_of(), device_of(trace), no_host(trace))
    assert [row[0] for row in named(timeline, "python:1")] == ["train.py(12): main"]
    assert [row[0] for row in named(timeline, "thread:1")] == ["aten::add", "cudaLaunchKernel"]


def test_merging_bounds_the_overview_counts_what_it_merged_and_keeps_a_step_exact() -> None:
    builder = TraceBuilder()
    for i in range(2_000):
        builder.kernel(f"k{i % 3}", i, i + 0.5, launch=(i + 0.1, i + 0.2))
    trace = builder.build()
    timeline = build_timeline(
        trace,
        steps_of((0, 900), (900, 2_000)),
        ledger_of(),
        device_of(trace),
        no_host(trace),
        max_slices=500,
        max_detail_slices=3_000,
    )
    kept = [t.slices for t in timeline.tracks if t.slices is not None]
    assert sum(len(s.start_ns) for s in kept) <= 500
    drawn = sum(sum(s.merged) if s.merged else len(s.start_ns) for s in kept)
    assert drawn == 4_000 + 2  # every kernel, every launch, both steps
    assert timeline.merged_slices == drawn - sum(len(s.start_ns) for s in kept)
    assert timeline.binned_below_ns > 500
    assert [(d.start_ns, d.end_ns, d.why) for d in timeline.details] == [
        (0, 900 * US, "median step"),
        (900 * US, timeline.details[1].end_ns, "longest step, first part"),
    ]
    stream = next(t for t in timeline.details[0].tracks if t.id == "stream:0:7").slices
    assert stream is not None
    assert stream.duration_ns == [500] * 900


def test_a_window_too_large_to_keep_exact_is_cut_and_says_so() -> None:
    builder = TraceBuilder()
    for i in range(1_000):
        builder.kernel("k", i, i + 0.5, launch=(i + 0.1, i + 0.2))
    trace = builder.build()
    timeline = build_timeline(
        trace,
        steps_of((0, 500), (500, 1_000)),
        ledger_of(),
        device_of(trace),
        no_host(trace),
        max_slices=50,
        max_detail_slices=200,
    )
    assert timeline.details[0].why == "median step, first part"
    assert sum(len(t.slices.start_ns) for d in timeline.details for t in d.tracks if t.slices) <= 210


def test_busy_share_of_the_whole_span_is_busy_over_span() -> None:
    trace = two_step_trace()
    counter = track(timeline_of(trace), "counter:busy:0")
    edges, share = np.array(counter.counter_time_ns), np.array(counter.counter_value[:-1])
    # two steps of 450 µs busy in a span of 1450 µs
    assert (share * np.diff(edges)).sum() / 100 == pytest.approx(900 * US, rel=1e-4)


def test_memory_and_sampled_counters_become_tracks() -> None:
    builder = TraceBuilder()
    builder.kernel("k", 0, 100, launch=(1, 2))
    builder.memory(10, 512, allocated=512, reserved=2048)
    builder.memory(20, 512, allocated=1024, reserved=2048)
    trace = builder.build()
    names = [*trace.names, "gpu0 utilization.gpu [%]"]
    samples = Counters.build(time_ns=[50 * US, 10_000 * US], series=[len(names) - 1] * 2, value=[37.0, 99.0])
    trace = trace.with_counters(names, samples)
    timeline = build_timeline(trace, steps_of((0, 100)), ledger_of(), device_of(trace), no_host(trace))
    assert track(timeline, "counter:memory_allocated:0").counter_value == [512.0, 1024.0]
    assert track(timeline, "counter:memory_reserved:0").unit == "B"
    # the sample far outside the recording is not drawn
    sampled = track(timeline, "counter:sampled:gpu0 utilization.gpu [%]")
    assert (sampled.title, sampled.unit, sampled.counter_value) == ("gpu0 utilization.gpu", "%", [37.0])


def test_a_trace_without_intervals_gives_an_empty_timeline() -> None:
    trace = TraceBuilder().build()
    empty = build_timeline(trace, steps_of(), ledger_of(), (), no_host(trace))
    assert (empty.tracks, empty.strings, empty.end_ns) == ([], [], 0)


intervals = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), min_size=1, max_size=60)


@settings(deadline=None)
@given(intervals)
def test_intervals_on_one_depth_never_overlap(raw: list[tuple[int, int]]) -> None:
    ordered = sorted(((s, s + d) for s, d in raw), key=lambda pair: (pair[0], -pair[1]))
    start, end = (np.array([pair[i] for pair in ordered], dtype=np.int64) for i in (0, 1))
    depth = nest(start, end)
    for level in set(depth.tolist()):
        chosen = depth == level
        assert (start[chosen][1:] >= end[chosen][:-1]).all()


@settings(deadline=None)
@given(intervals, st.sampled_from([1, 8, 64, 512]))
def test_merging_keeps_every_slice_once_and_covers_it(raw: list[tuple[int, int]], bin_ns: int) -> None:
    ordered = sorted(((s, s + d) for s, d in raw), key=lambda pair: (pair[0], -pair[1]))
    start, end = (np.array([pair[i] for pair in ordered], dtype=np.int64) for i in (0, 1))
    row = make_row("t", "thread", "t", start, end, np.arange(len(raw)), start % 2, nest(start, end))
    binned = row.binned(bin_ns)
    assert (binned.merged.sum() if len(binned.merged) else len(binned.start)) == len(raw)
    for s, e, depth in zip(start, end, row.depth, strict=True):
        covers = (binned.start <= s) & (binned.end >= e) & (binned.depth == depth)
        assert covers.any()
