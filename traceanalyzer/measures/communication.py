"""Collective kernels and how much of them nothing hides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.arithmetic import covered_within
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.kernel_names import is_communication
from traceanalyzer.model.schema import ActivityKind, CodeArray, IntArray, distinct_codes
from traceanalyzer.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Communication:
    """One row per collective kernel, in time order.

    Attributes:
        activity: Row of ``Trace.activities``.
        device: Device id.
        start_ns: Start.
        end_ns: End.
        exposed_ns: Part outside compute on the same device.
    """

    activity: IntArray
    device: CodeArray
    start_ns: IntArray
    end_ns: IntArray
    exposed_ns: IntArray


def measure_communication(trace: Trace, devices: tuple[DeviceTimeline, ...]) -> Communication:
    """Measure the collectives of a trace."""
    activities = trace.activities
    kernels = np.flatnonzero(activities.kind == ActivityKind.KERNEL)
    codes = distinct_codes(activities.name[kernels])
    collective = [code for code in codes.tolist() if code >= 0 and is_communication(trace.names[code])]
    rows = kernels[np.isin(activities.name[kernels], collective)]
    start, end, device = activities.start_ns[rows], activities.end_ns[rows], activities.device[rows]
    exposed = end - start
    for timeline in devices:
        mine = device == timeline.device_id
        exposed[mine] -= covered_within(start[mine], end[mine], timeline.compute_start_ns, timeline.compute_end_ns)
    return Communication(activity=rows, device=device, start_ns=start, end_ns=end, exposed_ns=exposed)
