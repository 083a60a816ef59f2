"""Exact interval and window arithmetic shared by the measures."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.measures.handmade import length, steps_of, union
from traceanalyzer.measures.arithmetic import (
    covered_before,
    covered_within,
    nearest_rank,
    percentiles,
    sum_per_window,
    union_of,
    windows_of,
)

_INTERVALS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 50)).map(lambda t: (t[0], t[0] + t[1])), max_size=30
)


def _columns(intervals: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in intervals], dtype=np.int64), np.array([b for _, b in intervals], dtype=np.int64)


@given(_INTERVALS)
def test_union_agrees_with_merging_one_by_one(intervals: list[tuple[int, int]]) -> None:
    start, end = union_of(*_columns(intervals))
    assert list(zip(start.tolist(), end.tolist(), strict=True)) == union(intervals)


@given(_INTERVALS, _INTERVALS)
def test_covered_within_counts_the_covered_nanoseconds(
    intervals: list[tuple[int, int]], cover: list[tuple[int, int]]
) -> None:
    found = covered_within(*_columns(intervals), *union_of(*_columns(cover)))
    under = {t for a, b in cover for t in range(a, b)}
    assert found.tolist() == [sum(t in under for t in range(a, b)) for a, b in intervals]


@given(_INTERVALS)
def test_everything_is_covered_before_the_end(cover: list[tuple[int, int]]) -> None:
    assert covered_before(np.array([1_000]), *union_of(*_columns(cover))).tolist() == [length(union(cover))]


def test_windows_are_half_open_and_may_leave_gaps() -> None:
    steps = steps_of((0, 10), (20, 30))
    moments = np.array([-1, 0, 9_999, 10_000, 19_999, 20_000, 30_000])
    assert windows_of(moments, steps).tolist() == [-1, 0, 0, -1, -1, 1, -1]
    assert windows_of(moments, steps_of()).tolist() == [-1] * 7


def test_percentiles_are_values_that_occurred() -> None:
    found = percentiles(np.arange(1, 101))
    assert (found.p50, found.p90, found.p99) == (50, 90, 99)
    assert percentiles(np.array([7])).p99 == 7
    assert percentiles(np.zeros(0, dtype=np.int64)).p50 is None
    assert nearest_rank(10, 50) == 4


def test_sums_beyond_what_floats_hold_stay_exact() -> None:
    big = 2**53 + 1
    assert sum_per_window(np.array([0, 0, -1]), np.array([big, 2, 5]), 2).tolist() == [big + 2, 0]
