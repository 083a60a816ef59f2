"""Copies: how much ran under kernels, and how long the host was blocked."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import CopiesReport


@dataclass(frozen=True, slots=True)
class Copies:
    """One row per copy, in time order.

    Attributes:
        activity: Row of ``Trace.activities``.
        call: Row of the issuing call; -1 unknown.
        sync_call: Row of the stream synchronisation that completes a blocking copy inside the same operator; -1 none.
        window: Step window that issued it (by the call's start; by the activity's start without a call); -1 none.
        device: Device id.
        direction: ``CopyDirection`` code.
        host_memory: ``MemoryKind`` code.
        size_bytes: Bytes; -1 unknown.
        start_ns: Start on the device.
        end_ns: End on the device.
        overlapped_ns: Part under a kernel of the same device.
        host_blocked_ns: Length of the issuing call plus that of ``sync_call``.
        report: The document part.
    """

    activity: IntArray
    call: IntArray
    sync_call: IntArray
    window: CodeArray
    device: CodeArray
    direction: ByteArray
    host_memory: ByteArray
    size_bytes: IntArray
    start_ns: IntArray
    end_ns: IntArray
    overlapped_ns: IntArray
    host_blocked_ns: IntArray
    report: CopiesReport


def measure_copies(trace: Trace, devices: tuple[DeviceTimeline, ...], steps: Steps) -> Copies:
    """Measure the copies of a trace."""
    raise NotImplementedError
