"""TA604."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import launch_bound
from traceanalyzer.rules import unfused_optimizer as rule


def updating(kernels: int, name: str = "mul_kernel") -> Measures:
    """An optimizer step that launches a 5 µs kernel every 20 µs, then a long kernel."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation("Optimizer.step#SGD.step", at, at + 20 * kernels)
        for k in range(kernels):
            t = at + 20 * k
            b.operator("aten::mul_", t, t + 12)
            b.kernel(name, t + 15, t + 20, launch=(t + 8, t + 11))
        work(b, at + 20 * kernels, at + 20 * kernels, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """Two hundred kernels per optimizer step."""
    return updating(200)


def quiet() -> Measures:
    """A dozen multi-tensor kernels."""
    return updating(12, "multi_tensor_apply_kernel")


def test_the_saving_is_the_idle_time_inside_the_optimizer_step() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    # 15 of every 20 µs
    assert likely_us(finding) == 200 * 15
    assert finding.observed["single_kernels_per_step"] == 200
    assert "fused=True" in finding.fix[0]


@pytest.mark.parametrize(("kernels", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_a_hundred_single_kernels_are_needed(kernels: int, status: Status) -> None:
    assert judge(rule, updating(kernels)).status is status


def test_multi_tensor_updates_do_not_count_however_many() -> None:
    assert judge(rule, updating(200, "multi_tensor_apply_kernel")).status is Status.PASS
    assert judge(rule, quiet()).status is Status.PASS


def test_a_recording_without_optimizer_ranges_is_not_judged() -> None:
    assert "Optimizer.step ranges" in judge(rule, healthy()).message
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


def test_an_optimizer_that_multiplies_matrices_has_no_fused_form_to_switch_on() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation("Optimizer.step#Muon.step", at, at + 4_000)
        for k in range(200):
            t = at + 20 * k
            b.operator("aten::mm", t, t + 12)
            b.kernel("ampere_sgemm_128x64_nn" if k % 2 else "mul_kernel", t + 15, t + 20, launch=(t + 8, t + 11))
        work(b, at + 4_000, at + 4_000, at + LENGTH)

    finding = judge(rule, loop(step))
    assert finding.status is Status.PASS
    assert finding.observed == {
        "optimizer": "Muon",
        "single_kernels_per_step": 200,
        "matrix_products_per_step": 100,
    }
    limiter = judge(launch_bound, loop(step))
    # 15 of every 20 µs
    assert limiter.observed["optimizer_idle_per_step_ns"] == 3_000_000
    assert "has no fused form" in limiter.message
    assert "AdamW or SGD with fused=True" in limiter.fix[-1]
