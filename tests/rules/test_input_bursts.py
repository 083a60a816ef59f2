"""TA103."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, STEPS, empty, healthy, judge, likely_us, work
from tests.rules.test_loader_too_slow import WORKERS
from traceanalyzer.measures import Measures
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import input_bursts as rule
from traceanalyzer.rules.run import check_all


def bursts(late: set[int], count: int = 12, wait_us: float = 2_000, **facts: object) -> Measures:
    """A loop in which the batches of some steps come late."""
    builder = TraceBuilder()
    for number in range(count):
        at = number * LENGTH
        builder.step(number, at, at + LENGTH)
        wait = wait_us if number in late else 2
        builder.annotation(WORKERS, at, at + wait)
        work(builder, at + wait, at + wait + 5, at + LENGTH)
    return Measures(builder.build(), recorder=facts)


def timed(batch_us: float) -> dict[str, object]:
    """What the recorder says of workers that take that long for a batch."""
    part = {"ns": round(batch_us * 1000), "calls": 16}
    return {"recorded": {"batches": 1, "worker_ns": round(batch_us * 1000), "parts": {"load_image": part}}}


def fires() -> Measures:
    """Every fourth batch is 2,000 µs late; three warm-up steps are not judged."""
    return bursts({3, 7, 11})


def quiet() -> Measures:
    """Late batches at distances of 1, 2 and 5 steps."""
    return bursts({3, 4, 6, 11})


def test_the_period_and_the_wait_are_stated() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert finding.observed["period_steps"] == 4
    # 3 x 2,000 and 6 x 2 µs in the nine steady steps
    assert likely_us(finding) == pytest.approx((3 * 2_000 + 6 * 2) / 9, abs=0.001)
    assert finding.episode.per_1000_steps == pytest.approx(1000 * 3 / 9, abs=0.001)


def test_late_batches_without_a_rhythm_are_quiet() -> None:
    finding = judge(rule, quiet())
    assert finding.status is Status.PASS
    assert "no rhythm" in finding.message


def test_workers_too_slow_on_average_are_not_called_uneven() -> None:
    # a batch takes 40 ms and two workers deliver one every 20 ms; the step without waiting takes 9.3 ms
    slow = bursts({3, 7, 11}, configuration={"workers": 2}, loader=timed(40_000))
    assert judge(rule, slow).status is Status.PASS
    assert "TA102" in judge(rule, slow).message
    # eight of them deliver one every 5 ms
    fast = bursts({3, 7, 11}, configuration={"workers": 8}, loader=timed(40_000))
    assert judge(rule, fast).status is Status.FAIL


def test_one_starved_stretch_per_round_of_workers_is_slowness_where_nobody_timed_them() -> None:
    assert judge(rule, bursts({3, 7, 11}, configuration={"workers": 4})).status is Status.PASS
    assert judge(rule, bursts({3, 7, 11}, configuration={"workers": 3})).status is Status.FAIL


def test_too_few_steps_say_nothing() -> None:
    assert judge(rule, bursts({0, 2, 4}, count=STEPS)).status is Status.NOT_APPLICABLE


def test_the_same_wait_is_reported_once() -> None:
    def firing(findings: list[Finding]) -> list[str]:
        return [f.code for f in findings if f.status is Status.FAIL]

    assert firing(check_all(fires())) == ["TA103"]


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
