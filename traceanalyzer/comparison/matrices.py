"""Matrices of a document and medians over them, written for speed: they are most of what a comparison has to do."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from traceanalyzer.errors import UsageError

FloatArray = npt.NDArray[np.float64]

_NULL = b"null"
_STAND_IN = b"-999"  # as long as null, so that it can be written over it
_STAND_IN_VALUE = -999
_NONE = np.empty(0, dtype=np.int64)


def read_matrix(text: bytes | memoryview, rows: int, label: str) -> FloatArray:
    """Read a JSON array of arrays of integers and nulls.

    Args:
        text: The JSON text; it must be valid JSON.
        rows: Number of inner arrays it must hold.
        label: Whose matrix it is, for messages.

    Returns:
        rows × columns, NaN for null.

    Raises:
        UsageError: It is anything else, or its rows differ in length.
    """
    raw = bytes(text)
    quick = _read_plain(raw, rows)
    if quick is not None:
        return quick
    try:
        lists = msgspec.json.decode(raw, type=list[list[int | None]])
    except msgspec.DecodeError as error:
        raise UsageError(f"{label}: not a whole document (positions: {error}); make it again") from error
    return as_matrix(lists, rows, label)


def as_matrix(lists: Sequence[list[int | None]], rows: int, label: str) -> FloatArray:
    """Turn lists of integers and None into rows × columns, NaN for None.

    Args:
        lists: The rows; none at all count as rows without columns.
        rows: Number of rows there must be.
        label: Whose matrix it is, for messages.

    Raises:
        UsageError: The number of rows is another, or they differ in length.
    """
    if not lists:
        return np.empty((rows, 0), dtype=np.float64)
    if len(lists) != rows or len({len(row) for row in lists}) > 1:
        raise UsageError(f"{label}: not a whole document (positions differ in length); make it again")
    return np.array(lists, dtype=np.float64).reshape(rows, -1)


def _read_plain(raw: bytes, rows: int) -> FloatArray | None:
    """Read the text as this tool writes it, six times as fast as by way of lists; None where it is written otherwise.

    Every number is taken from one flat text without brackets. That is right exactly if all rows are equally long, so
    the places of brackets among the commas are checked.
    """
    if not raw.startswith(b"[[") or not raw.endswith(b"]]") or b"[]" in raw:
        return None
    if raw.translate(None, b"0123456789,[]nul-"):
        return None
    if raw.count(b"[") != rows + 1 or raw.count(b"]") != rows + 1:
        return None
    flat = bytearray(raw)
    codes = np.frombuffer(flat, dtype=np.uint8)
    nulls = np.flatnonzero(codes == ord("n")) if b"n" in raw else _NONE
    for offset, code in enumerate(_STAND_IN):
        codes[nulls + offset] = code
    commas = np.flatnonzero(codes == ord(","))
    if (len(commas) + 1) % rows:
        return None
    columns = (len(commas) + 1) // rows
    between = commas[columns - 1 :: columns]  # the commas that must part rows: "],["
    if not ((codes[between - 1] == ord("]")).all() and (codes[between + 1] == ord("[")).all()):
        return None
    codes[between - 1] = codes[between + 1] = codes[:2] = codes[-2:] = ord(" ")
    values = np.fromstring(bytes(flat), dtype=np.int64, sep=",")
    if len(values) != rows * columns:
        return None
    matrix = values.astype(np.float64)
    if len(nulls):
        absent = values == _STAND_IN_VALUE
        if int(absent.sum()) != len(nulls):  # the stand-in is also a value of this matrix
            return None
        matrix[absent] = np.nan
    return matrix.reshape(rows, columns)


def row_medians(values: FloatArray) -> FloatArray:
    """Median of every row without its NaNs; NaN for a row of nothing else.

    NumPy's own function takes ten times as long: it goes through masked arrays.

    Args:
        values: rows × columns.
    """
    rows, columns = values.shape
    if not columns:
        return np.full(rows, np.nan)
    ordered = np.sort(values, axis=1)  # NaN last
    present = columns - np.isnan(ordered).sum(axis=1)
    each = np.arange(rows)
    upper = np.minimum(present // 2, columns - 1)
    lower = np.maximum((present - 1) // 2, 0)
    middle = (ordered[each, lower] + ordered[each, upper]) / 2
    return np.where(present > 0, middle, np.nan)
