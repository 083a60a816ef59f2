"""TA804."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tests.builders import TraceBuilder
from tests.rules.support import empty, healthy, judge, work
from tests.rules.test_loader_too_slow import WORKERS
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import slowdown_over_time as rule

COUNT = 80


def run(
    length_us: Callable[[int], float], wait_us: Callable[[int], float] = lambda _: 0, count: int = COUNT
) -> Measures:
    """Steps of given lengths, of which the loader takes the first part and the device works through the rest."""
    builder = TraceBuilder()
    at = 0.0
    for number in range(count):
        length, wait = length_us(number), wait_us(number)
        builder.step(number, at, at + length)
        if wait:
            builder.annotation(WORKERS, at, at + wait)
        work(builder, at + wait, at + wait + 5, at + length)
        at += length
    return Measures(builder.build())


def fires() -> Measures:
    """Steps grow by 40 µs each, from 10 to 13.2 ms, because the device's work does."""
    return run(lambda n: 10_000 + 40 * n)


def quiet() -> Measures:
    """Steps that vary by 20 % and more, but do not rise."""
    return run(lambda n: 10_000 + 2_500 * (n % 3))


def test_the_rise_is_stated_with_the_median_of_both_quarters() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    # steps 3 to 79 are steady: 77 steps, quarters of 19; medians are those of steps 12 and 70
    assert finding.observed["first_quarter_step_ns"] == (10_000 + 40 * 12) * 1000
    assert finding.observed["last_quarter_step_ns"] == (10_000 + 40 * 70) * 1000
    assert finding.observed["grown_cause"] == rule.DEVICE_WORK
    assert "clocks" in finding.fix[0]


def test_what_grew_is_named() -> None:
    finding = judge(rule, run(lambda n: 10_000 + 40 * n, lambda n: 1_000 + 40 * n))
    assert finding.status is Status.FAIL
    assert finding.observed["grown_cause"] == "input_wait"
    # 58 steps of 40 µs lie between the quarters' middles
    assert finding.observed["grown_ns"] == 58 * 40_000


def test_variation_without_a_trend_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_getting_faster_is_no_fault() -> None:
    assert judge(rule, run(lambda n: 13_200 - 40 * n)).status is Status.PASS


def test_a_steady_but_small_rise_is_quiet() -> None:
    finding = judge(rule, run(lambda n: 10_000 + 10 * n))
    assert finding.status is Status.PASS
    assert "too small" in finding.message


def test_the_test_agrees_with_kendalls_tau() -> None:
    values = np.array([3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.6, 5.3, 5.8, 9.7])
    tau = stats.kendalltau(np.arange(10), values, alternative="greater", method="exact")
    assert rule.rising_p(values) == pytest.approx(tau.pvalue, abs=0.01)
    assert rule.rising_p(-values) > 0.9


def test_noise_alone_fires_at_most_once_in_a_thousand() -> None:
    generator = np.random.default_rng(7)
    alarms = sum(rule.rising_p(generator.normal(size=10)) <= rule.Thresholds().max_p for _ in range(3_000))
    assert alarms <= 8  # 3 expected; more than 8 has probability 0.004


def test_few_steps_and_an_empty_recording_are_not_judged() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
