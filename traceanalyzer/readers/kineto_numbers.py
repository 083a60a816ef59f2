"""Exact integers from the decimal text of a trace: no time ever passes through a float.

Epoch microseconds with three decimals need 19 digits; a float64 holds 15 to 17 and would be off by up to 253 ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.model.schema import ByteArray, IntArray

OK, MISSING, NOT_A_NUMBER, OUT_OF_RANGE = 0, 1, 2, 3

_INT64_MAX = 2**63 - 1
_LONGEST_US = _INT64_MAX // 1000
_LONGEST_TEXT = 24
_MOST_WHOLE_DIGITS = 16  # epoch microseconds; anything longer goes through Decimal


def nanoseconds(values: Sequence[Any]) -> tuple[IntArray, ByteArray]:
    """Convert microseconds, as JSON spelled them, to integer nanoseconds.

    Args:
        values: Integers, or decimal text of floats (or of numbers written as strings); None where absent.

    Returns:
        int64 nanoseconds (rounded half up below 1 ns; 0 where unusable) and a state per value: ``OK``, ``MISSING``,
        ``NOT_A_NUMBER`` or ``OUT_OF_RANGE`` (not finite, or beyond int64).
    """
    kinds = set(map(type, values))
    if kinds == {int}:
        try:
            whole = np.array(values, dtype=np.int64)
        except OverflowError:
            return _one_by_one(values)
        if int(np.abs(whole).max()) <= _LONGEST_US:
            return whole * 1000, np.zeros(len(whole), dtype=np.int8)
        return _one_by_one(values)
    if kinds == {int, str}:
        values = list(map(str, values))
        kinds = {str}
    if kinds == {str}:
        try:
            text = np.array(values, dtype="S")
        except UnicodeEncodeError:
            return _one_by_one(values)
        if text.dtype.itemsize <= _LONGEST_TEXT:
            return _from_text(text, values)
    return _one_by_one(values)


def _from_text(text: npt.NDArray[np.bytes_], values: Sequence[Any]) -> tuple[IntArray, ByteArray]:
    """Parse plain ``digits[.digits]`` column by column, all rows of one length and dot position at once."""
    width = text.dtype.itemsize
    characters = text.view(np.uint8).reshape(len(text), width)
    length = np.count_nonzero(characters, axis=1)
    is_dot = characters == ord(".")
    dot = np.where(is_dot.any(axis=1), is_dot.argmax(axis=1), length)
    result = np.zeros(len(text), dtype=np.int64)
    state = np.full(len(text), NOT_A_NUMBER, dtype=np.int8)
    shape = length * (width + 1) + dot
    for key in np.unique(shape):
        size, point = divmod(int(key), width + 1)
        rows = np.flatnonzero(shape == key)
        if not 0 < point <= _MOST_WHOLE_DIGITS:
            continue
        digits = np.delete(characters[rows, :size], [point] if point < size else [], axis=1).T - np.uint8(ord("0"))
        good = (digits < 10).all(axis=0)
        value = np.zeros(len(rows), dtype=np.int64)
        for digit in digits[:point]:
            value = value * 10 + digit
        good &= value < _LONGEST_US
        for digit in digits[point : point + 3]:
            value = value * 10 + digit
        decimals = len(digits) - point
        if decimals > 3:
            value += digits[point + 3] >= 5
        else:
            value *= 10 ** (3 - decimals)
        result[rows[good]] = value[good]
        state[rows[good]] = OK
    for row in np.flatnonzero(state != OK):
        result[row], state[row] = _one(values[int(row)])
    return result, state


def _one_by_one(values: Sequence[Any]) -> tuple[IntArray, ByteArray]:
    pairs = [_one(value) for value in values]
    return (
        np.array([pair[0] for pair in pairs], dtype=np.int64),
        np.array([pair[1] for pair in pairs], dtype=np.int8),
    )


def _one(value: object) -> tuple[int, int]:
    if value is None or value == "":
        return 0, MISSING
    if isinstance(value, bool) or not isinstance(value, int | str):
        return 0, NOT_A_NUMBER
    try:
        exact = Decimal(value)
    except InvalidOperation:
        return 0, NOT_A_NUMBER
    # compared without abs(), which overflows on text such as 1e9999999
    if not exact.is_finite() or not -_LONGEST_US <= exact <= _LONGEST_US:
        return 0, OUT_OF_RANGE
    return int((exact * 1000).to_integral_value(ROUND_HALF_UP)), OK


def integers(values: Sequence[Any], default: int = -1) -> IntArray:
    """Convert identifiers and sizes to int64, with ``default`` for whatever is not an integer that fits.

    Args:
        values: Integers; text of an integer is accepted, None and anything else becomes the default.
        default: Stand-in value.
    """
    kinds = set(map(type, values))
    if kinds == {type(None)}:
        return np.full(len(values), default, dtype=np.int64)
    if kinds <= {int, type(None)}:
        try:
            return np.array([default if value is None else value for value in values], dtype=np.int64)
        except OverflowError:
            pass  # take them one by one
    return np.array([_integer(value, default) for value in values], dtype=np.int64)


def _integer(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return default
    try:
        number = int(value)
    except ValueError:
        return default
    return number if -_INT64_MAX - 1 <= number <= _INT64_MAX else default


def addresses(values: Sequence[Any]) -> IntArray:
    """Convert memory addresses to the signed 64-bit pattern of the same bits; 0 where absent."""
    whole = [value if type(value) is int and 0 <= value < 2**64 else 0 for value in values]
    return np.array(whole, dtype=np.uint64).view(np.int64)


def products(values: Sequence[Any]) -> IntArray:
    """Multiply the three sizes of a grid or block; -1 where absent or odd."""
    result = []
    for value in values:
        try:
            x, y, z = value
            result.append(x * y * z)
        except (TypeError, ValueError):
            result.append(-1)
    return integers(result)
