"""Collectives and how much of them nothing hides."""

from __future__ import annotations

from tests.builders import TraceBuilder
from tests.measures.handmade import devices_of
from traceanalyzer.measures.communication import Communication, measure_communication

_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _measure(builder: TraceBuilder) -> Communication:
    trace = builder.build()
    return measure_communication(trace, devices_of(trace))


def test_exposed_is_the_part_outside_compute() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 0, 10)
    builder.kernel(_ALL_REDUCE, 5, 20, stream=20)
    builder.memset(18, 19)  # counts as compute
    assert _measure(builder).exposed_ns.tolist() == [9_000]


def test_two_collectives_at_once_hide_each_other_not() -> None:
    builder = TraceBuilder()
    builder.kernel(_ALL_REDUCE, 0, 10, stream=20)
    builder.kernel(_ALL_REDUCE, 5, 15, stream=21)
    assert _measure(builder).exposed_ns.tolist() == [10_000, 10_000]


def test_compute_of_another_device_hides_nothing() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 0, 10, device=1)
    builder.kernel(_ALL_REDUCE, 0, 10, device=0)
    found = _measure(builder)
    assert found.exposed_ns.tolist() == [10_000]
    assert found.device.tolist() == [0]


def test_copies_hide_no_collective() -> None:
    builder = TraceBuilder()
    builder.copy(0, 10)
    builder.kernel(_ALL_REDUCE, 0, 10, stream=20)
    assert _measure(builder).exposed_ns.tolist() == [10_000]


def test_a_single_gpu_run_has_none() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 0, 10)
    assert len(_measure(builder).activity) == 0
