"""Which activity ends each gap, which call launched it, and what kept it waiting after that call."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.model.schema import (
    ActivityKind,
    ByteArray,
    CallKind,
    IntArray,
    MemoryKind,
    WaitKind,
    among,
    distinct_codes,
)
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import CAUSE_CODE, Cause

_HOST_FUNCTION = re.compile(r"(?:cuda|hip|cu)LaunchHostFunc|cudaStreamAddCallback|cuStreamAddCallback")
PAGEABLE_BLOCKS_ABOVE_BYTES = 65_536  # CUDA stages smaller pageable copies and returns
_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class GapLinks:
    """One entry per gap of a device.

    Attributes:
        activity: Row of the activity that ends the gap; -1 none.
        call: Row of its launch call; -1 none.
        thread: Thread whose state explains the gap; -1 unknown.
        call_start: Start of the launch call; far in the future where no activity ends the gap.
        call_end: End of the launch call.
        inside_cause: Cause while inside the launch call.
        after_cause: Cause after the launch call.
        wait_until: Until when the activity waited for another device, an event or a host function.
    """

    activity: IntArray
    call: IntArray
    thread: IntArray
    call_start: IntArray
    call_end: IntArray
    inside_cause: ByteArray
    after_cause: ByteArray
    wait_until: IntArray


def link_gaps(trace: Trace, device: DeviceTimeline, start: IntArray, end: IntArray, tail_thread: int) -> GapLinks:
    """Link gaps to the launches that ended them.

    Args:
        trace: The recording.
        device: The device.
        start: Gap starts, ns, ascending.
        end: Gap ends, ns.
        tail_thread: Thread that explains a gap no activity ends; -1 none.

    Returns:
        One entry per gap.
    """
    acts, calls = trace.activities, trace.calls
    activity = _ending_activities(trace, device, end)
    ended = activity >= 0
    call = np.where(ended, trace.activity_call[activity], -1) if len(acts) else np.full(len(end), -1, dtype=np.int64)
    linked = call >= 0
    call_start = np.full(len(end), _FAR, dtype=np.int64)
    call_end = np.full(len(end), _FAR, dtype=np.int64)
    thread = np.where(ended, -1, tail_thread).astype(np.int64)
    inside = np.full(len(end), CAUSE_CODE[Cause.LAUNCH_CALL], dtype=np.int8)
    after = np.full(len(end), CAUSE_CODE[Cause.LAUNCH_LATENCY], dtype=np.int8)
    wait_until = np.full(len(end), -_FAR, dtype=np.int64)
    rows, act = call[linked], activity[linked]
    if len(rows):
        call_start[linked] = calls.start_ns[rows]
        call_end[linked] = calls.end_ns[rows]
        thread[linked] = calls.thread[rows]
        kind = calls.kind[rows]
        pageable = (
            (acts.kind[act] == ActivityKind.COPY)
            & (acts.host_memory[act] == MemoryKind.PAGEABLE)
            & (acts.size_bytes[act] > PAGEABLE_BLOCKS_ABOVE_BYTES)
        )
        inside[linked] = np.select(
            [(kind == CallKind.BLOCKING_COPY) | pageable, kind == CallKind.GRAPH_LAUNCH],
            [CAUSE_CODE[Cause.COPY_CALL], CAUSE_CODE[Cause.GRAPH_LAUNCH]],
            CAUSE_CODE[Cause.LAUNCH_CALL],
        )
        queued = calls.end_ns[rows] <= start[linked]
        same_graph = (kind == CallKind.GRAPH_LAUNCH) & (_calls_before(trace, device, end[linked]) == rows)
        after[linked] = np.select(
            [~queued, same_graph],
            [CAUSE_CODE[Cause.LAUNCH_LATENCY], CAUSE_CODE[Cause.GRAPH_TURNAROUND]],
            CAUSE_CODE[Cause.QUEUE_TURNAROUND],
        )
        wait_until[linked] = np.where(queued, np.minimum(_awaited_until(trace)[act], end[linked]), -_FAR)
    return GapLinks(activity, call, thread, call_start, call_end, inside, after, wait_until)


def _ending_activities(trace: Trace, device: DeviceTimeline, end: IntArray) -> IntArray:
    """Return the activity that starts where each gap ends: linked before unlinked, then lowest correlation id."""
    acts = trace.activities
    rows = device.rows
    first = np.searchsorted(acts.start_ns[rows], end, side="left")
    after = np.searchsorted(acts.start_ns[rows], end, side="right")
    activity = np.where(after > first, rows[np.minimum(first, len(rows) - 1)], -1)
    shared = np.flatnonzero(after - first > 1)
    if len(shared):
        count = (after - first)[shared]
        group = np.repeat(np.arange(len(shared)), count)
        offset = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
        tied = rows[first[shared][group] + offset]
        order = np.lexsort((acts.correlation[tied], trace.activity_call[tied] < 0, group))
        activity[shared] = tied[order[np.cumsum(count) - count]]
    return activity


def _calls_before(trace: Trace, device: DeviceTimeline, end: IntArray) -> IntArray:
    """Return the launch of the activity after which each gap began; -1 without one."""
    rows = device.rows
    if not len(rows):
        return np.full(len(end), -1, dtype=np.int64)
    ends = trace.activities.end_ns[rows]
    latest = np.maximum.accumulate(np.where(ends == np.maximum.accumulate(ends), np.arange(len(rows)), 0))
    before = np.searchsorted(trace.activities.start_ns[rows], end, side="left") - 1
    call = trace.activity_call[rows[latest[np.maximum(before, 0)]]]
    return np.where(before >= 0, call, -1)


def _awaited_until(trace: Trace) -> IntArray:
    """Return, per activity, until when it had to wait for an event, another device or a host function.

    A stream wait holds up the next activity launched on its stream. On one device whatever is awaited has ended by the
    time the device is idle, so only activities of other devices matter; the recording does not name the awaited
    stream, hence the last one the recording thread launched there before it recorded the event.
    """
    acts, calls, waits = trace.activities, trace.calls, trace.waits
    until = np.full(len(acts), -_FAR, dtype=np.int64)
    rows = np.flatnonzero(waits.kind == WaitKind.STREAM_WAIT_EVENT)
    host_functions = _host_functions(trace)
    if not len(rows) and not len(host_functions):
        return until
    linked = np.flatnonzero(trace.activity_call >= 0)
    launch = calls.start_ns[trace.activity_call[linked]]
    order = np.argsort(launch, kind="stable")
    linked, launch = linked[order], launch[order]
    launcher = calls.thread[trace.activity_call[linked]]

    asked = _call_rows(trace, waits.correlation[rows])
    asked_ns = np.where(asked >= 0, calls.start_ns[asked], waits.start_ns[rows]) if len(calls) else waits.start_ns[rows]
    recorded = _call_rows(trace, waits.source_correlation[rows])
    for device, stream in {(int(d), int(s)) for d, s in zip(waits.device[rows], waits.stream[rows], strict=True)}:
        mine = (waits.device[rows] == device) & (waits.stream[rows] == stream)
        on_stream = acts.stream[linked] == stream
        if device >= 0:
            on_stream &= acts.device[linked] == device
        queue, queue_launch = linked[on_stream], launch[on_stream]
        position = np.searchsorted(queue_launch, asked_ns[mine])
        held = position < len(queue)
        activity = queue[position[held]]
        reached = waits.end_ns[rows[mine][held]].copy()
        record = recorded[mine][held]
        for thread in np.unique(calls.thread[record[record >= 0]]):
            for own_device in np.unique(acts.device[activity]):
                others = (launcher == thread) & (acts.device[linked] != own_device)
                these = np.flatnonzero((record >= 0) & (acts.device[activity] == own_device))
                these = these[calls.thread[record[these]] == thread]
                before = np.searchsorted(launch[others], calls.start_ns[record[these]]) - 1
                some = before >= 0
                ends = acts.end_ns[linked[others][before[some]]]
                reached[these[some]] = np.maximum(reached[these[some]], ends)
        np.maximum.at(until, activity, reached)

    for call in host_functions:
        behind = np.flatnonzero((launcher == calls.thread[call]) & (launch >= calls.start_ns[call]))
        if len(behind):
            until[linked[behind[0]]] = _FAR  # its own end is not recorded, but what follows it starts right after
    return until


def _host_functions(trace: Trace) -> IntArray:
    used = distinct_codes(trace.calls.name)
    wanted = [code for code in used if code >= 0 and _HOST_FUNCTION.fullmatch(trace.names[code])]
    return np.flatnonzero(among(trace.calls.name, wanted))


def _call_rows(trace: Trace, correlation: IntArray) -> IntArray:
    """Return the first call with each correlation id; -1 without one."""
    calls = trace.calls
    if not len(calls):
        return np.full(len(correlation), -1, dtype=np.int64)
    order = np.argsort(calls.correlation, kind="stable")
    at = np.minimum(np.searchsorted(calls.correlation[order], correlation), len(order) - 1)
    return np.where((correlation >= 0) & (calls.correlation[order[at]] == correlation), order[at], -1)
