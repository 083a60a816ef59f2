"""TA601."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, judge, likely_us
from traceanalyzer.measures import Measures
from traceanalyzer.model.trace import Device
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import tensor_cores_unused as rule

PLAIN = "ampere_sgemm_128x64_nn"
TENSOR_CORE = "cutlass_80_tensorop_s1688gemm_64x64_32x6_nt_align4"


def multiplying(
    name: str, gemm_us: float = 9_000, *, is_ahead: bool = True, capability: tuple[int, int] = (9, 0)
) -> Measures:
    """One matrix product per step, followed by an element-wise kernel launched before or after it ends."""
    device = Device(0, "GPU", compute_capability=capability, multiprocessors=132)
    builder = TraceBuilder(devices=[device])
    for number in range(5):
        at = number * LENGTH
        builder.step(number, at, at + LENGTH)
        builder.kernel(name, at, at + gemm_us, launch=(at, at))
        launch = at + (10 if is_ahead else gemm_us + 5)
        builder.kernel("add", at + gemm_us + 10, at + LENGTH, launch=(launch, launch + 1))
    return Measures(builder.build())


def fires() -> Measures:
    """Nine tenths of the step is an fp32 product the device goes on from at once."""
    return multiplying(PLAIN)


def quiet() -> Measures:
    """The same product on tensor cores."""
    return multiplying(TENSOR_CORE)


def test_kernels_twice_as_fast_are_likely_and_eight_times_is_the_limit() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 4_500
    assert finding.saving_per_step_ns.high == 7_875_000


def test_a_product_after_which_the_device_waits_for_the_host_wins_nothing() -> None:
    finding = judge(rule, multiplying(PLAIN, is_ahead=False))
    assert finding.status is Status.PASS
    assert "waits for the host anyway" in finding.message


def test_tensor_core_kernels_are_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


@pytest.mark.parametrize(("gemm_us", "status"), [(199, Status.PASS), (200, Status.FAIL)])
def test_it_fires_from_the_floor_on(gemm_us: float, status: Status) -> None:
    assert judge(rule, multiplying(PLAIN, gemm_us)).status is status


def test_devices_without_tensor_cores_and_unknown_devices_are_not_judged() -> None:
    assert "tensor cores" in judge(rule, multiplying(PLAIN, capability=(6, 1))).message
    builder = TraceBuilder()
    builder.kernel(PLAIN, 10, 100, launch=(0, 5))
    assert "compute capability" in judge(rule, Measures(builder.build())).message
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
