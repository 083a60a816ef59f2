"""Numbers from text: exact where they can be, refused where they cannot."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.readers.kineto_numbers import (
    MISSING,
    NOT_A_NUMBER,
    OK,
    OUT_OF_RANGE,
    addresses,
    integers,
    nanoseconds,
    products,
)

MICROSECONDS = st.decimals(-(10**15), 9 * 10**15, allow_nan=False, places=3).map(lambda d: f"{d:f}")
ANY_PLACES = st.decimals(0, 10**12, allow_nan=False, places=7).map(lambda d: f"{d:f}")
SCIENTIFIC = st.floats(0, 1e15).map(repr)


@given(st.lists(MICROSECONDS | ANY_PLACES | SCIENTIFIC | st.integers(-(10**15), 9 * 10**15), min_size=1))
def test_every_spelling_agrees_with_decimal_arithmetic(values: list[str | int]) -> None:
    result, state = nanoseconds(values)
    assert state.tolist() == [OK] * len(values)
    assert result.tolist() == [int((Decimal(v) * 1000).to_integral_value(ROUND_HALF_UP)) for v in values]


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (None, MISSING),
        ("", MISSING),
        ("soon", NOT_A_NUMBER),
        ("1.2.3", NOT_A_NUMBER),
        (".", NOT_A_NUMBER),
        ("1,5", NOT_A_NUMBER),
        ("µ1", NOT_A_NUMBER),
        (True, NOT_A_NUMBER),
        ([1], NOT_A_NUMBER),
        ("NaN", OUT_OF_RANGE),
        ("-Infinity", OUT_OF_RANGE),
        ("1.8e+16", OUT_OF_RANGE),
        (2**63 // 1000 + 1, OUT_OF_RANGE),
        (10**400, OUT_OF_RANGE),
        ("9999999999999999.5", OUT_OF_RANGE),
    ],
)
def test_what_is_no_time_is_marked_and_spoils_no_neighbour(value: object, state: int) -> None:
    result, states = nanoseconds(["1.5", value, 7])
    assert states.tolist() == [OK, state, OK]
    assert result.tolist() == [1500, 0, 7000]


def test_an_empty_column_is_empty() -> None:
    result, state = nanoseconds([])
    assert len(result) == len(state) == 0


def test_identifiers_take_text_and_replace_everything_else() -> None:
    assert integers([1, "2", None, "0x0", 2**64, [3], True, -5]).tolist() == [1, 2, -1, -1, -1, -1, -1, -5]
    assert integers([None, 3], default=0).tolist() == [0, 3]
    assert integers([[1], [2]]).tolist() == [-1, -1]


def test_addresses_keep_their_bits() -> None:
    assert addresses([2**64 - 1, 0, None, "x", 2**70, 17]).tolist() == [-1, 0, 0, 0, 0, 17]


def test_products_of_three_sizes() -> None:
    assert products([[2, 3, 4], None, [1, 2], ["a", 1, 1], [2**40, 2**40, 1]]).tolist() == [24, -1, -1, -1, -1]
