"""Busy and idle time of each device, all streams together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures.kernel_names import is_communication
from traceanalyzer.model import intervals
from traceanalyzer.model.schema import ActivityKind, CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import Gaps


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """One device; ``busy_ns + idle_ns == span_end_ns - span_start_ns`` exactly.

    Attributes:
        device_id: The device.
        name: Product name, or empty.
        rows: Rows of ``Trace.activities`` that ran on it, in time order.
        span_start_ns: First activity start.
        span_end_ns: Last activity end.
        busy_start_ns: Starts of the maximal busy intervals.
        busy_end_ns: Their ends.
        busy_ns: Length of the union of all activities.
        idle_ns: Span minus busy.
        compute_start_ns: Union of kernels that are not communication, and memsets: starts.
        compute_end_ns: Ends.
        compute_ns: Its length.
        communication_ns: Length of the union of collective kernels.
        exposed_communication_ns: Communication outside compute.
        copy_ns: Length of the union of copies.
        exposed_copy_ns: Copies outside compute and communication.
        kernel_start_ns: Union of all kernels (communication too): starts.
        kernel_end_ns: Ends.
        gap_start_ns: Starts of the gaps (maximal idle intervals inside the span).
        gap_end_ns: Their ends.
        gaps: Count and percentiles of the gaps.
    """

    device_id: int
    name: str
    rows: IntArray
    span_start_ns: int
    span_end_ns: int
    busy_start_ns: IntArray
    busy_end_ns: IntArray
    busy_ns: int
    idle_ns: int
    compute_start_ns: IntArray
    compute_end_ns: IntArray
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    copy_ns: int
    exposed_copy_ns: int
    kernel_start_ns: IntArray
    kernel_end_ns: IntArray
    gap_start_ns: IntArray
    gap_end_ns: IntArray
    gaps: Gaps

    @property
    def span_ns(self) -> int:
        """Length of the span."""
        return self.span_end_ns - self.span_start_ns


def measure_device_timelines(trace: Trace) -> tuple[DeviceTimeline, ...]:
    """Measure every device that has at least one activity.

    Args:
        trace: The recording.

    Returns:
        One timeline per device, by device id; empty without GPU activity.
    """
    activities = trace.activities
    names = {device.device_id: device.name for device in trace.devices}
    collective = collective_names(trace.names, activities.name)
    return tuple(
        _measure(trace, int(device), names.get(int(device), ""), collective) for device in np.unique(activities.device)
    )


def collective_names(names: Sequence[str], used: CodeArray) -> npt.NDArray[np.bool_]:
    """Say which names are collective kernels.

    Args:
        names: The string table.
        used: Name codes that occur.

    Returns:
        bool array indexed by name code; the last entry stands for -1.
    """
    table = np.zeros(len(names) + 1, dtype=np.bool_)
    for code in np.unique(used):
        table[code] = code >= 0 and is_communication(names[code])
    return table


def _measure(trace: Trace, device: int, name: str, collective: npt.NDArray[np.bool_]) -> DeviceTimeline:
    rows = np.flatnonzero(trace.activities.device == device)
    start, end = trace.activities.start_ns[rows], trace.activities.end_ns[rows]
    kind = trace.activities.kind[rows]
    is_kernel = (kind == ActivityKind.KERNEL) | (kind == ActivityKind.GRAPH)
    is_communication = is_kernel & collective[trace.activities.name[rows]]
    is_copy = kind == ActivityKind.COPY
    is_compute = ~is_communication & ~is_copy

    busy = intervals.union(start, end)
    kernel = intervals.union(start[is_kernel], end[is_kernel])
    compute = intervals.union(start[is_compute], end[is_compute])
    communication = intervals.union(start[is_communication], end[is_communication])
    copy = intervals.union(start[is_copy], end[is_copy])
    exposed_communication = intervals.subtract(communication, compute)
    exposed_copy = intervals.subtract(intervals.subtract(copy, compute), communication)
    span_start, span_end = int(start[0]), int(end.max())
    gap = intervals.complement(busy, span_start, span_end)
    busy_ns = intervals.length(busy)
    return DeviceTimeline(
        device_id=device,
        name=name,
        rows=rows,
        span_start_ns=span_start,
        span_end_ns=span_end,
        busy_start_ns=busy[0],
        busy_end_ns=busy[1],
        busy_ns=busy_ns,
        idle_ns=span_end - span_start - busy_ns,
        compute_start_ns=compute[0],
        compute_end_ns=compute[1],
        compute_ns=intervals.length(compute),
        communication_ns=intervals.length(communication),
        exposed_communication_ns=intervals.length(exposed_communication),
        copy_ns=intervals.length(copy),
        exposed_copy_ns=intervals.length(exposed_copy),
        kernel_start_ns=kernel[0],
        kernel_end_ns=kernel[1],
        gap_start_ns=gap[0],
        gap_end_ns=gap[1],
        gaps=_gap_statistics(gap[1] - gap[0]),
    )


def _gap_statistics(lengths: IntArray) -> Gaps:
    if not len(lengths):
        return Gaps(count=0)
    # "inverted_cdf" is the nearest rank: a gap that really occurred, so an integer
    p50, p90, p99 = (int(value) for value in np.percentile(lengths, (50, 90, 99), method="inverted_cdf"))
    return Gaps(count=len(lengths), p50_ns=p50, p90_ns=p90, p99_ns=p99, max_ns=int(lengths.max()))
