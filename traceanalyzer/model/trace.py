"""One process's recording as validated columns, and what is known about where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from traceanalyzer.model.schema import (
    Activities,
    Calls,
    Counters,
    IntArray,
    MemoryEvents,
    Overheads,
    Schedules,
    Slices,
    Waits,
    among,
)

if TYPE_CHECKING:
    from traceanalyzer.model.memory_snapshot import MemorySnapshot


# the longest names of real kernels, of templates in templates, have some thousands of characters
LONGEST_NAME = 16_384


@dataclass(frozen=True, slots=True)
class Thread:
    """A host thread.

    Attributes:
        pid: Process id as recorded (0 when unknown).
        tid: Thread id as recorded.
        name: Name given by the recording, or empty.
    """

    pid: int
    tid: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as the recording describes it; None where it does not.

    Attributes:
        device_id: Number used in the activity table.
        name: Product name.
        memory_bytes: Total memory, bytes.
        multiprocessors: Number of SMs or compute units.
        compute_capability: For example ``(9, 0)``.
        max_threads_per_multiprocessor: Resident threads an SM can hold.
    """

    device_id: int
    name: str = ""
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    compute_capability: tuple[int, int] | None = None
    max_threads_per_multiprocessor: int | None = None


@dataclass(slots=True)
class Dropped:
    """Records left out for one reason."""

    reason: str
    count: int
    example: str


@dataclass(slots=True)
class Integrity:
    """What reading found wrong, filled by the reader and never silently empty.

    Attributes:
        dropped: Records left out, by reason.
        notes: Sentences a user should see (truncated after …, names repaired, table absent …).
        is_truncated: The source ended before its own end.
        cut_ns: Spans of the recording (relative ns) whose events are known to be incomplete; steps they touch
            are left out of per-step numbers. Empty when sound.
        truncated_at_ns: Time of the last whole event where the source was cut, or None.
    """

    dropped: dict[str, Dropped] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    is_truncated: bool = False
    cut_ns: list[tuple[int, int]] = field(default_factory=list)
    truncated_at_ns: int | None = None

    def drop(self, reason: str, example: str = "", count: int = 1) -> None:
        """Count records left out for a reason, keeping the first example."""
        entry = self.dropped.get(reason)
        if entry is None:
            self.dropped[reason] = Dropped(reason, count, example[:200])
        else:
            entry.count += count

    def note(self, sentence: str) -> None:
        """Add a sentence once."""
        if sentence not in self.notes:
            self.notes.append(sentence)


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank: a process and the devices it drove.

    All tables are sorted as their class says; times are relative to ``origin_ns``.

    Attributes:
        names: Interned strings that every ``name`` code points into.
        origin_ns: Time of relative 0 in the source's clock (epoch ns where the source says so).
        threads: Host threads, indexed by the ``thread`` columns.
        devices: Devices described by the recording or seen in its activities.
        activities: GPU activities.
        calls: Runtime and driver calls.
        slices: Operators, annotations, Python frames, garbage collection, OS calls.
        overheads: The profiler's own work.
        waits: Synchronisation rows.
        memory: Allocator events.
        schedules: Stretches in which a thread was scheduled out.
        counters: Sampled counters.
        activity_call: For each activity the row of its launch in ``calls``; -1 without or with ambiguous launch.
        rank: Distributed rank, or None when the recording does not say.
        world_size: Number of ranks, or None.
        metadata: Facts such as ``torch``, ``cuda_driver``, ``with_stack``, ``profile_memory`` (strings).
        integrity: What reading found wrong.
        snapshot: Snapshot of the caching allocator of the same process, or None.
    """

    names: Sequence[str]
    origin_ns: int
    threads: tuple[Thread, ...]
    devices: tuple[Device, ...]
    activities: Activities
    calls: Calls
    slices: Slices
    overheads: Overheads
    waits: Waits
    memory: MemoryEvents
    schedules: Schedules
    counters: Counters
    activity_call: IntArray
    rank: int | None
    world_size: int | None
    metadata: Mapping[str, str]
    integrity: Integrity
    snapshot: MemorySnapshot | None = None

    @classmethod
    def build(
        cls,
        *,
        names: Sequence[str],
        origin_ns: int = 0,
        threads: Sequence[Thread] = (),
        devices: Sequence[Device] = (),
        activities: Activities | None = None,
        calls: Calls | None = None,
        slices: Slices | None = None,
        overheads: Overheads | None = None,
        waits: Waits | None = None,
        memory: MemoryEvents | None = None,
        schedules: Schedules | None = None,
        counters: Counters | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        metadata: Mapping[str, str] | None = None,
        integrity: Integrity | None = None,
    ) -> Self:
        """Sort the tables, link every activity to its launch and complete the device list.

        Args: as the attributes; every table is optional.

        Raises:
            ValueError: A name or thread code lies outside its list, or an interval ends before it starts
                (readers drop and count those first).
        """
        acts = _sorted(activities if activities is not None else Activities.build())
        host_calls = _sorted(calls if calls is not None else Calls.build(), nested=True)
        host_slices = _sorted(slices if slices is not None else Slices.build(), nested=True)
        seen = {d.device_id for d in devices}
        extra = [Device(int(i)) for i in np.unique(acts.device) if int(i) not in seen]
        known = integrity if integrity is not None else Integrity()
        trace = cls(
            names=_bounded(names, known),
            origin_ns=origin_ns,
            threads=tuple(threads),
            devices=tuple(sorted([*devices, *extra], key=lambda d: d.device_id)),
            activities=acts,
            calls=host_calls,
            slices=host_slices,
            overheads=_sorted(overheads if overheads is not None else Overheads.build()),
            waits=_sorted(waits if waits is not None else Waits.build()),
            memory=_by_time(memory if memory is not None else MemoryEvents.build()),
            schedules=_sorted(schedules if schedules is not None else Schedules.build()),
            counters=_by_series(counters if counters is not None else Counters.build()),
            activity_call=link_launches(acts, host_calls),
            rank=rank,
            world_size=world_size,
            metadata=dict(metadata or {}),
            integrity=known,
        )
        trace.validate()
        return trace

    def validate(self) -> None:
        """Check codes and intervals against the schema.

        Raises:
            ValueError: A row breaks the schema; the message names table and column.
        """
        for label, table in (
            ("activities", self.activities),
            ("calls", self.calls),
            ("slices", self.slices),
            ("overheads", self.overheads),
        ):
            if len(table) == 0:
                continue
            if bool((table.end_ns < table.start_ns).any()):
                raise ValueError(f"{label}: an interval ends before it starts")
            if int(table.name.max()) >= len(self.names) or int(table.name.min()) < -1:
                raise ValueError(f"{label}.name points outside the name table")
        for label, threads in (("calls", self.calls.thread), ("slices", self.slices.thread)):
            if len(threads) and not 0 <= int(threads.min()) <= int(threads.max()) < len(self.threads):
                raise ValueError(f"{label}.thread points outside the thread list")

    def with_counters(self, names: Sequence[str], counters: Counters) -> Self:
        """Return a copy carrying other counters (and the name list their series point into)."""
        return replace(self, names=names, counters=_by_series(counters))

    def with_snapshot(self, snapshot: MemorySnapshot) -> Self:
        """Return a copy carrying a snapshot of the process's caching allocator."""
        return replace(self, snapshot=snapshot)


@dataclass(frozen=True, slots=True)
class Source:
    """One input file or folder.

    Attributes:
        path: As the user named it.
        format: Reader name, for example ``kineto``.
        size_bytes: Size on disk.
        fingerprint: Size plus hash of head, tail and sampled blocks.
        producer: Tool and version that wrote it, or empty.
    """

    path: str
    format: str
    size_bytes: int
    fingerprint: str
    producer: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """What a reader returns: one trace per process with GPU activity (one trace without any, otherwise)."""

    source: Source
    traces: tuple[Trace, ...]


def link_launches(activities: Activities, calls: Calls) -> IntArray:
    """Find each activity's launch by correlation id.

    A correlation id shared by several calls is ambiguous unless exactly one of them can have enqueued work
    (a launch, copy or memset, as opposed to a query or an event record). Ids of -1 are never joined. Several
    activities may share one call (a graph launch).

    Args:
        activities: GPU activities.
        calls: Runtime calls.

    Returns:
        int64 array, one row index into ``calls`` per activity; -1 where there is no or no single launch.
    """
    result = np.full(len(activities), -1, dtype=np.int64)
    if not len(activities) or not len(calls):
        return result
    known = np.flatnonzero(calls.correlation >= 0)
    if not len(known):
        return result
    # enqueueing calls first within an id, so that a lone one wins over queries sharing the id
    enqueues = among(calls.kind[known], _ENQUEUEING)
    order = known[np.lexsort((~enqueues, calls.correlation[known]))]
    ids = calls.correlation[order]
    enqueue_sorted = among(calls.kind[order], _ENQUEUEING)
    first = np.searchsorted(ids, activities.correlation, side="left")
    after = np.searchsorted(ids, activities.correlation, side="right")
    count = np.where(activities.correlation >= 0, after - first, 0)
    enqueue_before = np.concatenate(([0], np.cumsum(enqueue_sorted)))
    enqueue_count = enqueue_before[after] - enqueue_before[first]
    single = (count > 0) & ((enqueue_count == 1) | (count == 1))
    result[single] = order[first[single]]
    return result


_ENQUEUEING = np.array([1, 2, 3, 4, 5], dtype=np.int8)  # CallKind.LAUNCH … MEMSET


_Interval = TypeVar("_Interval", Activities, Calls, Slices, Overheads, Waits, Schedules)


def sort_in_place(table: _Interval, *, is_nested: bool) -> None:
    """Sort a table's own arrays as ``Trace`` wants them, which needs no second copy of a large table.

    Args:
        table: The table.
        is_nested: It holds slices of host threads: of those that start together, the longest comes first.
    """
    order = _order(table, is_nested)
    if order is not None:
        for values in table.columns().values():
            values[:] = values[order]


def _sorted(table: _Interval, *, nested: bool = False) -> _Interval:
    order = _order(table, nested)
    return table if order is None else table.take(order)


def _order(table: _Interval, is_nested: bool) -> IntArray | None:
    """Return the order by start, then end (descending where nested); None for a table that has it."""
    start = table.start_ns
    if bool((start[1:] > start[:-1]).all()):
        return None
    # times are nearly sorted, which a stable sort of one key makes the most of; equal starts are rare
    order = np.argsort(start, kind="stable")
    start = start[order]
    tied = np.flatnonzero(start[1:] == start[:-1])
    if len(tied):
        tied = np.union1d(tied, tied + 1)
        end = table.end_ns[order[tied]]
        order[tied] = order[tied][np.lexsort((-end if is_nested else end, start[tied]))]
    return None if bool((order[1:] > order[:-1]).all()) else order


def _by_time(table: MemoryEvents) -> MemoryEvents:
    return table.take(np.argsort(table.time_ns, kind="stable")) if len(table) > 1 else table


def _by_series(table: Counters) -> Counters:
    return table.take(np.lexsort((table.time_ns, table.series))) if len(table) > 1 else table


def _bounded(names: Sequence[str], integrity: Integrity) -> Sequence[str]:
    """Cut names no page can hold; the start of a checksum keeps different ones different."""
    too_long = [code for code, name in enumerate(names) if len(name) > LONGEST_NAME]
    if not too_long:
        return names
    integrity.note(f"names longer than {LONGEST_NAME} characters were cut ({len(too_long)} of them)")
    result = list(names)
    for code in too_long:
        checksum = hashlib.blake2b(result[code].encode("utf-8", "replace"), digest_size=4).hexdigest()
        result[code] = f"{result[code][:LONGEST_NAME]}…{checksum}"
    return result
