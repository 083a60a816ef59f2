"""Every moment of a step belongs to one phase."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.recording.phase_clock import EventTrack, PhaseClock, StepTimes


def ticking(*times: int) -> Callable[[], int]:
    """Return a clock that shows these times, one a reading."""
    left = iter(times)
    return lambda: next(left)


def test_nested_phases_take_their_time_from_the_phase_around_them() -> None:
    clock = PhaseClock(ticking(0, 10, 30, 70, 90, 100))
    clock.begin_step()
    clock.push("forward")
    clock.push("loss")
    clock.pop()
    clock.pop()
    total, phases = clock.end_step()
    assert total == 100
    assert phases == {"other": 10 + 10, "forward": 20 + 20, "loss": 40}


def test_the_time_between_steps_is_given_by_the_next_begin() -> None:
    clock = PhaseClock(ticking(0, 5, 12))
    assert clock.begin_step() is None
    clock.end_step()
    assert clock.begin_step() == 7


def test_a_phase_outside_a_step_is_an_episode_and_its_inner_phases_are_not() -> None:
    clock = PhaseClock(ticking(0, 1, 3, 9))
    clock.push("validate")
    clock.push("data")
    clock.pop()
    clock.pop()
    assert clock.episodes == [("validate", 9)]


def test_a_phase_left_open_ends_with_its_step() -> None:
    clock = PhaseClock(ticking(0, 10, 25))
    clock.begin_step()
    clock.push("log")
    assert clock.end_step() == (25, {"other": 10, "log": 15})
    assert clock.depth == 0


@given(st.lists(st.tuples(st.sampled_from(["push", "pop"]), st.integers(0, 1000)), max_size=40))
def test_phases_sum_to_the_step_exactly(actions: list[tuple[str, int]]) -> None:
    now = 0

    def read() -> int:
        return now

    clock = PhaseClock(read)
    clock.begin_step()
    for number, (action, wait) in enumerate(actions):
        now += wait
        if action == "push":
            clock.push(f"phase {number % 3}")
        elif clock.depth:
            clock.pop()
    total, phases = clock.end_step()
    assert sum(phases.values()) == total == now


def test_a_phase_missing_from_some_steps_counts_zero_there() -> None:
    times = StepTimes()
    times.add_step(10, {"forward": 10})
    times.add_step(30, {"forward": 10, "optimizer": 20})
    times.add_step(5, {"other": 5})
    assert times.to_dict()["phase_ns"] == {"forward": [10, 10, 0], "optimizer": [0, 20, 0], "other": [0, 0, 5]}


class FakeEvent:
    """An event that notes when it was recorded on a clock of whole milliseconds."""

    now_ms = 0

    def record(self) -> None:
        self.at_ms = FakeEvent.now_ms

    def elapsed_time(self, later: FakeEvent) -> float:
        return float(later.at_ms - self.at_ms)


def test_device_times_come_from_the_events_at_the_borders() -> None:
    track = EventTrack(FakeEvent, 2)
    clock = PhaseClock(ticking(*range(20)))
    FakeEvent.now_ms = 100
    clock.begin_step(track)
    FakeEvent.now_ms = 101
    clock.push("forward")
    FakeEvent.now_ms = 107
    clock.pop()
    FakeEvent.now_ms = 109
    clock.end_step()
    times = StepTimes()
    track.resolve(times)
    assert times.device_phase_ns == {"other": [3_000_000], "forward": [6_000_000]}
    assert times.device_step_ns == [9_000_000]


def test_a_dropped_step_has_no_device_times() -> None:
    track = EventTrack(FakeEvent, 0)
    track.begin_step()
    track.drop_step()
    times = StepTimes()
    track.resolve(times)
    assert times.device_step_ns == []
