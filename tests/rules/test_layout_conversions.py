"""TA603."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.readers import open_recording
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import layout_conversions as rule

CONVERSION = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>"


def converting(us: float, *, is_queued: bool = True) -> Measures:
    """In every step a conversion runs before a convolution, which was launched before or after it ended."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.operator("aten::conv2d", at, at + 20)
        b.kernel(CONVERSION, at + 10, at + 10 + us, launch=(at + 1, at + 3))
        launch = at + 4 if is_queued else at + 12 + us
        b.kernel("gemm", max(at + 10 + us, launch + 4), at + LENGTH, launch=(launch, launch + 2))

    return loop(step)


def fires() -> Measures:
    """1,500 µs of conversion per step, with the convolution waiting behind it."""
    return converting(1_500)


def quiet() -> Measures:
    """The same, but the convolution is launched only after it."""
    return converting(1_500, is_queued=False)


def test_the_time_that_others_wait_for_is_what_can_be_won() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 1_500
    assert finding.observed["conversions_per_step"] == 1.0


def test_nothing_is_won_where_the_device_waits_for_the_host() -> None:
    finding = judge(rule, quiet())
    assert finding.status is Status.PASS
    assert finding.observed["conversion_time_per_step_ns"] == 1_500_000


@pytest.mark.parametrize(("us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_on(us: float, status: Status) -> None:
    assert judge(rule, converting(us)).status is status


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


def test_other_kernels_are_no_conversions() -> None:
    assert judge(rule, loop(lambda b, _n, at: work(b, at, at + 5, at + LENGTH))).status is Status.PASS


@pytest.mark.shared
def test_a_public_run_that_transposes_for_its_convolutions_is_told() -> None:
    recording = open_recording(shared("traces/public/tracelens/mi210_gpu_only.json.gz"))
    finding = judge(rule, Measures(recording.traces[0]))
    assert finding.status is Status.FAIL
    # batched_transpose kernels: 168 of 1,092 kernels, 15.4 % of kernel time
    assert finding.observed["share_of_kernel_time"] == pytest.approx(0.154, abs=0.003)
