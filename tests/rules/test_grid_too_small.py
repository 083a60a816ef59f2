"""TA602."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, judge
from traceanalyzer.measures import Measures
from traceanalyzer.model.trace import Device
from traceanalyzer.results.vocabulary import FindingKind, Status
from traceanalyzer.rules import grid_too_small as rule


def running(small_us: float, blocks: int = 25, inside: str | None = None) -> Measures:
    """A kernel of few blocks, then one of many, on a device of 100 multiprocessors."""
    builder = TraceBuilder(devices=[Device(0, "GPU", multiprocessors=100)])
    for number in range(5):
        at = number * LENGTH
        builder.step(number, at, at + LENGTH)
        if inside:
            builder.annotation(inside, at, at + 0.5)
        builder.kernel("small", at, at + small_us, launch=(at, at), grid_blocks=blocks)
        builder.kernel("large", at + small_us, at + LENGTH, launch=(at + 1, at + 2), grid_blocks=5_000)
    return Measures(builder.build())


def fires() -> Measures:
    """Kernels of 25 blocks take 8,000 of 10,000 µs."""
    return running(8_000)


def quiet() -> Measures:
    """They take 1,000 µs."""
    return running(1_000)


def test_the_upper_limit_is_the_part_of_the_device_left_unused() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert finding.kind is FindingKind.LIMITER
    # three quarters of the device for 8,000 µs
    assert finding.saving_per_step_ns.high == 6_000_000
    assert finding.observed["share_of_kernel_time"] == 0.8


@pytest.mark.parametrize(("small_us", "status"), [(4_999, Status.PASS), (5_000, Status.FAIL)])
def test_it_fires_from_half_of_the_kernel_time_on(small_us: float, status: Status) -> None:
    assert judge(rule, running(small_us)).status is status


@pytest.mark.parametrize(("blocks", "share"), [(99, 1.0), (100, 0.0)])
def test_a_kernel_is_small_with_fewer_blocks_than_multiprocessors(blocks: int, share: float) -> None:
    assert judge(rule, running(10_000, blocks)).observed["share_of_kernel_time"] == share


def test_unknown_devices_and_grids_are_not_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100, launch=(0, 5))
    assert "multiprocessors" in judge(rule, Measures(builder.build())).message
    assert "grid" in judge(rule, _without_grids()).message
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
    assert judge(rule, quiet()).status is Status.PASS


def _without_grids() -> Measures:
    builder = TraceBuilder(devices=[Device(0, "GPU", multiprocessors=100)])
    builder.kernel("gemm", 10, 100, launch=(0, 5))
    return Measures(builder.build())


@pytest.mark.parametrize("name", ["validate", "phase:validate", "checkpoint"])
def test_small_kernels_of_a_validation_say_nothing_about_the_training_step(name: str) -> None:
    finding = judge(rule, running(8_000, inside=name))
    assert finding.status is Status.PASS
    assert finding.observed["share_of_kernel_time"] == 0


def test_small_kernels_of_the_forward_pass_count() -> None:
    assert judge(rule, running(8_000, inside="forward")).status is Status.FAIL
