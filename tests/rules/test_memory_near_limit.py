"""TA405."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, STEPS, busy_step, empty, healthy, judge
from tests.rules.test_allocation_retries import POOL, with_snapshot
from tests.snapshots import MIB, block, segment
from traceanalyzer.measures import Measures
from traceanalyzer.model.trace import Device
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import memory_near_limit as rule


def filled(reserved: int, total: int | None = 1000) -> Measures:
    builder = TraceBuilder(devices=[Device(0, "H200", memory_bytes=total)])
    for number in range(STEPS):
        builder.step(number, number * LENGTH, (number + 1) * LENGTH)
        busy_step(builder, number, number * LENGTH)
    builder.memory(5, 10, allocated=10, reserved=20)
    builder.memory(20, 400, allocated=410, reserved=reserved)
    return Measures(builder.build())


def fires() -> Measures:
    """950 of 1,000 bytes are reserved."""
    return filled(950)


def quiet() -> Measures:
    """Half of them."""
    return filled(500)


@pytest.mark.parametrize(("reserved", "status"), [(900, Status.PASS), (901, Status.FAIL)])
def test_it_speaks_above_nine_tenths(reserved: int, status: Status) -> None:
    finding = judge(rule, filled(reserved))
    assert finding.status is status
    assert finding.observed["reserved_share"] == reserved / 1000


def test_the_call_sites_of_a_snapshot_say_what_holds_it() -> None:
    builder = TraceBuilder(devices=[Device(0, memory_bytes=10 * MIB)])
    builder.kernel("gemm", 0, 10)
    document = [segment(POOL, [block(6 * MIB, function="large"), block(4 * MIB, function="less")])]
    finding = judge(rule, with_snapshot(Measures(builder.build()), document))
    assert finding.status is Status.FAIL
    assert "6.00 MiB from large at train.py:1, 4.00 MiB from less" in finding.message


def test_the_recorder_may_say_how_much_memory_a_device_has() -> None:
    trace = filled(950, None).trace
    assert judge(rule, Measures(trace)).status is Status.NOT_APPLICABLE
    told = Measures(trace, recorder={"gpus": [{"index": 0, "memory_bytes": 1000}]})
    assert judge(rule, told).status is Status.FAIL


def test_without_events_and_snapshot_nothing_is_judged() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
