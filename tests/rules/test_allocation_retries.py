"""TA403."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, STEPS, empty, healthy, judge, likely_us, loop, work
from tests.snapshots import EPOCH_US, MIB, History, block, segment, snapshot
from traceanalyzer.measures import Measures
from traceanalyzer.readers.memory_snapshot import attach, snapshot_of
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import allocation_retries as rule

POOL = 1000 * MIB


def with_snapshot(measures: Measures, document: object) -> Measures:
    """Give a hand-written loop a snapshot whose times are microseconds of the loop."""
    found = snapshot_of(document, Path("memory_snapshot.pickle"))
    trace = attach(measures.trace, found)
    return Measures(replace(trace, origin_ns=EPOCH_US * 1000))


def starved() -> Measures:
    """Each step the device idles for 2,000 µs before its kernel."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.call("cudaMalloc", at, at + 2_000)
        work(b, at + 2_000, at + 2_005, at + LENGTH)

    return loop(step)


def history(*, function: str = "forward", outcome: str = "segment_alloc", steps: int = STEPS) -> History:
    """In each step two free segments go back and one of 40 MiB comes, 100 µs to 1,900 µs into the step."""
    made = History()
    for number in range(steps):
        at = number * LENGTH
        made.add(at + 100, "free_completed", POOL + 1, 512)
        made.add(at + 900, "segment_free", POOL + 100 * MIB * number, 20 * MIB, function)
        made.add(at + 1_000, "segment_free", POOL + 100 * MIB * number + 20 * MIB, 20 * MIB, function)
        made.add(at + 1_900, outcome, POOL + 100 * MIB * (number + 1), 40 * MIB, "forward", device_free=MIB)
    return made


def retrying(**how: object) -> dict[str, object]:
    last = POOL + 100 * MIB * STEPS
    return snapshot([segment(last, [block(40 * MIB, function="forward")])], history(**how))  # type: ignore[arg-type]


def fires() -> Measures:
    """One retry per step, with 1,800 µs of idle time in it."""
    return with_snapshot(starved(), retrying())


def quiet() -> Measures:
    """The same segments, given back by torch.cuda.empty_cache()."""
    return with_snapshot(starved(), retrying(function="empty_cache"))


def test_the_saving_is_the_idle_time_of_the_retries() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    # 1,800 µs each; the first step's retry begins before the device's first activity, where there is no idle
    # time of the span but of the window
    assert likely_us(finding) == pytest.approx(1_800)
    assert finding.observed["retries"] == STEPS
    assert "10 segments, 200 MiB" in finding.message


def test_a_cache_emptied_by_the_program_is_no_retry() -> None:
    finding = judge(rule, quiet())
    assert finding.status is Status.PASS
    assert finding.observed["retries"] == 0


def test_a_segment_asked_for_by_another_call_is_no_retry() -> None:
    assert judge(rule, with_snapshot(starved(), retrying(function="other"))).status is Status.PASS


def test_an_error_after_giving_back_says_why_and_what_would_have_helped() -> None:
    finding = judge(rule, with_snapshot(starved(), retrying(outcome="oom")))
    assert finding.status is Status.FAIL
    assert finding.observed["ooms"] == STEPS
    assert "What would have helped" in finding.message


def test_counters_of_the_recorder_tell_of_retries_before_the_history() -> None:
    made = History()
    made.add(1, "alloc", POOL, MIB)
    document = snapshot([segment(POOL, [block(MIB)])], made) | {"device_counters": [{"num_alloc_retries": 4}]}
    finding = judge(rule, with_snapshot(healthy(), document))
    assert finding.status is Status.FAIL
    assert "4 more since the program began" in finding.message
    assert likely_us(finding) is None


def test_a_threshold_for_garbage_collection_hides_retries() -> None:
    document = snapshot([segment(POOL, [block(MIB)])], history(), garbage_collection_threshold=0.8)
    assert judge(rule, with_snapshot(starved(), document)).status is Status.NOT_APPLICABLE


def test_without_a_history_nothing_is_judged() -> None:
    assert "memory snapshot with history" in judge(rule, healthy()).message
    assert judge(rule, with_snapshot(healthy(), [segment(POOL, [block(1)])])).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
