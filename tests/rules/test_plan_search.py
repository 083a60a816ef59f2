"""TA202."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import empty, healthy, judge, likely_us, loop
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import plan_search as rule

CONVOLUTION = "aten::cudnn_convolution"


def searching(search_us: float, numbers: tuple[int, ...], *, last_bytes: int = 1_000_000) -> Measures:
    """Ten convolutions per step; in some steps the first one searches before it launches."""

    def step(b: TraceBuilder, number: int, at: float) -> None:
        search = search_us if number in numbers else 10
        size = last_bytes if number == 4 else 1_000_000
        b.operator(CONVOLUTION, at, at + search, shapes=f"[[{size // 10_000}, 3]]")
        b.kernel("gemm", at + search, at + 9_100, launch=(at + search - 4, at + search - 2))
        for k in range(9):
            t = at + search + 20 * k
            b.operator(CONVOLUTION, t, t + 15)
            b.kernel("gemm", at + 9_100 + 100 * k, at + 9_200 + 100 * k, launch=(t + 5, t + 10))
        b.copy(at + 9_000, at + 9_010, launch=(at + 9_000, at + 9_002), size_bytes=size, stream=8)

    return loop(step)


def fires() -> Measures:
    """Every step meets a new shape."""
    return searching(3_000, (0, 1, 2, 3, 4))


def quiet() -> Measures:
    """Every convolution launches within 10 µs."""
    return searching(10, ())


def last_batch() -> Measures:
    """Only the last step, whose batch is smaller, searches."""
    return searching(3_000, (4,), last_bytes=600_000)


def test_the_saving_is_the_idle_time_before_the_late_launch() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    # from the step's start to the launch call, which begins 4 µs before the search ends
    assert likely_us(finding) == 2_996
    assert finding.observed[f"{CONVOLUTION}_ns"] == 5 * 2_996_000
    assert finding.observed[f"{CONVOLUTION}_shapes"] == "[[100, 3]]"
    assert finding.episode.ns == 2_996_000
    assert finding.episode.per_1000_steps == 1000


def test_an_epochs_smaller_last_batch_is_recognised_and_the_fix_names_drop_last() -> None:
    finding = judge(rule, last_batch())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == pytest.approx(2_996 / 5)
    assert finding.episode.per_1000_steps == 200
    assert finding.observed["only_in_smaller_batches"] is True
    assert "drop_last" in finding.fix[0]


@pytest.mark.parametrize(("last_bytes", "smaller"), [(900_000, False), (899_999, True)])
def test_a_batch_is_smaller_below_nine_tenths_of_the_usual_bytes(last_bytes: int, smaller: bool) -> None:
    finding = judge(rule, searching(3_000, (4,), last_bytes=last_bytes))
    assert finding.observed["only_in_smaller_batches"] is smaller


def test_usual_convolutions_are_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_a_recording_without_operators_is_not_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100, launch=(0, 5))
    finding = judge(rule, Measures(builder.build()))
    assert finding.status is Status.NOT_APPLICABLE
    assert "operators" in finding.message


def test_a_healthy_loop_and_an_empty_recording_do_not_fire() -> None:
    assert judge(rule, healthy()).status is Status.PASS
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
