"""TA703."""

from __future__ import annotations

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, busy_step, empty, healthy, judge, likely_us, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import data_parallel_not_ddp as rule


def replicating(us: float) -> Measures:
    """In every step the host copies the model for a while, then runs the forward pass of the replicas."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation("DataParallel.forward", at, at + us + 400)
        b.operator("Broadcast", at + 100, at + 100 + us)
        work(b, at + us + 200, at + us + 205, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """3,000 µs of every step go to copying the model."""
    return replicating(3_000)


def quiet() -> Measures:
    """It takes 50 µs."""
    return replicating(50)


def test_idle_time_while_the_model_is_copied_is_won_and_all_of_the_forward_is_the_limit() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 3_000
    # up to the first launch inside forward; the step's first 100 µs belong to it too
    assert finding.saving_per_step_ns.high == 3_205_000


def test_a_cheap_copy_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_the_distributed_wrapper_is_not_taken_for_it() -> None:
    def step(b: TraceBuilder, number: int, at: float) -> None:
        b.annotation("DistributedDataParallel.forward", at, at + 3_000)
        busy_step(b, number, at + 3_000)

    assert judge(rule, loop(step)).status is Status.PASS


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
