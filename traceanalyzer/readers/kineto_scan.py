"""The scanner's compiled loop: from the text of whole events to rows of numbers.

Usual events become rows at once. Whatever is unusual about an event (a rare category or phase, a time that is not a
plain number, a key with an escape, …) only makes it *odd*: its place is noted, and the tolerant parser reads it. A
stretch that is not a list of events is refused as a whole. So this loop decides nothing that the tolerant parser
would decide differently.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from traceanalyzer.model.schema import SliceKind
from traceanalyzer.readers.kineto_bytes import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    LONGEST_KEY,
    OPEN_LIST,
    OPEN_OBJECT,
    QUOTE,
    byte_at,
    find_key,
    get,
    lookup,
    outline_end,
    plain_integer,
    plain_nanoseconds,
    plain_string_end,
    put,
    skip_space,
    string_end,
    value_end,
)

# what a scan ended with
DONE, REFUSED, FULL = 0, 1, 2

# members that matter; the numbers index the values of an event
(
    NAME, CATEGORY, PHASE, START, LENGTH, PROCESS, THREAD, ARGS,
    DEVICE, STREAM, CORRELATION, CONTEXT, GRAPH_NODE, REGISTERS, SHARED_MEMORY, BYTES, TO_DEVICE, FROM_DEVICE,
    GRID, BLOCK, SHAPES, PARENT, IDENTITY,
    DELTA, ADDRESS, DEVICE_TYPE, DEVICE_ID, ALLOCATED, RESERVED,
    ODD, NOTHING,
) = range(31)  # fmt: skip
TOP_LEVEL = {
    "name": NAME, "cat": CATEGORY, "ph": PHASE, "ts": START, "dur": LENGTH, "pid": PROCESS, "tid": THREAD, "args": ARGS,
}  # fmt: skip
ARGUMENTS = {
    "device": DEVICE, "stream": STREAM, "correlation": CORRELATION, "context": CONTEXT, "graph node id": GRAPH_NODE,
    "registers per thread": REGISTERS, "shared memory": SHARED_MEMORY, "bytes": BYTES, "toDevice": TO_DEVICE,
    "fromDevice": FROM_DEVICE, "grid": GRID, "block": BLOCK, "Input Dims": SHAPES, "Python parent id": PARENT,
    "Python id": IDENTITY, "Bytes": DELTA, "Addr": ADDRESS, "Device Type": DEVICE_TYPE, "Device Id": DEVICE_ID,
    "Total Allocated": ALLOCATED, "Total Reserved": RESERVED,
    # the tolerant parser reads these too, but never in the events that are read here
    "name": ODD, "size": ODD, "dst": ODD, "wait_on_cuda_event_id": ODD,
}  # fmt: skip

# what the categories mean here; activity kinds and slice kinds are added to the first of their range
IGNORED, CALL, ACTIVITY, SLICE, INSTANT = 0, 1, 10, 20, 30
FRAME = SLICE + int(SliceKind.PYTHON)

# columns of the rows a scan makes
ACTIVITY_COLUMNS = (
    "start_ns", "end_ns", "kind", "device", "stream", "name", "correlation", "size_bytes", "graph_node", "grid_blocks",
    "block_threads", "registers_per_thread", "shared_memory_bytes", "context", "peer_device",
)  # fmt: skip
CALL_COLUMNS = ("start_ns", "end_ns", "thread", "name", "correlation")
SLICE_COLUMNS = ("start_ns", "end_ns", "thread", "name", "kind", "shapes", "stack_parent", "stack_id")
MEMORY_COLUMNS = (
    "time_ns", "thread", "device", "delta_bytes", "address", "allocated_bytes", "reserved_bytes",
)  # fmt: skip
TABLES = (ACTIVITY_COLUMNS, CALL_COLUMNS, SLICE_COLUMNS, MEMORY_COLUMNS)

# what a scan says about itself: rows of each table, then …
ACTIVITIES, CALLS, SLICES, MEMORY, ODDS, EVENTS, OFFSET, FIRST, FIRST_AT, LAST, LAST_AT, THREADS = range(12)
STATE_SIZE = 12
# about each odd event: where it is, which event it is, and how many rows of each table come before it
ODD_START, ODD_END, ODD_EVENT, ODD_ROWS = 0, 1, 2, 3
ODD_SIZE = 7
MOST_ODD = 1 << 15  # per chunk; with more of them the tolerant parser reads the whole chunk no slower
MOST_THREADS = 2048
INSIDE = 64
_LONG_KEY = len("wait_on_cuda_event_record_corr_id")  # read by the tolerant parser, too long for the table

_X, _I, _S, _T, _F = (ord(letter) for letter in "Xistf")
_ABSENT = -1
_LARGEST_32 = 2**31 - 1
_MEMORY_NAME = 0  # the first code of the table of names
_ODD, _FULL = 0, 1  # in place of an address
_NEEDED = 1 << NAME | 1 << CATEGORY | 1 << PHASE | 1 << START
_LASTS = 1 << LENGTH
_THREADED = 1 << PROCESS | 1 << THREAD


@njit(nogil=True, cache=True)
def _product(p):  # type: ignore[no-untyped-def]
    """Multiply a list of three sizes; returns the product and the address behind the list, 0 where odd."""
    product = np.int64(1)
    p = skip_space(p + 1)
    for i in range(3):
        value, p = plain_integer(p)
        # the sizes CUDA allows, whose product fits 63 bits
        if p == 0 or value < 0 or value > (_LARGEST_32 if i == 0 else 65535):
            return product, np.int64(0)
        product *= value
        p = skip_space(p)
        if byte_at(p) != (COMMA if i < 2 else CLOSE_LIST):
            return product, np.int64(0)
        p = skip_space(p + 1) if i < 2 else p + 1
    return product, p


@njit(nogil=True, cache=True)
def _thread(pid, tid, threads, state):  # type: ignore[no-untyped-def]
    """Return the code of a thread, giving it the next one when it is new; -1 when the table is full."""
    slots = threads + 16 * MOST_THREADS
    slot = (pid * 31 + tid * 7919) & (4 * MOST_THREADS - 1)
    while True:
        code = get(slots, slot)
        if code < 0:
            break
        if get(threads, 2 * code) == pid and get(threads, 2 * code + 1) == tid:
            return code
        slot = (slot + 1) & (4 * MOST_THREADS - 1)
    code = get(state, THREADS)
    if code >= MOST_THREADS:
        return np.int64(-1)
    put(threads, 2 * code, pid)
    put(threads, 2 * code + 1, tid)
    put(slots, slot, code)
    put(state, THREADS, code + 1)
    return code


@njit(nogil=True, cache=True, forceinline=True)
def _small(value):  # type: ignore[no-untyped-def]
    return value if -_LARGEST_32 <= value <= _LARGEST_32 else np.int64(_ABSENT)


@njit(nogil=True, cache=True)
def scan(base, length, keys, categories, names, shapes, threads, rows, capacity, odd, values, state):  # type: ignore[no-untyped-def]
    """Read events from ``base + state[OFFSET]`` on; every argument is a number or the address of numbers.

    Args:
        base: The text; ``PADDING`` readable bytes follow it, the first of them zero.
        length: Bytes of text.
        keys: Table of the members that matter (see ``find_key``); a code holds what the member is at the top of an
            event, and times ``INSIDE`` what it is among the arguments.
        categories: Table of the categories read here; the codes say what they mean.
        names: String table of names.
        shapes: String table of shapes.
        threads: ``MOST_THREADS`` process and thread ids, then a hash table over them; filled here.
        rows: For each table of ``TABLES`` the address of columns × ``capacity``, filled here.
        capacity: Rows that fit.
        odd: ``MOST_ODD`` places × ``ODD_SIZE``, filled here.
        values: ``ODD`` numbers, the values of one event.
        state: ``STATE_SIZE`` numbers, updated here.

    Returns:
        ``DONE``, ``REFUSED`` (not a list of events from ``state[OFFSET]`` on) or ``FULL`` (a string table must grow;
        call again).
    """
    p = base + get(state, OFFSET)
    end = base + length
    while True:
        event = skip_space(p)
        put(state, OFFSET, event - base)
        if byte_at(event) != OPEN_OBJECT:
            return REFUSED
        p, seen = _members(event, keys, categories, names, shapes, values)
        if p == _FULL:
            return FULL
        is_taken = False
        if p != _ODD and seen & _NEEDED == _NEEDED and get(values, CATEGORY) >= 0:
            is_taken = _take(seen, values, threads, rows, capacity, state)
        if not is_taken:
            p = outline_end(event, end)
            place = get(state, ODDS)
            if p == 0 or place >= MOST_ODD:
                return REFUSED
            put(state, ODDS, place + 1)
            place = odd + 8 * ODD_SIZE * place
            put(place, ODD_START, event - base)
            put(place, ODD_END, p - base)
            put(place, ODD_EVENT, get(state, EVENTS))
            for table in range(4):
                put(place, ODD_ROWS + table, get(state, table))
        put(state, EVENTS, get(state, EVENTS) + 1)
        p = skip_space(p)
        put(state, OFFSET, p - base)
        if p >= end:
            return DONE
        if byte_at(p) != COMMA:
            return REFUSED
        p += 1


@njit(nogil=True, cache=True, forceinline=True)
def _members(p, keys, categories, names, shapes, values):  # type: ignore[no-untyped-def]
    """Read the members of one event into ``values``.

    Returns:
        The address behind the event, ``_ODD`` or ``_FULL``; and a bit for each member at its top.
    """
    _forget(values, 0)
    seen = np.int64(0)
    in_args = False
    p = skip_space(p + 1)
    while True:
        if byte_at(p) != QUOTE:
            return _ODD, seen
        p += 1
        stop = plain_string_end(p)
        if stop == 0:
            return _ODD, seen
        what = np.int64(NOTHING)
        if stop - p <= LONGEST_KEY:
            code = find_key(p, stop - p, keys)
            if code >= 0:
                what = code // INSIDE if in_args else code % INSIDE
        elif stop - p == _LONG_KEY:
            return _ODD, seen
        p = skip_space(stop + 1)
        if byte_at(p) != COLON:
            return _ODD, seen
        p = skip_space(p + 1)
        c = byte_at(p)
        if what == NOTHING:
            p = value_end(p)
        elif what in (NAME, CATEGORY):
            if c != QUOTE:
                return _ODD, seen
            p += 1
            stop = string_end(p)
            if stop == 0:
                return _ODD, seen
            if what == NAME:
                code = lookup(p, stop - p, names)
                if code < 0:
                    return _FULL, seen
            else:
                code = find_key(p, stop - p, categories) if stop - p <= LONGEST_KEY else np.int64(-1)
            put(values, what, code)
            p = stop + 1
        elif what in (START, LENGTH):
            value, p = plain_nanoseconds(p)
            put(values, what, value)
        elif what == PHASE:
            if c != QUOTE or byte_at(p + 2) != QUOTE:
                return _ODD, seen
            put(values, PHASE, byte_at(p + 1))
            p += 3
        elif what == ARGS:
            if c != OPEN_OBJECT:
                return _ODD, seen
            _forget(values, ARGS + 1)
            in_args = True
            p = skip_space(p + 1)
            if byte_at(p) != CLOSE_OBJECT:
                continue
        elif what == SHAPES:
            if c != OPEN_LIST:
                return _ODD, seen
            stop = value_end(p)
            if stop == 0:
                return _ODD, seen
            code = lookup(p, stop - p, shapes)
            if code < 0:
                return _FULL, seen
            put(values, SHAPES, code)
            p = stop
        elif what in (GRID, BLOCK):
            if c != OPEN_LIST:
                return _ODD, seen
            value, p = _product(p)
            put(values, what, value)
        elif what == ODD:
            return _ODD, seen
        else:
            value, p = plain_integer(p)
            put(values, what, value)
        if p == 0:
            return _ODD, seen
        if not in_args:
            seen |= np.int64(1) << what
        p = skip_space(p)
        c = byte_at(p)
        if c == CLOSE_OBJECT and in_args:
            in_args = False
            p = skip_space(p + 1)
            c = byte_at(p)
        if c == CLOSE_OBJECT:
            return p + 1, seen
        if c != COMMA:
            return _ODD, seen
        p = skip_space(p + 1)


@njit(nogil=True, cache=True, forceinline=True)
def _forget(values, first):  # type: ignore[no-untyped-def]
    for i in range(first, ODD):
        put(values, i, _ABSENT)
    put(values, DELTA, 0)
    put(values, DEVICE_TYPE, 0)


@njit(nogil=True, cache=True, forceinline=True)
def _take(seen, values, threads, rows, capacity, state):  # type: ignore[no-untyped-def]
    """Make the row of one event, where it is of a usual kind; says whether it was."""
    phase = get(values, PHASE)
    kind = get(values, CATEGORY)
    start = get(values, START)
    thread = np.int64(-1)
    if phase == _X and kind != IGNORED:
        if kind >= INSTANT or seen & _LASTS == 0:
            return False
        end = start + get(values, LENGTH)
        if kind < SLICE and kind >= ACTIVITY:
            if get(values, DEVICE) < 0 or get(values, STREAM) < 0:
                return False
            table, row = get(rows, ACTIVITIES), get(state, ACTIVITIES)
            device = _small(get(values, DEVICE))
            put(table, row, start)
            put(table, capacity + row, end)
            put(table, 2 * capacity + row, kind - ACTIVITY)
            put(table, 3 * capacity + row, device)
            put(table, 4 * capacity + row, get(values, STREAM))
            put(table, 5 * capacity + row, get(values, NAME))
            put(table, 6 * capacity + row, get(values, CORRELATION) if get(values, CORRELATION) > 0 else _ABSENT)
            put(table, 8 * capacity + row, get(values, GRAPH_NODE))
            put(table, 13 * capacity + row, get(values, CONTEXT))
            if kind == ACTIVITY:  # a kernel
                put(table, 7 * capacity + row, _ABSENT)
                put(table, 9 * capacity + row, get(values, GRID))
                put(table, 10 * capacity + row, _small(get(values, BLOCK)))
                put(table, 11 * capacity + row, _small(get(values, REGISTERS)))
                put(table, 12 * capacity + row, get(values, SHARED_MEMORY))
                put(table, 14 * capacity + row, _ABSENT)
            else:
                put(table, 7 * capacity + row, get(values, BYTES))
                for column in range(9, 13):
                    put(table, column * capacity + row, _ABSENT)
                to = get(values, TO_DEVICE)
                put(table, 14 * capacity + row, _small(get(values, FROM_DEVICE) if to == get(values, DEVICE) else to))
            put(state, ACTIVITIES, row + 1)
        else:
            if seen & _THREADED != _THREADED:
                return False
            thread = _thread(get(values, PROCESS), get(values, THREAD), threads, state)
            if thread < 0:
                return False
            if kind == CALL:
                table, row = get(rows, CALLS), get(state, CALLS)
                put(table, row, start)
                put(table, capacity + row, end)
                put(table, 2 * capacity + row, thread)
                put(table, 3 * capacity + row, get(values, NAME))
                put(table, 4 * capacity + row, get(values, CORRELATION) if get(values, CORRELATION) > 0 else _ABSENT)
                put(state, CALLS, row + 1)
            else:
                table, row = get(rows, SLICES), get(state, SLICES)
                is_frame = kind == FRAME
                put(table, row, start)
                put(table, capacity + row, end)
                put(table, 2 * capacity + row, thread)
                put(table, 3 * capacity + row, get(values, NAME))
                put(table, 4 * capacity + row, kind - SLICE)
                put(table, 5 * capacity + row, _ABSENT if is_frame else get(values, SHAPES))
                put(table, 6 * capacity + row, get(values, PARENT) if is_frame else _ABSENT)
                put(table, 7 * capacity + row, get(values, IDENTITY) if is_frame else _ABSENT)
                put(state, SLICES, row + 1)
    elif phase == _I:
        if get(values, NAME) == _MEMORY_NAME:
            if seen & _THREADED != _THREADED:
                return False
            thread = _thread(get(values, PROCESS), get(values, THREAD), threads, state)
            if thread < 0:
                return False
            table, row = get(rows, MEMORY), get(state, MEMORY)
            put(table, row, start)
            put(table, capacity + row, thread)
            put(table, 2 * capacity + row, _ABSENT if get(values, DEVICE_TYPE) == 0 else get(values, DEVICE_ID))
            put(table, 3 * capacity + row, get(values, DELTA))
            put(table, 4 * capacity + row, max(get(values, ADDRESS), 0))
            put(table, 5 * capacity + row, get(values, ALLOCATED))
            put(table, 6 * capacity + row, get(values, RESERVED))
            put(state, MEMORY, row + 1)
    elif phase != _S and phase != _T and phase != _F and phase != _X:
        return False
    if phase != _T:
        if get(state, FIRST_AT) < 0:
            put(state, FIRST, start)
            put(state, FIRST_AT, get(state, EVENTS))
        put(state, LAST, start)
        put(state, LAST_AT, get(state, EVENTS))
    return True
