"""The numbers behind the figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.builders import TraceBuilder
from tests.measures.handmade import devices_of, ledger_of, steps_of
from traceanalyzer.measures.allocator import measure_allocator
from traceanalyzer.measures.copies import measure_copies
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.launches import measure_launches
from traceanalyzer.measures.series import MAX_POINTS, measure_series
from traceanalyzer.results.analysis import Series
from traceanalyzer.results.vocabulary import Cause


def _series(builder: TraceBuilder, idle: IdleLedger | None = None) -> Series:
    trace, steps = builder.build(), steps_of()
    devices = devices_of(trace)
    return measure_series(
        idle if idle is not None else ledger_of(),
        measure_launches(trace, devices),
        measure_copies(trace, devices, steps),
        measure_allocator(trace, steps),
    )


def test_gaps_are_binned_by_cause_and_keep_their_sum() -> None:
    idle = ledger_of((0, 1, Cause.PYTHON, 0), (2, 4, Cause.PYTHON, 0), (5, 20_000_005, Cause.INPUT_WAIT, 0))
    histograms = _series(TraceBuilder(), idle).gap_histogram_by_cause
    assert set(histograms) == {"python", "input_wait"}
    python = histograms["python"]
    assert sum(python.count) == 2
    assert sum(python.ns) == 3_000
    assert len(python.edges) == len(python.count) + 1
    # a gap longer than the last edge widens the last bin instead of falling out
    assert sum(histograms["input_wait"].ns) == 20_000_000_000


def test_what_one_cause_takes_of_one_gap_is_one_piece() -> None:
    idle = ledger_of((0, 1, Cause.PYTHON, 0), (1, 3, Cause.LAUNCH_CALL, 0), (3, 7, Cause.PYTHON, 0))
    idle = replace(idle, gap=np.zeros(3, dtype=np.int32))
    histogram = _series(TraceBuilder(), idle).gap_histogram_by_cause["python"]
    assert sum(histogram.count) == 1
    assert max(histogram.ns) == 5_000


def test_every_gap_lies_between_its_bins_edges() -> None:
    idle = ledger_of((0, 0.1, Cause.PYTHON, 0), (1, 2, Cause.PYTHON, 0))
    histogram = _series(TraceBuilder(), idle).gap_histogram_by_cause["python"]
    for low, high, count, total in zip(
        histogram.edges, histogram.edges[1:], histogram.count, histogram.ns, strict=False
    ):
        assert low * count <= total <= max(high * count - count, 0)


def test_delay_is_ranked_per_queue_depth() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 50, launch=(0, 2))  # depth 0, delay 8
    builder.kernel("b", 50, 60, launch=(3, 5))  # depth 1, delay 45
    builder.kernel("c", 60, 70, launch=(52, 53))  # depth 1, delay 7
    found = _series(builder).launch_delay_by_queue_depth
    assert found is not None
    assert (found.depth, found.count) == ([0, 1], [1, 2])
    assert found.p50_ns == [8_000, 7_000]
    assert found.p90_ns == [8_000, 45_000]


def test_copies_become_points() -> None:
    builder = TraceBuilder()
    builder.copy(0, 5, size_bytes=123)
    builder.copy(6, 6, size_bytes=9)  # no duration: no bandwidth
    builder.copy(7, 8, size_bytes=-1)
    points = _series(builder).copy_size_bandwidth
    assert points is not None
    assert (points.direction, points.host_memory) == (["h2d"], ["pinned"])
    assert (points.size_bytes, points.duration_ns, points.sampled_from) == ([123], [5_000], 1)


def test_many_copies_are_sampled_and_say_so() -> None:
    builder = TraceBuilder()
    for index in range(5_000):
        builder.copy(2 * index, 2 * index + 1, size_bytes=index)
    points = _series(builder).copy_size_bandwidth
    assert points is not None
    assert len(points.size_bytes) == MAX_POINTS
    assert points.sampled_from == 5_000


def test_run_ahead_keeps_its_extremes_when_thinned() -> None:
    builder = TraceBuilder()
    for index in range(6_000):
        ahead = {1_234: 900.0, 4_321: 0.0}.get(index, 5.0)
        builder.kernel("a", 10 * index + 2 + ahead, 10 * index + 3 + ahead, launch=(10 * index, 10 * index + 2))
    found = _series(builder).run_ahead
    assert found is not None
    assert len(found.time_ns) <= MAX_POINTS
    assert max(found.ahead_ns) == 900_000
    assert min(found.ahead_ns) == 0
    assert found.time_ns == sorted(found.time_ns)


def test_nothing_recorded_means_nothing_to_draw() -> None:
    series = _series(TraceBuilder())
    assert series.gap_histogram_by_cause == {}
    assert series.launch_delay_by_queue_depth is None
    assert series.copy_size_bandwidth is None
    assert series.memory is None
    assert series.run_ahead is None
