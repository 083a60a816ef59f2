"""Bounds: which steps are judged, and what a host that need not wait would win."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, launch_bound, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import judged_steps, won_by_running_ahead

US = 1_000
NOTHING = np.zeros(0, dtype=np.int64)


def launch_bound_loop() -> Measures:
    """Five steps of 10,000 µs in which the device is idle for 80 of every 100 µs."""
    return loop(lambda b, _number, at: launch_bound(b, at, at + LENGTH))


def won(measures: Measures, waits: list[tuple[int, int]], kept: list[int]) -> list[int]:
    """Idle won, µs, by removing waits (start, end in µs) while others stay."""
    judged = judged_steps(measures)
    assert judged is not None
    start, end = (np.array([w[k] * US for w in waits], dtype=np.int64) for k in (0, 1))
    stays = np.array(sorted(kept), dtype=np.int64) * US
    return [value // US for value in won_by_running_ahead(measures, judged, start, end, stays).tolist()]


def test_a_removed_wait_wins_its_length_where_the_device_waits_for_the_host() -> None:
    assert won(launch_bound_loop(), [(20_000, 20_500)], []) == [500]


def test_a_wait_that_stays_ends_the_head_start() -> None:
    # from 20,000 to 20,500 the device is idle for five times 80 µs
    assert won(launch_bound_loop(), [(20_000, 21_000)], [20_500]) == [400]


def test_head_starts_of_removed_waits_add_up_until_a_wait_stays() -> None:
    # 400 µs fit before the second wait, its own 1,000 and the 600 left over afterwards
    assert won(launch_bound_loop(), [(20_000, 21_000), (20_500, 21_500)], []) == [400, 1_600]


def test_removing_waits_of_a_busy_device_wins_nothing() -> None:
    busy = loop(lambda b, _number, at: work(b, at, at, at + LENGTH))
    assert won(busy, [(100, 9_000), (20_000, 29_000)], []) == [0, 0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 45_000), st.integers(0, 3_000)), min_size=1, max_size=8),
    st.lists(st.integers(0, 50_000), max_size=4),
)
def test_nothing_wins_more_than_was_waited_or_than_the_device_idled(
    waits: list[tuple[int, int]], kept: list[int]
) -> None:
    spans = [(start, start + length) for start, length in sorted(waits)]
    gains = won(launch_bound_loop(), spans, kept)
    assert all(gain >= 0 for gain in gains)
    assert sum(gains) <= sum(end - start for start, end in spans)
    assert sum(gains) <= 5 * 8_000


def test_without_a_device_or_a_step_nothing_is_judged() -> None:
    assert judged_steps(empty()) is None


def test_steady_steps_are_judged_and_episodic_ones_only_on_request() -> None:
    def step(b: TraceBuilder, number: int, at: float) -> None:
        if number == 3:
            b.annotation("validate", at + 1, at + 100)
        work(b, at, at, at + LENGTH)

    measures = loop(step)
    steady, both = judged_steps(measures), judged_steps(measures, with_episodes=True)
    assert steady is not None
    assert both is not None
    assert (steady.count, both.count) == (4, 5)
    assert steady.mean_step_ns == LENGTH * US


def test_the_busiest_device_is_judged() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100, launch=(0, 5), device=0)
    builder.kernel("gemm", 10, 200, launch=(5, 9), device=1)
    judged = judged_steps(Measures(builder.build()))
    assert judged is not None
    assert judged.device_id == 1
