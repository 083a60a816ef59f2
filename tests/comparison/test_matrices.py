"""Matrices of documents: the fast way of reading them agrees with the ordinary one, or gives up."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.comparison.matrices import _read_plain, as_matrix, read_matrix, row_medians
from traceanalyzer.errors import UsageError

VALUE = st.one_of(st.none(), st.integers(-(2**53), 2**53), st.sampled_from([-999, 0, -1]))
MATRIX = st.integers(1, 6).flatmap(
    lambda columns: st.lists(st.lists(VALUE, min_size=columns, max_size=columns), min_size=1, max_size=6)
)


@given(MATRIX)
def test_a_matrix_read_from_text_is_the_one_written(lists: list[list[int | None]]) -> None:
    text = json.dumps(lists, separators=(",", ":")).encode()
    expected = np.array([[np.nan if v is None else float(v) for v in row] for row in lists])
    assert np.array_equal(read_matrix(text, len(lists), "x"), expected, equal_nan=True)
    assert np.array_equal(read_matrix(json.dumps(lists).encode(), len(lists), "x"), expected, equal_nan=True)


@given(st.lists(st.lists(VALUE, max_size=4), max_size=5), st.integers(0, 5))
def test_rows_of_other_number_or_length_are_refused_in_either_way(lists: list[list[int | None]], rows: int) -> None:
    text = json.dumps(lists, separators=(",", ":")).encode()
    whole = len(lists) == rows and len({len(row) for row in lists}) <= 1
    if not lists or whole:
        assert read_matrix(text, rows, "x").shape == (rows, len(lists[0]) if lists else 0)
        return
    with pytest.raises(UsageError, match="x: not a whole document"):
        read_matrix(text, rows, "x")
    with pytest.raises(UsageError, match="differ in length"):
        as_matrix(lists, rows, "x")


def test_text_written_as_this_tool_writes_it_takes_the_fast_way() -> None:
    assert _read_plain(b"[[1,null,3],[4,-5,6]]", 2) is not None
    # a value that looks like the mark for null cannot be told from it there
    assert _read_plain(b"[[1,null],[-999,4]]", 2) is None
    assert read_matrix(b"[[1,null],[-999,4]]", 2, "x")[1, 0] == -999


@pytest.mark.parametrize(
    "text", [b"[[1],2,[3]]", b"[[[1],[2]]]", b'[["1"]]', b"[[1.5]]", b"[[1e3]]", b"7", b"[[true]]"]
)
def test_anything_else_is_one_clear_error(text: bytes) -> None:
    with pytest.raises(UsageError, match="not a whole document"):
        read_matrix(text, 2, "x")


@given(MATRIX)
def test_row_medians_agree_with_numpy(lists: list[list[int | None]]) -> None:
    values = np.array([[np.nan if v is None else float(v) for v in row] for row in lists])
    expected = [np.median(row[~np.isnan(row)]) if (~np.isnan(row)).any() else np.nan for row in values]
    assert np.array_equal(row_medians(values), expected, equal_nan=True)
