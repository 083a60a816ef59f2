"""TA501."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop
from tests.rules.test_anomaly_mode_left_on import fires as anomaly_mode
from tests.rules.test_blocking_h2d_copies import fires as blocking_copy
from traceanalyzer.measures import Measures
from traceanalyzer.model.schema import CopyDirection
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import sync_in_step as rule


def item(b: TraceBuilder, begin: float, drained: float) -> None:
    """Add ``loss.item()`` that waits until the device has drained and its 10 µs copy has run."""
    b.annotation("loss_meter", begin, drained + 40)
    b.operator("aten::item", begin, drained + 40)
    b.copy(drained, drained + 10, launch=(begin + 2, begin + 5), direction=CopyDirection.D2H, size_bytes=4)
    b.call("cudaStreamSynchronize", begin + 6, drained + 30)


def reading(refill_us: float) -> Measures:
    """The host reads a value while the device works, then needs some time to launch what comes next."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.kernel("gemm", at + 5, at + 5_000, launch=(at + 1, at + 3))
        item(b, at + 20, at + 5_000)
        back = at + 5_010 + refill_us
        b.kernel("gemm", back, at + LENGTH + 5, launch=(back - 4, back - 2))

    return loop(step)


def fires() -> Measures:
    """The device waits 2,000 µs for work after every read."""
    return reading(2_000)


def quiet() -> Measures:
    """The host waits as long, but the device has its next kernel already."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.kernel("gemm", at + 5, at + 5_000, launch=(at + 1, at + 3))
        item(b, at + 20, at + 5_000)
        b.kernel("gemm", at + 5_010, at + LENGTH + 5, launch=(at + 10, at + 12), stream=8)

    return loop(step)


def test_the_saving_is_the_idle_time_until_the_queue_is_filled_again() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 2_000
    # certain is only what passes inside the call after the device has finished
    assert finding.saving_per_step_ns.low == 20_000
    assert finding.observed["waits_per_step"] == 1
    assert "aten::item at loss_meter" in str(finding.observed["place_1"])


def test_a_wait_wins_no_more_than_it_lasts() -> None:
    # the wait lasts 5,004 µs of 15,000, after which the device idles for 9,000 µs
    def step(b: TraceBuilder, number: int, at: float) -> None:
        if number % 2 == 0:
            b.kernel("gemm", at + 5, at + 1_000, launch=(at + 1, at + 3))
            item(b, at + 20, at + 1_000)
        b.kernel("gemm", at + 9_010, at + LENGTH + 5, launch=(at + 9_000, at + 9_004))

    finding = judge(rule, loop(step))
    # three reads; each waits from 26 to 1,030 µs
    assert likely_us(finding) == pytest.approx(3 * 1_004 / 5)


def test_waiting_while_the_device_stays_ahead_costs_nothing() -> None:
    finding = judge(rule, quiet())
    assert finding.status is Status.PASS
    assert finding.observed["won_per_step_ns"] == 0
    assert finding.observed["waited_per_step_ns"] > 4_000_000


@pytest.mark.parametrize(("refill_us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_on(refill_us: float, status: Status) -> None:
    assert judge(rule, reading(refill_us)).status is status


def test_waits_of_input_copies_and_of_anomaly_detection_belong_to_their_rules() -> None:
    assert judge(rule, blocking_copy()).status is Status.PASS
    assert judge(rule, anomaly_mode()).status is Status.PASS


def test_kernels_without_calls_and_an_empty_recording_are_not_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100)
    assert judge(rule, Measures(builder.build())).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


def test_a_healthy_loop_is_quiet() -> None:
    assert judge(rule, healthy()).status is Status.PASS


def test_the_gradient_scalers_own_read_is_stated_but_is_no_fault_of_the_loop() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.kernel("gemm", at + 5, at + 4_990, launch=(at + 1, at + 3))
        b.kernel("_amp_foreach_non_finite_check_and_unscale_cuda_", at + 4_990, at + 5_000, launch=(at + 10, at + 12))
        item(b, at + 20, at + 5_000)
        b.kernel("gemm", at + 7_010, at + LENGTH + 5, launch=(at + 7_006, at + 7_008))

    finding = judge(rule, loop(step))
    assert finding.status is Status.PASS
    assert finding.observed["scaler_per_step_ns"] == 2_000_000
    assert "bfloat16" in finding.message


def test_only_the_first_wait_after_unscaling_is_the_scalers() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.kernel("gemm", at + 5, at + 2_990, launch=(at + 1, at + 3))
        b.kernel("_amp_foreach_non_finite_check_and_unscale_cuda_", at + 2_990, at + 3_000, launch=(at + 10, at + 12))
        item(b, at + 20, at + 3_000)
        b.kernel("gemm", at + 3_050, at + 5_000, launch=(at + 3_042, at + 3_045))
        item(b, at + 3_060, at + 5_000)
        b.kernel("gemm", at + 7_010, at + LENGTH + 5, launch=(at + 7_006, at + 7_008))

    finding = judge(rule, loop(step))
    assert finding.status is Status.FAIL
    assert finding.observed["waits_per_step"] == 1
