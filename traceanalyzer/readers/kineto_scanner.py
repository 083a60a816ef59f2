"""The scanner: chunks read side by side by compiled code, what is unusual in them by the tolerant parser."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from traceanalyzer.model.schema import Activities, Calls, IntArray, MemoryEvents, Slices
from traceanalyzer.model.trace import Integrity
from traceanalyzer.readers.kineto_bytes import BLOCK_SIZE, COUNT, KEY_SLOTS, PADDING, add_key, lookup, refill
from traceanalyzer.readers.kineto_chunks import Chunk, Chunks, read_ahead
from traceanalyzer.readers.kineto_columns import (
    ACTIVITY_KINDS,
    CALL_CATEGORIES,
    IGNORED_CATEGORIES,
    SLICE_KINDS,
    Codes,
    Columns,
)
from traceanalyzer.readers.kineto_msgspec import MEMORY_NAME, MsgspecParser
from traceanalyzer.readers.kineto_scan import (
    ACTIVITY,
    ARGUMENTS,
    CALL,
    DONE,
    EVENTS,
    FIRST,
    FIRST_AT,
    FULL,
    IGNORED,
    INSIDE,
    INSTANT,
    LAST,
    LAST_AT,
    MOST_ODD,
    MOST_THREADS,
    NOTHING,
    ODD,
    ODD_END,
    ODD_EVENT,
    ODD_ROWS,
    ODD_SIZE,
    ODD_START,
    ODDS,
    SLICE,
    STATE_SIZE,
    TABLES,
    THREADS,
    TOP_LEVEL,
    scan,
)

_WORKERS = 2
_TABLE_NAMES = ("activities", "calls", "slices", "memory")
_KINDS: tuple[Any, ...] = (Activities, Calls, Slices, MemoryEvents)
_SMALLEST_ROW_BYTES = 48  # no usual event is shorter


class StringTable:
    """Strings numbered in order of first appearance, as the compiled code fills them.

    Args:
        capacity: Strings it can hold before it must grow; a power of two.
        arena_bytes: Bytes of all strings together before it must grow.

    Attributes:
        block: Addresses and sizes of everything below; its own address is what the compiled code is given.
    """

    def __init__(self, capacity: int = 1 << 13, arena_bytes: int = 1 << 20) -> None:
        self.block = np.zeros(BLOCK_SIZE, dtype=np.int64)
        self._reserve(capacity, arena_bytes)

    def _reserve(self, capacity: int, arena_bytes: int) -> None:
        self._hashes = np.zeros(2 * capacity, dtype=np.uint64)
        self._codes = np.full(2 * capacity, -1, dtype=np.int64)
        self._offsets = np.zeros(capacity, dtype=np.int64)
        self._sizes = np.zeros(capacity, dtype=np.int64)
        self._arena = np.zeros(arena_bytes, dtype=np.uint8)
        addresses = [each.ctypes.data for each in (self._hashes, self._codes, self._offsets, self._sizes, self._arena)]
        self.block[:] = [*addresses, 0, 0, 2 * capacity - 1, capacity, arena_bytes]

    def grow(self, longest: int) -> None:
        """Make room for twice as many strings, and for one of a given length."""
        before = self.block.copy(), self._offsets, self._sizes, self._arena
        self._reserve(2 * len(self._offsets), 2 * len(self._arena) + longest)
        refill(before[0].ctypes.data, self.block.ctypes.data)

    def __len__(self) -> int:
        return int(self.block[COUNT])

    def view(self) -> StringView:
        """Return the strings of this moment, which stay what they are while the table goes on growing."""
        return StringView(self._offsets, self._sizes, self._arena, len(self))


@dataclass(frozen=True)
class StringView:
    """The first ``count`` strings of a table."""

    offsets: IntArray
    sizes: IntArray
    arena: npt.NDArray[np.uint8]
    count: int

    def since(self, first: int) -> list[bytes]:
        """Return the strings from a code on."""
        places = zip(self.offsets[first : self.count].tolist(), self.sizes[first : self.count].tolist(), strict=True)
        return [self.arena[offset : offset + size].tobytes() for offset, size in places]


def _key_table(codes: dict[str, int]) -> IntArray:
    """Make a table for ``find_key``."""
    table = np.full((KEY_SLOTS, 4), -1, dtype=np.int64)
    for key, code in codes.items():
        text = np.frombuffer(key.encode().ljust(PADDING, b"\0"), dtype=np.uint8)
        add_key(text.ctypes.data, len(key), code, table.ctypes.data)
    return table


class _Worker:
    """What one thread scans with, and what its codes stand for in the parser's own tables."""

    def __init__(self) -> None:
        self.names = StringTable()
        self.shapes = StringTable()
        title = np.frombuffer(MEMORY_NAME.encode().ljust(PADDING, b"\0"), dtype=np.uint8)
        lookup(title.ctypes.data, len(MEMORY_NAME), self.names.block.ctypes.data)
        self._threads = np.full(6 * MOST_THREADS, -1, dtype=np.int64)
        self.pairs = self._threads[: 2 * MOST_THREADS].reshape(-1, 2)
        self.thread_count = 0
        self.capacity = 0
        self.rows: tuple[IntArray, ...] = ()
        self._row_addresses = np.zeros(len(TABLES), dtype=np.int64)
        self.odd = np.empty((MOST_ODD, ODD_SIZE), dtype=np.int64)
        self._values = np.empty(ODD, dtype=np.int64)
        self.is_bad = False
        self.name_codes = _Translation()
        self.shape_codes = _Translation()
        self.thread_codes = _Translation()

    def scan(self, base: int, size: int, keys: IntArray, categories: IntArray) -> tuple[int, IntArray]:
        """Scan a text; returns how it ended and what there is in ``rows`` and ``odd``."""
        self._reserve(size)
        state = np.zeros(STATE_SIZE, dtype=np.int64)
        state[FIRST_AT] = -1
        state[THREADS] = self.thread_count
        addresses = [
            array.ctypes.data
            for array in (keys, categories, self.names.block, self.shapes.block, self._threads, self._row_addresses)
        ]
        last = [array.ctypes.data for array in (self.odd, self._values, state)]
        while (status := int(scan(base, size, *addresses, self.capacity, *last))) == FULL:
            self.names.grow(size)
            self.shapes.grow(size)
        self.thread_count = int(state[THREADS])
        return status, state

    def _reserve(self, size: int) -> None:
        """Have room for the rows of so many bytes."""
        needed = size // _SMALLEST_ROW_BYTES + 1
        if self.capacity < needed:
            self.capacity = needed
            self.rows = tuple(np.empty((len(columns), needed), dtype=np.int64) for columns in TABLES)
            self._row_addresses[:] = [table.ctypes.data for table in self.rows]


class _Translation:
    """Codes of a worker as codes of the parser; the last entry keeps -1 absent."""

    def __init__(self) -> None:
        self.codes = np.full(1, -1, dtype=np.int32)

    def extend(self, strings: list[Any], target: Codes) -> None:
        self.codes = np.concatenate((self.codes[:-1], target.column(strings), self.codes[-1:]))

    def __len__(self) -> int:
        return len(self.codes) - 1


@dataclass
class _Scanned:
    """What a worker made of a chunk."""

    worker: _Worker
    state: IntArray
    tables: list[dict[str, npt.NDArray[Any]]]
    odd: IntArray
    names: StringView
    shapes: StringView


class ScannerParser:
    """Reads usual events with compiled code in two threads; the result is that of the tolerant parser.

    Args:
        integrity: Receives what is left out.
    """

    def __init__(self, integrity: Integrity) -> None:
        self._tolerant = MsgspecParser(integrity)
        self.names: Codes = self._tolerant.names
        self.threads: Codes = self._tolerant.threads
        self._keys = _key_table(
            {
                key: TOP_LEVEL.get(key, NOTHING) + INSIDE * ARGUMENTS.get(key, NOTHING)
                for key in (*TOP_LEVEL, *ARGUMENTS)
            }
        )
        self._categories = _key_table(_meanings())
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for _ in range(_WORKERS):
            self._idle.put(_Worker())

    def parse(self, events: bytes) -> Columns:
        """Parse a JSON list of events with the tolerant parser (see ``ChunkParser``)."""
        return self._tolerant.parse(events)

    def parsed(self, chunks: Chunks) -> Iterator[tuple[Chunk, Callable[[], Columns]]]:
        """Scan chunks ahead of whoever asks for them (see ``ChunkParser``)."""
        waiting: deque[tuple[Chunk, Future[_Scanned | None]]] = deque()
        source = read_ahead(chunks)
        with ThreadPoolExecutor(_WORKERS, "scan") as pool:
            try:
                for chunk in source:
                    waiting.append((chunk, pool.submit(self._scan, chunk)))
                    if len(waiting) > _WORKERS:
                        yield self._outcome(*waiting.popleft())
                while waiting:
                    yield self._outcome(*waiting.popleft())
            finally:
                source.close()  # type: ignore[attr-defined]

    def _outcome(self, chunk: Chunk, scanned: Future[_Scanned | None]) -> tuple[Chunk, Callable[[], Columns]]:
        def columns() -> Columns:
            result = scanned.result()
            made = self._columns(chunk, result) if result is not None else None
            # refused, or text only the other parser can judge
            return made if made is not None else self._tolerant.parse(chunk.list_text())

        scanned.exception()  # waits: the buffer may be used again once this returns
        return chunk, columns

    def _scan(self, chunk: Chunk) -> _Scanned | None:
        """Scan a chunk, in a thread of its own; None where the tolerant parser has to read it."""
        worker = self._idle.get()
        try:
            if worker.is_bad:
                worker = _Worker()
            return self._scan_with(worker, chunk)
        finally:
            self._idle.put(worker)

    def _scan_with(self, worker: _Worker, chunk: Chunk) -> _Scanned | None:
        base = chunk.buffer.ctypes.data + chunk.start
        status, state = worker.scan(base, chunk.size - chunk.start, self._keys, self._categories)
        if status != DONE:
            return None
        tables = [
            {
                name: worker.rows[table][column, : state[table]].astype(_TYPES[table][name])
                for column, name in enumerate(names)
            }
            for table, names in enumerate(TABLES)
        ]
        odd = worker.odd[: state[ODDS]].copy()
        return _Scanned(worker, state, tables, odd, worker.names.view(), worker.shapes.view())

    def _columns(self, chunk: Chunk, scanned: _Scanned) -> Columns | None:
        """Put what was scanned and what the tolerant parser makes of the rest together, in file order."""
        if not self._translate(scanned):
            return None
        state, odd = scanned.state, scanned.odd
        result = Columns(count=int(state[EVENTS]))
        if state[FIRST_AT] >= 0:
            result.first_ns, result.last_ns = int(state[FIRST]), int(state[LAST])
        worker = scanned.worker
        parts = scanned.tables
        parts[0]["name"] = worker.name_codes.codes[parts[0]["name"]]
        parts[1]["name"] = worker.name_codes.codes[parts[1]["name"]]
        parts[2]["name"] = worker.name_codes.codes[parts[2]["name"]]
        parts[2]["shapes"] = worker.shape_codes.codes[parts[2]["shapes"]]
        for table in (1, 2, 3):
            parts[table]["thread"] = worker.thread_codes.codes[parts[table]["thread"]]
        for field_name, kind, columns in zip(_TABLE_NAMES, _KINDS, parts, strict=True):
            setattr(result, field_name, _table(kind, columns))
        text = chunk.buffer[chunk.start : chunk.size].data
        if len(odd):
            pieces = [text[start:end] for start, end in odd[:, [ODD_START, ODD_END]].tolist()]
            try:
                others = self._tolerant.parse_some(pieces, odd[:, ODD_EVENT])
            except ValueError:
                return None
            _insert(result, others, odd, state)
        self._tolerant.note_text_numbers(text)
        return result

    def _translate(self, scanned: _Scanned) -> bool:
        """Number what the worker met for the first time; says whether all of it is sound text."""
        worker = scanned.worker
        if worker.is_bad:
            return False
        try:
            names = [_unescaped(raw) for raw in scanned.names.since(len(worker.name_codes))]
            shapes = ["".join(raw.decode().split()) for raw in scanned.shapes.since(len(worker.shape_codes))]
        except (ValueError, msgspec.MsgspecError):
            worker.is_bad = True  # starts afresh, so that only chunks that hold the bad text are refused
            return False
        worker.name_codes.extend(names, self.names)
        worker.shape_codes.extend(shapes, self.names)
        known, count = len(worker.thread_codes), int(scanned.state[THREADS])
        worker.thread_codes.extend([tuple(pair) for pair in worker.pairs[known:count].tolist()], self.threads)
        return True


_TYPES = [{column.name: column.metadata["dtype"] for column in fields(kind)} for kind in _KINDS]


def _meanings() -> dict[str, int]:
    """Return what each category means to the compiled loop, in the spellings it knows."""
    meanings: dict[str, int] = {spelling: ACTIVITY + int(kind) for spelling, kind in ACTIVITY_KINDS.items()}
    meanings |= {spelling: SLICE + int(kind) for spelling, kind in SLICE_KINDS.items()}
    meanings |= dict.fromkeys(CALL_CATEGORIES, CALL)
    meanings |= dict.fromkeys(IGNORED_CATEGORIES - {"trace"}, IGNORED)
    meanings["cpu_instant_event"] = INSTANT
    return meanings | {spelling.capitalize(): meaning for spelling, meaning in meanings.items()}


def _table(kind: Any, columns: dict[str, npt.NDArray[Any]]) -> Any:
    """Make a table whose other columns hold one value each, which takes no memory until chunks are joined."""
    rows = len(next(iter(columns.values())))
    fill = {
        column.name: np.broadcast_to(column.metadata["dtype"].type(column.metadata["default"]), (rows,))
        for column in fields(kind)
        if column.name not in columns
    }
    return kind(**columns, **fill)


def _unescaped(raw: bytes) -> str:
    if b"\\" not in raw:
        return raw.decode()
    return msgspec.json.decode(b'"' + raw + b'"', type=str)


def _insert(result: Columns, others: Any, odd: IntArray, state: IntArray) -> None:
    """Add the rows of the odd events between those of the others, and what else they say."""
    columns, places, first_at, last_at = others
    for table, name in enumerate(_TABLE_NAMES):
        more = getattr(columns, name)
        if not len(more):
            continue
        before = odd[np.searchsorted(odd[:, ODD_EVENT], places[name]), ODD_ROWS + table]
        rows = getattr(result, name)
        setattr(
            result,
            name,
            type(rows)(
                **{key: np.insert(values, before, getattr(more, key)) for key, values in rows.columns().items()}
            ),
        )
    result.waits, result.overheads = columns.waits, columns.overheads
    result.thread_names, result.copied_bytes = columns.thread_names, columns.copied_bytes
    result.capture_ns = columns.capture_ns
    if first_at is not None and (state[FIRST_AT] < 0 or first_at < state[FIRST_AT]):
        result.first_ns = columns.first_ns
    if last_at is not None and (state[FIRST_AT] < 0 or last_at > state[LAST_AT]):
        result.last_ns = columns.last_ns
