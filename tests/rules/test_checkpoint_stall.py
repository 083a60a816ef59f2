"""TA802."""

from __future__ import annotations

import pytest

from tests.rules.support import empty, healthy, judge, likely_us
from tests.rules.test_validation_stall import validating
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import checkpoint_stall as rule
from traceanalyzer.rules import validation_stall


def fires() -> Measures:
    """Saving idles for 6,000 µs once."""
    return validating(6_000, "checkpoint")


def quiet() -> Measures:
    """Saving keeps the device busy."""
    return validating(0, "checkpoint")


def test_the_saving_is_a_mean_over_all_steps_and_the_episode_its_own_cost() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert finding.episode.ns == 6_000_000
    assert likely_us(finding) == 1_200


def test_saving_is_not_validating() -> None:
    assert judge(validation_stall, fires()).status is Status.PASS
    assert judge(rule, validating(6_000)).status is Status.PASS


def test_a_checkpoint_that_leaves_the_device_busy_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


@pytest.mark.parametrize(("idle_us", "status"), [(499, Status.PASS), (500, Status.FAIL)])
def test_it_fires_from_the_floor_on(idle_us: float, status: Status) -> None:
    assert judge(rule, validating(idle_us, "checkpoint")).status is status


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
