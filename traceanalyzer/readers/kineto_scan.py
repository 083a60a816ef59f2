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
    OPEN_LIST,
    OPEN_OBJECT,
    QUOTE,
    byte_at,
    find,
    lookup,
    outline_end,
    plain_integer,
    plain_nanoseconds,
    plain_string_end,
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
    ODD,
) = range(30)  # fmt: skip
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
    "name": ODD, "size": ODD, "dst": ODD, "wait_on_cuda_event_record_corr_id": ODD, "wait_on_cuda_event_id": ODD,
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

_X, _I, _S, _T, _F = (ord(letter) for letter in "Xistf")
_ABSENT = -1
_LARGEST_32 = 2**31 - 1
_MEMORY_NAME = 0  # the first code of the table of names
_LONGEST_KEY = max(map(len, (*TOP_LEVEL, *ARGUMENTS)))
_ODD, _FULL = 0, 1  # in place of an address
_NEEDED = 1 << NAME | 1 << CATEGORY | 1 << PHASE | 1 << START
_LASTS = 1 << LENGTH
_THREADED = 1 << PROCESS | 1 << THREAD


@njit(nogil=True, cache=True, _nrt=False)
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


@njit(nogil=True, cache=True, _nrt=False)
def _thread(pid, tid, pairs, slots, state):  # type: ignore[no-untyped-def]
    """Return the code of a thread, giving it the next one when it is new; -1 when the table is full."""
    last = slots.shape[0] - 1
    slot = (pid * 31 + tid * 7919) & last
    while True:
        code = np.int64(slots[slot])
        if code < 0:
            break
        if pairs[code, 0] == pid and pairs[code, 1] == tid:
            return code
        slot = (slot + 1) & last
    code = state[THREADS]
    if code >= pairs.shape[0]:
        return np.int64(-1)
    pairs[code, 0] = pid
    pairs[code, 1] = tid
    slots[slot] = code
    state[THREADS] = code + 1
    return code


@njit(nogil=True, cache=True, _nrt=False)
def _small(value):  # type: ignore[no-untyped-def]
    return value if -_LARGEST_32 <= value <= _LARGEST_32 else np.int64(_ABSENT)


@njit(nogil=True, cache=True, _nrt=False)
def scan(base, length, keys, category_table, classes, names, shapes, pairs, slots, rows, odd, values, state):  # type: ignore[no-untyped-def]
    """Read events from ``base + state[OFFSET]`` on.

    Args:
        base: Address of the text; ``PADDING`` readable bytes follow it, the first of them zero.
        length: Bytes of text.
        keys: String table of the members that matter; for each of its codes what that is at the top of an event, and
            what among the arguments (-1 nothing).
        category_table: String table of the categories read here.
        classes: What each category means here.
        names: String table of names.
        shapes: String table of shapes.
        pairs: Process and thread ids, filled here.
        slots: Hash table over them.
        rows: For each table of ``TABLES`` an array of columns × rows, filled here.
        odd: Array of places × ``ODD_SIZE``, filled here.
        values: ``ODD`` numbers, the values of one event.
        state: ``STATE_SIZE`` numbers, updated here.

    Returns:
        ``DONE``, ``REFUSED`` (not a list of events from ``state[OFFSET]`` on) or ``FULL`` (a string table must grow;
        call again).
    """
    p = base + state[OFFSET]
    end = base + length
    while True:
        event = skip_space(p)
        state[OFFSET] = event - base
        if byte_at(event) != OPEN_OBJECT:
            return REFUSED
        p, seen = _members(event, keys, category_table, names, shapes, values)
        if p == _FULL:
            return FULL
        is_taken = False
        if p != _ODD and seen & _NEEDED == _NEEDED and values[CATEGORY] >= 0:
            is_taken = _take(seen, values, classes, pairs, slots, rows, state)
        if not is_taken:
            p = outline_end(event, end)
            place = state[ODDS]
            if p == 0 or place >= odd.shape[0]:
                return REFUSED
            odd[place, ODD_START] = event - base
            odd[place, ODD_END] = p - base
            odd[place, ODD_EVENT] = state[EVENTS]
            for table in range(4):
                odd[place, ODD_ROWS + table] = state[table]
            state[ODDS] += 1
        state[EVENTS] += 1
        p = skip_space(p)
        state[OFFSET] = p - base
        if p >= end:
            return DONE
        if byte_at(p) != COMMA:
            return REFUSED
        p += 1


@njit(nogil=True, cache=True, _nrt=False)
def _members(p, keys, category_table, names, shapes, values):  # type: ignore[no-untyped-def]
    """Read the members of one event into ``values``.

    Returns:
        The address behind the event, ``_ODD`` or ``_FULL``; and a bit for each member at its top.
    """
    table, key_ids, arg_ids = keys
    values[:] = _ABSENT
    values[DELTA] = 0
    values[DEVICE_TYPE] = 0
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
        what = np.int64(-1)
        if stop - p <= _LONGEST_KEY:
            key = find(p, stop - p, table)
            if key >= 0:
                what = np.int64(arg_ids[key] if in_args else key_ids[key])
        p = skip_space(stop + 1)
        if byte_at(p) != COLON:
            return _ODD, seen
        p = skip_space(p + 1)
        c = byte_at(p)
        if what < 0:
            p = value_end(p)
        elif what == NAME or what == CATEGORY:
            if c != QUOTE:
                return _ODD, seen
            p += 1
            stop = string_end(p)
            if stop == 0:
                return _ODD, seen
            if what == NAME:
                values[NAME] = lookup(p, stop - p, names)
                if values[NAME] < 0:
                    return _FULL, seen
            else:
                values[CATEGORY] = find(p, stop - p, category_table)
            p = stop + 1
        elif what == START or what == LENGTH:
            values[what], p = plain_nanoseconds(p)
        elif what == PHASE:
            if c != QUOTE or byte_at(p + 2) != QUOTE:
                return _ODD, seen
            values[PHASE] = byte_at(p + 1)
            p += 3
        elif what == ARGS:
            if c != OPEN_OBJECT:
                return _ODD, seen
            for i in range(ARGS + 1, ODD):
                values[i] = _ABSENT
            values[DELTA] = 0
            values[DEVICE_TYPE] = 0
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
            values[SHAPES] = lookup(p, stop - p, shapes)
            if values[SHAPES] < 0:
                return _FULL, seen
            p = stop
        elif what == GRID or what == BLOCK:
            if c != OPEN_LIST:
                return _ODD, seen
            values[what], p = _product(p)
        elif what == ODD:
            return _ODD, seen
        else:
            values[what], p = plain_integer(p)
        if p == 0:
            return _ODD, seen
        if not in_args and what >= 0:
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


@njit(nogil=True, cache=True, _nrt=False)
def _take(seen, values, classes, pairs, slots, rows, state):  # type: ignore[no-untyped-def]
    """Make the row of one event, where it is of a usual kind; says whether it was."""
    activities, calls, slices, memory = rows
    phase = values[PHASE]
    kind = np.int64(classes[values[CATEGORY]])
    start = values[START]
    thread = np.int64(-1)
    if phase == _X and kind != IGNORED:
        if kind >= INSTANT or seen & _LASTS == 0:
            return False
        end = start + values[LENGTH]
        if kind < SLICE and kind >= ACTIVITY:
            if values[DEVICE] < 0 or values[STREAM] < 0:
                return False
            row = state[ACTIVITIES]
            device = _small(values[DEVICE])
            activities[0, row] = start
            activities[1, row] = end
            activities[2, row] = kind - ACTIVITY
            activities[3, row] = device
            activities[4, row] = values[STREAM]
            activities[5, row] = values[NAME]
            activities[6, row] = values[CORRELATION] if values[CORRELATION] > 0 else _ABSENT
            activities[8, row] = values[GRAPH_NODE]
            activities[13, row] = values[CONTEXT]
            if kind == ACTIVITY:  # a kernel
                activities[7, row] = _ABSENT
                activities[9, row] = values[GRID]
                activities[10, row] = _small(values[BLOCK])
                activities[11, row] = _small(values[REGISTERS])
                activities[12, row] = values[SHARED_MEMORY]
                activities[14, row] = _ABSENT
            else:
                activities[7, row] = values[BYTES]
                activities[9:13, row] = _ABSENT
                to = values[TO_DEVICE]
                activities[14, row] = _small(values[FROM_DEVICE] if to == values[DEVICE] else to)
            state[ACTIVITIES] = row + 1
        else:
            if seen & _THREADED != _THREADED:
                return False
            thread = _thread(values[PROCESS], values[THREAD], pairs, slots, state)
            if thread < 0:
                return False
            if kind == CALL:
                row = state[CALLS]
                calls[0, row] = start
                calls[1, row] = end
                calls[2, row] = thread
                calls[3, row] = values[NAME]
                calls[4, row] = values[CORRELATION] if values[CORRELATION] > 0 else _ABSENT
                state[CALLS] = row + 1
            else:
                row = state[SLICES]
                is_frame = kind == FRAME
                slices[0, row] = start
                slices[1, row] = end
                slices[2, row] = thread
                slices[3, row] = values[NAME]
                slices[4, row] = kind - SLICE
                slices[5, row] = _ABSENT if is_frame else values[SHAPES]
                slices[6, row] = values[PARENT] if is_frame else _ABSENT
                slices[7, row] = values[IDENTITY] if is_frame else _ABSENT
                state[SLICES] = row + 1
    elif phase == _I:
        if values[NAME] == _MEMORY_NAME:
            if seen & _THREADED != _THREADED:
                return False
            thread = _thread(values[PROCESS], values[THREAD], pairs, slots, state)
            if thread < 0:
                return False
            row = state[MEMORY]
            memory[0, row] = start
            memory[1, row] = thread
            memory[2, row] = _ABSENT if values[DEVICE_TYPE] == 0 else values[DEVICE_ID]
            memory[3, row] = values[DELTA]
            memory[4, row] = max(values[ADDRESS], 0)
            memory[5, row] = values[ALLOCATED]
            memory[6, row] = values[RESERVED]
            state[MEMORY] = row + 1
    elif phase != _S and phase != _T and phase != _F and phase != _X:
        return False
    if phase != _T:
        if state[FIRST_AT] < 0:
            state[FIRST] = start
            state[FIRST_AT] = state[EVENTS]
        state[LAST] = start
        state[LAST_AT] = state[EVENTS]
    return True
