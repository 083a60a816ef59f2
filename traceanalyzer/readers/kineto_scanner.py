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
from numba import njit

from traceanalyzer.model.schema import Activities, Calls, IntArray, MemoryEvents, Slices
from traceanalyzer.model.trace import Integrity
from traceanalyzer.readers.kineto_bytes import lookup
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
    INSTANT,
    LAST,
    LAST_AT,
    ODD,
    ODD_END,
    ODD_EVENT,
    ODD_ROWS,
    ODD_SIZE,
    ODD_START,
    ODDS,
    OFFSET,
    SLICE,
    STATE_SIZE,
    TABLES,
    THREADS,
    TOP_LEVEL,
    scan,
)

_WORKERS = 2
_KINDS = (Activities, Calls, Slices, MemoryEvents)
_SMALLEST_ROW_BYTES = 48  # no usual event is shorter
_MOST_ODD = 1 << 15  # per chunk; with more of them the tolerant parser reads the whole chunk no slower
_MOST_THREADS = 2048
_UNKNOWN = -2


class StringTable:
    """Strings numbered in order of first appearance, as the compiled code fills them.

    Args:
        strings: The first ones.
        capacity: Strings it can hold before it must grow.
        arena_bytes: Bytes of all strings together before it must grow.
    """

    def __init__(self, strings: Any = (), capacity: int = 1 << 13, arena_bytes: int = 1 << 20) -> None:
        self._reserve(capacity, arena_bytes)
        for string in strings:
            text = np.frombuffer(string.encode().ljust(256, b"\0"), dtype=np.uint8)
            lookup(text.ctypes.data, len(string.encode()), self.arrays)

    def _reserve(self, capacity: int, arena_bytes: int) -> None:
        self.arrays = (
            np.zeros(2 * capacity, dtype=np.uint64),
            np.full(2 * capacity, -1, dtype=np.int32),
            np.zeros(capacity, dtype=np.int64),
            np.zeros(capacity, dtype=np.int64),
            np.zeros(arena_bytes, dtype=np.uint8),
            np.zeros(2, dtype=np.int64),
        )

    def grow(self, longest: int) -> None:
        """Make room for twice as much, and for one string of a given length."""
        before = self.arrays
        self._reserve(2 * len(before[2]), 2 * len(before[4]) + longest)
        _refill(before, self.arrays)

    def __len__(self) -> int:
        return int(self.arrays[5][0])


@njit(nogil=True, cache=True)
def _refill(before, after):  # type: ignore[no-untyped-def]
    for code in range(before[5][0]):
        lookup(before[4].ctypes.data + before[2][code], before[3][code], after)


class _Worker:
    """What one thread scans with, and what its codes stand for in the parser's own tables."""

    def __init__(self) -> None:
        self.names = StringTable([MEMORY_NAME])
        self.shapes = StringTable()
        self.pairs = np.zeros((_MOST_THREADS, 2), dtype=np.int64)
        self.slots = np.full(4 * _MOST_THREADS, -1, dtype=np.int32)
        self.threads = 0
        self.rows: tuple[IntArray, ...] = ()
        self.odd = np.empty((_MOST_ODD, ODD_SIZE), dtype=np.int64)
        self.values = np.empty(ODD, dtype=np.int64)
        self.is_bad = False
        self.name_codes = _Translation()
        self.shape_codes = _Translation()
        self.thread_codes = _Translation()

    def reserve(self, size: int) -> None:
        """Have room for the rows of so many bytes."""
        needed = size // _SMALLEST_ROW_BYTES + 1
        if not self.rows or self.rows[0].shape[1] < needed:
            self.rows = tuple(np.empty((len(columns), needed), dtype=np.int64) for columns in TABLES)


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
    names: tuple[Any, ...]
    shapes: tuple[Any, ...]
    name_count: int
    shape_count: int


class ScannerParser:
    """Reads usual events with compiled code in two threads; the result is that of the tolerant parser.

    Args:
        integrity: Receives what is left out.
    """

    def __init__(self, integrity: Integrity) -> None:
        self._tolerant = MsgspecParser(integrity)
        self.names: Codes = self._tolerant.names
        self.threads: Codes = self._tolerant.threads
        categories: dict[str, int] = {}
        for spelling, kind in ACTIVITY_KINDS.items():
            categories[spelling] = ACTIVITY + int(kind)
        for spelling, slice_kind in SLICE_KINDS.items():
            categories[spelling] = SLICE + int(slice_kind)
        categories |= dict.fromkeys(CALL_CATEGORIES, CALL)
        categories |= dict.fromkeys(IGNORED_CATEGORIES - {"trace"}, IGNORED)
        categories["cpu_instant_event"] = INSTANT
        categories |= {spelling.capitalize(): meaning for spelling, meaning in categories.items()}
        self._categories = StringTable(sorted(categories), 256, 1 << 13)
        self._classes = np.array([categories[name] for name in sorted(categories)], dtype=np.int64)
        keys = sorted({*TOP_LEVEL, *ARGUMENTS})
        self._keys = (
            StringTable(keys, 128, 1 << 12).arrays,
            np.array([TOP_LEVEL.get(key, -1) for key in keys], dtype=np.int64),
            np.array([ARGUMENTS.get(key, -1) for key in keys], dtype=np.int64),
        )
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
        size = chunk.size - chunk.start
        worker.reserve(size)
        state = np.zeros(STATE_SIZE, dtype=np.int64)
        state[FIRST_AT] = -1
        state[THREADS] = worker.threads
        base = chunk.buffer.ctypes.data + chunk.start
        while True:
            status = scan(
                base, size, self._keys, self._categories.arrays, self._classes, worker.names.arrays,
                worker.shapes.arrays, worker.pairs, worker.slots, worker.rows, worker.odd, worker.values, state,
            )  # fmt: skip
            if status != FULL:
                break
            worker.names.grow(size)
            worker.shapes.grow(size)
        worker.threads = int(state[THREADS])
        if status != DONE:
            return None
        tables = [
            {
                name: worker.rows[table][column, : state[table]].astype(_TYPES[table][name])
                for column, name in enumerate(names)
            }
            for table, names in enumerate(TABLES)
        ]
        return _Scanned(
            worker, state, tables, worker.odd[: state[ODDS]].copy(), worker.names.arrays, worker.shapes.arrays,
            len(worker.names), len(worker.shapes),
        )  # fmt: skip

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
        result.activities, result.calls, result.slices, result.memory = (
            kind.build(**columns) for kind, columns in zip(_KINDS, parts, strict=True)
        )
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
            known = len(worker.name_codes)
            worker.name_codes.extend(
                [_unescaped(raw) for raw in _strings(scanned.names, known, scanned.name_count)], self.names
            )
            known = len(worker.shape_codes)
            worker.shape_codes.extend(
                ["".join(raw.decode().split()) for raw in _strings(scanned.shapes, known, scanned.shape_count)],
                self.names,
            )
        except (ValueError, msgspec.MsgspecError):
            worker.is_bad = True  # starts afresh, so that only chunks that hold the bad text are refused
            return False
        known, count = len(worker.thread_codes), int(scanned.state[THREADS])
        worker.thread_codes.extend([tuple(pair) for pair in worker.pairs[known:count].tolist()], self.threads)
        return True


_TYPES = [{column.name: column.metadata["dtype"] for column in fields(kind)} for kind in _KINDS]


def _strings(arrays: tuple[Any, ...], first: int, end: int) -> list[bytes]:
    offsets, sizes, arena = arrays[2][first:end].tolist(), arrays[3][first:end].tolist(), arrays[4]
    return [arena[offset : offset + size].tobytes() for offset, size in zip(offsets, sizes, strict=True)]


def _unescaped(raw: bytes) -> str:
    if b"\\" not in raw:
        return raw.decode()
    return msgspec.json.decode(b'"' + raw + b'"', type=str)


def _insert(result: Columns, others: Any, odd: IntArray, state: IntArray) -> None:
    """Add the rows of the odd events between those of the others, and what else they say."""
    columns, places, first_at, last_at = others
    for table, name in enumerate(("activities", "calls", "slices", "memory")):
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
