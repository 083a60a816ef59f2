"""TA207."""

from __future__ import annotations

import pytest

from tests.builders import AUTOGRAD, TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop
from traceanalyzer.measures import Measures
from traceanalyzer.model.schema import CopyDirection
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import anomaly_mode_left_on as rule


def backward(checked_nodes: int) -> Measures:
    """Ten backward nodes per step, the first of them followed by a NaN check."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        for k in range(10):
            t = at + LENGTH / 10 * k
            b.operator("autograd::engine::evaluate_function: MmBackward0", t, t + 900, thread=AUTOGRAD)
            b.operator("MmBackward0", t + 2, t + 90, thread=AUTOGRAD)
            # a node without a check keeps the device busy until the next one
            end = t + 320 if k < checked_nodes else t + 1_020
            b.kernel("gemm", t + 20, end, launch=(t + 10, t + 15), thread=AUTOGRAD)
            if k >= checked_nodes:
                continue
            b.operator("aten::isnan", t + 100, t + 200, thread=AUTOGRAD)
            b.kernel("isnan", t + 320, t + 340, launch=(t + 150, t + 155), thread=AUTOGRAD)
            b.operator("aten::item", t + 200, t + 900, thread=AUTOGRAD)
            b.operator("aten::_local_scalar_dense", t + 201, t + 899, thread=AUTOGRAD)
            b.copy(
                t + 400,
                t + 410,
                launch=(t + 350, t + 355),
                direction=CopyDirection.D2H,
                size_bytes=1,
                thread=AUTOGRAD,
            )
            b.call("cudaStreamSynchronize", t + 360, t + 890, thread=AUTOGRAD)

    return loop(step)


def fires() -> Measures:
    """Every node is checked."""
    return backward(10)


def quiet() -> Measures:
    """No node is checked."""
    return backward(0)


def test_the_saving_is_the_idle_time_inside_the_checks_and_has_no_upper_end() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    # per node: 340 to 400 (the copy of the answer) and 410 to 900 (the wait), 550 µs; the recording ends before the
    # last node's 490 µs are followed by another activity
    assert likely_us(finding) == pytest.approx((50 * 550 - 490) / 5)
    assert finding.saving_per_step_ns.high is None
    assert finding.observed["nan_checks"] == 50
    assert finding.observed["backward_nodes"] == 50


@pytest.mark.parametrize(("checked", "status"), [(3, Status.PASS), (4, Status.FAIL)])
def test_a_third_of_the_nodes_must_be_checked(checked: int, status: Status) -> None:
    assert judge(rule, backward(checked)).status is status


def test_a_backward_pass_without_checks_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_a_recording_without_operators_is_not_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100, launch=(0, 5))
    assert judge(rule, Measures(builder.build())).status is Status.NOT_APPLICABLE


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
