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


START, END, CAUSE, PHASE, THREAD, SLICE, CALL, GAP, ACTIVITY, DEVICE = range(10)
WIDTH = 10
THE_LAUNCH = -2  # stands for the gap's launch call until the rows are known
_AUTOGRAD_ENGINE = np.int64(CAUSE_CODE[Cause.AUTOGRAD_ENGINE])
_PREEMPTED = np.int64(CAUSE_CODE[Cause.PREEMPTED])
_DEVICE_WAIT = np.int64(CAUSE_CODE[Cause.DEVICE_WAIT])
_UNKNOWN = np.int64(CAUSE_CODE[Cause.UNKNOWN])
_OTHER = PHASE_CODE[Phase.OTHER]
_FAR = np.iinfo(np.int64).max


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
def walk_gaps(  # type: ignore[no-untyped-def]
    gaps, host_offsets, host_start, host_end, host_cause, host_phase, host_slice, host_call,
    giver_of, base_phase, first, last, starts, ends, causes,
):  # fmt: skip
    """Walk every gap from its start to its end; each step emits the time up to the next change of cause."""
    out = np.empty((2 * len(gaps) + 1024) * WIDTH, np.int64)
    n = 0
    previous = -1
    for g in range(len(gaps)):
        now = gaps[g, 0]
        end = gaps[g, 1]
        thread = gaps[g, 2]
        asked = gaps[g, 3]
        answered = gaps[g, 4]
        inside_cause = gaps[g, 5]
        after_cause = gaps[g, 6]
        wait_until = gaps[g, 7]
        launch = min(max(asked, now), end)
        returned = min(max(answered, launch), end)
        launch_phase = np.int64(_OTHER)
        launch_slice = np.int64(-1)
        if thread >= 0 and launch < end:
            low = host_offsets[thread]
            launch_phase = base_phase[thread]
            at = _last_at(host_start, low, host_offsets[thread + 1], asked)
            if at >= low and asked < host_end[at]:
                launch_phase = host_phase[at]
                launch_slice = host_slice[at]
        while now < end:
            until = np.int64(end)
            cause = _UNKNOWN
            phase = np.int64(_OTHER)
            owner = thread
            slice_row = np.int64(-1)
            call_row = np.int64(-1)
            if thread >= 0:
                over = False
                if now < returned:
                    # inside and before the launch call the profiler's own work wins
                    low = first[_OVERHEADS, thread]
                    high = last[_OVERHEADS, thread]
                    at = _last_at(starts, low, high, now)
                    if at >= low and now < ends[at]:
                        over = True
                        cause = causes[at]
                        until = min(until, ends[at])
                    elif at + 1 < high:
                        until = min(until, starts[at + 1])
                if now >= launch:
                    phase = launch_phase
                    slice_row = launch_slice
                    call_row = np.int64(THE_LAUNCH)
                    if now < returned:
                        until = min(until, returned)
                        if not over:
                            cause = inside_cause
                    elif now < wait_until:
                        cause = _DEVICE_WAIT
                        until = min(until, wait_until)
                    else:
                        cause = after_cause
                else:
                    until = min(until, launch)
                    low = host_offsets[thread]
                    high = host_offsets[thread + 1]
                    at = _last_at(host_start, low, high, now)
                    phase = base_phase[thread]
                    is_open = at >= low and now < host_end[at]
                    if is_open:
                        until = min(until, host_end[at])
                        phase = host_phase[at]
                        slice_row = host_slice[at]
                        call_row = host_call[at]
                        if not over:
                            cause = host_cause[at]
                    elif at + 1 < high:
                        until = min(until, host_start[at + 1])
                    if not over and cause == _UNKNOWN:
                        # nothing open: the engine, the scheduler, or the thread that hands out the work
                        giver = giver_of[thread]
                        low = first[_EVALUATIONS, thread]
                        high = last[_EVALUATIONS, thread]
                        at = _last_at(starts, low, high, now)
                        is_engine = False
                        if at >= low and at + 1 < high and ends[at] <= now:
                            before = ends[at]
                            after = starts[at + 1]
                            is_engine = True
                            if giver >= 0:
                                low = first[_OPENINGS, giver]
                                high = last[_OPENINGS, giver]
                                at = _last_at(starts, low, high, after - 1)
                                is_engine = at < low or starts[at] < before
                            if is_engine:
                                until = min(until, after)
                                cause = _AUTOGRAD_ENGINE
                        if not is_engine:
                            low = first[_SCHEDULED_OUT, thread]
                            high = last[_SCHEDULED_OUT, thread]
                            at = _last_at(starts, low, high, now)
                            if at >= low and now < ends[at]:
                                until = min(until, ends[at])
                                cause = _PREEMPTED
                            else:
                                if at + 1 < high:
                                    until = min(until, starts[at + 1])
                                owner = giver
                                if giver >= 0:
                                    low = host_offsets[giver]
                                    high = host_offsets[giver + 1]
                                    at = _last_at(host_start, low, high, now)
                                    if at >= low and now < host_end[at]:
                                        until = min(until, host_end[at])
                                        cause = host_cause[at]
                                        phase = host_phase[at]
                                        slice_row = host_slice[at]
                                        call_row = host_call[at]
                                    elif at + 1 < high:
                                        until = min(until, host_start[at + 1])
                                if cause == _UNKNOWN:
                                    owner = -1
            if (
                previous >= 0 and out[previous + GAP] == g and out[previous + CAUSE] == cause
                and out[previous + PHASE] == phase and out[previous + THREAD] == owner
                and out[previous + SLICE] == slice_row and out[previous + CALL] == call_row
            ):  # fmt: skip
                out[previous + END] = until
            else:
                if n == len(out):
                    larger = np.empty(2 * n, np.int64)
                    for column in range(n):  # assigning a slice costs seconds of compilation
                        larger[column] = out[column]
                    out = larger
                out[n + START] = now
                out[n + END] = until
                out[n + CAUSE] = cause
                out[n + PHASE] = phase
                out[n + THREAD] = owner
                out[n + SLICE] = slice_row
                out[n + CALL] = call_row
                out[n + GAP] = g
                previous = n
                n += WIDTH
            now = until
    return out[:n].copy()
