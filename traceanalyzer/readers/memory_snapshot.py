"""Reads ``torch.cuda.memory`` snapshots: a list of segments, or a dict of segments and history; any torch from 1.4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.memory_snapshot import (
    HOST_DEVICE,
    AllocatorEvents,
    Blocks,
    BlockState,
    Frame,
    MemoryAction,
    MemorySnapshot,
    Segments,
)
from traceanalyzer.model.trace import Integrity, Recording, Source, Trace
from traceanalyzer.readers.base import Progress
from traceanalyzer.readers.files import Stream, fingerprint
from traceanalyzer.readers.plain_pickle import is_pickle, load_plain

NAME = "memory_snapshot"
MAX_BYTES = 1 << 30
MAX_FRAMES = 64
MAX_TEXT = 500
_MAX_BYTES_OF_MEMORY = 1 << 56
_LAST_MOMENT_US = (1 << 63) // 1000 - 1  # later ones do not fit into 64 bits of ns
_HINT = "write it with torch.cuda.memory._dump_snapshot"
_ACTIONS = {action.name.lower(): int(action) for action in MemoryAction}
_STATES = {
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,
    "active_awaiting_free": BlockState.PENDING_FREE,
    "inactive": BlockState.FREE,
}
_FRAME_PARTS = itemgetter("name", "filename", "line")
_HOST_TYPES = frozenset({"host", "pinned"})
COUNTERS = ("num_alloc_retries", "num_ooms", "total_memory_bytes", "limit_bytes")


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the content is a pickle; whether it is a snapshot shows only when it is read."""
    del path
    return is_pickle(head)


def read(path: Path, progress: Progress | None = None) -> Recording:
    """Read a snapshot on its own: a recording of one process without GPU activity.

    Args:
        path: The file, plain or compressed.
        progress: Told how far reading is.

    Raises:
        TraceFormatError: It is not a snapshot, or not one that is safe to load.
    """
    snapshot = read_snapshot(path, progress)
    times = snapshot.events.time_ns
    known = times[times >= 0]
    integrity = Integrity()
    integrity.note("a memory snapshot alone: it holds no GPU activity and no steps")
    trace = Trace.build(names=[], origin_ns=int(known.min()) if len(known) else 0, integrity=integrity)
    return Recording(snapshot.source, (attach(trace, snapshot),))


def attach(trace: Trace, snapshot: MemorySnapshot) -> Trace:
    """Return a trace that carries a snapshot of the same process.

    Args:
        trace: The recording.
        snapshot: The snapshot; what was wrong with it is added to the trace's notes.
    """
    for note in snapshot.integrity.notes:
        trace.integrity.note(note)
    for dropped in snapshot.integrity.dropped.values():
        trace.integrity.drop(dropped.reason, dropped.example, dropped.count)
    return trace.with_snapshot(snapshot)


def read_snapshot(path: Path, progress: Progress | None = None) -> MemorySnapshot:
    """Read a snapshot.

    Args:
        path: The file, plain or compressed.
        progress: Told how far reading is.

    Raises:
        TraceFormatError: It is not a snapshot, or not one that is safe to load.
    """
    document = load_document(path, progress)
    source = Source(str(path), NAME, path.stat().st_size, fingerprint(path), "torch.cuda.memory")
    return snapshot_of(document, path, source)


def load_document(path: Path, progress: Progress | None = None) -> Any:
    """Load a snapshot's document as torch wrote it: dicts, lists, texts and numbers.

    Args:
        path: The file, plain or compressed.
        progress: Told how far reading is.

    Raises:
        TraceFormatError: It is not a pickle that is safe to load.
    """
    return load_plain(_contents(path, progress), str(path))


def snapshot_of(document: Any, path: Path, source: Source | None = None) -> MemorySnapshot:
    """Turn a document in any of torch's layouts into tables.

    Args:
        document: A list of segments, or a dict with ``segments`` and perhaps ``device_traces``.
        path: For messages.
        source: The file it came from.

    Raises:
        TraceFormatError: It is not a snapshot.
    """
    if isinstance(document, list):
        document = {"segments": document}
    if not isinstance(document, dict) or not isinstance(document.get("segments"), list):
        raise TraceFormatError(str(path), "a pickle, but no snapshot of the CUDA allocator", _HINT)
    made = _Reading()
    segments, blocks = made.state(document["segments"])
    events = made.history(document.get("device_traces"))
    if not len(segments) and not len(events):
        raise TraceFormatError(
            str(path), "the snapshot holds no segment and no event", "take it while memory is in use"
        )
    if not len(events):
        made.integrity.note(
            "the memory snapshot holds no history (torch.cuda.memory._record_memory_history was off): state only"
        )
    return MemorySnapshot(
        source=source or Source(str(path), NAME, 0, ""),
        segments=segments,
        blocks=blocks,
        events=events,
        stacks=tuple(made.stacks),
        settings=_settings(document.get("allocator_settings")),
        counters=_counters(document.get("device_counters")),
        integrity=made.integrity,
    )


def _contents(path: Path, progress: Progress | None) -> bytes:
    parts: list[bytes] = []
    total = 0
    with Stream(path) as stream:
        while block := stream.read():
            parts.append(block)
            total += len(block)
            if total > MAX_BYTES:
                raise TraceFormatError(
                    str(path),
                    f"holds more than {MAX_BYTES >> 30} GiB, more than a snapshot this tool can load",
                    "record the history with a smaller max_entries",
                )
            if progress is not None:
                progress(stream.done_bytes, stream.size_bytes)
        if stream.damage:
            raise TraceFormatError(
                str(path), f"{stream.damage}; a pickle cannot be salvaged", "write the snapshot again"
            )
    return b"".join(parts)


@dataclass
class _Reading:
    """Collects rows and stacks of one document."""

    integrity: Integrity = field(default_factory=Integrity)
    stacks: list[tuple[Frame, ...]] = field(default_factory=list)
    _by_identity: dict[int, int] = field(default_factory=dict)
    _by_value: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def state(self, entries: list[Any]) -> tuple[Segments, Blocks]:
        """Read the segments and their blocks."""
        rows: list[tuple[int, ...]] = []
        parts: list[tuple[int, ...]] = []
        for entry in entries:
            row = _segment(entry)
            if row is None:
                self.integrity.drop("segment of a memory snapshot that is not well formed", _text(entry))
                continue
            self._blocks(entry.get("blocks"), len(rows), row[1], parts)
            rows.append(row)
        columns = _columns(rows, 9)
        segments = Segments.build(
            device=columns[0], address=columns[1], total_bytes=columns[2], allocated_bytes=columns[3],
            active_bytes=columns[4], stream=columns[5], is_small=columns[6], is_private=columns[7],
            is_expandable=columns[8],
        )  # fmt: skip
        columns = _columns(parts, 6)
        blocks = Blocks.build(
            segment=columns[0], address=columns[1], size_bytes=columns[2], requested_bytes=columns[3],
            state=columns[4], stack=columns[5],
        )  # fmt: skip
        return segments, blocks

    def _blocks(self, entries: Any, segment: int, address: int, parts: list[tuple[int, ...]]) -> None:
        offset = 0
        for block in entries if isinstance(entries, list) else ():
            size = _size(block.get("size")) if isinstance(block, dict) else None
            state = _STATES.get(_text(block.get("state"))) if isinstance(block, dict) else None
            if size is None or state is None:
                self.integrity.drop("block of a memory snapshot that is not well formed", _text(block))
                continue
            # the earliest layouts say where a segment begins but not where its blocks do
            own = _address(block.get("address"))
            at = own if own != -1 else (address + offset if address != -1 else -1)
            offset += size
            requested, frames = _size(block.get("requested_size")), block.get("frames")
            history = block.get("history")
            if isinstance(history, list) and history and isinstance(history[0], dict):
                requested = _size(history[0].get("real_size")) if requested is None else requested
                frames = frames or history[0].get("frames")
            stack = self.stack(frames) if state is not BlockState.FREE else -1
            parts.append((segment, at, size, -1 if requested is None else requested, int(state), stack))

    def history(self, traces: Any) -> AllocatorEvents:
        """Read the history of every device."""
        made: list[AllocatorEvents] = []
        for device, entries in enumerate(traces if isinstance(traces, list) else ()):
            if isinstance(entries, list) and entries:
                made.append(self._device_history(device, entries))
        if not made:
            return AllocatorEvents.build(device=[], action=[], size_bytes=[])
        return AllocatorEvents(
            **{
                name: np.concatenate([getattr(table, name) for table in made])
                for name in AllocatorEvents.__dataclass_fields__
            }
        )

    def _device_history(self, device: int, entries: list[Any]) -> AllocatorEvents:
        rows: list[tuple[int, ...]] = []
        for entry in entries:
            action = _ACTIONS.get(_text(entry.get("action"))) if isinstance(entry, dict) else None
            size = _size(entry.get("size", 0)) if isinstance(entry, dict) else None
            if action is None or size is None:
                name = _text(entry.get("action")) if isinstance(entry, dict) else _text(entry)
                self.integrity.drop("history entry of a memory snapshot that is not known", name[:100])
                continue
            time = _size(entry.get("time_us"))
            if time is not None and time > _LAST_MOMENT_US:
                time = None
            free = _size(entry.get("device_free"))
            rows.append(
                (
                    time * 1000 if time else -1,
                    action,
                    _address(entry.get("addr")),
                    size,
                    self.stack(entry.get("frames")),
                    -1 if free is None else free,
                )
            )
        columns = _columns(rows, 6)
        table = AllocatorEvents.build(
            time_ns=columns[0], device=np.full(len(rows), device), action=columns[1], address=columns[2],
            size_bytes=columns[3], stack=columns[4], device_free_bytes=columns[5],
        )  # fmt: skip
        # a ring that has wrapped may begin in its middle
        if bool((table.time_ns[1:] < table.time_ns[:-1]).any()) and bool((table.time_ns >= 0).all()):
            table = table.take(np.argsort(table.time_ns, kind="stable"))
        return table

    def stack(self, frames: Any) -> int:
        """Intern a stack; -1 for none."""
        if not isinstance(frames, list) or not frames:
            return -1
        # the document keeps every list alive, so its identity is its name while reading
        code = self._by_identity.get(id(frames))
        if code is None:
            shown = frames[:MAX_FRAMES]
            try:
                key: tuple[Any, ...] = tuple(map(_FRAME_PARTS, shown))
                code = self._by_value.get(key, -1)
            except (KeyError, TypeError, IndexError):  # a frame laid out otherwise
                key = tuple(_frame(frame) for frame in shown)
                code = self._by_value.get(key, -1)
            if code < 0:
                code = self._by_value[key] = len(self.stacks)
                self.stacks.append(tuple(_frame(frame) for frame in shown))
            self._by_identity[id(frames)] = code
        return code


def _frame(frame: Any) -> Frame:
    if not isinstance(frame, dict):
        return Frame(_text(frame), "", 0)
    line = frame.get("line")
    return Frame(
        _text(frame.get("name", "")),
        _text(frame.get("filename", "")),
        line if isinstance(line, int) and 0 <= line < 1 << 31 else 0,
    )


def _segment(entry: Any) -> tuple[int, ...] | None:
    if not isinstance(entry, dict):
        return None
    total = _size(entry.get("total_size"))
    device = entry.get("device", 0)
    if total is None or not isinstance(device, int) or not -1 <= device < 4096:
        return None
    kind = _text(entry.get("segment_type", ""))
    allocated, active = _size(entry.get("allocated_size")), _size(entry.get("active_size"))
    pool = entry.get("segment_pool_id")
    stream = entry.get("stream", 0)
    return (
        HOST_DEVICE if kind in _HOST_TYPES else device,
        _address(entry.get("address")),
        total,
        -1 if allocated is None else allocated,
        -1 if active is None else active,
        _signed(stream) if isinstance(stream, int) else 0,
        int(kind == "small"),
        int(isinstance(pool, (tuple, list)) and any(pool)),
        int(entry.get("is_expandable") is True),
    )


def _size(value: Any) -> int | None:
    """A size or time; None where it is absent or senseless."""
    return value if isinstance(value, int) and 0 <= value < _MAX_BYTES_OF_MEMORY else None


def _address(value: Any) -> int:
    return _signed(value) if isinstance(value, int) and value > 0 else -1


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> list[Any]:
    if not rows:
        return [np.zeros(0, dtype=np.int64)] * width
    return list(np.array(rows, dtype=np.int64).T)


def _settings(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {
        _text(name): _text(what) for name, what in value.items() if isinstance(what, (str, int, float)) or what is None
    }


def _text(value: Any) -> str:
    """Text of a plain value, bounded; of anything else only its kind, since nesting may make its text endless."""
    if isinstance(value, str):
        # a pickle may hold half of a character, which no document can
        return value[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    return f"a {type(value).__name__}"


def _counters(value: Any) -> dict[int, dict[str, int]]:
    """Read what the recorder adds: one dict of counters per device."""
    made: dict[int, dict[str, int]] = {}
    for device, counters in enumerate(value if isinstance(value, list) else ()):
        if isinstance(counters, dict):
            found = {name: size for name in COUNTERS if (size := _size(counters.get(name))) is not None}
            if found:
                made[device] = found
    return made
