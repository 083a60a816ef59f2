"""The walk through every gap: which cause holds at each moment, by rules 1 to 4 of the definitions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from traceanalyzer.measures import phases
from traceanalyzer.measures.host_timeline import HostTimeline, rows_by_thread
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model import intervals
from traceanalyzer.model.schema import IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, Phase

BoolArray = npt.NDArray[np.bool_]


class ThreadTables(NamedTuple):
    """What rule 4 and the profiler's overhead need to know of each thread, laid out for the compiled loop.

    The intervals of all kinds lie in one pool; ``first[kind, thread]`` to ``last[kind, thread]`` are those of a thread,
    ascending and disjoint.
    """

    giver: IntArray  # thread that hands this one its work; -1 none
    base_phase: IntArray
    first: IntArray
    last: IntArray
    start: IntArray
    end: IntArray
    cause: IntArray


_EVALUATIONS, _OPENINGS, _OVERHEADS, _SCHEDULED_OUT = range(4)


def thread_tables(trace: Trace, steps: Steps, host: HostTimeline) -> ThreadTables:
    """Collect what the walk needs to know of each thread.

    Args:
        trace: The recording.
        steps: Its step windows; the thread of the markers hands out the work.
        host: Its flattened host threads.

    Returns:
        The tables.
    """
    threads = len(trace.threads)
    slices = trace.slices
    traits = host.traits
    main = _main_thread(trace, steps, host)
    giver = np.full(threads, main, dtype=np.int64)
    if main >= 0:
        giver[main] = -1
    first = np.zeros((4, threads), dtype=np.int64)
    last = np.zeros((4, threads), dtype=np.int64)
    pool: list[tuple[IntArray, IntArray, IntArray]] = []
    used = 0
    for kind, table, rows in (
        (_EVALUATIONS, slices, np.flatnonzero((traits & phases.EVALUATION) != 0)),
        (_OPENINGS, slices, np.flatnonzero((traits & phases.OS_CALL) == 0)),
        (_SCHEDULED_OUT, trace.schedules, np.arange(len(trace.schedules))),
    ):
        order, offsets = rows_by_thread(table.thread[rows], threads)
        first[kind], last[kind] = used + offsets[:-1], used + offsets[1:]
        rows = rows[order]
        pool.append((table.start_ns[rows], table.end_ns[rows], np.zeros(len(rows), dtype=np.int64)))
        used += len(rows)
    owners = np.unique(trace.overheads.thread)
    for thread in (-1, *owners[owners >= 0]):
        part = _flatten_overheads(trace, np.isin(trace.overheads.thread, (-1, thread)))
        of_thread = slice(None) if thread < 0 else slice(thread, thread + 1)
        first[_OVERHEADS, of_thread], last[_OVERHEADS, of_thread] = used, used + len(part[0])
        pool.append(part)
        used += len(part[0])
    start, end, cause = (np.concatenate(columns) for columns in zip(*pool, strict=True))
    base_phase = np.where(host.autograd != 0, PHASE_CODE[Phase.BACKWARD], PHASE_CODE[Phase.OTHER]).astype(np.int64)
    return ThreadTables(giver, base_phase, first, last, start, end, cause)


def _main_thread(trace: Trace, steps: Steps, host: HostTimeline) -> int:
    """Return the thread that runs the training loop: the markers' own, else the busiest that is not the engine's."""
    if steps.thread >= 0:
        return steps.thread
    count = np.bincount(trace.slices.thread, minlength=len(trace.threads))
    count[host.autograd != 0] = 0
    return int(count.argmax()) if len(count) and count.max() > 0 else -1


def _flatten_overheads(trace: Trace, rows: BoolArray) -> tuple[IntArray, IntArray, IntArray]:
    """Make overhead rows disjoint; where the profiler's buffers and lazy loading overlap, the buffers win."""
    table = trace.overheads
    loads = rows & (table.is_module_load != 0)
    others = rows & (table.is_module_load == 0)
    overhead = intervals.union(table.start_ns[others], table.end_ns[others])
    loading = intervals.subtract(intervals.union(table.start_ns[loads], table.end_ns[loads]), overhead)
    start = np.concatenate((overhead[0], loading[0]))
    end = np.concatenate((overhead[1], loading[1]))
    cause = np.repeat(
        np.array([CAUSE_CODE[Cause.PROFILER_OVERHEAD], CAUSE_CODE[Cause.MODULE_LOAD]], dtype=np.int64),
        [len(overhead[0]), len(loading[0])],
    )
    order = np.argsort(start, kind="stable")
    return start[order], end[order], cause[order]


# columns of the table of gaps the walk reads
GAP_COLUMNS = 11
_G_START, _G_END, _G_THREAD, _G_ASKED, _G_ANSWERED, _G_INSIDE, _G_AFTER, _G_WAIT, _G_ACTIVITY, _G_CALL, _G_GAP = range(
    GAP_COLUMNS
)
_AUTOGRAD_ENGINE = np.int64(CAUSE_CODE[Cause.AUTOGRAD_ENGINE])
_PREEMPTED = np.int64(CAUSE_CODE[Cause.PREEMPTED])
_DEVICE_WAIT = np.int64(CAUSE_CODE[Cause.DEVICE_WAIT])
_UNKNOWN = np.int64(CAUSE_CODE[Cause.UNKNOWN])
_OTHER = np.int64(PHASE_CODE[Phase.OTHER])
_HOST = 4  # cursor of the host timeline, beside those of the pool's kinds


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _last_at(times, low, high, moment):  # type: ignore[no-untyped-def]
    """Return the last index in [low, high) whose time is not after a moment; low - 1 without one."""
    while low < high:
        middle = (low + high) // 2
        if times[middle] <= moment:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _advance(cursors, kind, thread, times, high, moment):  # type: ignore[no-untyped-def]
    """Do the same for moments that never go back, from where the last question ended."""
    at = cursors[kind, thread]
    while at + 1 < high and times[at + 1] <= moment:
        at += 1
    cursors[kind, thread] = at
    return at


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def walk_gaps(  # type: ignore[no-untyped-def]
    gaps, windows, host_offsets, host_start, host_end, host_cause, host_phase, host_slice, host_call,
    giver_of, base_phase, first, last, starts, ends, causes,
):  # fmt: skip
    """Walk every gap from its start to its end; each step takes the time up to the next change of anything.

    Args as ``ThreadTables`` and ``HostTimeline``; ``windows`` has start, end and marker end per row. Returns start,
    end, cause, phase, window, boundary, gap, activity, thread, slice and call of every piece.
    """
    # every border of a stretch, an interval of the pool, a window or a rule ends at most one step
    most = 4 * len(gaps) + 2 * len(host_start) + 2 * len(starts) + 3 * len(windows) + 1
    out_start = np.empty(most, np.int64)
    out_end = np.empty(most, np.int64)
    out_activity = np.empty(most, np.int32)
    out_slice = np.empty(most, np.int32)
    out_call = np.empty(most, np.int32)
    out_thread = np.empty(most, np.int32)
    out_window = np.empty(most, np.int32)
    out_gap = np.empty(most, np.int32)
    out_cause = np.empty(most, np.int8)
    out_phase = np.empty(most, np.int8)
    out_boundary = np.empty(most, np.int8)
    n = 0
    threads = len(giver_of)
    cursors = np.empty((5, threads), np.int64)
    for t in range(threads):
        for kind in range(4):
            cursors[kind, t] = first[kind, t] - 1
        cursors[_HOST, t] = host_offsets[t] - 1
    w = 0
    for g in range(len(gaps)):
        now = gaps[g, _G_START]
        end = gaps[g, _G_END]
        thread = gaps[g, _G_THREAD]
        asked = gaps[g, _G_ASKED]
        wait_until = gaps[g, _G_WAIT]
        launch = min(max(asked, now), end)
        returned = min(max(gaps[g, _G_ANSWERED], launch), end)
        fresh = n  # pieces of different gaps never merge
        launch_known = False
        launch_phase = _OTHER
        launch_slice = np.int64(-1)
        while now < end:
            until = np.int64(end)
            while w < len(windows) and windows[w, 1] <= now:
                w += 1
            window = -1
            boundary = 0
            if w < len(windows):
                if now < windows[w, 0]:
                    until = min(until, windows[w, 0])
                else:
                    window = w
                    until = min(until, windows[w, 1])
                    if now >= windows[w, 2]:
                        boundary = 1
                    else:
                        until = min(until, windows[w, 2])
            cause = _UNKNOWN
            phase = _OTHER
            owner = thread
            slice_row = np.int64(-1)
            call_row = np.int64(-1)
            if thread >= 0:
                over = False
                if now < returned:
                    # inside and before the launch call the profiler's own work wins
                    high = last[_OVERHEADS, thread]
                    at = _advance(cursors, _OVERHEADS, thread, starts, high, now)
                    if at >= first[_OVERHEADS, thread] and now < ends[at]:
                        over = True
                        cause = causes[at]
                        until = min(until, ends[at])
                    elif at + 1 < high:
                        until = min(until, starts[at + 1])
                low = host_offsets[thread]
                high = host_offsets[thread + 1]
                if now >= launch:
                    if not launch_known:
                        launch_known = True
                        launch_phase = base_phase[thread]
                        at = _advance(cursors, _HOST, thread, host_start, high, now)
                        if asked < now:
                            at = _last_at(host_start, low, at + 1, asked)
                        if at >= low and asked < host_end[at]:
                            launch_phase = np.int64(host_phase[at])
                            launch_slice = host_slice[at]
                    phase = launch_phase
                    slice_row = launch_slice
                    call_row = gaps[g, _G_CALL]
                    if now < returned:
                        until = min(until, returned)
                        if not over:
                            cause = gaps[g, _G_INSIDE]
                    elif now < wait_until:
                        cause = _DEVICE_WAIT
                        until = min(until, wait_until)
                    else:
                        cause = gaps[g, _G_AFTER]
                else:
                    until = min(until, launch)
                    at = _advance(cursors, _HOST, thread, host_start, high, now)
                    phase = base_phase[thread]
                    if at >= low and now < host_end[at]:
                        until = min(until, host_end[at])
                        phase = np.int64(host_phase[at])
                        slice_row = host_slice[at]
                        call_row = host_call[at]
                        if not over:
                            cause = np.int64(host_cause[at])
                    elif at + 1 < high:
                        until = min(until, host_start[at + 1])
                    if not over and cause == _UNKNOWN:
                        # nothing open: the engine, the scheduler, or the thread that hands out the work
                        giver = giver_of[thread]
                        high = last[_EVALUATIONS, thread]
                        at = _advance(cursors, _EVALUATIONS, thread, starts, high, now)
                        is_engine = False
                        if at >= first[_EVALUATIONS, thread] and at + 1 < high and ends[at] <= now:
                            before = ends[at]
                            after = starts[at + 1]
                            is_engine = True
                            if giver >= 0:
                                low = first[_OPENINGS, giver]
                                at = _last_at(starts, low, last[_OPENINGS, giver], after - 1)
                                is_engine = at < low or starts[at] < before
                            if is_engine:
                                until = min(until, after)
                                cause = _AUTOGRAD_ENGINE
                        if not is_engine:
                            high = last[_SCHEDULED_OUT, thread]
                            at = _advance(cursors, _SCHEDULED_OUT, thread, starts, high, now)
                            if at >= first[_SCHEDULED_OUT, thread] and now < ends[at]:
                                until = min(until, ends[at])
                                cause = _PREEMPTED
                            else:
                                if at + 1 < high:
                                    until = min(until, starts[at + 1])
                                owner = giver
                                if giver >= 0:
                                    high = host_offsets[giver + 1]
                                    at = _advance(cursors, _HOST, giver, host_start, high, now)
                                    if at >= host_offsets[giver] and now < host_end[at]:
                                        until = min(until, host_end[at])
                                        cause = np.int64(host_cause[at])
                                        if host_phase[at] != _OTHER:
                                            phase = np.int64(host_phase[at])
                                        slice_row = host_slice[at]
                                        call_row = host_call[at]
                                    elif at + 1 < high:
                                        until = min(until, host_start[at + 1])
                                if cause == _UNKNOWN:
                                    owner = np.int64(-1)
            p = n - 1
            if (
                n > fresh and out_cause[p] == cause and out_phase[p] == phase and out_thread[p] == owner
                and out_slice[p] == slice_row and out_call[p] == call_row
                and out_window[p] == window and out_boundary[p] == boundary
            ):  # fmt: skip
                out_end[p] = until
            elif window >= 0 or gaps[g, _G_GAP] >= 0:  # else beyond both the windows and the device's span
                out_start[n] = now
                out_end[n] = until
                out_activity[n] = gaps[g, _G_ACTIVITY]
                out_slice[n] = slice_row
                out_call[n] = call_row
                out_thread[n] = owner
                out_window[n] = window
                out_gap[n] = gaps[g, _G_GAP]
                out_cause[n] = cause
                out_phase[n] = phase
                out_boundary[n] = boundary
                n += 1
            now = until
    # not copied: pages of the room behind the last piece were never touched and take no memory
    return (
        out_start[:n], out_end[:n], out_cause[:n], out_phase[:n], out_window[:n], out_boundary[:n], out_gap[:n],
        out_activity[:n], out_thread[:n], out_slice[:n], out_call[:n],
    )  # fmt: skip
