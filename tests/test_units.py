"""Numbers as a reader meets them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import ROOT
from traceanalyzer.units import format_count


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1 / 3, "0.333"),
        (1, "1"),
        (8.5, "8.5"),
        (99.94, "99.9"),
        (99.96, "100"),
        (450.33, "450"),
        (1054.4, "1,054"),
        (1_234_567.0, "1,234,567"),
        (0.00005, "0.00005"),
    ],
)
def test_a_count_is_written_plainly(value: float, text: str) -> None:
    assert format_count(value) == text


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_no_count_has_an_exponent_and_every_one_reads_back(value: float) -> None:
    text = format_count(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.006, abs=5e-8)


def test_no_rule_writes_a_number_that_could_get_an_exponent() -> None:
    for path in (ROOT / "traceanalyzer" / "rules").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        # thresholds are small constants
        assert [line for line in text.splitlines() if ":.3g}" in line and "thresholds." not in line] == []
