"""TA903."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, loop, work
from tests.rules.test_loader_in_main_process import starved
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import nothing_to_fix as rule
from traceanalyzer.rules.run import check_all


def fires() -> Measures:
    """The device is busy all the time."""
    return healthy()


def quiet() -> Measures:
    """The device waits for its input half of the time."""
    return starved(5_000)


def test_a_busy_device_is_told_so_with_its_share() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.INFORMATIVE
    # 5 µs before the very first kernel, in 50,000 µs
    assert finding.observed["busy_share"] == pytest.approx(1 - 5 / 50_000, abs=1e-4)


@pytest.mark.parametrize(("idle_us", "status"), [(1_000, Status.INFORMATIVE), (1_001, Status.PASS)])
def test_busy_means_nine_tenths(idle_us: float, status: Status) -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        work(b, at, at + idle_us, at + LENGTH)

    assert judge(rule, loop(step)).status is status


def test_the_claim_is_withdrawn_where_another_rule_fires() -> None:
    findings = {f.code: f for f in check_all(starved(500))}
    assert findings["TA101"].status is Status.FAIL
    assert findings["TA903"].status is Status.PASS
    assert "TA101" in findings["TA903"].message


def test_a_starved_device_and_an_empty_recording_are_not_called_healthy() -> None:
    assert judge(rule, quiet()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
