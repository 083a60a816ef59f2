"""Small exact calculations several measures share: windows of moments, covered time, percentiles, nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import CodeArray, IntArray
from traceanalyzer.model.schema import among as among  # for rules, which see only measures
from traceanalyzer.results.analysis import Percentiles

# floats hold every integer up to 2^53; half of it leaves room for the rounding of the test itself
_EXACT_IN_FLOAT = 2.0**52


def windows_of(time_ns: IntArray, steps: Steps) -> CodeArray:
    """Find the step window each moment lies in.

    Args:
        time_ns: Moments, any order.
        steps: Step windows, sorted and disjoint.

    Returns:
        int32 array of window indices; -1 outside every window.
    """
    if not len(steps):
        return np.full(len(time_ns), -1, dtype=np.int32)
    window = np.searchsorted(steps.start_ns, time_ns, side="right") - 1
    inside = (window >= 0) & (time_ns < steps.end_ns[np.maximum(window, 0)])
    return np.where(inside, window, -1).astype(np.int32)


def union_of(start_ns: IntArray, end_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Merge intervals into maximal disjoint ones; intervals that touch become one and empty ones vanish.

    Args:
        start_ns: Starts, any order.
        end_ns: Ends.

    Returns:
        Starts and ends, sorted.
    """
    keep = end_ns > start_ns
    if not keep.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    order = np.argsort(start_ns[keep], kind="stable")
    start, end = start_ns[keep][order], end_ns[keep][order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return start[first], reach[np.append(first[1:] - 1, len(reach) - 1)]


def covered_before(time_ns: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Measure how much of a set of disjoint sorted intervals lies before each moment.

    Args:
        time_ns: Moments, any order.
        start_ns: Starts of the intervals.
        end_ns: Their ends.

    Returns:
        int64 array, ns, one value per moment.
    """
    if not len(start_ns):
        return np.zeros(len(time_ns), dtype=np.int64)
    total = np.concatenate(([0], np.cumsum(end_ns - start_ns)))
    begun = np.searchsorted(start_ns, time_ns, side="right")
    last = np.maximum(begun - 1, 0)
    unfinished = np.where(begun > 0, np.maximum(end_ns[last] - time_ns, 0), 0)
    return np.asarray(total[begun] - unfinished, dtype=np.int64)


def covered_within(start_ns: IntArray, end_ns: IntArray, cover_start_ns: IntArray, cover_end_ns: IntArray) -> IntArray:
    """Measure how much of each interval lies under a set of disjoint sorted intervals, ns."""
    after = covered_before(end_ns, cover_start_ns, cover_end_ns)
    return after - covered_before(start_ns, cover_start_ns, cover_end_ns)


def percentiles(values: IntArray) -> Percentiles:
    """Rank values: p50, p90, p99 by the nearest-rank rule (always a value that occurred)."""
    if not len(values):
        return Percentiles()
    ordered = np.sort(values)
    p50, p90, p99 = (int(ordered[nearest_rank(len(ordered), q)]) for q in (50, 90, 99))
    return Percentiles(p50=p50, p90=p90, p99=p99)


def nearest_rank(count: int, percent: int) -> int:
    """Index, in a sorted array of ``count`` values, of the nearest-rank percentile."""
    return max(0, -(-count * percent // 100) - 1)


def count_per_window(window: CodeArray, windows: int) -> list[int]:
    """Count rows per window; rows of window -1 are left out."""
    return [int(n) for n in np.bincount(window[window >= 0], minlength=windows)]


def sum_per_window(window: CodeArray, values: IntArray, windows: int) -> IntArray:
    """Sum integers per window exactly."""
    inside = window >= 0
    return _sum_at(window[inside], values[inside], windows)


def sum_by(shape: tuple[int, ...], codes: tuple[npt.NDArray[Any], ...], values: IntArray) -> IntArray:
    """Sum integers exactly into a table.

    Args:
        shape: Shape of the table.
        codes: One array of indices per axis.
        values: What to add.

    Returns:
        int64 array of the given shape.
    """
    place = np.zeros(len(values), dtype=np.int64)
    for size, code in zip(shape, codes, strict=True):
        place *= size
        place += code
    return _sum_at(place, values, int(np.prod(shape))).reshape(shape)


def _sum_at(place: npt.NDArray[Any], values: IntArray, size: int) -> IntArray:
    """Add integers exactly to the entries of a table."""
    if float(np.abs(values).sum(dtype=np.float64)) < _EXACT_IN_FLOAT:
        return np.bincount(place, weights=values, minlength=size).astype(np.int64)
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, place, values)
    return sums


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def nest(
    thread: npt.NDArray[Any],
    start_ns: npt.NDArray[Any],
    end_ns: npt.NDArray[Any],
    counts: npt.NDArray[Any],
    innermost: npt.NDArray[Any],
    outermost: npt.NDArray[Any],
    nested_ns: npt.NDArray[Any],
) -> None:
    """Sweep nested rows, sorted by thread, start, falling end, and fill the last three columns.

    Args:
        thread: Thread of each row.
        start_ns: Start.
        end_ns: End.
        counts: 1 where the row may be named as an enclosing row (an operator), 0 where it is only a leaf or filler.
        innermost: Filled with the innermost enclosing row that counts; -1 none.
        outermost: Filled with the outermost enclosing row that counts; -1 none.
        nested_ns: Filled with the time directly nested rows take of the row.
    """
    stack = np.empty(len(start_ns) + 1, np.int64)
    depth = 0
    for row in range(len(start_ns)):
        while depth > 0 and (thread[stack[depth - 1]] != thread[row] or end_ns[stack[depth - 1]] <= start_ns[row]):
            depth -= 1
        innermost[row] = -1
        outermost[row] = -1
        nested_ns[row] = 0
        if depth > 0:
            parent = stack[depth - 1]
            # a row that outlives its parent (odd recordings) only takes the common part
            nested_ns[parent] += min(end_ns[row], end_ns[parent]) - start_ns[row]
            innermost[row] = parent if counts[parent] else innermost[parent]
            outermost[row] = outermost[parent]
            if outermost[row] < 0 and counts[parent]:
                outermost[row] = parent
        stack[depth] = row
        depth += 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def flatten_innermost(
    start_ns: npt.NDArray[Any], end_ns: npt.NDArray[Any], at_ns: npt.NDArray[Any], row: npt.NDArray[Any]
) -> int:
    """List the moments at which the innermost open row of one thread changes.

    Args:
        start_ns: Starts, sorted; ties by falling end.
        end_ns: Ends.
        at_ns: Filled with change moments, at least twice as long as the rows.
        row: Filled with the innermost row from that moment on; -1 none.

    Returns:
        Number of changes.
    """
    stack = np.empty(len(start_ns) + 1, np.int64)
    depth = 0
    changes = 0
    for index in range(len(start_ns) + 1):
        now = start_ns[index] if index < len(start_ns) else np.int64(9223372036854775807)
        while depth > 0 and end_ns[stack[depth - 1]] <= now:
            ended = end_ns[stack[depth - 1]]
            depth -= 1
            # rows below that ended earlier (not properly nested) are over as well
            while depth > 0 and end_ns[stack[depth - 1]] <= ended:
                depth -= 1
            at_ns[changes] = ended
            row[changes] = stack[depth - 1] if depth > 0 else -1
            changes += 1
        if index < len(start_ns) and end_ns[index] > now:
            at_ns[changes] = now
            row[changes] = index
            changes += 1
            stack[depth] = index
            depth += 1
    return changes
