"""TA301."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, launch_bound, likely_us, loop, work
from traceanalyzer.measures import Measures
from traceanalyzer.model.schema import MemoryKind
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import blocking_h2d_copies
from traceanalyzer.rules import pageable_h2d_copies as rule


def uploading(
    blocked_us: float,
    memory: MemoryKind = MemoryKind.PAGEABLE,
    size_bytes: int = 20_000_000,
    *,
    reference: bool = False,
    is_busy_after: bool = False,
) -> Measures:
    """Each step begins with a copy whose call holds the host, followed by launch-bound or by queued work."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.copy(at + 1, at + blocked_us, launch=(at, at + blocked_us), host_memory=memory, size_bytes=size_bytes)
        if is_busy_after:
            work(b, at + blocked_us, at + blocked_us + 5, at + LENGTH)
        else:
            launch_bound(b, at + blocked_us, at + LENGTH)
        if reference:
            # 40 MB in 1,000 µs under kernels: 40 GB/s
            b.copy(at + 8_000, at + 9_000, launch=(at + 8_000, at + 8_002), size_bytes=40_000_000, stream=8)

    return loop(step)


def fires() -> Measures:
    """The host stands still for 2,000 µs of a launch-bound step."""
    return uploading(2_000)


def quiet() -> Measures:
    """The same copies from pinned memory, issued by a call that returns at once."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.copy(at + 5, at + 2_000, launch=(at, at + 4), size_bytes=20_000_000)
        launch_bound(b, at + 4, at + LENGTH)

    return loop(step)


def test_everything_after_the_copy_would_be_issued_earlier() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 2_000
    assert finding.observed["host_blocked_per_step_ns"] == 2_000_000
    assert finding.observed["bytes_per_step"] == 20_000_000
    # 20 MB in 1,999 µs
    assert finding.observed["bytes_per_second"] == pytest.approx(20e6 / 1_999e-6, rel=1e-6)


def test_time_the_host_wins_is_worth_nothing_while_the_device_has_work() -> None:
    finding = judge(rule, uploading(2_000, is_busy_after=True))
    assert finding.status is Status.PASS


def test_pinned_copies_in_the_recording_say_how_much_faster_the_copy_would_be() -> None:
    finding = judge(rule, uploading(2_000, is_busy_after=True, reference=True))
    assert finding.status is Status.FAIL
    # 1,999 µs outside kernels at 10.005 GB/s instead of 40 GB/s
    assert likely_us(finding) == pytest.approx(1_999 - 500, abs=0.01)
    assert finding.observed["pinned_bytes_per_second"] == 40_000_000_000


def test_pinned_copies_are_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


@pytest.mark.parametrize(("size_bytes", "status"), [(65_536, Status.PASS), (65_537, Status.FAIL)])
def test_copies_up_to_64_kib_are_staged_at_once_and_not_counted(size_bytes: int, status: Status) -> None:
    assert judge(rule, uploading(2_000, size_bytes=size_bytes)).status is status


@pytest.mark.parametrize(("blocked_us", "status"), [(99, Status.PASS), (100, Status.FAIL)])
def test_it_fires_from_the_floor_on(blocked_us: float, status: Status) -> None:
    assert judge(rule, uploading(blocked_us)).status is status


def test_a_pageable_copy_is_not_also_called_blocking() -> None:
    assert judge(blocking_h2d_copies, fires()).status is Status.PASS


def test_copies_from_unknown_memory_are_not_judged() -> None:
    finding = judge(rule, uploading(2_000, MemoryKind.UNKNOWN))
    assert finding.status is Status.NOT_APPLICABLE
    assert "memory kind" in finding.message


def test_no_copies_and_an_empty_recording_are_not_judged() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
