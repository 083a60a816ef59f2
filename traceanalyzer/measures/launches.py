"""Launch calls, how long they took and how the device followed them."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import LaunchesReport


@dataclass(frozen=True, slots=True)
class Launches:
    """One row per linked activity (a graph launch has many), sorted like ``Trace.activities``.

    Attributes:
        activity: Row of the activity.
        call: Row of its launch call.
        thread: Thread of the call.
        overhead_ns: Length of the call.
        delay_ns: ``max(0, start - call end)``.
        queue_depth: Activities of the device launched before this call began and not yet finished then.
        host_bound: 1 where the call began when the device had already gone idle.
        report: The document part.
    """

    activity: IntArray
    call: IntArray
    thread: CodeArray
    overhead_ns: IntArray
    delay_ns: IntArray
    queue_depth: CodeArray
    host_bound: ByteArray
    report: LaunchesReport


def measure_launches(trace: Trace, devices: tuple[DeviceTimeline, ...]) -> Launches:
    """Measure the launches of a trace."""
    raise NotImplementedError
