"""TA206."""

from __future__ import annotations

import pytest

from tests.builders import AUTOGRAD, TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from tests.rules.test_loader_too_slow import WORKERS
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import launcher_preempted as rule


def off_core(us: float, *, thread: int = 0) -> Measures:
    """In every step an operator takes 3,000 µs to launch, and a thread is off its core for part of it."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.operator("aten::conv2d", at, at + 3_010)
        b.kernel("gemm", at + 3_005, at + LENGTH, launch=(at + 3_001, at + 3_004))
        b.scheduled_out(at + 100, at + 100 + us, thread=thread)

    return loop(step)


def fires() -> Measures:
    """The launching thread is off its core for 2,000 µs of idle time per step."""
    return off_core(2_000)


def quiet() -> Measures:
    """The same for 50 µs."""
    return off_core(50)


def test_idle_time_off_the_core_is_counted_also_inside_an_operator() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 2_000
    assert finding.observed["affected_steps"] == 5


def test_short_absences_are_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


@pytest.mark.parametrize(("us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_on(us: float, status: Status) -> None:
    assert judge(rule, off_core(us)).status is status


def test_other_threads_may_lose_their_cores() -> None:
    assert judge(rule, off_core(2_000, thread=AUTOGRAD)).status is Status.PASS


def test_a_thread_that_waits_for_data_has_no_use_for_a_core() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation(WORKERS, at, at + 3_000)
        b.scheduled_out(at, at + 3_000)
        work(b, at + 3_000, at + 3_005, at + LENGTH)

    finding = judge(rule, loop(step))
    assert finding.status is Status.PASS
    assert finding.observed["idle_per_step_ns"] == 0


def test_it_needs_scheduling_events() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
