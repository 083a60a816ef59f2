"""TA205."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import garbage_collection_pauses as rule


def collecting(pause_us: float, *, is_hidden: bool = False) -> Measures:
    def step(b: TraceBuilder, number: int, at: float) -> None:
        if number == 2 and not is_hidden:
            b.garbage_collection(at, at + pause_us)
            work(b, at + pause_us, at + pause_us, at + LENGTH)
        else:
            work(b, at, at, at + LENGTH)
        if is_hidden:
            b.garbage_collection(at + 100, at + 100 + pause_us)

    return loop(step)


def fires() -> Measures:
    """One pause of 3,000 µs in five steps, with the device idle."""
    return collecting(3_000)


def quiet() -> Measures:
    """A pause in every step, under a long kernel."""
    return collecting(3_000, is_hidden=True)


def test_the_saving_is_the_idle_time_inside_collections() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 600
    assert finding.episode.per_1000_steps == 200


def test_collections_under_a_busy_device_are_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


@pytest.mark.parametrize(("pause_us", "status"), [(499, Status.PASS), (500, Status.FAIL)])
def test_it_fires_from_the_floor_on(pause_us: float, status: Status) -> None:
    assert judge(rule, collecting(pause_us)).status is status


def test_a_recording_that_notes_no_collections_is_not_judged() -> None:
    assert "garbage collections" in judge(rule, healthy()).message
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
