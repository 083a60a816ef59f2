"""Reads a pickle that holds nothing but plain data; anything that could run code is refused before it is loaded.

A pickle is a program. Two walls: every instruction is checked against a list of those that only build numbers, text,
lists, tuples and dicts, with their sizes against the file; and the loader that follows resolves no class at all.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numba import njit

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.schema import ByteArray

MAX_OBJECTS = 40_000_000
MAX_INTEGER_BYTES = 16
PROTOCOLS = (2, 3, 4, 5)

_OK, _CODE, _CUT, _STRANGE, _MEMO, _MANY, _INTEGER, _NO_PROTOCOL = range(8)

# how the argument of an instruction is laid out
(
    _REFUSED,
    _NONE,
    _FIXED1,
    _FIXED2,
    _FIXED4,
    _FIXED8,
    _LENGTH1,
    _LENGTH4,
    _LENGTH8,
    _PUT1,
    _PUT4,
    _LONG1,
    _LONG4,
    _END,
) = range(14)
_RUNS_CODE = 99


def _layouts() -> ByteArray:
    table = np.full(256, _REFUSED, dtype=np.int8)
    groups = (
        (b"(012N)]}aetds\x85\x86\x87\x88\x89\x94ul", _NONE),
        (b"Kh\x80", _FIXED1),
        (b"M", _FIXED2),
        (b"Jj", _FIXED4),
        (b"G\x95", _FIXED8),
        (b"U\x8cC", _LENGTH1),
        (b"TXB", _LENGTH4),
        (b"\x8d\x8e", _LENGTH8),
        (b"q", _PUT1),
        (b"r", _PUT4),
        (b"\x8a", _LONG1),
        (b"\x8b", _LONG4),
        (b".", _END),
        # GLOBAL, STACK_GLOBAL, REDUCE, BUILD, INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1-4, PERSID, BINPERSID
        (b"c\x93Rbio\x81\x92\x82\x83\x84PQ", _RUNS_CODE),
    )
    for codes, layout in groups:
        for code in codes:
            table[code] = layout
    return table


_TABLE = _layouts()


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _walk(data: Any, table: Any, max_objects: int, max_integer: int) -> tuple[int, int]:
    """Step over every instruction up to the end; returns what was found and where."""
    at, size, puts, objects = 0, len(data), 0, 0
    while at < size:
        code = data[at]
        layout = table[code]
        begun = at
        at += 1
        if layout == 13:  # end
            return 0, begun
        if layout == 0:
            return 3, begun
        if layout == 99:
            return 1, begun
        objects += 1
        if objects > max_objects:
            return 5, begun
        width = 0  # bytes of the argument or of its length
        if layout in (2, 6, 9, 11):
            width = 1
        elif layout == 3:
            width = 2
        elif layout in (4, 7, 10, 12):
            width = 4
        elif layout in (5, 8):
            width = 8
        if at + width > size:
            return 2, begun
        value = 0
        if layout >= 6:
            for i in range(width):
                if i == 7 and data[at + i] > 127:
                    return 2, begun  # a length no file has
                value |= int(data[at + i]) << (8 * i)
        at += width
        if layout in (9, 10):
            if value > puts:
                return 4, begun
            puts += 1
        elif layout >= 6:
            if layout >= 11 and value > max_integer:
                return 6, begun
            if value > size - at:
                return 2, begun
            at += value
        elif code == 0x94:
            puts += 1
    return 2, size


_PROBLEMS = {
    _CODE: ("the pickle would run code", "a memory snapshot holds plain data; do not load this file anywhere"),
    _CUT: ("the pickle is cut off", "write the snapshot again"),
    _STRANGE: ("the pickle holds something no memory snapshot does", "write it with torch.cuda.memory._dump_snapshot"),
    _MEMO: ("the pickle refers to places it does not have", "write the snapshot again"),
    _MANY: (f"the pickle holds more than {MAX_OBJECTS:,} objects", "record the history with a smaller max_entries"),
    _INTEGER: ("the pickle holds a number no memory snapshot has", "write the snapshot again"),
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}"[:100])

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to an object outside")


def is_pickle(head: bytes) -> bool:
    """Say whether bytes begin like a pickle of protocol 2 to 5."""
    return len(head) > 2 and head[0] == 0x80 and head[1] in PROTOCOLS


def load_plain(data: bytes, path: str) -> Any:
    """Load a pickle of plain data.

    Args:
        data: The whole pickle; what follows its end is ignored.
        path: For messages.

    Raises:
        TraceFormatError: It is no pickle of protocol 2 to 5, would run code, is damaged, or is too large.
    """
    if not is_pickle(data[:3]):
        raise TraceFormatError(
            path, "not a pickle of protocol 2 to 5", "write it with torch.cuda.memory._dump_snapshot"
        )
    found, where = _walk(np.frombuffer(data, dtype=np.uint8), _TABLE, MAX_OBJECTS, MAX_INTEGER_BYTES)
    if found != _OK:
        problem, hint = _PROBLEMS[int(found)]
        raise TraceFormatError(path, problem, hint, f"byte {int(where)}")
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    # what a wrong order of harmless instructions raises: a missing mark, a key that is a list, a stack run empty …
    except (
        pickle.UnpicklingError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        EOFError,
        OverflowError,
    ) as error:
        raise TraceFormatError(path, f"the pickle is damaged ({error})", "write the snapshot again") from error
    except MemoryError:
        raise TraceFormatError(path, "the pickle does not fit into memory", "record a shorter history") from None
