"""TA303."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop
from tests.rules.test_blocking_h2d_copies import fires as blocking
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import exposed_h2d_copies as rule


def copying(copy_us: float, launched_us: float = 10, stream: int = 7) -> Measures:
    """A copy of some length, and a kernel launched at some moment that runs once the copy has ended."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.copy(at, at + copy_us, launch=(at, at + 2), stream=stream)
        begin = max(copy_us, launched_us) if stream == 7 else launched_us
        b.kernel("gemm", at + begin, at + LENGTH, launch=(at + launched_us - 2, at + launched_us))

    return loop(step)


def fires() -> Measures:
    """The kernel is launched after 10 µs and waits for the copy until 1,500 µs."""
    return copying(1_500)


def quiet() -> Measures:
    """The copy runs on its own stream under the kernel."""
    return copying(1_500, stream=8)


def test_the_saving_is_how_long_a_launched_kernel_waited_for_the_copy() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 1_490
    assert finding.saving_per_step_ns.high == 1_500_000


def test_a_copy_during_which_the_host_still_prepares_the_kernel_costs_nothing() -> None:
    finding = judge(rule, copying(1_500, launched_us=1_600))
    assert finding.status is Status.PASS
    assert finding.observed["held_per_step_ns"] == 0


def test_a_copy_under_kernels_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


@pytest.mark.parametrize(("copy_us", "status"), [(109, Status.PASS), (110, Status.FAIL)])
def test_it_fires_from_the_floor_on(copy_us: float, status: Status) -> None:
    assert judge(rule, copying(copy_us)).status is status


def test_copies_the_host_waits_for_belong_to_their_own_rule() -> None:
    assert judge(rule, blocking()).status is Status.PASS


def test_no_copies_and_an_empty_recording_are_not_judged() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
