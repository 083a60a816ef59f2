"""Tracks of the drawn timeline as columns: names, nesting, and merging of slices too short to draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import njit

from traceanalyzer.model.schema import CodeArray, IntArray
from traceanalyzer.results.timeline import Track, TrackSlices

_FIRST_BIN_NS = 1_024


class NameTable:
    """Codes of the trace's names, extended by words of the timeline itself; only used ones reach the document."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._extra: dict[str, int] = {}

    def code(self, text: str) -> int:
        """Code of a word that is not one of the trace's names."""
        return self._extra.setdefault(text, len(self._names) + len(self._extra))

    def codes(self, texts: Iterable[str]) -> IntArray:
        """Codes of several words, int64."""
        return np.array([self.code(text) for text in texts], dtype=np.int64)

    def text(self, code: int) -> str:
        """Text of a code; empty for -1."""
        if code < 0:
            return ""
        return self._names[code] if code < len(self._names) else list(self._extra)[code - len(self._names)]

    def compress(self, rows: Sequence[Row]) -> tuple[list[str], IntArray]:
        """Return the strings in use and a table from code + 1 to their index."""
        used = np.unique(np.concatenate([array for row in rows for array in (row.name, row.category)]))
        index = np.zeros(len(self._names) + len(self._extra) + 1, dtype=np.int64)
        index[used + 1] = np.arange(len(used))
        return [self.text(int(code)) for code in used], index


@dataclass(frozen=True, slots=True)
class Row:
    """One track before encoding: parallel arrays, sorted by start; slices of equal depth never overlap.

    Times are int64, the rest int32: a recording of a few hundred steps has millions of slices.
    """

    id: str
    kind: str
    title: str
    start: IntArray
    end: IntArray
    name: CodeArray
    category: CodeArray
    depth: CodeArray
    link: CodeArray
    merged: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def take(self, rows: npt.NDArray[np.bool_] | IntArray) -> Row:
        """Keep some slices."""
        return Row(
            self.id,
            self.kind,
            self.title,
            self.start[rows],
            self.end[rows],
            self.name[rows],
            self.category[rows],
            self.depth[rows],
            self.link[rows],
        )

    def binned(self, bin_ns: int) -> Row:
        """Merge neighbours of one depth that are shorter than a bin and begin in the same bin.

        A merged slice is named and categorised after the longest it stands for.
        """
        if bin_ns == 0:
            return self
        groups = _count_groups(self.start, self.end, self.depth, bin_ns)
        if groups == len(self.start):
            return self
        first, named_by, end, count = _merge(self.start, self.end, self.depth, bin_ns, groups)
        by_start = np.lexsort((self.depth[first], self.start[first]))
        first, named_by, count = first[by_start], named_by[by_start], count[by_start]
        return Row(
            self.id,
            self.kind,
            self.title,
            self.start[first],
            end[by_start],
            self.name[named_by],
            self.category[named_by],
            self.depth[first],
            np.where(count == 1, self.link[first], -1),
            count,
        )

    def track(self, codes: IntArray) -> Track:
        """Encode for the document.

        Args:
            codes: Table from name code + 1 to string index.
        """
        has_links = bool((self.link >= 0).any())
        return Track(
            id=self.id,
            kind=self.kind,
            title=self.title,
            slices=TrackSlices(
                start_ns=self.start.tolist(),
                duration_ns=(self.end - self.start).tolist(),
                name=codes[self.name + 1].tolist(),
                depth=self.depth.tolist(),
                category=codes[self.category + 1].tolist(),
                merged=self.merged.tolist() if bool((self.merged > 1).any()) else [],
                link=self.link.tolist() if has_links else [],
            ),
        )


def make_row(
    identifier: str,
    kind: str,
    title: str,
    start: IntArray,
    end: IntArray,
    name: npt.NDArray[np.integer],
    category: npt.NDArray[np.integer],
    depth: npt.NDArray[np.integer] | None = None,
    link: npt.NDArray[np.integer] | None = None,
) -> Row:
    """Build a track from columns of any integer type; without depth all is on row 0, without link nothing is linked."""
    size = len(start)
    return Row(
        identifier,
        kind,
        title,
        np.asarray(start, dtype=np.int64),
        np.asarray(end, dtype=np.int64),
        np.asarray(name, dtype=np.int32),
        np.asarray(category, dtype=np.int32),
        np.zeros(size, dtype=np.int32) if depth is None else np.asarray(depth, dtype=np.int32),
        np.full(size, -1, dtype=np.int32) if link is None else np.asarray(link, dtype=np.int32),
    )


def choose_bin(rows: Sequence[Row], span_ns: int, max_slices: int) -> int:
    """Return the smallest bin (a power of two) with which the overview fits; 0 when it fits unmerged."""
    if sum(len(row.start) for row in rows) <= max_slices:
        return 0
    # wider bins hold the narrower ones whole, so the number of slices only falls and halving the choice finds it
    low, high = 0, max(0, -(-span_ns // _FIRST_BIN_NS) - 1).bit_length()
    while low < high:
        middle = (low + high) // 2
        bin_ns = _FIRST_BIN_NS << middle
        if sum(_count_groups(row.start, row.end, row.depth, bin_ns) for row in rows) > max_slices:
            low = middle + 1
        else:
            high = middle
    return _FIRST_BIN_NS << low


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _count_groups(start: IntArray, end: IntArray, depth: CodeArray, bin_ns: int) -> int:
    """Count the slices ``_merge`` makes."""
    if not len(start):
        return 0
    place = np.full(depth.max() + 1, -1, dtype=np.int64)  # bin of the depth's latest slice; -1 where it was long
    first = start[0] // bin_ns
    count = 0
    for i in range(len(start)):
        here = start[i] // bin_ns - first
        is_short = end[i] - start[i] < bin_ns
        if not is_short or place[depth[i]] != here:
            count += 1
        place[depth[i]] = here if is_short else -1
    return count


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _merge(
    start: IntArray, end: IntArray, depth: CodeArray, bin_ns: int, groups: int
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Merge slices sorted by start: neighbours of one depth, both shorter than a bin and begun in the same one.

    Returns the first slice, the first of the longest ones, the end and the number of slices of every group, in the
    order in which the groups begin.
    """
    first = np.empty(groups, dtype=np.int64)
    named_by = np.empty(groups, dtype=np.int64)
    until = np.empty(groups, dtype=np.int64)
    count = np.zeros(groups, dtype=np.int64)
    place = np.full(depth.max() + 1, -1, dtype=np.int64)  # bin of the depth's latest slice; -1 where it was long
    group = np.full(depth.max() + 1, -1, dtype=np.int64)  # group of the depth's latest slice
    made = 0
    for i in range(len(start)):
        here = start[i] // bin_ns - start[0] // bin_ns
        is_short = end[i] - start[i] < bin_ns
        if not is_short or place[depth[i]] != here:
            group[depth[i]] = made
            first[made] = named_by[made] = i
            until[made] = end[i]
            made += 1
        at = group[depth[i]]
        count[at] += 1
        until[at] = max(until[at], end[i])
        if end[i] - start[i] > end[named_by[at]] - start[named_by[at]]:
            named_by[at] = i
        place[depth[i]] = here if is_short else -1
    return first, named_by, until, count


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def nest(start: IntArray, end: IntArray) -> IntArray:
    """Depth of intervals sorted by start, then descending end; intervals of equal depth never overlap."""
    depth = np.zeros(len(start), dtype=np.int64)
    open_until = np.empty(len(start) + 1, dtype=np.int64)
    size = 0
    for i in range(len(start)):
        while size > 0 and open_until[size - 1] <= start[i]:
            size -= 1
        depth[i] = size
        open_until[size] = end[i]
        size += 1
    return depth
