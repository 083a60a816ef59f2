"""PyTorch profiler traces (Kineto and the older autograd exporter), torch 1.8 to 2.x, NVIDIA and AMD.

Times in the file are microseconds, absolute or relative to ``baseTimeNanoseconds``; here they are nanoseconds
relative to the earliest event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.calls import classify_column
from traceanalyzer.model.schema import (
    Activities,
    ActivityKind,
    Calls,
    CodeArray,
    MemoryEvents,
    Overheads,
    SliceKind,
    Slices,
    Waits,
)
from traceanalyzer.model.trace import Integrity, Recording, Source, Thread, Trace, sort_in_place
from traceanalyzer.readers.base import Progress
from traceanalyzer.readers.files import Stream, fingerprint
from traceanalyzer.readers.kineto_clean import (
    drop_impossible,
    drop_outside,
    drop_repeated_activities,
    drop_repeated_calls,
    longest_duration,
    start_range,
)
from traceanalyzer.readers.kineto_columns import ChunkParser, Codes, Columns
from traceanalyzer.readers.kineto_copies import describe
from traceanalyzer.readers.kineto_metadata import base_ns, describe_recording, devices, producer, rank_and_world_size
from traceanalyzer.readers.kineto_parsers import choose_parser
from traceanalyzer.readers.kineto_text import TraceText

NAME = "kineto"

_OBJECT_KEYS = re.compile(rb'"(?:traceEvents|schemaVersion|deviceProperties|displayTimeUnit|baseTimeNanoseconds)"\s*:')
_OTHER_DOCUMENT = re.compile(rb'"schema"\s*:\s*"traceanalyzer\.')
_ARRAY_START = re.compile(rb'\s*\[\s*(?:\{[^{}]*"ph"\s*:|\{[^{}]*\{[^{}]*\}[^{}]*"ph"\s*:)')
_MAX_CUTS = 1000
# torch 1.x files these under Operator
_ANNOTATION_NAME = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)#|Optimizer\.")
_COLLECTION_NAMES = frozenset({"Python GC", "gc"})
_COLLECTION_RANGE = "garbage_collection"  # how the recorder names them, as an annotation


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the content is a trace: an object with Kineto's keys, or a list of trace events."""
    del path  # names say nothing about content
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return _OBJECT_KEYS.search(text) is not None and _OTHER_DOCUMENT.search(text[:256]) is None
    return _ARRAY_START.match(text) is not None


def read(path: Path, progress: Progress | None = None) -> Recording:
    """Read a trace in three steps: parse the text, normalise the columns, build the validated tables.

    Raises:
        TraceFormatError: It holds no events.
    """
    integrity = Integrity()
    with Stream(path) as stream:
        parser = choose_parser(stream, integrity)
        text = TraceText(stream, parser, integrity)
        parsed = _parse(text, progress)
        if stream.damage:
            integrity.is_truncated = True
            integrity.note(f"{stream.damage}; read as far as it goes")
        size = stream.size_bytes
    if not parsed.count:
        raise TraceFormatError(
            str(path), "no events" + _reasons(integrity), "the profiler recorded nothing, or the export failed"
        )
    names = _in_order(parsed, parser.names)
    tables = _clean(parsed, names, integrity)
    if not tables.rows:
        raise TraceFormatError(
            str(path),
            "no usable events" + _reasons(integrity),
            "record again with CPU and CUDA activities",
        )
    sort_in_place(tables.activities, is_nested=False)
    sort_in_place(tables.calls, is_nested=True)
    sort_in_place(tables.slices, is_nested=True)
    trace = _build(path, tables, text, parser, names, integrity)
    source = Source(str(path), NAME, size, fingerprint(path), producer(text.metadata))
    return Recording(source, (trace,))


@dataclass
class _Tables:
    """All rows of a file, in file order, in the file's clock."""

    activities: Activities = field(default_factory=Activities.build)
    calls: Calls = field(default_factory=Calls.build)
    slices: Slices = field(default_factory=Slices.build)
    overheads: Overheads = field(default_factory=Overheads.build)
    waits: Waits = field(default_factory=Waits.build)
    memory: MemoryEvents = field(default_factory=MemoryEvents.build)
    thread_names: dict[tuple[int, int], str] = field(default_factory=dict)
    copied_bytes: dict[int, int] = field(default_factory=dict)
    capture_ns: int = 0
    count: int = 0
    cuts: list[tuple[int, int]] = field(default_factory=list)
    last_ns: int | None = None

    @property
    def rows(self) -> int:
        """Rows in all tables together."""
        return sum(len(table) for table in (*self.intervals, self.memory))

    @property
    def intervals(self) -> tuple[Activities, Calls, Slices, Overheads, Waits]:
        """The tables with a start and an end."""
        return self.activities, self.calls, self.slices, self.overheads, self.waits


class _Rows:
    """The rows of one table, gathered from chunks without ever holding them twice.

    Args:
        kind: The table.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._columns: dict[str, npt.NDArray[Any]] = kind.build().columns()
        self._count = 0
        self._capacity = 0

    def append(self, table: Any, share_left: float) -> None:
        """Add rows; ``share_left`` of the file (0 to 1) is still to come."""
        if not len(table):
            return
        end = self._count + len(table)
        if end > self._capacity:
            # what the rest of the file will need, as far as one can tell; memory that is never touched costs nothing
            self._capacity = int(1.1 * end / max(1 - share_left, 0.02)) + 1024
            for name, column in self._columns.items():
                grown = np.empty(self._capacity, dtype=column.dtype)
                grown[: self._count] = column[: self._count]
                self._columns[name] = grown
        for name, column in table.columns().items():
            self._columns[name][self._count : end] = column
        self._count = end

    def table(self) -> Any:
        """Return the table."""
        return self._kind(**{name: column[: self._count] for name, column in self._columns.items()})


def _parse(text: TraceText, progress: Progress | None) -> _Tables:
    """Step 1: collect the columns of every chunk, and the stretches in which something is missing."""
    result = _Tables()
    joined = {
        "activities": _Rows(Activities),
        "calls": _Rows(Calls),
        "slices": _Rows(Slices),
        "overheads": _Rows(Overheads),
        "waits": _Rows(Waits),
        "memory": _Rows(MemoryEvents),
    }
    is_after_damage = False
    for chunk in text.chunks(progress):
        if not isinstance(chunk, Columns):
            is_after_damage = True
            continue
        if is_after_damage and chunk.first_ns is not None:
            if result.last_ns is not None and len(result.cuts) < _MAX_CUTS:
                result.cuts.extend(_cut_between(result.last_ns, chunk.first_ns))
            is_after_damage = False
        for name, rows in joined.items():
            rows.append(getattr(chunk, name), text.stream.share_left)
        result.count += chunk.count
        result.capture_ns = max(result.capture_ns, chunk.capture_ns)
        for (pid, tid), title in chunk.thread_names.items():
            result.thread_names[_identifier(pid), _identifier(tid)] = title
        result.copied_bytes.update(chunk.copied_bytes)
        if chunk.last_ns is not None:
            result.last_ns = chunk.last_ns
    if len(result.cuts) >= _MAX_CUTS:
        text.integrity.note(f"damaged in more than {_MAX_CUTS} places; only the first of them are left out of steps")
    for name, rows in joined.items():
        setattr(result, name, rows.table())
    return result


def _in_order(tables: _Tables, codes: Codes) -> list[str]:
    """Number the names that rows use by the alphabet: which parser met which first must not show.

    Returns:
        The names; the tables' codes are changed to point into them.
    """
    is_used = np.zeros(len(codes) + 1, dtype=np.bool_)  # the last one stands for -1
    columns = [table.name for table in (tables.activities, tables.calls, tables.slices, tables.overheads)]
    columns.append(tables.slices.shapes)
    for column in columns:
        is_used[column] = True
    names = list(codes)
    used = sorted(np.flatnonzero(is_used[:-1]).tolist(), key=names.__getitem__)
    renumber = np.full(len(codes) + 1, -1, dtype=np.int32)
    renumber[used] = np.arange(len(used), dtype=np.int32)
    for column in columns:
        column[:] = renumber[column]
    return [names[code] for code in used]


def _cut_between(before_ns: int, after_ns: int) -> list[tuple[int, int]]:
    """Return when events are missing between two neighbours in the file."""
    if after_ns >= before_ns:
        return [(before_ns, after_ns + 1)]
    # the next section of the file began (another thread, the device): both ends are in doubt
    return [(before_ns, before_ns + 1), (after_ns, after_ns + 1)]


def _clean(tables: _Tables, names: Sequence[str], integrity: Integrity) -> _Tables:
    """Step 2: drop what cannot be true; name what calls and copies do."""
    limits = start_range(tables.intervals, tables.capture_ns)
    if limits is None:
        return tables
    longest = longest_duration(tables.intervals, limits, tables.capture_ns)
    activities = drop_impossible(tables.activities, limits, longest, names, integrity)
    calls = drop_impossible(tables.calls, limits, longest, names, integrity)
    tables.slices = drop_impossible(tables.slices, limits, longest, names, integrity)
    tables.overheads = drop_impossible(tables.overheads, limits, longest, names, integrity)
    tables.waits = drop_impossible(tables.waits, limits, longest, names, integrity)
    tables.memory = drop_outside(tables.memory, limits, integrity)
    activities = drop_repeated_activities(activities, names, integrity)
    calls = drop_repeated_calls(calls, names, integrity)
    calls.kind[:] = classify_column(calls.name, names)
    copies = np.flatnonzero(activities.kind == ActivityKind.COPY)
    for row in copies[activities.size_bytes[copies] < 0] if tables.copied_bytes else ():
        activities.size_bytes[row] = tables.copied_bytes.get(int(activities.correlation[row]), -1)
    activities.direction[copies], activities.host_memory[copies] = describe(activities.name[copies], names)
    tables.activities, tables.calls = activities, calls
    _tell_slices_apart(tables.slices, names)
    return tables


def _tell_slices_apart(slices: Slices, names: Sequence[str]) -> None:
    """Mark annotations filed as operators, and garbage collections filed as frames or ranges."""
    is_annotation = np.array([_ANNOTATION_NAME.match(name) is not None for name in names], dtype=np.bool_)
    is_collection = np.array([name in _COLLECTION_NAMES for name in names], dtype=np.bool_)
    kind = slices.kind
    kind[(kind == SliceKind.OPERATOR) & is_annotation[slices.name]] = SliceKind.ANNOTATION
    kind[(kind == SliceKind.PYTHON) & is_collection[slices.name]] = SliceKind.GARBAGE_COLLECTION
    is_range = np.array([name == _COLLECTION_RANGE for name in names], dtype=np.bool_)
    kind[(kind == SliceKind.ANNOTATION) & is_range[slices.name]] = SliceKind.GARBAGE_COLLECTION


def _build(
    path: Path, tables: _Tables, text: TraceText, parser: ChunkParser, names: list[str], integrity: Integrity
) -> Trace:
    """Step 3: make times relative, number the threads and validate."""
    first = min(
        [int(table.start_ns.min()) for table in tables.intervals if len(table)]
        + ([int(tables.memory.time_ns.min())] if len(tables.memory) else [])
    )
    _mark_truncation(tables, text, first, integrity)
    integrity.cut_ns.extend((max(0, start - first), end - first) for start, end in tables.cuts if end > first)
    for table in tables.intervals:
        table.start_ns[:] -= first
        table.end_ns[:] -= first
    tables.memory.time_ns[:] -= first
    threads, renumber = _threads(list(parser.threads), tables.thread_names)
    tables.calls.thread[:] = renumber[tables.calls.thread]
    tables.slices.thread[:] = renumber[tables.slices.thread]
    tables.memory.thread[:] = renumber[tables.memory.thread]
    rank, world_size = rank_and_world_size(text.metadata, path.name)
    if not len(tables.activities):
        integrity.note("no GPU activity in this recording")
    return Trace.build(
        names=names,
        origin_ns=first + base_ns(text.metadata),
        threads=threads,
        devices=devices(text.metadata, integrity),
        activities=tables.activities,
        calls=tables.calls,
        slices=tables.slices,
        overheads=tables.overheads,
        waits=tables.waits,
        memory=tables.memory,
        rank=rank,
        world_size=world_size,
        metadata=describe_recording(text.metadata, tables.slices.kind),
        integrity=integrity,
    )


def _mark_truncation(tables: _Tables, text: TraceText, first: int, integrity: Integrity) -> None:
    """Say where an unclosed list of events ends, and from when on the recording is incomplete.

    Exporters write host slices first, then calls and device activities roughly in time order; whatever would have
    come later than the last call or activity is missing.
    """
    if text.is_closed:
        return
    integrity.is_truncated = True
    integrity.note(f"truncated after {tables.count} events")
    if tables.last_ns is not None:
        integrity.truncated_at_ns = tables.last_ns - first
    ends = [int(table.end_ns.max()) for table in tables.intervals if len(table)]
    if len(tables.memory):
        ends.append(int(tables.memory.time_ns.max()))
    end = max(ends, default=first)
    # without any activity the device's rows are missing altogether
    reached = [int(table.start_ns.max()) for table in (tables.activities, tables.calls) if len(table)]
    start = min(reached) if len(tables.activities) else first
    tables.cuts.append((start, max(end, start + 1)))


def _threads(keys: list[Any], names: dict[tuple[int, int], str]) -> tuple[list[Thread], CodeArray]:
    """Number the threads, joining spellings of the same one (25738 and "25738").

    Returns:
        The threads, and for each parser code the index of its thread; the last entry keeps -1 absent.
    """
    found: dict[tuple[int, int], int] = {}
    renumber = np.full(len(keys) + 1, -1, dtype=np.int32)
    ids = [(_identifier(pid), _identifier(tid)) for pid, tid in keys]
    for pair in sorted(set(ids)):
        found[pair] = len(found)
    for code, pair in enumerate(ids):
        renumber[code] = found[pair]
    return [Thread(pid, tid, names.get((pid, tid), "")) for pid, tid in found], renumber


def _identifier(value: object) -> int:
    """Read a process or thread id; text that holds no number is 0."""
    if isinstance(value, int):
        return int(value)  # not True
    match = re.search(r"-?\d+", value) if isinstance(value, str) else None
    return int(match.group()) if match is not None else 0


def _reasons(integrity: Integrity) -> str:
    reasons = "; ".join(f"{entry.count} × {entry.reason}" for entry in integrity.dropped.values())
    return f" ({reasons})" if reasons else ""
