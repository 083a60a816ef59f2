"""TA104."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from tests.rules.test_loader_too_slow import WORKERS
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import loader_restart as rule
from traceanalyzer.rules import loader_too_slow


def restarting(edge_us: float, usual_us: float = 10) -> Measures:
    """In the fourth step the loader runs out, is asked once more by the next epoch, and answers late."""

    def step(b: TraceBuilder, number: int, at: float) -> None:
        wait = edge_us if number == 3 else usual_us
        if number == 3:
            b.annotation(WORKERS, at, at + 1)
            b.annotation(WORKERS, at + 1, at + wait)
        else:
            b.annotation(WORKERS, at, at + wait)
        work(b, at + wait, at + wait, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """5,010 µs until the new workers deliver, 10 µs otherwise."""
    return restarting(5_010)


def quiet() -> Measures:
    """The edge waits as long as every step."""
    return restarting(10)


def test_only_what_exceeds_the_usual_wait_is_charged_to_the_restart() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert finding.episode.ns == 5_000_000
    assert likely_us(finding) == 1_000
    assert "persistent_workers" in finding.fix[0]


def test_a_queue_that_is_always_dry_is_not_a_restart() -> None:
    measures = restarting(2_000, usual_us=2_000)
    assert judge(rule, measures).status is Status.PASS
    assert judge(loader_too_slow, measures).status is Status.FAIL


@pytest.mark.parametrize(("edge_us", "status"), [(509, Status.PASS), (510, Status.FAIL)])
def test_it_fires_from_the_floor_on(edge_us: float, status: Status) -> None:
    assert judge(rule, restarting(edge_us)).status is status


def test_without_an_epochs_edge_or_loader_ranges_it_is_not_judged() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation(WORKERS, at, at + 10)
        work(b, at + 10, at + 15, at + LENGTH)

    assert "epoch's edge" in judge(rule, loop(step)).message
    assert "loader ranges" in judge(rule, healthy()).message
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
    assert judge(rule, quiet()).status is Status.PASS
