"""TA304."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import tiny_copies as rule


def sending(count: int, size_bytes: int = 64) -> Measures:
    """Copies of 2 µs every 20 µs, each launched when the one before has ended, then a long kernel."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        for k in range(count):
            t = at + 20 * k
            b.operator("aten::copy_", t, t + 15)
            b.copy(t + 18, t + 20, launch=(t + 8, t + 14), size_bytes=size_bytes)
        work(b, at + 20 * count, at + 20 * count, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """Two hundred copies of 64 bytes per step."""
    return sending(200)


def quiet() -> Measures:
    """A dozen copies per step."""
    return sending(12)


def test_the_saving_is_the_idle_time_of_preparing_the_copies() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    # 18 of every 20 µs
    assert likely_us(finding) == 200 * 18
    assert finding.observed["small_copies_per_step"] == 200
    assert finding.observed["median_bytes"] == 64


@pytest.mark.parametrize(("count", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_hundreds_begin_at_one_hundred(count: int, status: Status) -> None:
    assert judge(rule, sending(count)).status is status


@pytest.mark.parametrize(("size_bytes", "status"), [(65_536, Status.FAIL), (65_537, Status.PASS)])
def test_small_ends_at_64_kib(size_bytes: int, status: Status) -> None:
    assert judge(rule, sending(200, size_bytes)).status is status


def test_a_dozen_copies_a_step_are_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_no_copies_and_an_empty_recording_are_not_judged() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
