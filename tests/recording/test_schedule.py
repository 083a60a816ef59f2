"""The order of stages."""

from __future__ import annotations

import pytest

from traceanalyzer.recording.options import YoloOptions
from traceanalyzer.recording.schedule import Schedule, Stage


def test_every_step_gets_the_stage_of_its_place_in_the_order() -> None:
    schedule = Schedule(skip=1, warm_up=2, unprofiled=3, profiler_warm_up=1, recorded=2, settle=1, unprofiled_after=2)
    assert [schedule.stage_of(step).value for step in range(13)] == [
        "skip", "warm_up", "warm_up", "unprofiled", "unprofiled", "unprofiled", "profiler_warm_up", "recorded",
        "recorded", "settle", "unprofiled_after", "unprofiled_after", "done",
    ]  # fmt: skip
    assert schedule.total == 12
    assert schedule.first(Stage.RECORDED) == 7


def test_without_recorded_steps_nothing_follows_the_unprofiled_ones() -> None:
    schedule = Schedule(warm_up=1, unprofiled=2, recorded=0)
    assert [schedule.stage_of(step) for step in range(4)] == [
        Stage.WARM_UP, Stage.UNPROFILED, Stage.UNPROFILED, Stage.DONE,
    ]  # fmt: skip


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="warm_up must not be negative"):
        Schedule(warm_up=-1)


def test_recording_needs_a_profiler_warm_up() -> None:
    with pytest.raises(ValueError, match="profiler_warm_up"):
        Schedule(profiler_warm_up=0)


def test_the_loaders_head_start_is_drained_before_recording_and_before_measuring_again() -> None:
    schedule = YoloOptions(steps=6).schedule(cuda=True, head_start=32)
    assert schedule.profiler_warm_up >= 32
    assert schedule.settle >= 32
