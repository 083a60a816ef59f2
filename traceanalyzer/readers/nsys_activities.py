"""GPU tables of an Nsight Systems export: kernels, copies, memsets, whole graphs, waits and memory usage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from traceanalyzer.model.schema import (
    Activities,
    ActivityKind,
    ByteArray,
    Calls,
    CodeArray,
    CopyDirection,
    IntArray,
    MemoryEvents,
    MemoryKind,
    Overheads,
    Schedules,
    Slices,
    WaitKind,
    Waits,
)
from traceanalyzer.model.trace import Integrity
from traceanalyzer.readers.nsys_names import Names, StringTable
from traceanalyzer.readers.nsys_tables import RawTable
from traceanalyzer.units import format_ns

_Rows = TypeVar("_Rows", Activities, Calls, Slices, Overheads, Waits, MemoryEvents, Schedules)

_WEEK_NS = 7 * 86_400 * 1_000_000_000

UNKNOWN_ID = 4_294_967_295  # CUPTI's "no such stream or event"

# Enum values for exports that lack the ENUM tables (before schema 2): the numbers newer exports list under these names.
_MEMCPY_OPER = {
    1: "HTOD",
    2: "DTOH",
    3: "HTOA",
    4: "ATOH",
    5: "ATOA",
    6: "ATOD",
    7: "DTOA",
    8: "DTOD",
    9: "HTOH",
    10: "PTOP",
    11: "UVM_HTOD",
    12: "UVM_DTOH",
    13: "UVM_DTOD",
}
_MEM_KIND = {0: "PAGEABLE", 1: "PINNED", 2: "DEVICE", 3: "ARRAY", 4: "MANAGED", 5: "DEVICE_STATIC", 6: "MANAGED_STATIC"}
_SYNC_TYPE = {1: "EVENT_SYNCHRONIZE", 2: "STREAM_WAIT_EVENT", 3: "STREAM_SYNCHRONIZE", 4: "CONTEXT_SYNCHRONIZE"}
_DEV_MEM_OPER = {0: "ALLOCATION", 1: "DEALLOCATION"}

_DIRECTION = {
    "HTOD": CopyDirection.H2D,
    "HTOA": CopyDirection.H2D,
    "UVM_HTOD": CopyDirection.H2D,
    "DTOH": CopyDirection.D2H,
    "ATOH": CopyDirection.D2H,
    "UVM_DTOH": CopyDirection.D2H,
    "DTOD": CopyDirection.D2D,
    "ATOA": CopyDirection.D2D,
    "ATOD": CopyDirection.D2D,
    "DTOA": CopyDirection.D2D,
    "PTOP": CopyDirection.P2P,
    "UVM_DTOD": CopyDirection.P2P,
}
_HOST_MEMORY = {
    "PAGEABLE": MemoryKind.PAGEABLE,
    "PINNED": MemoryKind.PINNED,
    "MANAGED": MemoryKind.MANAGED,
    "MANAGED_STATIC": MemoryKind.MANAGED,
}
_WAIT = {
    "EVENT_SYNCHRONIZE": WaitKind.EVENT,
    "STREAM_WAIT_EVENT": WaitKind.STREAM_WAIT_EVENT,
    "STREAM_SYNCHRONIZE": WaitKind.STREAM,
    "CONTEXT_SYNCHRONIZE": WaitKind.DEVICE,
}
_TITLE = {CopyDirection.H2D: "HtoD", CopyDirection.D2H: "DtoH", CopyDirection.D2D: "DtoD", CopyDirection.P2P: "PtoP"}
_HOST_WORD = {MemoryKind.PAGEABLE: "Pageable", MemoryKind.PINNED: "Pinned", MemoryKind.MANAGED: "Managed"}


@dataclass(frozen=True, slots=True)
class Enums:
    """Meaning of the file's own enum numbers, as bare names (``PAGEABLE``, ``HTOD`` …)."""

    copy: dict[int, str]
    memory: dict[int, str]
    sync: dict[int, str]
    memory_operation: dict[int, str]

    @classmethod
    def of(cls, tables: dict[str, RawTable]) -> Enums:
        """Read the ENUM tables; the documented numbers stand in for those an old export lacks."""
        return cls(
            copy=_enum(tables.get("ENUM_CUDA_MEMCPY_OPER"), "CUDA_MEMCPY_KIND_", _MEMCPY_OPER),
            memory=_enum(tables.get("ENUM_CUDA_MEM_KIND"), "CUDA_MEMOPR_MEMORY_KIND_", _MEM_KIND),
            sync=_enum(tables.get("ENUM_CUPTI_SYNC_TYPE"), "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_", _SYNC_TYPE),
            memory_operation=_enum(
                tables.get("ENUM_CUDA_DEV_MEM_EVENT_OPER"), "CUDA_DEV_MEM_EVENT_OPR_", _DEV_MEM_OPER
            ),
        )


@dataclass(frozen=True, slots=True)
class Decoded(Generic[_Rows]):
    """Rows of the model with the process (``globalPid``) each belongs to; -1 where the export does not say."""

    rows: _Rows
    process: IntArray


@dataclass(frozen=True, slots=True)
class Decoder:
    """What every table needs to be decoded.

    Attributes:
        names: Collects the recording's names.
        strings: The export's string table.
        integrity: Where left-out rows are counted.
        enums: The export's enum numbers.
        limit_ns: Longest plausible duration: the capture's own length where the export states it.
        shift_ns: Time in the export's clock that becomes relative 0.
        start_range_ns: Earliest and latest believable start, in the export's clock.
    """

    names: Names
    strings: StringTable
    integrity: Integrity
    enums: Enums
    limit_ns: int
    shift_ns: int
    start_range_ns: tuple[int, int]

    def sound(self, raw: RawTable, what: str, *, needs_start: bool = True, limit_ns: int | None = None) -> RawTable:
        """Leave out rows without usable times, counting each reason.

        Args:
            raw: Table with ``start`` and ``end``.
            what: The row's name in the plural, for the reader.
            needs_start: Whether a start of 0 means that the time was never taken (CUPTI's GPU records).
            limit_ns: Longest plausible duration; None takes the capture's.
        """
        longest = self.limit_ns if limit_ns is None else limit_ns
        start, end = raw.integers("start", 0), raw.integers("end", 0)
        # as floats, because the difference of two corrupted stamps can exceed 64 bits
        too_long = np.subtract(end, start, dtype=np.float64) > longest
        checks: list[tuple[str, npt.NDArray[np.bool_] | None]] = [
            ("without a start", raw.nulls("start")),
            ("without an end", raw.nulls("end")),
            ("that end before they start", end < start),
            (f"longer than the capture ({format_ns(longest)})", too_long),
            ("that start far outside the capture", self._is_outside(start)),
        ]
        if needs_start:
            # CUPTI writes 0 for a time it never took; a recording's own first activity may start at 0 as well, but
            # then nothing else starts before it ends
            others = start[start > 0]
            first = int(others.min()) if len(others) else int(end.max(initial=0))
            checks.append(("whose time was never taken (start 0)", (start == 0) & ((end == 0) | (end > first))))
        good = np.ones(len(raw), dtype=np.bool_)
        for reason, mask in checks:
            bad = None if mask is None else mask & good
            if bad is not None and bad.any():
                row = int(np.argmax(bad))
                example = f"row {row + 1} of {raw.name}: start {start[row]}, end {end[row]}"
                self.integrity.drop(f"{what} {reason}", example, int(bad.sum()))
                good &= ~bad
        return raw if bool(good.all()) else raw.keep(good)

    def sound_moments(self, raw: RawTable, what: str) -> RawTable:
        """Leave out rows of a single moment (``start``) that lies nowhere in the capture, counting them."""
        start, lost = raw.integers("start", 0), raw.nulls("start")
        bad = self._is_outside(start)
        if lost is not None:
            bad |= lost
        if not bad.any():
            return raw
        row = int(np.argmax(bad))
        example = f"row {row + 1} of {raw.name}: start {start[row]}"
        self.integrity.drop(f"{what} without a time in the capture", example, int(bad.sum()))
        return raw.keep(~bad)

    def is_far_outside(self, start: IntArray) -> npt.NDArray[np.bool_]:
        """Mark starts more than a week from the capture; ranges may have begun long before it."""
        low, high = self.start_range_ns
        outside: npt.NDArray[np.bool_] = (start < low - _WEEK_NS) | (start > high + _WEEK_NS)
        return outside

    def _is_outside(self, start: IntArray) -> npt.NDArray[np.bool_]:
        # 0 is a matter of its own: a time never taken, or the first moment of the session
        outside: npt.NDArray[np.bool_] = (start != 0) & (
            (start < self.start_range_ns[0]) | (start > self.start_range_ns[1])
        )
        return outside

    def name_codes(self, raw: RawTable, column: str, fallback: str | None = None) -> CodeArray:
        """Names of a string-id column, with dangling ids named and counted; ``fallback`` fills missing ones."""
        codes, dangling, example = self.strings.codes(raw.integers(column), self.names)
        if fallback is not None and raw.has(fallback) and (dangling or bool((codes < 0).any())):
            other, lost, _ = self.strings.codes(raw.integers(fallback), self.names)
            if dangling:
                known = np.array([not name.startswith("<unknown string ") for name in self.names.values] + [False])
                take = (codes < 0) | (~known[codes] & known[other])
                codes, dangling = np.where(take, other, codes), min(dangling, lost)
            else:
                codes = np.where(codes < 0, other, codes)
        if dangling:
            self.integrity.note(
                f"{raw.name}: {dangling} rows name a string that StringIds does not hold; "
                f"they are called '<unknown string {example}>' and the like."
            )
        return codes


def decode_kernels(decoder: Decoder, raw: RawTable) -> Decoded[Activities]:
    """Decode ``CUPTI_ACTIVITY_KIND_KERNEL``."""
    raw = decoder.sound(raw, "kernels")
    full = "demangledName" if raw.has("demangledName") else "shortName"
    grid = _product(raw, "gridX", "gridY", "gridZ")
    block = _product(raw, "blockX", "blockY", "blockZ")
    static, dynamic = raw.integers("staticSharedMemory"), raw.integers("dynamicSharedMemory")
    return _activities(
        decoder,
        raw,
        ActivityKind.KERNEL,
        name=decoder.name_codes(raw, full, "shortName"),
        grid_blocks=grid,
        block_threads=block,
        registers_per_thread=raw.integers("registersPerThread"),
        shared_memory_bytes=np.where((static < 0) & (dynamic < 0), -1, np.maximum(static, 0) + np.maximum(dynamic, 0)),
    )


def decode_copies(decoder: Decoder, raw: RawTable) -> Decoded[Activities]:
    """Decode ``CUPTI_ACTIVITY_KIND_MEMCPY``; unified-memory migrations are copies of managed memory."""
    raw = decoder.sound(raw, "copies")
    kind = raw.integers("copyKind", 0)
    direction = _lookup(kind, decoder.enums.copy, _DIRECTION, CopyDirection.OTHER)
    migration = _lookup(kind, decoder.enums.copy, {k: 1 for k in _DIRECTION if k.startswith("UVM_")}, 0) > 0
    source = _lookup(raw.integers("srcKind"), decoder.enums.memory, _HOST_MEMORY, MemoryKind.UNKNOWN)
    target = _lookup(raw.integers("dstKind"), decoder.enums.memory, _HOST_MEMORY, MemoryKind.UNKNOWN)
    host = np.where(direction == CopyDirection.H2D, source, np.where(direction == CopyDirection.D2H, target, 0))
    host = np.where(migration, np.int8(MemoryKind.MANAGED), host)
    if migration.any():
        moved = int(raw.integers("bytes", 0)[migration].sum())
        decoder.integrity.note(
            f"{int(migration.sum())} copies are unified-memory migrations ({moved} bytes), made by the driver on page "
            "faults or prefetches and not by a call."
        )
    own, peer = raw.integers("srcDeviceId"), raw.integers("dstDeviceId")
    device = raw.integers("deviceId", 0)
    titles = direction.astype(np.int64) * 8 + host
    title_codes = np.full(64, -1, dtype=np.int32)
    for title in np.unique(titles).tolist():
        title_codes[title] = decoder.names.code(_copy_title(CopyDirection(title // 8), MemoryKind(title % 8)))
    return _activities(
        decoder,
        raw,
        ActivityKind.COPY,
        name=title_codes[titles],
        size_bytes=raw.integers("bytes"),
        direction=direction,
        host_memory=host,
        peer_device=np.where(direction == CopyDirection.P2P, np.where(own == device, peer, own), -1),
    )


def decode_memsets(decoder: Decoder, raw: RawTable) -> Decoded[Activities]:
    """Decode ``CUPTI_ACTIVITY_KIND_MEMSET``."""
    raw = decoder.sound(raw, "memsets")
    title = np.full(len(raw), decoder.names.code("Memset (Device)"), dtype=np.int32)
    return _activities(decoder, raw, ActivityKind.MEMSET, name=title, size_bytes=raw.integers("bytes"))


def decode_graphs(decoder: Decoder, raw: RawTable) -> Decoded[Activities]:
    """Decode ``CUPTI_ACTIVITY_KIND_GRAPH_TRACE``: each row is a whole graph whose kernels were not recorded."""
    raw = decoder.sound(raw, "CUDA graph executions")
    graphs = raw.integers("graphId")
    distinct, place = np.unique(graphs, return_inverse=True)
    codes = np.array([decoder.names.code(f"CUDA graph {g}" if g >= 0 else "CUDA graph") for g in distinct.tolist()])
    if len(raw):
        decoder.integrity.note(
            f"{len(raw)} CUDA graph executions are recorded as one interval each: their kernels are hidden. "
            "Record with `--cuda-graph-trace=node` to see them."
        )
    return _activities(decoder, raw, ActivityKind.GRAPH, name=codes[place] if len(raw) else graphs)


def decode_waits(decoder: Decoder, raw: RawTable, events: RawTable | None) -> Decoded[Waits]:
    """Decode ``CUPTI_ACTIVITY_KIND_SYNCHRONIZATION``.

    Args:
        decoder: What decoding needs.
        raw: The synchronisation rows.
        events: ``CUPTI_ACTIVITY_KIND_CUDA_EVENT`` or None; it says which call recorded the event awaited.
    """
    raw = decoder.sound(raw, "synchronisations")
    process = raw.integers("globalPid")
    sync = _known(raw.integers("eventSyncId"))
    recorded = np.full(len(raw), -1, dtype=np.int64)
    if events is not None and len(events) and events.has("eventSyncId"):
        # one key per (process, event record): processes number their events alike
        processes, owner = np.unique(np.concatenate([process, events.integers("globalPid")]), return_inverse=True)
        del processes
        key = (owner.astype(np.int64) << 32) | np.concatenate([sync, _known(events.integers("eventSyncId"))])
        wanted, offered = key[: len(raw)], key[len(raw) :]
        order = np.argsort(offered, kind="stable")
        place = np.minimum(np.searchsorted(offered[order], wanted), len(order) - 1)
        match = (offered[order][place] == wanted) & (sync > 0)
        recorded = np.where(match, _correlation(events)[order][place], -1)
    rows = Waits.build(
        start_ns=raw.integers("start") - decoder.shift_ns,
        end_ns=raw.integers("end") - decoder.shift_ns,
        kind=_lookup(raw.integers("syncType", 0), decoder.enums.sync, _WAIT, WaitKind.OTHER),
        device=raw.integers("deviceId"),
        stream=_known(raw.integers("streamId")),
        correlation=_correlation(raw),
        event=_known(raw.integers("eventId")),
        source_correlation=recorded,
    )
    return Decoded(rows, process)


def decode_memory(decoder: Decoder, raw: RawTable) -> Decoded[MemoryEvents]:
    """Decode ``CUDA_GPU_MEMORY_USAGE_EVENTS``: memory taken from and given back to the driver."""
    raw = decoder.sound_moments(raw, "memory usage rows")
    size = raw.integers("bytes", 0)
    frees = _lookup(raw.integers("memoryOperationType", 0), decoder.enums.memory_operation, {"DEALLOCATION": 1}, 0)
    kind = raw.integers("memKind")
    host = _lookup(kind, decoder.enums.memory, _HOST_MEMORY, MemoryKind.UNKNOWN)
    on_host = np.isin(host, (MemoryKind.PAGEABLE, MemoryKind.PINNED))
    rows = MemoryEvents.build(
        time_ns=raw.integers("start") - decoder.shift_ns,
        device=np.where(on_host, -1, raw.integers("deviceId")),
        delta_bytes=np.where(frees > 0, -size, size),
        address=raw.integers("address", 0),
        is_driver=np.ones(len(raw), dtype=np.int8),
        host_memory=host,
    )
    return Decoded(rows, raw.integers("globalPid"))


def _activities(decoder: Decoder, raw: RawTable, kind: ActivityKind, **columns: npt.ArrayLike) -> Decoded[Activities]:
    node = raw.integers("graphNodeId")
    rows = Activities.build(
        start_ns=raw.integers("start") - decoder.shift_ns,
        end_ns=raw.integers("end") - decoder.shift_ns,
        kind=np.full(len(raw), kind, dtype=np.int8),
        device=raw.integers("deviceId", 0),
        stream=raw.integers("streamId"),
        correlation=_correlation(raw),
        graph_node=np.where(node == 0, -1, node),
        context=raw.integers("contextId"),
        **columns,
    )
    return Decoded(rows, raw.integers("globalPid"))


def _correlation(raw: RawTable) -> IntArray:
    correlation = raw.integers("correlationId")
    return np.where(correlation == 0, -1, correlation)  # 0 is CUPTI's "unknown"


def _known(ids: IntArray) -> IntArray:
    return np.where(ids == UNKNOWN_ID, -1, ids)


def _product(raw: RawTable, *columns: str) -> IntArray:
    if not all(raw.has(column) for column in columns):
        return np.full(len(raw), -1, dtype=np.int64)
    result = raw.integers(columns[0], 0).copy()
    for column in columns[1:]:
        result *= raw.integers(column, 0)
    return result


def _lookup(values: IntArray, enum: Mapping[int, str], meaning: Mapping[str, int], other: int) -> ByteArray:
    """Translate the export's enum numbers by way of their names."""
    table = np.full(max(enum, default=0) + 2, other, dtype=np.int8)
    for number, name in enum.items():
        table[number] = meaning.get(name, other)
    return table[np.where((values >= 0) & (values < len(table) - 1), values, len(table) - 1)]


def _enum(raw: RawTable | None, prefix: str, documented: dict[int, str]) -> dict[int, str]:
    if raw is None or not len(raw):
        return documented
    codes, texts = raw.texts("name")
    pairs = zip(raw.integers("id").tolist(), codes.tolist(), strict=True)
    return {number: texts[code].removeprefix(prefix) for number, code in pairs if code >= 0 and 0 <= number < 4096}


def _copy_title(direction: CopyDirection, host: MemoryKind) -> str:
    """Name a copy the way PyTorch's own profiler does, so that both recordings of a loop name it alike."""
    word = _HOST_WORD.get(host, "Unknown")
    if direction is CopyDirection.H2D:
        return f"Memcpy HtoD ({word} -> Device)"
    if direction is CopyDirection.D2H:
        return f"Memcpy DtoH (Device -> {word})"
    if direction in _TITLE:
        return f"Memcpy {_TITLE[direction]} (Device -> Device)"
    return "Memcpy (other)"
