"""Every table of a recording, column by column: type, unit and meaning.

All times are integer nanoseconds relative to ``Trace.origin_ns``; intervals are half open, ``[start_ns, end_ns)``.
A ``*_name`` or ``name`` column holds an index into ``Trace.names``; -1 stands for "absent" wherever a column
may lack a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Self

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]
ByteArray = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

ABSENT = -1


class ActivityKind(IntEnum):
    """What ran on the device."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    GRAPH = 3  # a whole CUDA graph recorded as one interval, its kernels hidden


class CopyDirection(IntEnum):
    """Direction of a copy; NONE for activities that are not copies."""

    NONE = 0
    H2D = 1
    D2H = 2
    D2D = 3
    P2P = 4
    OTHER = 5


class MemoryKind(IntEnum):
    """Host memory at the host end of a copy."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    MANAGED = 3


class CallKind(IntEnum):
    """What a runtime or driver call does for the host (classified by name, see ``model.calls``)."""

    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    COPY = 3  # may return before the copy has run (``*Async``)
    BLOCKING_COPY = 4
    MEMSET = 5
    SYNCHRONIZE = 6
    DEVICE_MALLOC = 7
    DEVICE_FREE = 8
    HOST_ALLOC = 9
    HOST_FREE = 10
    MODULE_LOAD = 11
    STREAM_WAIT = 12  # makes a stream, not the host, wait (cudaStreamWaitEvent)


class SliceKind(IntEnum):
    """Source of a host slice."""

    OPERATOR = 0
    ANNOTATION = 1
    PYTHON = 2
    GARBAGE_COLLECTION = 3
    OS_CALL = 4  # nsys OS-runtime row: poll, futex, read …


class WaitKind(IntEnum):
    """What a synchronisation row waited for."""

    OTHER = 0
    STREAM = 1
    DEVICE = 2
    EVENT = 3
    STREAM_WAIT_EVENT = 4  # a stream waited; the host did not


def among(codes: npt.NDArray[Any], wanted: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Say which small codes (at least -1) are wanted ones; a table lookup is several times faster than ``np.isin``.

    Args:
        codes: Codes or row indices, -1 for none.
        wanted: Those to find, none below -1.

    Returns:
        One flag per code.
    """
    chosen = np.asarray(wanted if isinstance(wanted, np.ndarray) else list(wanted), dtype=np.int64)
    if not len(codes) or not len(chosen):
        return np.zeros(len(codes), dtype=np.bool_)
    # the last entry answers for -1
    table = np.zeros(max(int(codes.max()), int(chosen.max())) + 2, dtype=np.bool_)
    table[chosen] = True
    found: npt.NDArray[np.bool_] = table[codes]
    return found


def distinct_codes(codes: npt.NDArray[Any]) -> IntArray:
    """Return the distinct values of a code column, ascending; linear, where ``np.unique`` hashes or sorts.

    Args:
        codes: Small integers not below -1: name codes, thread indices, device ids.
    """
    if not len(codes):
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.bincount(codes.astype(np.int64) + 1)) - 1


def column(dtype: type[np.generic], meaning: str, default: int | None = None) -> Any:
    """Declare a table column.

    Args:
        dtype: numpy scalar type.
        meaning: What a value means, unit included.
        default: Fill value when a reader has no such column; None means the column is required.
    """
    return field(metadata={"dtype": np.dtype(dtype), "meaning": meaning, "default": default})


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length. Subclasses only declare columns."""

    def __len__(self) -> int:
        return len(getattr(self, next(iter(_declared(type(self))))))

    @classmethod
    def build(cls, length: int | None = None, /, **columns: npt.ArrayLike) -> Self:
        """Make a table from columns, filling the optional ones that are not given.

        Args:
            length: Number of rows; needed only when no column is given.
            **columns: Column values by name.

        Raises:
            ValueError: A required column is missing, a name is unknown, or lengths differ.
        """
        declared = _declared(cls)
        unknown = columns.keys() - declared.keys()
        if unknown:
            raise ValueError(f"{cls.__name__} has no column {sorted(unknown)}")
        given = {name: np.asarray(values) for name, values in columns.items()}
        lengths = {len(values) for values in given.values()} | ({length} if length is not None else set())
        if len(lengths) > 1:
            raise ValueError(f"{cls.__name__} columns differ in length: {sorted(lengths)}")
        rows = lengths.pop() if lengths else 0
        made: dict[str, npt.NDArray[Any]] = {}
        for name, (dtype, default) in declared.items():
            if name in given:
                made[name] = np.ascontiguousarray(given[name], dtype=dtype)
            elif default is None and rows:
                raise ValueError(f"{cls.__name__} needs column {name!r}")
            else:
                made[name] = np.empty(rows, dtype=dtype)
                made[name].fill(default or 0)
        return cls(**made)

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """Return the rows selected by an index or boolean array, in that order."""
        return type(self)(**{name: getattr(self, name)[rows] for name in _declared(type(self))})

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns by name, without copying."""
        return {name: getattr(self, name) for name in _declared(type(self))}

    @classmethod
    def concat(cls, tables: Iterable[Self]) -> Self:
        """Append tables below each other."""
        parts = list(tables)
        if not parts:
            return cls.build()
        return cls(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in _declared(cls)})


_DECLARED: dict[Any, dict[str, tuple[np.dtype[Any], int | None]]] = {}


def _declared(kind: Any) -> dict[str, tuple[np.dtype[Any], int | None]]:
    """Type and fill value of each column of a table, by name; kept, because small tables are made by the hundred."""
    known = _DECLARED.get(kind)
    if known is None:
        known = {each.name: (each.metadata["dtype"], each.metadata["default"]) for each in fields(kind)}
        _DECLARED[kind] = known
    return known


@dataclass(frozen=True, slots=True)
class Activities(Table):
    """GPU activities of all devices, sorted by start, then end."""

    start_ns: IntArray = column(np.int64, "start, ns")
    end_ns: IntArray = column(np.int64, "end, ns")
    kind: ByteArray = column(np.int8, "ActivityKind")
    device: CodeArray = column(np.int32, "device id as the recording numbers it")
    stream: IntArray = column(np.int64, "stream id, unique only within device and context")
    name: CodeArray = column(np.int32, "kernel name or copy/memset title, code into Trace.names")
    correlation: IntArray = column(np.int64, "correlation id; -1 unknown (0 in the source is unknown too)", -1)
    size_bytes: IntArray = column(np.int64, "bytes moved or set; -1 unknown", -1)
    direction: ByteArray = column(np.int8, "CopyDirection", 0)
    host_memory: ByteArray = column(np.int8, "MemoryKind of the host end of a copy", 0)
    graph_node: IntArray = column(np.int64, "CUDA graph node id; -1 outside a graph or unknown", -1)
    grid_blocks: IntArray = column(np.int64, "thread blocks of a kernel; -1 unknown", -1)
    block_threads: CodeArray = column(np.int32, "threads per block; -1 unknown", -1)
    registers_per_thread: CodeArray = column(np.int32, "registers per thread; -1 unknown", -1)
    shared_memory_bytes: IntArray = column(np.int64, "shared memory per block, bytes; -1 unknown", -1)
    context: IntArray = column(np.int64, "CUDA context id; -1 unknown", -1)
    peer_device: CodeArray = column(np.int32, "the other device of a peer-to-peer copy; -1 none", -1)


@dataclass(frozen=True, slots=True)
class Calls(Table):
    """Runtime and driver calls on host threads, sorted by start, then by descending end."""

    start_ns: IntArray = column(np.int64, "start, ns")
    end_ns: IntArray = column(np.int64, "end, ns")
    thread: CodeArray = column(np.int32, "index into Trace.threads")
    name: CodeArray = column(np.int32, "API name without version suffix, code into Trace.names")
    kind: ByteArray = column(np.int8, "CallKind", 0)
    correlation: IntArray = column(np.int64, "correlation id; -1 unknown", -1)


@dataclass(frozen=True, slots=True)
class Slices(Table):
    """Operators, annotations, Python frames, garbage collections and OS calls, sorted like Calls."""

    start_ns: IntArray = column(np.int64, "start, ns")
    end_ns: IntArray = column(np.int64, "end, ns")
    thread: CodeArray = column(np.int32, "index into Trace.threads")
    name: CodeArray = column(np.int32, "code into Trace.names")
    kind: ByteArray = column(np.int8, "SliceKind")
    shapes: CodeArray = column(np.int32, "input shapes as compact JSON, code into Trace.names; -1 not recorded", -1)
    domain: CodeArray = column(np.int32, "NVTX domain, code into Trace.names; -1 default or none", -1)
    stack_parent: IntArray = column(np.int64, "Python frame: id of the calling frame; -1 unknown", -1)
    stack_id: IntArray = column(np.int64, "Python frame: its own id, which stack_parent refers to; -1 unknown", -1)


@dataclass(frozen=True, slots=True)
class Overheads(Table):
    """The profiler's own work on the host (buffer requests, flushes, lazy loading)."""

    start_ns: IntArray = column(np.int64, "start, ns")
    end_ns: IntArray = column(np.int64, "end, ns")
    thread: CodeArray = column(np.int32, "index into Trace.threads; -1 holds for every thread", -1)
    name: CodeArray = column(np.int32, "code into Trace.names", -1)
    is_module_load: ByteArray = column(np.int8, "1 where the row is lazy module or function loading", 0)


@dataclass(frozen=True, slots=True)
class Waits(Table):
    """Synchronisation rows reported by CUPTI (never GPU activity)."""

    start_ns: IntArray = column(np.int64, "start, ns")
    end_ns: IntArray = column(np.int64, "end, ns")
    kind: ByteArray = column(np.int8, "WaitKind", 0)
    device: CodeArray = column(np.int32, "device id; -1 unknown", -1)
    stream: IntArray = column(np.int64, "waiting stream id; -1 unknown", -1)
    correlation: IntArray = column(np.int64, "correlation id of the call; -1 unknown", -1)
    event: IntArray = column(np.int64, "CUDA event id; -1 none", -1)
    source_correlation: IntArray = column(np.int64, "correlation id of the awaited event record; -1 unknown", -1)


@dataclass(frozen=True, slots=True)
class MemoryEvents(Table):
    """Allocator instants: Kineto ``[memory]`` events or nsys memory-usage rows, sorted by time."""

    time_ns: IntArray = column(np.int64, "when, ns")
    thread: CodeArray = column(np.int32, "index into Trace.threads; -1 unknown", -1)
    device: CodeArray = column(np.int32, "device id; -1 host memory")
    delta_bytes: IntArray = column(np.int64, "positive allocation, negative free, bytes")
    address: IntArray = column(np.int64, "address as a signed 64-bit pattern; 0 unknown", 0)
    allocated_bytes: IntArray = column(np.int64, "allocator's total allocated after the event; -1 unknown", -1)
    reserved_bytes: IntArray = column(np.int64, "allocator's total reserved after the event; -1 unknown", -1)
    is_driver: ByteArray = column(np.int8, "1: memory taken from the driver (nsys); 0: framework allocator", 0)
    host_memory: ByteArray = column(np.int8, "MemoryKind for host memory rows", 0)


@dataclass(frozen=True, slots=True)
class Schedules(Table):
    """Stretches in which the operating system had taken a thread off its core (nsys scheduling rows)."""

    start_ns: IntArray = column(np.int64, "scheduled out, ns")
    end_ns: IntArray = column(np.int64, "back on a core, ns")
    thread: CodeArray = column(np.int32, "index into Trace.threads")


@dataclass(frozen=True, slots=True)
class Counters(Table):
    """Sampled values beside the timeline (nvidia-smi, NVML), sorted by series, then time."""

    time_ns: IntArray = column(np.int64, "when, ns")
    series: CodeArray = column(np.int32, "series name such as 'gpu0 utilization.gpu [%]', code into Trace.names")
    value: npt.NDArray[np.float64] = column(np.float64, "value in the unit its series names")
