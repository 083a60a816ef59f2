"""TA302."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, launch_bound, likely_us, loop
from traceanalyzer.measures import Measures
from traceanalyzer.model.schema import MemoryKind
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import blocking_h2d_copies as rule
from traceanalyzer.rules import pageable_h2d_copies


def waiting(wait_us: float, memory: MemoryKind = MemoryKind.PINNED, size_bytes: int = 1_000_000) -> Measures:
    """PyTorch's blocking copy: an asynchronous call and a synchronisation inside one operator."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.operator("aten::copy_", at, at + wait_us)
        b.copy(at + 15, at + 30, launch=(at, at + 10), host_memory=memory, size_bytes=size_bytes)
        b.call("cudaStreamSynchronize", at + 10, at + wait_us)
        launch_bound(b, at + wait_us, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """The host waits for 1,500 µs in every step."""
    return waiting(1_500)


def quiet() -> Measures:
    """The same copy with nobody waiting for it."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.operator("aten::copy_", at, at + 12)
        b.copy(at + 15, at + 30, launch=(at, at + 10))
        launch_bound(b, at + 12, at + LENGTH)

    return loop(step)


def test_the_host_wins_the_whole_wait_in_a_launch_bound_step() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 1_500
    assert finding.observed["blocking_copies"] == 5


def test_a_copy_nobody_waits_for_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_a_blocking_call_without_async_counts_too() -> None:
    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.copy(at + 5, at + 990, launch=(at, at + 1_000), call="cudaMemcpy")
        launch_bound(b, at + 1_000, at + LENGTH)

    assert likely_us(judge(rule, loop(step))) == 1_000


def test_waiting_for_a_small_pageable_copy_is_this_rules_business() -> None:
    measures = waiting(1_500, MemoryKind.PAGEABLE, size_bytes=8)
    assert judge(rule, measures).status is Status.FAIL
    assert judge(pageable_h2d_copies, measures).status is Status.PASS


@pytest.mark.parametrize(("wait_us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_on(wait_us: float, status: Status) -> None:
    assert judge(rule, waiting(wait_us)).status is status


def test_no_copies_and_an_empty_recording_are_not_judged() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
