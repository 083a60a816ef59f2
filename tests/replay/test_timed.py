"""Input savings by the recorder's timers in steps without the profiler."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, judge, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.measures.unprofiled_times import measure_unprofiled_times
from traceanalyzer.replay.timed import LIKELY_CONTENTION, READY_BATCH_NS, input_price
from traceanalyzer.results.vocabulary import Basis, Status
from traceanalyzer.rules import loader_too_slow

MS = 1_000_000


def recorder(wait_ms: list[int], worker_ms: int, workers: int, device_ms: list[int] | None = None) -> dict[str, Any]:
    """Twelve steps of 80 ms besides their waits; batches that take one worker ``worker_ms``."""
    return {
        "configuration": {"workers": workers, "cpu_cores": 16},
        "unprofiled": {
            "step_ns": [(80 + wait) * MS for wait in wait_ms],
            "block_steps": [len(wait_ms)],
            "phase_ns": {"data": [wait * MS for wait in wait_ms]},
            "device_phase_ns": {"data": [wait * MS for wait in device_ms or wait_ms]},
        },
        "loader": {"unprofiled": {"batches": 10, "worker_ns": 10 * worker_ms * MS, "parts": {}}},
    }


def measured(**facts: Any) -> Measures:
    """Five recorded steps that found their batches ready."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, at + 2)
        work(b, at + 2, at + 7, at + LENGTH)

    return loop(step, **facts)


def test_a_queue_that_runs_dry_settles_at_what_the_workers_supply() -> None:
    # two workers make a batch every 120 ms; the timed steps still lived on the queue half of the time
    price = input_price(measured(**recorder([0, 40] * 6, 240, 2)), "TA102")
    assert price is not None
    assert price.step_ns == 120 * MS
    # ten more of twelve workers: five sixths of the likely contention come on top of the rest
    rest = 80 * MS * (1 + LIKELY_CONTENTION * 10 / 12) + READY_BATCH_NS
    assert price.saving.likely == pytest.approx(120 * MS - rest, abs=1)
    assert price.saving.high == pytest.approx(120 * MS - 80 * MS - READY_BATCH_NS, abs=1)
    assert price.saving.basis is Basis.REPLAY


def test_workers_that_keep_up_by_their_own_seconds_are_not_priced() -> None:
    assert input_price(measured(**recorder([0, 0, 0, 160] * 3, 240, 8)), "TA102") is None


def test_a_wait_behind_which_the_device_still_worked_is_no_loss() -> None:
    times = measure_unprofiled_times(recorder([40] * 12, 240, 2, device_ms=[5] * 12))
    assert times is not None
    assert times.mean_wait_ns == 5 * MS


def test_storage_leaves_the_floor_when_it_is_what_the_workers_wait_for() -> None:
    facts = recorder([40] * 12, 2_400, 20)
    facts["loader"]["unprofiled"]["parts"] = {
        "load_image": {"calls": 160, "ns": 18_000 * MS},  # 112 ms an image: no local disk
        "Mosaic": {"calls": 160, "ns": 600 * MS},
        "Format": {"calls": 160, "ns": 5_400 * MS},
    }
    price = input_price(measured(**facts), "TA102")
    assert price is not None
    # 2,400 ms by twelve workers is 200 ms a step: more workers alone win nothing
    assert price.saving.low == 0
    # without the three quarters that are reading, 600 ms by twelve workers keep up
    assert price.saving.likely == pytest.approx(120 * MS - 80 * MS - READY_BATCH_NS, abs=1)


def test_the_rule_fires_from_the_timers_where_the_recorded_steps_found_their_batches_ready() -> None:
    finding = judge(loader_too_slow, measured(**recorder([0, 40] * 6, 240, 2)))
    assert finding.status is Status.FAIL
    assert finding.observed["recorded_wait_per_step_ns"] == 2_000
    assert finding.observed["input_wait_per_step_ns"] == 20 * MS
    assert judge(loader_too_slow, measured(**recorder([0] * 12, 240, 8))).status is Status.PASS


def test_damaged_timers_are_as_good_as_none() -> None:
    for damaged in ({}, {"unprofiled": 3}, {"unprofiled": {"step_ns": ["x"]}}, {"unprofiled": {"step_ns": [-1]}}):
        assert measure_unprofiled_times(damaged) is None
    times = measure_unprofiled_times({"unprofiled": {"step_ns": [MS, MS], "phase_ns": {"data": [1]}}, "loader": 1})
    assert times is not None
    assert times.supply_ns is None
    assert list(times.wait_ns) == [1, 1]
