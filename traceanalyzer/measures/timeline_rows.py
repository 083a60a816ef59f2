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
        # numpy sorts 16-bit keys by radix, several times faster than wider ones
        is_narrow = self.depth.max(initial=0) <= np.iinfo(np.uint16).max
        order = np.argsort(self.depth.astype(np.uint16) if is_narrow else self.depth, kind="stable")
        sorted_row = self.take(order)
        head = _group_heads(sorted_row, bin_ns)
        first = np.flatnonzero(head)
        if len(first) == len(order):
            return self
        count = np.diff(np.append(first, len(order)))
        duration = sorted_row.end - sorted_row.start
        longest = np.maximum.reduceat(duration, first)
        group = np.cumsum(head) - 1
        is_longest = np.flatnonzero(duration == longest[group])
        _, pick = np.unique(group[is_longest], return_index=True)
        named_by = is_longest[pick]
        made = Row(
            self.id,
            self.kind,
            self.title,
            sorted_row.start[first],
            np.maximum.reduceat(sorted_row.end, first),
            sorted_row.name[named_by],
            sorted_row.category[named_by],
            sorted_row.depth[first],
            np.where(count == 1, sorted_row.link[first], -1),
        )
        by_start = np.lexsort((made.depth, made.start))
        taken = made.take(by_start)
        return Row(
            taken.id,
            taken.kind,
            taken.title,
            taken.start,
            taken.end,
            taken.name,
            taken.category,
            taken.depth,
            taken.link,
            count[by_start],
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


def _group_heads(row: Row, bin_ns: int) -> npt.NDArray[np.bool_]:
    """Mark the slices (sorted by depth, then start) that begin a new slice of the overview."""
    head = np.ones(len(row.start), dtype=np.bool_)
    if len(head) > 1:
        short = (row.end - row.start) < bin_ns
        place = row.start // bin_ns
        head[1:] = ~(short[1:] & short[:-1] & (place[1:] == place[:-1]) & (row.depth[1:] == row.depth[:-1]))
    return head


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


@njit(cache=True)  # type: ignore[untyped-decorator]
def _count_groups(start: IntArray, end: IntArray, depth: CodeArray, bin_ns: int) -> int:
    """Count the slices ``_group_heads`` marks, for slices sorted by start alone: neighbours are those of one depth."""
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


@njit(cache=True)  # type: ignore[untyped-decorator]
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
