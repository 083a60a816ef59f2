"""Every idle nanosecond gets exactly one cause; the pieces tile the gaps, so the causes sum to idle exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from traceanalyzer.measures import phases
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_links import link_gaps
from traceanalyzer.measures.host_timeline import HostTimeline, rows_by_thread
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model import intervals
from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, Phase

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class IdleLedger:
    """Idle pieces of all devices, sorted by device, then start; one row per piece, split at window borders.

    The pieces with ``in_span`` tile each device's gaps exactly. The pieces with ``window >= 0`` tile the idle time
    of every step window exactly (idle before a window's first activity and after its last included), whether or
    not it lies inside the device's span.

    Attributes:
        start_ns: Piece start.
        end_ns: Piece end.
        device: Device id.
        cause: Code into ``vocabulary.CAUSES``.
        phase: Code into ``vocabulary.PHASES``.
        window: Step window index; -1 outside every window.
        step_class: Class code of that window; -1 outside.
        boundary: 1 where the piece lies in a window but outside its marker.
        in_span: 1 where the piece lies inside the device's span.
        gap: Index into the device's gaps; -1 outside the span.
        activity: Row of the activity that ends the gap; -1 when none does.
        thread: Thread whose state decided the cause; -1 unknown.
        slice_row: Innermost slice open there (row of ``Trace.slices``); -1 none.
        call_row: Innermost call open there (row of ``Trace.calls``), or the launch call; -1 none.
    """

    start_ns: IntArray
    end_ns: IntArray
    device: CodeArray
    cause: ByteArray
    phase: ByteArray
    window: CodeArray
    step_class: ByteArray
    boundary: ByteArray
    in_span: ByteArray
    gap: CodeArray
    activity: IntArray
    thread: CodeArray
    slice_row: IntArray
    call_row: IntArray

    @property
    def duration_ns(self) -> IntArray:
        """Length of each piece."""
        return self.end_ns - self.start_ns

    def mask(
        self,
        *causes: Cause,
        device: int | None = None,
        phases: tuple[Phase, ...] | None = None,
        step_classes: tuple[int, ...] | None = None,
    ) -> BoolArray:
        """Select pieces.

        Args:
            *causes: Keep these causes; none given keeps all.
            device: Keep this device.
            phases: Keep these phases.
            step_classes: Keep pieces of windows of these classes (codes of ``steps.STEP_CLASSES``).
        """
        keep = np.ones(len(self.start_ns), dtype=np.bool_)
        if causes:
            keep &= np.isin(self.cause, [CAUSE_CODE[c] for c in causes])
        if device is not None:
            keep &= self.device == device
        if phases is not None:
            keep &= np.isin(self.phase, [PHASE_CODE[p] for p in phases])
        if step_classes is not None:
            keep &= np.isin(self.step_class, step_classes)
        return keep

    def per_window(self, mask: BoolArray, windows: int) -> IntArray:
        """Sum the selected pieces by step window.

        Args:
            mask: Selection, as ``mask`` returns it.
            windows: Number of step windows.

        Returns:
            int64 array of length ``windows``, ns.
        """
        rows = mask & (self.window >= 0)
        sums = np.zeros(windows, dtype=np.int64)
        np.add.at(sums, self.window[rows], self.duration_ns[rows])
        return sums


def attribute_idle(trace: Trace, steps: Steps, host: HostTimeline, devices: tuple[DeviceTimeline, ...]) -> IdleLedger:
    """Attribute the idle time of every device to its cause, by rules 1 to 4 of the definitions.

    Args:
        trace: The recording.
        steps: Its step windows.
        host: Its flattened host threads.
        devices: Its device timelines.

    Returns:
        The ledger; empty without devices.
    """
    context = _thread_tables(trace, steps, host)
    parts = [_attribute_device(trace, steps, host, device, context) for device in devices]
    pieces = np.concatenate(parts) if parts else np.empty((0, _WIDTH), dtype=np.int64)
    return _split(pieces, steps)


class _Threads(NamedTuple):
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


def _thread_tables(trace: Trace, steps: Steps, host: HostTimeline) -> _Threads:
    threads = len(trace.threads)
    slices = trace.slices
    traits = phases.slice_traits(trace)
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
    return _Threads(giver, base_phase, first, last, start, end, cause)


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


def _attribute_device(
    trace: Trace, steps: Steps, host: HostTimeline, device: DeviceTimeline, context: _Threads
) -> IntArray:
    """Return one device's pieces, before they are split at window borders."""
    start, end = device.gap_start_ns, device.gap_end_ns
    gap = np.arange(len(start), dtype=np.int64)
    if len(steps):
        # idle of the windows before the device's first activity and after its last
        if steps.start_ns[0] < device.span_start_ns:
            start = np.concatenate((steps.start_ns[:1], start))
            end = np.concatenate((np.array([device.span_start_ns], dtype=np.int64), end))
            gap = np.concatenate((np.array([-1], dtype=np.int64), gap))
        tail = max(device.span_end_ns, int(steps.start_ns[0]))
        if steps.end_ns[-1] > tail:
            start = np.concatenate((start, np.array([tail], dtype=np.int64)))
            end = np.concatenate((end, steps.end_ns[-1:]))
            gap = np.concatenate((gap, np.array([-1], dtype=np.int64)))
    links = link_gaps(trace, device, start, end, steps.thread)
    gaps = np.column_stack((
        start, end, links.thread, links.call_start, links.call_end, links.inside_cause, links.after_cause,
        links.wait_until,
    ))  # fmt: skip
    pieces = _attribute(
        gaps, host.offsets, host.start_ns, host.end_ns, host.cause, host.phase, host.slice_row, host.call_row, *context
    ).reshape(-1, _WIDTH)
    ids = pieces[:, _GAP]
    pieces[:, _ACTIVITY] = links.activity[ids]
    call = links.call[ids]
    pieces[:, _CALL] = np.where(pieces[:, _CALL] == _THE_LAUNCH, call, pieces[:, _CALL])
    pieces[:, _GAP] = gap[ids]
    pieces[:, _DEVICE] = device.device_id
    return pieces  # type: ignore[no-any-return]


def _split(pieces: IntArray, steps: Steps) -> IdleLedger:
    """Split pieces at the borders of windows and markers, and say in which window each lies."""
    cuts = np.unique(np.concatenate((steps.start_ns, steps.marker_end_ns, steps.end_ns)))
    start, end = pieces[:, _START], pieces[:, _END]
    first = np.searchsorted(cuts, start, side="right")
    count = np.searchsorted(cuts, end, side="left") - first + 1
    rows = np.repeat(np.arange(len(pieces)), count)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    padded = np.concatenate((cuts, np.zeros(1, dtype=np.int64)))
    low = np.where(number == 0, start[rows], padded[first[rows] + number - 1])
    high = np.where(number == count[rows] - 1, end[rows], padded[np.minimum(first[rows] + number, len(cuts))])
    if len(steps):
        window = np.searchsorted(steps.start_ns, low, side="right") - 1
        window = np.where((window >= 0) & (low < steps.end_ns[window]), window, -1)
        inside = window >= 0
        step_class = np.where(inside, steps.step_class[window], -1)
        boundary = inside & (low >= steps.marker_end_ns[window])
    else:
        window = np.full(len(rows), -1, dtype=np.int64)
        step_class = window
        boundary = np.zeros(len(rows), dtype=np.bool_)
    gap = pieces[rows, _GAP]
    return IdleLedger(
        start_ns=low,
        end_ns=high,
        device=pieces[rows, _DEVICE].astype(np.int32),
        cause=pieces[rows, _CAUSE].astype(np.int8),
        phase=pieces[rows, _PHASE].astype(np.int8),
        window=window.astype(np.int32),
        step_class=step_class.astype(np.int8),
        boundary=boundary.astype(np.int8),
        in_span=(gap >= 0).astype(np.int8),
        gap=gap.astype(np.int32),
        activity=pieces[rows, _ACTIVITY],
        thread=pieces[rows, _THREAD].astype(np.int32),
        slice_row=pieces[rows, _SLICE],
        call_row=pieces[rows, _CALL],
    )


_START, _END, _CAUSE, _PHASE, _THREAD, _SLICE, _CALL, _GAP, _ACTIVITY, _DEVICE = range(10)
_WIDTH = 10
_THE_LAUNCH = -2  # stands for the gap's launch call until the rows are known
_AUTOGRAD_ENGINE = CAUSE_CODE[Cause.AUTOGRAD_ENGINE]
_PREEMPTED = CAUSE_CODE[Cause.PREEMPTED]
_DEVICE_WAIT = CAUSE_CODE[Cause.DEVICE_WAIT]
_UNKNOWN = CAUSE_CODE[Cause.UNKNOWN]
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
def _attribute(  # type: ignore[no-untyped-def]
    gaps, host_offsets, host_start, host_end, host_cause, host_phase, host_slice, host_call,
    giver_of, base_phase, first, last, starts, ends, causes,
):  # fmt: skip
    """Walk every gap from its start to its end; each step emits the time up to the next change of cause."""
    out = np.empty((2 * len(gaps) + 1024) * _WIDTH, np.int64)
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
            until = end
            cause = np.int64(_UNKNOWN)
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
                    call_row = np.int64(_THE_LAUNCH)
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
                previous >= 0 and out[previous + _GAP] == g and out[previous + _CAUSE] == cause
                and out[previous + _PHASE] == phase and out[previous + _THREAD] == owner
                and out[previous + _SLICE] == slice_row and out[previous + _CALL] == call_row
            ):  # fmt: skip
                out[previous + _END] = until
            else:
                if n == len(out):
                    larger = np.empty(2 * n, np.int64)
                    for column in range(n):  # assigning a slice costs seconds of compilation
                        larger[column] = out[column]
                    out = larger
                out[n + _START] = now
                out[n + _END] = until
                out[n + _CAUSE] = cause
                out[n + _PHASE] = phase
                out[n + _THREAD] = owner
                out[n + _SLICE] = slice_row
                out[n + _CALL] = call_row
                out[n + _GAP] = g
                previous = n
                n += _WIDTH
            now = until
    return out[:n].copy()
