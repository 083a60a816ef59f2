"""The msgspec parser: typed decoding of each event, then one pass per column."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from traceanalyzer.model.schema import (
    ABSENT,
    Activities,
    ActivityKind,
    Calls,
    CodeArray,
    IntArray,
    MemoryEvents,
    Overheads,
    SliceKind,
    Slices,
    WaitKind,
    Waits,
)
from traceanalyzer.model.trace import Integrity
from traceanalyzer.readers.kineto_chunks import Chunk, Chunks
from traceanalyzer.readers.kineto_columns import (
    ACTIVITY_KINDS,
    CALL_CATEGORIES,
    IGNORED_CATEGORIES,
    OVERHEAD_CATEGORY,
    SLICE_KINDS,
    SYNC_CATEGORY,
    Codes,
    Columns,
)
from traceanalyzer.readers.kineto_numbers import (
    MISSING,
    NOT_A_NUMBER,
    OK,
    addresses,
    integers,
    nanoseconds,
    products,
)

# the exporter of torch.autograd.profiler has no categories; its process tells host from device
_LEGACY_HOST, _LEGACY_DEVICE = "CPU functions", "CUDA functions"
_MODULE_LOAD = re.compile(r"lazy (?:function|module) loading", re.IGNORECASE)
MEMORY_NAME = "[memory]"
_TEXT_NUMBER = re.compile(rb'"(?:ts|dur)"\s*:\s*"')
_TEXT_NUMBER_WINDOW = 1 << 16  # an exporter that writes times as text writes all of them so
_WAIT_KINDS = {
    "stream sync": WaitKind.STREAM,
    "stream synchronize": WaitKind.STREAM,
    "context sync": WaitKind.DEVICE,
    "context synchronize": WaitKind.DEVICE,
    "device sync": WaitKind.DEVICE,
    "event sync": WaitKind.EVENT,
    "event synchronize": WaitKind.EVENT,
    "stream wait event": WaitKind.STREAM_WAIT_EVENT,
}


class _Args(
    msgspec.Struct,
    gc=False,
    rename={
        "registers": "registers per thread",
        "shared_memory": "shared memory",
        "graph_node": "graph node id",
        "shapes": "Input Dims",
        "python_id": "Python id",
        "python_parent": "Python parent id",
        "delta": "Bytes",
        "address": "Addr",
        "device_id": "Device Id",
        "device_type": "Device Type",
        "total_allocated": "Total Allocated",
        "total_reserved": "Total Reserved",
        "record_correlation": "wait_on_cuda_event_record_corr_id",
        "event": "wait_on_cuda_event_id",
        "to_device": "toDevice",
        "from_device": "fromDevice",
    },
):
    """The members of ``args`` that mean something here."""

    shapes: msgspec.Raw = msgspec.Raw()
    python_parent: Any = None
    python_id: Any = None
    device: Any = None
    context: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None
    size: Any = None
    registers: Any = None
    shared_memory: Any = None
    grid: Any = None
    block: Any = None
    graph_node: Any = None
    to_device: Any = None
    from_device: Any = None
    total_reserved: Any = None
    total_allocated: Any = None
    delta: Any = None
    device_id: Any = None
    device_type: Any = None
    address: Any = None
    record_correlation: Any = None
    event: Any = None
    name: Any = None
    dst: Any = None


class _Event(msgspec.Struct, gc=False, rename={"position": "\x7fposition"}):
    """One trace event; times as text unless they were whole numbers."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: _Args | None = None
    position: Any = 0  # set after decoding, whatever the text says


_NO_ARGS = _Args()
_Fields = list[Any]


class Placed(NamedTuple):
    """Columns of some events of a chunk, and where they belong.

    Attributes:
        columns: The columns.
        positions: For each table that has rows, which event of the chunk each row is.
        first_at: Which event ``columns.first_ns`` is of, or None.
        last_at: Which event ``columns.last_ns`` is of, or None.
    """

    columns: Columns
    positions: dict[str, IntArray]
    first_at: int | None
    last_at: int | None


class MsgspecParser:
    """The tolerant parser: typed decoding per event, then one pass per column.

    Args:
        integrity: Receives what is left out.
    """

    def __init__(self, integrity: Integrity) -> None:
        self.names = Codes()
        self.threads = Codes()
        self._integrity = integrity
        self._parts: dict[str, list[tuple[IntArray, Any]]] = {}
        self._drops: list[tuple[int, str, str, int]] = []
        self._decoder = msgspec.json.Decoder(list[_Event], float_hook=str)

    def parse(self, events: bytes) -> Columns:
        """Parse a JSON list of events (see ``ChunkParser``)."""
        decoded = self._decode(events)
        for position, event in enumerate(decoded):
            event.position = position
        self.note_text_numbers(memoryview(events)[1:])
        return self._assemble(decoded).columns

    def parsed(self, chunks: Chunks) -> Iterator[tuple[Chunk, Callable[[], Columns]]]:
        """Parse chunks as they are asked for (see ``ChunkParser``)."""
        for chunk in chunks:
            yield chunk, lambda chunk=chunk: self.parse(chunk.list_text())  # type: ignore[misc]

    def parse_some(self, events: Sequence[memoryview], positions: IntArray) -> Placed:
        """Parse some of the events of a chunk.

        Args:
            events: The text of each.
            positions: Which event of the chunk each is, ascending.

        Raises:
            ValueError: One of them is not a well-formed event.
        """
        decoded = self._decode(b"".join((b"[", b",".join(events), b"]")))
        if len(decoded) != len(events):
            raise ValueError("what looked like one event is several")
        for position, event in zip(positions.tolist(), decoded, strict=True):
            event.position = position
        return self._assemble(decoded)

    def note_text_numbers(self, events: memoryview) -> None:
        """Say so when the times of a chunk are written as text."""
        if _TEXT_NUMBER.search(events, 0, _TEXT_NUMBER_WINDOW):
            self._integrity.note("some times are written as text; they were read as numbers")

    def _decode(self, events: bytes) -> list[_Event]:
        try:
            return self._decoder.decode(events)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(str(error)) from error

    def _assemble(self, decoded: list[_Event]) -> Placed:
        """Turn events into columns, in file order, and count what is left out, in file order too."""
        self._parts, self._drops = {}, []
        columns = Columns(count=len(decoded))
        first_at = last_at = None
        if decoded:
            columns.first_ns, first_at = _edge(decoded)
            columns.last_ns, last_at = _edge(reversed(decoded))
        for key, group in _grouped(decoded).items():
            self._add_group(columns, key, group)
        positions = {}
        for name, parts in self._parts.items():
            positions[name], table = _joined(parts)
            setattr(columns, name, table)
        for _, reason, example, count in sorted(self._drops, key=lambda drop: drop[0]):
            self._integrity.drop(reason, example, count)
        return Placed(columns, positions, first_at, last_at)

    def _add(self, name: str, events: list[_Event], table: Any) -> None:
        positions = np.array([event.position for event in events], dtype=np.int64)
        self._parts.setdefault(name, []).append((positions, table))

    def _drop(self, reason: str, event: _Event, count: int = 1) -> None:
        self._drops.append((event.position, reason, _example(event), count))

    def _add_group(self, columns: Columns, key: tuple[str, str], events: list[_Event]) -> None:
        category, phase = key
        if phase == "M":
            self._add_metadata(columns, events)
        elif phase == "i":
            self._add_instants(columns, events)
        elif not phase:
            what = f"event without a phase or duration ({category or 'no category'})"
            self._drop(what, events[0], len(events))
        elif category in IGNORED_CATEGORIES:
            if category == "trace":
                columns.capture_ns = max(columns.capture_ns, _longest(events))
        elif phase in ("s", "t", "f"):
            return  # arrows between rows that correlation ids already join
        elif phase != "X":
            self._drop(f"event of phase {phase!r}", events[0], len(events))
        elif category in ACTIVITY_KINDS:
            self._add_activities(columns, ACTIVITY_KINDS[category], events)
        elif category in CALL_CATEGORIES:
            self._add_calls(columns, events)
        elif category in SLICE_KINDS:
            self._add_slices(columns, SLICE_KINDS[category], events)
        elif category == SYNC_CATEGORY:
            self._add_waits(columns, events)
        elif category == OVERHEAD_CATEGORY:
            self._add_overheads(columns, events)
        elif not category:
            self._add_uncategorised(columns, events)
        else:
            self._drop(f"event of unknown category {category[:40]!r}", events[0], len(events))

    def _timed(self, events: list[_Event]) -> tuple[list[_Event], IntArray, IntArray]:
        """Return the events with usable times, their starts and their ends; count the others."""
        start, start_state = nanoseconds([event.ts for event in events])
        length, length_state = nanoseconds([event.dur for event in events])
        good = (start_state == OK) & (length_state == OK) & (length >= 0) & (start <= np.iinfo(np.int64).max - length)
        if not good.all():
            for row in np.flatnonzero(~good):
                problem = _time_problem(start_state[row], length_state[row], is_negative=bool(length[row] < 0))
                self._drop(problem, events[row])
            events = [events[row] for row in np.flatnonzero(good)]
            start, length = start[good], length[good]
        return events, start, start + length

    def _thread(self, events: list[_Event]) -> CodeArray:
        pairs: _Fields = [(event.pid, event.tid) for event in events]
        try:
            return self.threads.column(pairs)
        except TypeError:  # a list or object where an id belongs
            return self.threads.column([(_hashable(pid), _hashable(tid)) for pid, tid in pairs])

    def _name(self, events: list[_Event]) -> CodeArray:
        return self.names.column([event.name for event in events])

    def _add_activities(self, columns: Columns, kind: ActivityKind, events: list[_Event]) -> None:
        events, start, end = self._timed(events)
        if not events:
            return
        args = [event.args or _NO_ARGS for event in events]
        device = integers([arg.device for arg in args])
        stream = integers([arg.stream for arg in args])
        if (device < 0).any():
            device = np.where(device < 0, integers([event.pid for event in events], default=0), device)
        if (stream < 0).any():
            stream = np.where(stream < 0, _row_streams(events), stream)
        rows: dict[str, npt.NDArray[Any]] = {
            "start_ns": start,
            "end_ns": end,
            "kind": np.full(len(events), kind, dtype=np.int8),
            "device": device,
            "stream": stream,
            "name": self._name(events),
            "correlation": _correlation(args),
            "context": integers([arg.context for arg in args]),
            "graph_node": integers([arg.graph_node for arg in args]),
        }
        if kind == ActivityKind.KERNEL:
            rows["grid_blocks"] = products([arg.grid for arg in args])
            rows["block_threads"] = products([arg.block for arg in args])
            rows["registers_per_thread"] = integers([arg.registers for arg in args])
            rows["shared_memory_bytes"] = integers([arg.shared_memory for arg in args])
        else:
            rows["size_bytes"] = integers([arg.bytes for arg in args])
            to, origin = integers([arg.to_device for arg in args]), integers([arg.from_device for arg in args])
            rows["peer_device"] = np.where(to == device, origin, to)
        for column in ("device", "block_threads", "registers_per_thread", "peer_device"):
            if column in rows:
                rows[column] = np.where(np.abs(rows[column]) < 2**31, rows[column], ABSENT)
        self._add("activities", events, Activities.build(**rows))

    def _add_calls(self, columns: Columns, events: list[_Event]) -> None:
        events, start, end = self._timed(events)
        if not events:
            return
        args = [event.args or _NO_ARGS for event in events]
        correlation = _correlation(args)
        calls = Calls.build(
            start_ns=start, end_ns=end, thread=self._thread(events), name=self._name(events), correlation=correlation
        )
        self._add("calls", events, calls)
        is_copy = np.array([arg.dst is not None for arg in args], dtype=np.bool_)
        if is_copy.any():
            size = integers([arg.size if arg.bytes is None else arg.bytes for arg in args])
            stated = is_copy & (size >= 0) & (correlation >= 0)
            columns.copied_bytes.update(zip(correlation[stated].tolist(), size[stated].tolist(), strict=True))

    def _add_slices(self, columns: Columns, kind: SliceKind, events: list[_Event]) -> None:
        events, start, end = self._timed(events)
        if not events:
            return
        rows: dict[str, npt.NDArray[Any]] = {
            "start_ns": start,
            "end_ns": end,
            "thread": self._thread(events),
            "name": self._name(events),
            "kind": np.full(len(events), kind, dtype=np.int8),
        }
        if kind == SliceKind.PYTHON:
            args = [event.args or _NO_ARGS for event in events]
            rows["stack_parent"] = integers([arg.python_parent for arg in args])
            rows["stack_id"] = integers([arg.python_id for arg in args])
        else:
            rows["shapes"] = self._shapes(events)
        self._add("slices", events, Slices.build(**rows))

    def _shapes(self, events: list[_Event]) -> CodeArray:
        codes = np.full(len(events), ABSENT, dtype=np.int32)
        for row, event in enumerate(events):
            if event.args is not None and (raw := bytes(event.args.shapes)).startswith(b"["):
                codes[row] = self.names["".join(raw.decode().split())]
        return codes

    def _add_waits(self, columns: Columns, events: list[_Event]) -> None:
        events, start, end = self._timed(events)
        if not events:
            return
        args = [event.args or _NO_ARGS for event in events]
        waits = Waits.build(
            start_ns=start,
            end_ns=end,
            kind=[_WAIT_KINDS.get(event.name.lower(), WaitKind.OTHER) for event in events],
            device=integers([arg.device for arg in args]),
            stream=_unsigned_absent(integers([arg.stream for arg in args])),
            correlation=_correlation(args),
            event=_unsigned_absent(integers([arg.event for arg in args])),
            source_correlation=_unsigned_absent(integers([arg.record_correlation for arg in args])),
        )
        self._add("waits", events, waits)

    def _add_overheads(self, columns: Columns, events: list[_Event]) -> None:
        events, start, end = self._timed(events)
        if events:
            overheads = Overheads.build(
                start_ns=start,
                end_ns=end,
                name=self._name(events),
                is_module_load=[_MODULE_LOAD.search(event.name) is not None for event in events],
            )
            self._add("overheads", events, overheads)

    def _add_instants(self, columns: Columns, events: list[_Event]) -> None:
        events = [event for event in events if event.name == MEMORY_NAME]
        if not events:
            return
        time, state = nanoseconds([event.ts for event in events])
        if (state != OK).any():
            for row in np.flatnonzero(state != OK):
                self._drop(_time_problem(state[row]), events[row])
            events = [events[row] for row in np.flatnonzero(state == OK)]
            time = time[state == OK]
            if not events:
                return
        args = [event.args or _NO_ARGS for event in events]
        on_host = integers([arg.device_type for arg in args], default=0) == 0
        memory = MemoryEvents.build(
            time_ns=time,
            thread=self._thread(events),
            device=np.where(on_host, ABSENT, integers([arg.device_id for arg in args])),
            delta_bytes=integers([arg.delta for arg in args], default=0),
            address=addresses([arg.address for arg in args]),
            allocated_bytes=integers([arg.total_allocated for arg in args]),
            reserved_bytes=integers([arg.total_reserved for arg in args]),
        )
        self._add("memory", events, memory)

    def _add_metadata(self, columns: Columns, events: list[_Event]) -> None:
        for event in events:
            title = event.args.name if event.name == "thread_name" and event.args is not None else None
            if isinstance(title, str) and isinstance(event.pid, int | str) and isinstance(event.tid, int | str):
                columns.thread_names[event.pid, event.tid] = title

    def _add_uncategorised(self, columns: Columns, events: list[_Event]) -> None:
        host = [event for event in events if event.pid == _LEGACY_HOST]
        device = [event for event in events if event.pid == _LEGACY_DEVICE]
        others = [event for event in events if event.pid not in (_LEGACY_HOST, _LEGACY_DEVICE)]
        if host:
            self._add_slices(columns, SliceKind.OPERATOR, host)
        if device:
            for event in device:
                event.pid, event.tid = event.tid, 0  # this exporter knows the device, not the stream
            self._add_activities(columns, ActivityKind.KERNEL, device)
        if others:
            self._drop("event without a category", others[0], len(others))


def _grouped(events: list[_Event]) -> dict[tuple[str, str], list[_Event]]:
    """Split events by lower-case category and phase, keeping their order."""
    groups: dict[tuple[str | None, str], list[_Event]] = defaultdict(list)
    for event in events:
        groups[event.cat, event.ph].append(event)
    merged: dict[tuple[str, str], list[_Event]] = {}
    for (category, phase), group in groups.items():
        if not phase:
            # a span that lost its phase still says how long it lasted
            spans = [event for event in group if event.dur is not None]
            group = [event for event in group if event.dur is None]
            if spans:
                merged.setdefault(((category or "").lower(), "X"), []).extend(spans)
        if group:
            merged.setdefault(((category or "").lower(), "i" if phase == "I" else phase), []).extend(group)
    return merged


def _joined(parts: list[tuple[IntArray, Any]]) -> tuple[IntArray, Any]:
    """Join the rows of several groups in file order."""
    positions = np.concatenate([part[0] for part in parts])
    tables = [part[1] for part in parts]
    table = tables[0] if len(tables) == 1 else type(tables[0]).concat(tables)
    if bool((positions[1:] > positions[:-1]).all()):
        return positions, table
    order = np.argsort(positions, kind="stable")
    return positions[order], table.take(order)


def _hashable(value: object) -> Hashable:
    return value if isinstance(value, Hashable) else str(value)


def _correlation(args: list[_Args]) -> IntArray:
    ids = integers([arg.correlation for arg in args])
    ids[ids <= 0] = ABSENT
    return ids


def _unsigned_absent(ids: IntArray) -> IntArray:
    # CUPTI writes its "invalid" as -1 or as an unsigned 32-bit all-ones
    ids[(ids < 0) | (ids >= 2**32 - 1)] = ABSENT
    return ids


def _row_streams(events: list[_Event]) -> IntArray:
    """Read the stream from the row an event is drawn in: 7, or ``stream 7`` in torch 1.x."""
    return integers(
        [event.tid.removeprefix("stream ") if isinstance(event.tid, str) else event.tid for event in events], default=0
    )


def _edge(events: Iterable[_Event]) -> tuple[int | None, int | None]:
    """Return start and position of the first event that has a start, in the order given."""
    for event in events:
        if event.ph in ("X", "i", "s", "f"):
            value, state = nanoseconds([event.ts])
            if state[0] == OK:
                return int(value[0]), event.position
    return None, None


def _longest(events: list[_Event]) -> int:
    length, state = nanoseconds([event.dur for event in events])
    return int(np.where(state == OK, length, 0).max())


def _time_problem(start: int, length: int = OK, *, is_negative: bool = False) -> str:
    if MISSING in (start, length):
        return "event without a start" if start == MISSING else "event without a duration"
    if NOT_A_NUMBER in (start, length):
        return "event whose time is not a number"
    return "event with a negative duration" if is_negative else "event whose time is not finite or beyond 64 bits"


def _example(event: _Event) -> str:
    return f"{event.cat or 'no category'} {event.name[:80]!r} ts {event.ts} dur {event.dur}"
