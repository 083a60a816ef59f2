"""Interval algebra against hand-written examples and against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from traceanalyzer.model import intervals
from traceanalyzer.model.schema import IntArray

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)
WINDOW = st.tuples(st.integers(-5, 70), st.integers(0, 40))


def arrays(pairs: list[tuple[int, int]]) -> tuple[IntArray, IntArray]:
    """Turn (start, length) pairs into start and end arrays."""
    return (
        np.array([s for s, _ in pairs], dtype=np.int64),
        np.array([s + n for s, n in pairs], dtype=np.int64),
    )


def points(union: intervals.Union) -> set[int]:
    return {t for s, e in zip(*union, strict=True) for t in range(int(s), int(e))}


def made(*pairs: tuple[int, int]) -> intervals.Union:
    """Return the union of (start, end) pairs."""
    return intervals.union(
        np.array([s for s, _ in pairs], dtype=np.int64), np.array([e for _, e in pairs], dtype=np.int64)
    )


def listed(union: intervals.Union) -> list[tuple[int, int]]:
    return [(int(s), int(e)) for s, e in zip(*union, strict=True)]


def test_overlapping_and_touching_intervals_become_one() -> None:
    assert listed(made((0, 10), (5, 12), (12, 15), (20, 21))) == [(0, 15), (20, 21)]


def test_kernels_overlapping_on_one_stream_count_once() -> None:
    # [0, 100] and [80, 150] on one stream: busy 150, though the kernel times sum to 170
    assert intervals.length(made((0, 100), (80, 150))) == 150


def test_an_interval_inside_another_does_not_shorten_it() -> None:
    assert listed(made((0, 100), (10, 20), (30, 40))) == [(0, 100)]


def test_empty_intervals_vanish() -> None:
    assert listed(made((5, 5), (7, 7))) == []


def test_the_complement_of_the_busy_time_is_the_gaps() -> None:
    assert listed(intervals.complement(made((0, 10), (15, 20)), 0, 30)) == [(10, 15), (20, 30)]
    assert listed(intervals.complement(intervals.empty(), 3, 8)) == [(3, 8)]
    assert listed(intervals.complement(made((0, 10)), 4, 4)) == []


def test_subtracting_leaves_what_only_the_first_covers() -> None:
    assert listed(intervals.subtract(made((0, 10), (20, 30)), made((5, 25)))) == [(0, 5), (25, 30)]
    assert listed(intervals.subtract(intervals.empty(), made((5, 25)))) == []


def test_overlap_is_reported_for_each_interval_in_the_order_given() -> None:
    kernels = made((10, 20), (30, 40))
    start = np.array([35, 0, 12, 21], dtype=np.int64)
    end = np.array([50, 60, 15, 29], dtype=np.int64)
    assert intervals.overlap(start, end, kernels).tolist() == [5, 20, 3, 0]


@given(INTERVALS)
@settings(deadline=None)
def test_a_union_covers_exactly_the_moments_its_intervals_cover(pairs: list[tuple[int, int]]) -> None:
    start, end = arrays(pairs)
    merged = intervals.union(start, end)
    expected = {t for s, n in pairs for t in range(s, s + n)}
    assert points(merged) == expected
    assert intervals.length(merged) == len(expected) <= sum(n for _, n in pairs)
    assert bool((merged[1] > merged[0]).all())
    assert bool((merged[0][1:] > merged[1][:-1]).all())  # disjoint and not even touching


@given(INTERVALS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_intervals_does_not_matter(pairs: list[tuple[int, int]], random: object) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert listed(intervals.union(*arrays(pairs))) == listed(intervals.union(*arrays(shuffled)))


@given(INTERVALS, INTERVALS)
@settings(deadline=None)
def test_set_operations_agree_with_sets_of_moments(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    first, second = intervals.union(*arrays(a)), intervals.union(*arrays(b))
    assert points(intervals.intersect(first, second)) == points(first) & points(second)
    assert points(intervals.subtract(first, second)) == points(first) - points(second)
    covered = intervals.length(intervals.intersect(first, second))
    assert covered + intervals.length(intervals.subtract(first, second)) == intervals.length(first)


@given(INTERVALS, WINDOW)
@settings(deadline=None)
def test_clip_and_complement_split_a_window(pairs: list[tuple[int, int]], window: tuple[int, int]) -> None:
    merged = intervals.union(*arrays(pairs))
    start, end = window[0], window[0] + window[1]
    inside, outside = intervals.clip(merged, start, end), intervals.complement(merged, start, end)
    assert points(inside) == points(merged) & set(range(start, end))
    assert points(inside) | points(outside) == set(range(start, end))
    assert intervals.length(inside) + intervals.length(outside) == end - start


@given(INTERVALS, INTERVALS)
@settings(deadline=None)
def test_overlap_of_each_interval_agrees_with_counting(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    merged = intervals.union(*arrays(b))
    counted = [len(set(range(s, s + n)) & points(merged)) for s, n in a]
    assert intervals.overlap(*arrays(a), merged).tolist() == counted
