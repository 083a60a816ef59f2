"""Busy and idle time of each device, all streams together."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.model.schema import IntArray
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
    """Measure every device that has at least one activity."""
    raise NotImplementedError
