"""TA204."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, loop
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import FindingKind, Status
from traceanalyzer.rules import python_overhead as rule


def interpreting(python_us: float, frame: str | None = None) -> Measures:
    """Each step begins in Python, then one kernel runs to its end."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        if frame is not None:
            b.python(frame, at, at + python_us)
        b.operator("aten::add", at + python_us, at + python_us + 4)
        b.kernel("add", at + python_us, at + LENGTH, launch=(at + python_us, at + python_us))

    return loop(step)


def fires() -> Measures:
    """Python takes 3,000 of 10,000 µs."""
    return interpreting(3_000)


def quiet() -> Measures:
    """Python takes 50 µs."""
    return interpreting(50)


def test_the_upper_limit_is_the_idle_time_in_python() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert finding.kind is FindingKind.LIMITER
    assert finding.saving_per_step_ns.high == 3_000_000
    assert any("with_stack" in step for step in finding.fix)


@pytest.mark.parametrize(("python_us", "status"), [(1_999, Status.PASS), (2_000, Status.FAIL)])
def test_it_fires_from_a_fifth_of_the_step_on(python_us: float, status: Status) -> None:
    assert judge(rule, interpreting(python_us)).status is status


def test_one_frame_of_the_users_own_above_the_floor_is_a_fault_and_named() -> None:
    finding = judge(rule, interpreting(200, "train.py(12): pick_boxes"))
    assert finding.status is Status.FAIL
    assert finding.kind is FindingKind.FAULT
    assert "train.py(12): pick_boxes" in finding.fix[0]
    assert finding.observed["frame_1_per_step_ns"] == 200_000


def test_frames_of_libraries_are_listed_but_not_accused() -> None:
    finding = judge(rule, interpreting(200, "torch/nn/modules/module.py(1775): _call_impl"))
    assert finding.status is Status.PASS
    assert "module.py" in str(finding.observed["frame_1"])


def test_a_recording_without_operators_is_not_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100, launch=(0, 5))
    assert judge(rule, Measures(builder.build())).status is Status.NOT_APPLICABLE


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
