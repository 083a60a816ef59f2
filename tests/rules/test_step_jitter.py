"""TA805."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import empty, healthy, judge, likely_us
from tests.rules.test_loader_too_slow import WORKERS
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import step_jitter as rule

COUNT = 43  # the first three are warm-up


def jittering(slow_us: float, *, slow: tuple[int, ...] = (10, 20, 30, 40), count: int = COUNT) -> Measures:
    """Steps of 10,000 µs; the slow ones wait for their batch in addition."""
    builder, at = TraceBuilder(), 0.0
    for number in range(count):
        wait = slow_us if number in slow else 0
        builder.step(number, at, at + 10_000 + wait)
        if wait:
            builder.annotation(WORKERS, at, at + wait)
        builder.kernel("gemm", at + wait, at + wait + 10_000, launch=(at + wait, at + wait))
        at += 10_000 + wait
    return Measures(builder.build())


def fires() -> Measures:
    """Four of forty steps take twice as long."""
    return jittering(10_000)


def quiet() -> Measures:
    """The same steps take a tenth longer."""
    return jittering(1_000)


def test_the_saving_is_the_mean_with_slow_steps_cut_to_the_median() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 4 * 10_000 / 40
    assert finding.observed["p99_over_p50"] == 2
    assert finding.observed["slow_steps"] == 4
    assert finding.episode.per_1000_steps == 100


def test_the_cause_that_grew_in_the_slow_steps_is_named() -> None:
    finding = judge(rule, fires())
    assert finding.observed["grown_cause"] == "input_wait"
    assert finding.observed["grown_ns"] == 10_000_000


@pytest.mark.parametrize(("slow_us", "status"), [(5_000, Status.PASS), (5_001, Status.FAIL)])
def test_a_tail_is_wide_above_one_and_a_half_medians(slow_us: float, status: Status) -> None:
    assert judge(rule, jittering(slow_us)).status is status


@pytest.mark.parametrize(("count", "status"), [(22, Status.NOT_APPLICABLE), (23, Status.FAIL)])
def test_twenty_steady_steps_are_needed(count: int, status: Status) -> None:
    assert judge(rule, jittering(10_000, slow=(10, 15), count=count)).status is status


def test_a_short_or_empty_recording_is_not_judged() -> None:
    assert "20 steady steps" in judge(rule, healthy()).message
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
    assert judge(rule, quiet()).status is Status.PASS
