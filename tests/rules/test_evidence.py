"""Which places a finding shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import TraceBuilder
from traceanalyzer.measures import Measures
from traceanalyzer.rules.evidence import longest, where


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 10))
def test_the_longest_are_those_a_stable_sort_puts_first_in_time_order(values: list[int], most: int) -> None:
    expected = sorted(sorted(range(len(values)), key=lambda at: (-values[at], at))[:most])
    assert longest(np.array(values, dtype=np.int64), most) == expected


@pytest.mark.parametrize(
    ("name", "place"), [("step", None), ("train_step", None), ("augment", "augment"), ("optimizer", "optimizer")]
)
def test_a_range_around_the_whole_step_is_no_place(name: str, place: str | None) -> None:
    builder = TraceBuilder()
    for number in range(3):
        at = number * 100
        builder.step(number, at, at + 100)
        builder.annotation(name, at + 1, at + 99)
        builder.kernel("k", at + 60, at + 70, launch=(at + 50, at + 55))
    assert where(Measures(builder.build()), 0, 20_000) == place


def test_a_frame_of_a_function_called_step_is_a_place() -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.python("train.py(12): train_step", 1, 99)
    builder.kernel("k", 60, 70, launch=(50, 55))
    assert where(Measures(builder.build()), 0, 20_000) == "train.py(12): train_step"
