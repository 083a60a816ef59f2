"""Copies: how much ran under kernels, and how long the host was blocked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.arithmetic import covered_within
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.host_nesting import HostNesting, nest_host
from traceanalyzer.measures.kernels import issue_window
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import (
    ActivityKind,
    ByteArray,
    CallKind,
    CodeArray,
    CopyDirection,
    IntArray,
    MemoryKind,
    among,
)
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import CopiesReport, CopyMemoryReport, CopyReport


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


def measure_copies(
    trace: Trace, devices: tuple[DeviceTimeline, ...], steps: Steps, nesting: HostNesting | None = None
) -> Copies:
    """Measure the copies of a trace.

    Args:
        trace: The recording.
        devices: Its devices.
        steps: Its step windows.
        nesting: Its operators and calls nested, where the caller has it already.
    """
    nesting = nesting if nesting is not None else nest_host(trace)
    activities, calls = trace.activities, trace.calls
    rows = np.flatnonzero(activities.kind == ActivityKind.COPY)
    start, end, device = activities.start_ns[rows], activities.end_ns[rows], activities.device[rows]
    overlapped = np.zeros(len(rows), dtype=np.int64)
    for timeline in devices:
        mine = device == timeline.device_id
        overlapped[mine] = covered_within(start[mine], end[mine], timeline.kernel_start_ns, timeline.kernel_end_ns)
    call = trace.activity_call[rows]
    sync_call = _completing_syncs(trace, call, activities.stream[rows], nesting)
    blocked = np.zeros(len(rows), dtype=np.int64)
    # a batched copy or a graph owns several copies: its call counts once, with the first
    _, firsts = np.unique(call, return_index=True)
    first = np.zeros(len(rows), dtype=np.bool_)
    first[firsts] = True
    for part in (call, sync_call):
        known = first & (part >= 0)
        blocked[known] += calls.end_ns[part[known]] - calls.start_ns[part[known]]
    copies = Copies(
        activity=rows,
        call=call,
        sync_call=sync_call,
        window=issue_window(trace, rows, steps),
        device=device,
        direction=activities.direction[rows],
        host_memory=activities.host_memory[rows],
        size_bytes=activities.size_bytes[rows],
        start_ns=start,
        end_ns=end,
        overlapped_ns=overlapped,
        host_blocked_ns=blocked,
        report=_EMPTY,
    )
    return _with_report(copies)


def _completing_syncs(trace: Trace, call: IntArray, stream: IntArray, nesting: HostNesting) -> IntArray:
    """For each copy, the stream synchronisation by which PyTorch makes it blocking; -1 none.

    It is the next synchronisation of the same thread inside the same innermost operator, provided no other copy was
    issued in between (that one is then the copy it completes). Outside operators (Nsight recordings) nothing else
    may lie between them, or any later synchronisation of the loop would be taken for it.
    """
    result = np.full(len(call), -1, dtype=np.int64)
    if not len(call):
        return result
    calls = trace.calls
    copy_of_call = np.full(len(calls), -1, dtype=np.int64)
    linked = np.flatnonzero(call >= 0)
    copy_of_call[call[linked[::-1]]] = linked[::-1]  # the first copy of a call that issued several
    is_sync = calls.kind == CallKind.SYNCHRONIZE
    stream_syncs = [c for c in np.unique(calls.name[is_sync]).tolist() if "StreamSynchronize" in trace.names[c]]
    is_sync &= among(calls.name, stream_syncs)
    relevant = np.flatnonzero(calls.kind != CallKind.OTHER)
    relevant = relevant[np.argsort(calls.thread[relevant], kind="stable")]  # calls are sorted by start already
    place = np.flatnonzero((copy_of_call[relevant] >= 0) | is_sync[relevant])
    if len(place) < 2:
        return result
    row = relevant[place]
    before, after = row[:-1], row[1:]
    copy = copy_of_call[before]
    innermost = nesting.call_innermost
    matches = (copy >= 0) & is_sync[after] & (calls.thread[before] == calls.thread[after])
    matches &= innermost[before] == innermost[after]
    matches &= (innermost[before] >= 0) | (np.diff(place) == 1)
    waited = _streams_waited_for(trace)[after]
    matches &= (waited < 0) | (waited == stream[copy])
    result[copy[matches]] = after[matches]
    return result


def _streams_waited_for(trace: Trace) -> IntArray:
    """Stream each call waited for, where the recording has synchronisation rows; -1 unknown."""
    waits, calls = trace.waits, trace.calls
    result = np.full(len(calls), -1, dtype=np.int64)
    known = np.flatnonzero((waits.correlation >= 0) & (waits.stream >= 0))
    if not len(known) or not len(calls):
        return result
    ids, first = np.unique(waits.correlation[known], return_index=True)
    place = np.minimum(np.searchsorted(ids, calls.correlation), len(ids) - 1)
    found = ids[place] == calls.correlation
    result[found] = waits.stream[known[first[place[found]]]]
    return result


_NOTHING = CopyReport(
    count=0, bytes=0, time_ns=0, overlapped_ns=0, not_under_kernel_ns=0, host_blocked_ns=0, by_host_memory={}
)
_EMPTY = CopiesReport(h2d=_NOTHING, d2h=_NOTHING, d2d=_NOTHING, p2p=_NOTHING)


def _with_report(copies: Copies) -> Copies:
    report = CopiesReport(
        h2d=_direction_report(copies, CopyDirection.H2D),
        d2h=_direction_report(copies, CopyDirection.D2H),
        d2d=_direction_report(copies, CopyDirection.D2D),
        p2p=_direction_report(copies, CopyDirection.P2P),
    )
    columns = {name: getattr(copies, name) for name in Copies.__dataclass_fields__ if name != "report"}
    return Copies(**columns, report=report)


def _direction_report(copies: Copies, direction: CopyDirection) -> CopyReport:
    rows = np.flatnonzero(copies.direction == direction)
    total = _memory_report(copies, rows)
    return CopyReport(
        count=total.count,
        bytes=total.bytes,
        time_ns=total.time_ns,
        overlapped_ns=total.overlapped_ns,
        not_under_kernel_ns=total.time_ns - total.overlapped_ns,
        host_blocked_ns=total.host_blocked_ns,
        by_host_memory={
            kind.name.lower(): _memory_report(copies, rows[copies.host_memory[rows] == kind])
            for kind in MemoryKind
            if bool((copies.host_memory[rows] == kind).any())
        },
    )


def _memory_report(copies: Copies, rows: IntArray) -> CopyMemoryReport:
    size = copies.size_bytes[rows]
    return CopyMemoryReport(
        count=len(rows),
        bytes=int(size.sum()) if bool((size >= 0).all()) else None,
        time_ns=int((copies.end_ns[rows] - copies.start_ns[rows]).sum()),
        overlapped_ns=int(copies.overlapped_ns[rows].sum()),
        host_blocked_ns=int(copies.host_blocked_ns[rows].sum()),
    )
