"""Interval algebra on int64 nanoseconds; every interval is half open, ``[start, end)``.

A *union* is a pair of arrays ``(start, end)`` of disjoint, non-empty, non-touching intervals in ascending order.
All results are exact integers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from traceanalyzer.model.schema import IntArray

Union = tuple[IntArray, IntArray]


def empty() -> Union:
    """Return the union of nothing."""
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


def union(start: IntArray, end: IntArray) -> Union:
    """Merge intervals; overlapping and touching ones become one, empty ones vanish.

    Args:
        start: Starts, ns; any order (sorted input is not sorted again).
        end: Ends, ns, each at least its start.

    Returns:
        The union.
    """
    first = np.ascontiguousarray(start, dtype=np.int64)
    last = np.ascontiguousarray(end, dtype=np.int64)
    if len(first) > 1 and bool((first[1:] < first[:-1]).any()):
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
    return _merge(first, last)  # type: ignore[no-any-return]


def length(intervals: Union) -> int:
    """Return the total length of a union, ns."""
    return int((intervals[1] - intervals[0]).sum())


def intersect(a: Union, b: Union) -> Union:
    """Return the time covered by both unions."""
    return _intersect(a[0], a[1], b[0], b[1])  # type: ignore[no-any-return]


def complement(intervals: Union, start: int, end: int) -> Union:
    """Return the time of ``[start, end)`` that a union does not cover; inside a span these are its gaps."""
    if end <= start:
        return empty()
    lows = np.concatenate((np.array([start], dtype=np.int64), intervals[1]))
    highs = np.concatenate((intervals[0], np.array([end], dtype=np.int64)))
    lows = np.maximum(lows, start)
    highs = np.minimum(highs, end)
    keep = highs > lows
    return lows[keep], highs[keep]


def subtract(a: Union, b: Union) -> Union:
    """Return the time of ``a`` that ``b`` does not cover."""
    if not len(a[0]):
        return empty()
    return intersect(a, complement(b, int(a[0][0]), int(a[1][-1])))


def covered_before(intervals: Union, times: IntArray) -> IntArray:
    """Return how much of a union lies before each moment.

    Args:
        intervals: The union.
        times: Moments, ns, any order.

    Returns:
        int64 array like ``times``, ns.
    """
    start, end = intervals
    if not len(start):
        return np.zeros(len(times), dtype=np.int64)
    before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(end - start)))
    opened = np.searchsorted(start, times, side="right")
    inside = np.where(opened > 0, np.minimum(times, end[opened - 1]) - start[opened - 1], 0)
    return np.asarray(np.where(opened > 0, before[opened - 1] + inside, 0), dtype=np.int64)


def overlap(start: IntArray, end: IntArray, intervals: Union) -> IntArray:
    """Return how much of each interval a union covers.

    Args:
        start: Starts, ns; intervals may overlap each other and come in any order.
        end: Ends, ns.
        intervals: The union.

    Returns:
        int64 array, one overlap per interval, ns.
    """
    return covered_before(intervals, end) - covered_before(intervals, start)


def clip(intervals: Union, start: int, end: int) -> Union:
    """Return the part of a union inside ``[start, end)``."""
    low = np.maximum(intervals[0], start)
    high = np.minimum(intervals[1], end)
    keep = high > low
    return low[keep], high[keep]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _merge(start, end):  # type: ignore[no-untyped-def]
    out_start = np.empty(len(start), np.int64)
    out_end = np.empty(len(start), np.int64)
    n = 0
    for i in range(len(start)):
        if end[i] <= start[i]:
            continue
        if n and start[i] <= out_end[n - 1]:
            out_end[n - 1] = max(out_end[n - 1], end[i])
        else:
            out_start[n] = start[i]
            out_end[n] = end[i]
            n += 1
    return out_start[:n].copy(), out_end[:n].copy()


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _intersect(a_start, a_end, b_start, b_end):  # type: ignore[no-untyped-def]
    out_start = np.empty(len(a_start) + len(b_start), np.int64)
    out_end = np.empty(len(a_start) + len(b_start), np.int64)
    n = i = j = 0
    while i < len(a_start) and j < len(b_start):
        low = max(a_start[i], b_start[j])
        high = min(a_end[i], b_end[j])
        if high > low:
            out_start[n] = low
            out_end[n] = high
            n += 1
        if a_end[i] < b_end[j]:
            i += 1
        else:
            j += 1
    return out_start[:n].copy(), out_end[:n].copy()
