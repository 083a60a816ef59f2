"""Rows that cannot be true: times outside any capture, and records written twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from traceanalyzer.model.schema import Activities, BoolArray, Calls, IntArray, MemoryEvents, Overheads, Slices, Waits
from traceanalyzer.model.trace import Integrity

Timed = TypeVar("Timed", Activities, Calls, Slices, Overheads, Waits)

# No profiler session lasts a week; broken device clocks produce centuries.
_WEEK_NS = 7 * 86_400 * 1_000_000_000
_SECOND_NS = 1_000_000_000


def start_range(tables: Sequence[Any], capture_ns: int = 0) -> tuple[int, int] | None:
    """Return the earliest and latest believable start, around the median; None without rows.

    Args:
        tables: Tables with ``start_ns``.
        capture_ns: Length of the capture as the recording states it, or 0: then a week either way is believed.
    """
    starts = [table.start_ns for table in tables if len(table)]
    if not starts:
        return None
    middle = int(np.median(np.concatenate([start[:: max(1, len(start) // 10_000)] for start in starts])))
    reach = min(_WEEK_NS, 2 * capture_ns + _SECOND_NS) if capture_ns > 0 else _WEEK_NS
    return middle - reach, middle + reach


def longest_duration(tables: Sequence[Any], limits: tuple[int, int], capture_ns: int) -> int:
    """Return the longest believable duration, ns.

    Where the profiler states how long it recorded, that; else a wide multiple of the spread of the starts,
    because the last row may well outlast everything before it.

    Args:
        tables: Tables with ``start_ns``.
        limits: Believable starts.
        capture_ns: Length of the capture as the recording states it, or 0.
    """
    starts = [table.start_ns[(table.start_ns >= limits[0]) & (table.start_ns <= limits[1])] for table in tables]
    lows = [int(start.min()) for start in starts if len(start)]
    highs = [int(start.max()) for start in starts if len(start)]
    spread = max(highs) - min(lows) if lows else 0
    if 0 < capture_ns < _WEEK_NS:
        return 2 * max(capture_ns, spread) + _SECOND_NS
    return min(_WEEK_NS, 10 * spread + 60 * _SECOND_NS)


def drop_impossible(
    table: Timed, limits: tuple[int, int], longest_ns: int, names: Sequence[str], integrity: Integrity
) -> Timed:
    """Drop rows that start outside the capture or outlast it, and count them."""
    start = table.start_ns
    outside = (start < limits[0]) | (start > limits[1])
    if outside.any():
        _count(table, outside & (start == 0), "event starting at 0 among absolute times", names, integrity)
        _count(table, outside & (start != 0), "event starting far outside the capture", names, integrity)
    too_long = ~outside & (table.end_ns - start > longest_ns)
    _count(table, too_long, "event longer than the capture", names, integrity)
    bad = outside | too_long
    return table.take(~bad) if bad.any() else table


def drop_outside(memory: MemoryEvents, limits: tuple[int, int], integrity: Integrity) -> MemoryEvents:
    """Drop allocator events outside the capture, and count them."""
    outside = (memory.time_ns < limits[0]) | (memory.time_ns > limits[1])
    if not outside.any():
        return memory
    integrity.drop("allocator event far outside the capture", count=int(outside.sum()))
    return memory.take(~outside)


def drop_repeated_calls(calls: Calls, names: Sequence[str], integrity: Integrity) -> Calls:
    """Drop calls written twice: same thread, name, times and correlation id."""
    repeated = _repeated(calls, ("start_ns", "end_ns", "thread", "name", "correlation"))
    _count(calls, repeated, "call written twice", names, integrity)
    return calls.take(~repeated) if repeated.any() else calls


def drop_repeated_activities(activities: Activities, names: Sequence[str], integrity: Integrity) -> Activities:
    """Drop activities written twice.

    Equal rows are a repetition only where nothing else shares their correlation id: two short kernels of one graph
    launch may well look the same at microsecond resolution.
    """
    columns = ("start_ns", "end_ns", "kind", "device", "stream", "name", "correlation")
    repeated = _repeated(activities, columns)
    if repeated.any():
        ids, count = np.unique(activities.correlation, return_counts=True)
        suspects, copies = np.unique(activities.correlation[repeated], return_counts=True)
        lone = suspects[count[np.searchsorted(ids, suspects)] == copies + 1]
        repeated &= np.isin(activities.correlation, lone)
    _count(activities, repeated, "GPU activity written twice", names, integrity)
    return activities.take(~repeated) if repeated.any() else activities


def _repeated(table: Any, columns: tuple[str, ...]) -> BoolArray:
    """Mark every row that equals an earlier one in the given columns and has a correlation id."""
    start: IntArray = table.start_ns
    marked = np.zeros(len(start), dtype=np.bool_)
    order = np.argsort(start, kind="stable")
    same = np.flatnonzero(start[order][1:] == start[order][:-1])
    if not len(same):
        return marked
    rows = order[np.unique(np.concatenate((same, same + 1)))]
    rows = rows[table.correlation[rows] >= 0]
    keys = [getattr(table, column)[rows] for column in columns]
    by_key = np.lexsort(keys[::-1])
    equal = np.ones(max(len(rows) - 1, 0), dtype=np.bool_)
    for key in keys:
        equal &= key[by_key][1:] == key[by_key][:-1]
    marked[rows[by_key[1:][equal]]] = True
    return marked


def _count(table: Any, bad: BoolArray, reason: str, names: Sequence[str], integrity: Integrity) -> None:
    count = int(bad.sum())
    if count:
        row = int(np.flatnonzero(bad)[0])
        code = int(table.name[row]) if hasattr(table, "name") else -1
        name = names[code] if code >= 0 else ""
        length = int(table.end_ns[row] - table.start_ns[row])
        integrity.drop(reason, f"{name[:80]!r} start {int(table.start_ns[row])} ns, {length} ns long", count)
