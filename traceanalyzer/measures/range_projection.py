"""GPU projection of annotated ranges: when the device did the work that was launched inside a range.

A range's projection runs from the first start to the last end of the GPU activities whose launch call lies inside
the range on the range's own thread; it is what ``nsys stats`` calls by that name. A range that launched nothing has
no projection.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.model.schema import CodeArray, IntArray, SliceKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import RangeReport

REPORTED_NAMES = 100  # programs that number their ranges make one name per step


@dataclass(frozen=True, slots=True)
class RangeProjections:
    """One row per annotation, in the order of ``Trace.slices``.

    Attributes:
        slice: Row of ``Trace.slices``.
        activities: GPU activities launched inside the range.
        start_ns: First start of those; -1 where there is none.
        end_ns: Last end of those; -1 where there is none.
    """

    slice: IntArray
    activities: IntArray
    start_ns: IntArray
    end_ns: IntArray

    @property
    def duration_ns(self) -> IntArray:
        """Length of each projection; 0 where there is none."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class RangeSum:
    """All instances of one range name in one domain.

    Attributes:
        domain: NVTX domain, empty for the default one.
        name: Range name.
        count: Instances.
        time_ns: Their lengths on the host, summed.
        projected_count: Instances that launched GPU activities.
        projected_ns: Lengths of the projections, summed.
        activities: GPU activities launched inside them (one inside two nested instances counts twice).
        projected_idle_ns: Device idle inside the projections, summed; 0 where it was not asked for.
    """

    domain: str
    name: str
    count: int
    time_ns: int
    projected_count: int
    projected_ns: int
    activities: int
    projected_idle_ns: int


def project_ranges(trace: Trace) -> RangeProjections:
    """Project every annotation of a trace onto the GPU."""
    ranges = np.flatnonzero(trace.slices.kind == SliceKind.ANNOTATION)
    count = np.zeros(len(ranges), dtype=np.int64)
    first = np.full(len(ranges), -1, dtype=np.int64)
    last = np.full(len(ranges), -1, dtype=np.int64)
    linked = np.flatnonzero(trace.activity_call >= 0)
    call = trace.activity_call[linked]
    order = np.lexsort((trace.calls.start_ns[call], trace.calls.thread[call]))
    linked, call = linked[order], call[order]
    threads = trace.calls.thread[call]
    for thread in np.unique(trace.slices.thread[ranges]).tolist():
        mine = np.flatnonzero(trace.slices.thread[ranges] == thread)
        lo, hi = np.searchsorted(threads, [thread, thread + 1]).tolist()
        if lo == hi:
            continue
        launch = _Launches(
            trace.calls.start_ns[call[lo:hi]],
            trace.calls.end_ns[call[lo:hi]],
            trace.activities.start_ns[linked[lo:hi]],
            trace.activities.end_ns[linked[lo:hi]],
        )
        rows = ranges[mine]
        count[mine], first[mine], last[mine] = launch.inside(trace.slices.start_ns[rows], trace.slices.end_ns[rows])
    return RangeProjections(ranges, count, first, last)


def report_ranges(trace: Trace, devices: tuple[DeviceTimeline, ...]) -> list[RangeReport]:
    """Return the document part: the ranges with most host time.

    Args:
        trace: The trace.
        devices: Its devices; idle inside projections is that of the busiest one.
    """
    projections = project_ranges(trace)
    idle = np.zeros(len(projections.slice), dtype=np.int64)
    if devices:
        device = max(devices, key=lambda d: d.busy_ns)
        idle = idle_inside(projections.start_ns, projections.end_ns, device.gap_start_ns, device.gap_end_ns)
    return [
        RangeReport(
            name=total.name,
            domain=total.domain,
            count=total.count,
            time_ns=total.time_ns,
            activities=total.activities,
            projected_ns=total.projected_ns,
            projected_idle_ns=total.projected_idle_ns,
        )
        for total in sum_ranges(trace, projections, idle)[:REPORTED_NAMES]
    ]


def sum_ranges(trace: Trace, projections: RangeProjections, idle_ns: IntArray | None = None) -> tuple[RangeSum, ...]:
    """Sum the ranges of a trace by domain and name, by falling host time.

    Args:
        trace: The trace.
        projections: Its ``project_ranges``.
        idle_ns: Device idle inside each projection, where known.
    """
    rows = projections.slice
    if not len(rows):
        return ()
    domain, name = trace.slices.domain[rows].astype(np.int64), trace.slices.name[rows].astype(np.int64)
    keys, group = np.unique(domain * (len(trace.names) + 1) + name, return_inverse=True)
    length = trace.slices.end_ns[rows] - trace.slices.start_ns[rows]
    has = (projections.activities > 0).astype(np.int64)
    idle = np.zeros_like(length) if idle_ns is None else idle_ns
    columns = (np.ones_like(length), length, has, projections.duration_ns, projections.activities, idle)
    totals = [_group_sums(column, group.astype(np.int32), len(keys)) for column in columns]
    example = np.zeros(len(keys), dtype=np.int64)
    example[group] = np.arange(len(rows))
    sums = [
        RangeSum(
            trace.names[domain[row]] if domain[row] >= 0 else "",
            trace.names[name[row]] if name[row] >= 0 else "",
            *(int(total[position]) for total in totals),
        )
        for position, row in enumerate(example.tolist())
    ]
    return tuple(sorted(sums, key=lambda s: (-s.time_ns, s.domain, s.name)))


def idle_inside(start_ns: IntArray, end_ns: IntArray, gap_start_ns: IntArray, gap_end_ns: IntArray) -> IntArray:
    """Idle time of a device inside each of many intervals, such as ranges or their projections.

    Args:
        start_ns: Interval starts.
        end_ns: Interval ends (not before the starts).
        gap_start_ns: Starts of the device's gaps, ascending; gaps do not overlap.
        gap_end_ns: Their ends.

    Returns:
        ns of gaps inside each interval.
    """
    return _idle_before(end_ns, gap_start_ns, gap_end_ns) - _idle_before(start_ns, gap_start_ns, gap_end_ns)


def _idle_before(time_ns: IntArray, gap_start_ns: IntArray, gap_end_ns: IntArray) -> IntArray:
    whole = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(gap_end_ns - gap_start_ns)])
    begun = np.searchsorted(gap_start_ns, time_ns, side="right")
    # the last gap begun may still be open at that time
    ends = np.append(gap_end_ns, np.int64(0))
    still_open = np.where(begun > 0, np.maximum(ends[begun - 1] - time_ns, 0), 0)
    result: IntArray = whole[begun] - still_open
    return result


@dataclass(frozen=True, slots=True)
class _Launches:
    """Linked activities of one thread, sorted by the start of their launch call."""

    call_start: IntArray
    call_end: IntArray
    start: IntArray
    end: IntArray

    def inside(self, range_start: IntArray, range_end: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Count, first start and last end of the activities whose call lies inside each range."""
        lo = np.searchsorted(self.call_start, range_start, side="left")
        hi = np.searchsorted(self.call_start, range_end, side="right")
        some = hi > lo
        count = np.where(some, hi - lo, 0)
        first = np.full(len(lo), -1, dtype=np.int64)
        last = np.full(len(lo), -1, dtype=np.int64)
        if not some.any():
            return count, first, last
        first[some] = _over_slices(np.minimum, self.start, lo[some], hi[some])
        last[some] = _over_slices(np.maximum, self.end, lo[some], hi[some])
        # a call that outlives the range (only ranges closed elsewhere can cut one) is not inside it
        outlives = np.zeros(len(lo), dtype=np.bool_)
        outlives[some] = _over_slices(np.maximum, self.call_end, lo[some], hi[some]) > range_end[some]
        for row in np.flatnonzero(outlives).tolist():
            part = slice(lo[row], hi[row])
            within = self.call_end[part] <= range_end[row]
            count[row] = int(within.sum())
            first[row] = int(self.start[part][within].min()) if count[row] else -1
            last[row] = int(self.end[part][within].max()) if count[row] else -1
        return count, first, last


def _over_slices(ufunc: np.ufunc, values: IntArray, lo: IntArray, hi: IntArray) -> IntArray:
    """Reduce ``values[lo:hi]`` for each (non-empty) pair of bounds."""
    # reduceat needs every index inside the array: one value more lets a slice reach the end
    padded = np.append(values, values[-1])
    result: IntArray = ufunc.reduceat(padded, np.column_stack([lo, hi]).ravel())[::2]
    return result


def _group_sums(values: IntArray, group: CodeArray, groups: int) -> IntArray:
    """Integer sums by group (``bincount`` would go through floats)."""
    result = np.zeros(groups, dtype=np.int64)
    np.add.at(result, group, values)
    return result
