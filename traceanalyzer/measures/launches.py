"""Launch calls, how long they took and how the device followed them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures.arithmetic import percentiles
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.model.schema import ByteArray, CallKind, CodeArray, IntArray, among, distinct_codes
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import LaunchesReport

_ENQUEUEING = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY, CallKind.BLOCKING_COPY, CallKind.MEMSET)
_CAPTURE_BEGINS = re.compile(r"(cuda|cu|hip)StreamBeginCapture")
_CAPTURE_ENDS = re.compile(r"(cuda|cu|hip)StreamEndCapture")


@dataclass(frozen=True, slots=True)
class Launches:
    """One row per linked activity (a graph launch has many), sorted like ``Trace.activities``.

    Attributes:
        activity: Row of the activity.
        call: Row of its launch call.
        thread: Thread of the call.
        call_start_ns: Start of the call.
        call_end_ns: End of the call.
        overhead_ns: Length of the call.
        delay_ns: ``max(0, start - call end)``.
        queue_depth: Activities of the device launched before this call began and not yet finished then.
        host_bound: 1 where the call began when the device had already gone idle: inside a gap that this activity
            ends, or with nothing of the device's left to do.
        is_first: 1 for the first activity of its call; counts and percentiles of calls use these rows.
        started_during_call: 1 where it started before its call returned.
        launches_without_activity: Enqueueing calls (launches, copies, memsets) that no activity refers to.
        kernel_launches_without_activity: Those of them that launch kernels or graphs and should have left an activity:
            copies and memsets of no bytes leave none, nor do launches that only record a graph (stream capture).
        activities_without_launch: Activities without a launch in the recording.
        report: The document part; its counts and percentiles are per launch call.
    """

    activity: IntArray
    call: IntArray
    thread: CodeArray
    call_start_ns: IntArray
    call_end_ns: IntArray
    overhead_ns: IntArray
    delay_ns: IntArray
    queue_depth: CodeArray
    host_bound: ByteArray
    is_first: ByteArray
    started_during_call: ByteArray
    launches_without_activity: int
    kernel_launches_without_activity: int
    activities_without_launch: int
    report: LaunchesReport


def measure_launches(trace: Trace, devices: tuple[DeviceTimeline, ...]) -> Launches:
    """Measure the launches of a trace."""
    activities, calls = trace.activities, trace.calls
    rows = np.flatnonzero(trace.activity_call >= 0)
    call = trace.activity_call[rows]
    began, returned = calls.start_ns[call], calls.end_ns[call]
    start, device = activities.start_ns[rows], activities.device[rows]
    earliest = np.zeros(len(calls), dtype=np.int64)
    earliest[call[::-1]] = np.arange(len(rows) - 1, -1, -1)  # the last one written stays; rows are in start order
    first = earliest[call] == np.arange(len(rows))
    depth = np.zeros(len(rows), dtype=np.int64)
    host_bound = np.zeros(len(rows), dtype=np.bool_)
    host_idle = idle = 0
    for timeline in devices:
        mine = np.flatnonzero(device == timeline.device_id)
        issued = np.sort(began[mine])
        ended = np.sort(activities.end_ns[rows[mine]])
        depth[mine] = np.maximum(
            np.searchsorted(issued, began[mine], side="left") - np.searchsorted(ended, began[mine], side="right"), 0
        )
        gap, late = _late_gaps(timeline, began[mine], start[mine], depth[mine])
        host_bound[mine] = late
        idle += timeline.idle_ns
        ends_gap = mine[(gap >= 0) & late]
        host_idle += _idle_before(timeline, gap[(gap >= 0) & late], began[ends_gap])
    delay = np.maximum(start - returned, 0)
    during = (start >= began) & (start < returned)
    orphans = among(calls.kind, _ENQUEUEING) & (calls.correlation >= 0)
    orphans &= ~np.isin(calls.correlation, activities.correlation)
    return Launches(
        activity=rows,
        call=call,
        thread=calls.thread[call],
        call_start_ns=began,
        call_end_ns=returned,
        overhead_ns=returned - began,
        delay_ns=delay,
        queue_depth=depth.astype(np.int32),
        host_bound=host_bound.astype(np.int8),
        is_first=first.astype(np.int8),
        started_during_call=during.astype(np.int8),
        launches_without_activity=int(orphans.sum()),
        kernel_launches_without_activity=int(
            (orphans & among(calls.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)) & ~_capturing(trace)).sum()
        ),
        activities_without_launch=len(activities) - len(rows),
        report=LaunchesReport(
            count=int(first.sum()),
            overhead_ns=percentiles((returned - began)[first]),
            delay_ns=percentiles(delay[first]),
            started_during_call=int((during & first).sum()),
            clock_skew=int(((start < began) & first).sum()),
            host_bound_share_of_activities=float(host_bound.sum() / len(rows)) if len(rows) else None,
            host_bound_share_of_idle=float(host_idle / idle) if idle and len(rows) else None,
        ),
    )


def _capturing(trace: Trace) -> npt.NDArray[np.bool_]:
    """For each call, whether it lies inside a stream capture of its thread, which records work and runs none."""
    calls = trace.calls
    begins, ends = (
        np.isin(
            calls.name, [c for c in distinct_codes(calls.name).tolist() if c >= 0 and pattern.match(trace.names[c])]
        )
        for pattern in (_CAPTURE_BEGINS, _CAPTURE_ENDS)
    )
    result = np.zeros(len(calls), dtype=np.bool_)
    if begins.any():
        for thread in np.unique(calls.thread[begins]).tolist():
            mine = np.flatnonzero(calls.thread == thread)  # in start order
            result[mine] = np.cumsum(begins[mine].astype(np.int64) - ends[mine].astype(np.int64)) > 0
    return result


def _late_gaps(
    timeline: DeviceTimeline, began: IntArray, start: IntArray, depth: IntArray
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Find, for each launch, the gap its activity ends (-1 none) and whether the launch began in an idle device.

    A launch that falls by chance into the short turnaround between two queued kernels is not late, hence the
    demand that the activity ends that gap or that nothing was queued.
    """
    # the last gap that ends at or before the activity's start is the one it ends, when the times are equal
    ended = np.searchsorted(timeline.gap_end_ns, start, side="left")
    exists = ended < len(timeline.gap_end_ns)
    safe = np.minimum(ended, max(len(timeline.gap_end_ns) - 1, 0))
    if len(timeline.gap_end_ns):
        exists &= timeline.gap_end_ns[safe] == start
    gap = np.where(exists, ended, -1)
    inside = np.searchsorted(timeline.gap_start_ns, began, side="left") - 1  # gap began strictly before the launch
    idle_then = inside >= 0
    if len(timeline.gap_end_ns):
        idle_then &= began < timeline.gap_end_ns[np.maximum(inside, 0)]
    late = idle_then & ((depth == 0) | (gap == inside))
    return np.where(idle_then & (gap == inside), gap, -1), late


def _idle_before(timeline: DeviceTimeline, gap: IntArray, began: IntArray) -> int:
    """Sum, over gaps, the idle time before the launch that ended them began (the earliest where several tie)."""
    if not len(gap):
        return 0
    order = np.lexsort((began, gap))
    gap, began = gap[order], began[order]
    first = np.concatenate(([True], gap[1:] != gap[:-1]))
    return int((began[first] - timeline.gap_start_ns[gap[first]]).sum())
