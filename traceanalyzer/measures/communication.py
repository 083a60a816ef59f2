"""Collective kernels and how much of them nothing hides."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.model.schema import CodeArray, IntArray
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
    raise NotImplementedError
