"""What every host thread was doing at every moment: the innermost open slice, its cause class and its phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from traceanalyzer.measures import phases
from traceanalyzer.model.schema import ByteArray, CallKind, CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, Phase

PLAN_SEARCH_MIN_NS = 1_000_000  # DEFINITIONS: an own stretch of at least 1 ms …
PLAN_SEARCH_MIN_RATIO = 10  # … and at least ten times the operator's median stretch


@dataclass(frozen=True, slots=True)
class HostTimeline:
    """Flattened threads: consecutive, non-overlapping stretches, sorted by thread, then start.

    A stretch exists only while at least one slice or call is open on the thread. ``offsets[t]`` to
    ``offsets[t + 1]`` are the rows of thread ``t``. Where nothing open says what the thread does (only OS calls, or a
    call that neither waits, allocates, loads, copies nor launches), the cause is ``unknown``. The profiler's own work
    is not in here: gap attribution lays it over.

    Attributes:
        offsets: Row offsets per thread, length threads + 1.
        start_ns: Stretch start.
        end_ns: Stretch end.
        cause: Cause code by rule 3 of the definitions (``vocabulary.CAUSES`` order), were the device idle here.
        phase: Phase code (``vocabulary.PHASES`` order).
        slice_row: Innermost open row of ``Trace.slices``; -1 when only a call is open.
        call_row: Innermost open row of ``Trace.calls``; -1 when no call is open.
        os_row: Innermost open row of ``Trace.slices`` that is an OS call (never a ``slice_row``); -1 none.
        autograd: Per thread: 1 where the autograd engine evaluates nodes on it.
        traits: Per row of ``Trace.slices``: what its name means (bits of ``phases``).
    """

    offsets: IntArray
    start_ns: IntArray
    end_ns: IntArray
    cause: ByteArray
    phase: ByteArray
    slice_row: CodeArray
    call_row: CodeArray
    os_row: CodeArray
    autograd: ByteArray
    traits: phases.TraitArray

    def phase_at(self, thread: CodeArray, time_ns: IntArray) -> ByteArray:
        """Find the phase of moments.

        Args:
            thread: Thread index of each moment; -1 unknown.
            time_ns: Moments, any order.

        Returns:
            Phase code per moment; that of ``other`` where nothing is open.
        """
        found = np.full(len(time_ns), PHASE_CODE[Phase.OTHER], dtype=np.int8)
        for one in np.unique(thread[thread >= 0]).tolist():
            first, last = int(self.offsets[one]), int(self.offsets[one + 1])
            if first == last:
                continue
            rows = np.flatnonzero(thread == one)
            at = np.searchsorted(self.start_ns[first:last], time_ns[rows], side="right") - 1
            open_there = (at >= 0) & (time_ns[rows] < self.end_ns[first:last][np.maximum(at, 0)])
            found[rows[open_there]] = self.phase[first:last][at[open_there]]
        return found


def flatten_host(trace: Trace) -> HostTimeline:
    """Flatten every thread's nested slices and calls.

    Args:
        trace: The recording.

    Returns:
        The stretches of all threads.
    """
    threads = len(trace.threads)
    traits = phases.slice_traits(trace)
    slices, calls = trace.slices, trace.calls
    slice_rows, slice_offsets = rows_by_thread(slices.thread, threads)
    call_rows, call_offsets = rows_by_thread(calls.thread, threads)
    autograd = np.zeros(threads, dtype=np.int8)
    autograd[slices.thread[(traits & phases.EVALUATION) != 0]] = 1
    # without operators in the recording the name PyTorch gives these threads still tells
    autograd[[thread.name.startswith("pt_autograd") for thread in trace.threads]] = 1
    offsets, columns, stretch_length, stretch_row, launched = _sweep(
        slice_rows,
        slice_offsets,
        slices.start_ns,
        slices.end_ns,
        traits,
        call_rows,
        call_offsets,
        calls.start_ns,
        calls.end_ns,
        _CALL_RANK[calls.kind],
        autograd,
    )
    columns = columns.reshape(-1, _COLUMNS)
    cause = columns[:, _CAUSE].astype(np.int8)
    searching = _plan_searches(slices.name[stretch_row], stretch_length, launched[stretch_row] != 0)
    own = columns[:, _STRETCH]
    dispatch = np.flatnonzero((own >= 0) & (cause == _DISPATCH))
    cause[dispatch[searching[own[dispatch]]]] = CAUSE_CODE[Cause.PLAN_SEARCH]
    return HostTimeline(
        offsets=offsets,
        start_ns=np.ascontiguousarray(columns[:, _START]),
        end_ns=np.ascontiguousarray(columns[:, _END]),
        cause=cause,
        phase=columns[:, _PHASE].astype(np.int8),
        slice_row=columns[:, _SLICE].astype(np.int32),
        call_row=columns[:, _CALL].astype(np.int32),
        os_row=columns[:, _OS].astype(np.int32),
        autograd=autograd,
        traits=traits,
    )


def rows_by_thread(thread: CodeArray, threads: int) -> tuple[IntArray, IntArray]:
    """Group rows by thread, keeping their order.

    Args:
        thread: Thread of each row.
        threads: Number of threads.

    Returns:
        Row indices grouped by thread, and the offsets of each thread's group (length threads + 1).
    """
    # numpy sorts 16-bit keys by radix, several times faster than wider ones
    keys = thread.astype(np.uint16) if threads <= 65535 else thread
    order = np.argsort(keys, kind="stable")
    offsets = np.zeros(threads + 1, dtype=np.int64)
    np.cumsum(np.bincount(thread, minlength=threads), out=offsets[1:])
    return order, offsets


def _plan_searches(name: CodeArray, length: IntArray, launched: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Say which own stretches of planned operators are plan searches."""
    found = np.zeros(len(name), dtype=np.bool_)
    for code in np.unique(name[length >= PLAN_SEARCH_MIN_NS]):
        rows = np.flatnonzero(name == code)
        lengths = np.sort(length[rows])
        # twice the median, so that an even count stays an integer
        median_twice = int(lengths[(len(rows) - 1) // 2]) + int(lengths[len(rows) // 2])
        long = (length[rows] >= PLAN_SEARCH_MIN_NS) & (2 * length[rows] >= PLAN_SEARCH_MIN_RATIO * median_twice)
        found[rows[long & launched[rows]]] = True
    return found


# Columns of a stretch while sweeping; the state of one open slice or call has the same first columns.
_START, _END, _CAUSE, _PHASE, _SLICE, _CALL, _OS, _STRETCH = range(8)
_FLAGS, _RANK, _INNER, _LEVEL, _LEAST_END, _ROW, _IS_CALL, _TRAIT = range(8, 16)
_WIDTH = 16
_COLUMNS = 8

_IN_COLLECTION, _IN_LOADER, _IN_CHECKPOINT, _IN_LOG, _IN_STICKY = 1, 2, 4, 8, 16
_NONE, _INNER_OPERATOR, _INNER_PYTHON, _INNER_PLANNED = range(4)
_FAR = np.iinfo(np.int64).max

# rule 3 asks of the open calls, in this order: does one wait, allocate, load, copy, launch
_RANK_CAUSES = (Cause.SYNC_WAIT, Cause.ALLOCATOR, Cause.MODULE_LOAD, Cause.COPY_CALL, Cause.LAUNCH_CALL)
_RANK_CAUSE: ByteArray = np.array([CAUSE_CODE[cause] for cause in _RANK_CAUSES], dtype=np.int8)
_RANK_OTHER = len(_RANK_CAUSES)
_RANK_COPY = _RANK_CAUSES.index(Cause.COPY_CALL)
_ENQUEUES = 8  # bit beside the rank: the call enqueues work


def _call_ranks() -> ByteArray:
    wanted = {
        CallKind.SYNCHRONIZE: 0,
        CallKind.BLOCKING_COPY: 0 | _ENQUEUES,
        CallKind.DEVICE_MALLOC: 1,
        CallKind.DEVICE_FREE: 1,
        CallKind.HOST_ALLOC: 1,
        CallKind.HOST_FREE: 1,
        CallKind.MODULE_LOAD: 2,
        CallKind.COPY: 3 | _ENQUEUES,
        CallKind.LAUNCH: 4 | _ENQUEUES,
        CallKind.GRAPH_LAUNCH: 4 | _ENQUEUES,
        CallKind.MEMSET: 4 | _ENQUEUES,
    }
    return np.array([wanted.get(kind, _RANK_OTHER) for kind in CallKind], dtype=np.int8)


_CALL_RANK = _call_ranks()
_DISPATCH = CAUSE_CODE[Cause.OPERATOR_DISPATCH]
_PYTHON = CAUSE_CODE[Cause.PYTHON]
_INPUT_WAIT = CAUSE_CODE[Cause.INPUT_WAIT]
_GARBAGE = CAUSE_CODE[Cause.GARBAGE_COLLECTION]
_CHECKPOINT = CAUSE_CODE[Cause.CHECKPOINT]
_LOGGING = CAUSE_CODE[Cause.LOGGING]
_UNKNOWN = CAUSE_CODE[Cause.UNKNOWN]
_PHASE_BACKWARD = PHASE_CODE[Phase.BACKWARD]
_PHASE_OTHER = PHASE_CODE[Phase.OTHER]
_PHASE_CHECKPOINT = PHASE_CODE[Phase.CHECKPOINT]
_PHASE_LOG = PHASE_CODE[Phase.LOG]
_PHASE_BITS, _LOADER, _OPERATOR, _PLANNED = phases.PHASE_BITS, phases.LOADER, phases.OPERATOR, phases.PLANNED
_COLLECTION, _OS_TRAIT, _STICKY = phases.COLLECTION, phases.OS_CALL, phases.STICKY


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _open(stack, at, row, is_call, end, trait):  # type: ignore[no-untyped-def]
    """Put a slice or call on the stack: what holds while it is the innermost one."""
    for column in range(at, at + _WIDTH):
        stack[column] = stack[column - _WIDTH]
    stack[at + _LEAST_END] = min(end, stack[at + _LEAST_END])
    stack[at + _END] = end
    stack[at + _TRAIT] = trait
    stack[at + _ROW] = row
    stack[at + _IS_CALL] = is_call
    if is_call:
        stack[at + _CALL] = row
        stack[at + _RANK] = min(stack[at + _RANK], trait & 7)
    elif trait & _OS_TRAIT:
        stack[at + _OS] = row
    else:
        stack[at + _SLICE] = row
        stack[at + _LEVEL] = at
        stack[at + _STRETCH] = -1
        if trait & _COLLECTION:
            stack[at + _FLAGS] |= _IN_COLLECTION
        if trait & _LOADER:
            stack[at + _FLAGS] |= _IN_LOADER
        phase = (trait & _PHASE_BITS) - 1
        if phase >= 0:
            if not stack[at + _FLAGS] & _IN_STICKY:
                stack[at + _PHASE] = phase
            if phase == _PHASE_CHECKPOINT:
                stack[at + _FLAGS] |= _IN_CHECKPOINT
            if phase == _PHASE_LOG:
                stack[at + _FLAGS] |= _IN_LOG
            if trait & _STICKY:
                stack[at + _FLAGS] |= _IN_STICKY
        stack[at + _INNER] = _INNER_PYTHON
        if trait & _OPERATOR:
            stack[at + _INNER] = _INNER_PLANNED if trait & _PLANNED else _INNER_OPERATOR
    flags = stack[at + _FLAGS]
    if flags & _IN_COLLECTION:
        stack[at + _CAUSE] = _GARBAGE
    elif flags & _IN_LOADER:
        stack[at + _CAUSE] = _INPUT_WAIT
    elif stack[at + _RANK] < _RANK_OTHER:
        stack[at + _CAUSE] = _RANK_CAUSE[stack[at + _RANK]]
    elif flags & _IN_CHECKPOINT:
        stack[at + _CAUSE] = _CHECKPOINT
    elif flags & _IN_LOG:
        stack[at + _CAUSE] = _LOGGING
    elif stack[at + _INNER] == _INNER_PYTHON:
        stack[at + _CAUSE] = _PYTHON
    elif stack[at + _INNER] != _NONE:
        stack[at + _CAUSE] = _DISPATCH
    else:
        stack[at + _CAUSE] = _UNKNOWN


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _sweep(  # type: ignore[no-untyped-def]
    slice_rows, slice_offsets, slice_start, slice_end, slice_trait,
    call_rows, call_offsets, call_start, call_end, call_rank, autograd,
):  # fmt: skip
    """Sweep each thread once over its slices and calls.

    Returns offsets per thread, the stretches (one row of eight columns each), length and slice row of every own
    stretch of a planned operator, and per slice whether a launch happened within it.
    """
    events = len(slice_rows) + len(call_rows)
    threads = len(autograd)
    most = 0
    for t in range(threads):
        most = max(most, slice_offsets[t + 1] - slice_offsets[t] + call_offsets[t + 1] - call_offsets[t])
    # one flat array: entry 0 is the thread itself, open for ever, and ``top`` is where the innermost entry begins
    stack = np.empty((most + 1) * _WIDTH, np.int64)
    out = np.empty((2 * events + 1) * _COLUMNS, np.int64)
    own_length = np.empty(2 * events + 1, np.int64)
    own_row = np.empty(2 * events + 1, np.int64)
    launched = np.zeros(len(slice_start), np.int8)
    offsets = np.zeros(threads + 1, np.int64)
    n = 0  # where the next stretch goes in ``out``
    owns = 0
    for t in range(threads):
        stack[:_WIDTH] = -1
        stack[_PHASE] = _PHASE_BACKWARD if autograd[t] else _PHASE_OTHER
        stack[_CAUSE] = _UNKNOWN
        stack[_FLAGS] = 0
        stack[_RANK] = _RANK_OTHER
        stack[_INNER] = _NONE
        stack[_END] = _FAR
        stack[_LEAST_END] = _FAR
        top = 0
        i = slice_offsets[t]
        j = call_offsets[t]
        last = -1  # the thread's latest stretch
        now = -_FAR
        while True:
            # the next to open: earlier start, then later end (the outer one), then slices before calls
            row = -1
            is_call = 0
            start = _FAR
            end = _FAR
            if i < slice_offsets[t + 1]:
                row = slice_rows[i]
                start = slice_start[row]
                end = slice_end[row]
            if j < call_offsets[t + 1]:
                call = call_rows[j]
                if call_start[call] < start or (call_start[call] == start and call_end[call] > end):
                    row = call
                    is_call = 1
                    start = call_start[call]
                    end = call_end[call]
            # between two moments at which something opens or closes, one stretch
            while top:
                closing = stack[top + _LEAST_END]
                until = min(closing, start)
                if until > now:
                    own = -1
                    if stack[top + _INNER] == _INNER_PLANNED and stack[top + _CAUSE] == _DISPATCH:
                        holder = stack[top + _LEVEL]
                        own = stack[holder + _STRETCH]
                        if own < 0:
                            own = owns
                            owns += 1
                            own_length[own] = 0
                            own_row[own] = stack[top + _SLICE]
                            stack[holder + _STRETCH] = own
                        own_length[own] += until - now
                    same = last >= 0 and out[last + _END] == now and out[last + _STRETCH] == own
                    if same:
                        for column in range(_CAUSE, _STRETCH):
                            if out[last + column] != stack[top + column]:
                                same = False
                    if not same:
                        last = n
                        n += _COLUMNS
                        out[last + _START] = now
                        for column in range(_CAUSE, _STRETCH):
                            out[last + column] = stack[top + column]
                        out[last + _STRETCH] = own
                    out[last + _END] = until
                    now = until
                if closing > start:
                    break
                while stack[top + _END] <= closing:
                    top -= _WIDTH
                if stack[top + _LEAST_END] <= closing:
                    # ranges that do not nest close from the middle of the stack; what lies above is rebuilt
                    kept = 0
                    for at in range(_WIDTH, top + _WIDTH, _WIDTH):
                        if stack[at + _END] > closing:
                            kept += _WIDTH
                            own = stack[at + _STRETCH]
                            _open(
                                stack,
                                kept,
                                stack[at + _ROW],
                                stack[at + _IS_CALL],
                                stack[at + _END],
                                stack[at + _TRAIT],
                            )
                            stack[kept + _STRETCH] = own
                    top = kept
            if row < 0:
                break
            now = start
            if is_call:
                j += 1
                trait = np.int64(call_rank[row])
                breaks = trait & _ENQUEUES
                if breaks:
                    for at in range(_WIDTH, top + _WIDTH, _WIDTH):
                        if not stack[at + _IS_CALL]:
                            launched[stack[at + _ROW]] = 1
            else:
                i += 1
                trait = np.int64(slice_trait[row])
                breaks = np.int64(not trait & _OS_TRAIT)
            if breaks and stack[top + _LEVEL] >= 0:
                stack[stack[top + _LEVEL] + _STRETCH] = -1
            top += _WIDTH
            _open(stack, top, row, is_call, end, trait)
        offsets[t + 1] = n // _COLUMNS
    return offsets, out[:n], own_length[:owns].copy(), own_row[:owns].copy(), launched
