"""Copies: overlap with kernels, host memory and what they cost the host."""

from __future__ import annotations

import pytest

from tests.builders import AUTOGRAD, TraceBuilder
from tests.measures.handmade import devices_of, profiler_steps, recording, steps_of
from traceanalyzer.measures.copies import Copies, measure_copies
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import CopyDirection, MemoryKind, WaitKind


def _measure(builder: TraceBuilder, steps: Steps | None = None) -> Copies:
    trace = builder.build()
    return measure_copies(trace, devices_of(trace), steps if steps is not None else steps_of())


def test_overlap_is_the_part_under_the_union_of_kernels() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 0, 10)
    builder.kernel("b", 5, 12, stream=8)  # overlaps a: the union ends at 12
    builder.kernel("c", 18, 30)
    builder.copy(8, 20, launch=(0, 1), stream=9)
    copies = _measure(builder)
    assert copies.overlapped_ns.tolist() == [6_000]  # 8–12 and 18–20
    h2d = copies.report.h2d
    assert (h2d.time_ns, h2d.overlapped_ns, h2d.not_under_kernel_ns) == (12_000, 6_000, 6_000)


def test_a_memset_hides_no_copy() -> None:
    builder = TraceBuilder()
    builder.memset(0, 20)
    builder.copy(5, 10, stream=9)
    assert _measure(builder).overlapped_ns.tolist() == [0]


def test_kernels_of_another_device_hide_no_copy() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 0, 20, device=1)
    builder.copy(5, 10, device=0)
    assert _measure(builder).overlapped_ns.tolist() == [0]


def test_blocking_copy_counts_its_call_and_the_synchronisation_in_the_same_operator() -> None:
    builder = TraceBuilder()
    builder.operator("aten::to", 0, 40)
    builder.operator("aten::copy_", 1, 39)
    builder.copy(5, 30, launch=(3, 6), host_memory=MemoryKind.PAGEABLE)
    builder.call("cudaStreamSynchronize", 8, 32)
    copies = _measure(builder)
    assert copies.sync_call.tolist() == [1]
    assert copies.host_blocked_ns.tolist() == [3_000 + 24_000]
    assert copies.report.h2d.by_host_memory["pageable"].host_blocked_ns == 27_000


def test_synchronisation_in_a_later_operator_belongs_to_no_copy() -> None:
    builder = TraceBuilder()
    builder.operator("aten::copy_", 0, 7)
    builder.copy(5, 30, launch=(3, 6))
    builder.operator("aten::item", 8, 40)
    builder.call("cudaStreamSynchronize", 10, 32)
    copies = _measure(builder)
    assert copies.sync_call.tolist() == [-1]
    assert copies.host_blocked_ns.tolist() == [3_000]


def test_synchronisation_on_another_thread_belongs_to_no_copy() -> None:
    builder = TraceBuilder()
    builder.copy(5, 30, launch=(3, 6))
    builder.call("cudaStreamSynchronize", 8, 32, thread=AUTOGRAD)
    assert _measure(builder).sync_call.tolist() == [-1]


def test_device_synchronisation_completes_no_copy() -> None:
    builder = TraceBuilder()
    builder.copy(5, 30, launch=(3, 6))
    builder.call("cudaDeviceSynchronize", 8, 32)
    assert _measure(builder).sync_call.tolist() == [-1]


def test_synchronisation_completes_the_last_copy_before_it() -> None:
    builder = TraceBuilder()
    builder.operator("aten::x", 0, 60)
    builder.copy(5, 30, launch=(1, 2))
    builder.copy(31, 40, launch=(3, 4))
    builder.call("cudaStreamSynchronize", 8, 42)
    assert _measure(builder).sync_call.tolist() == [-1, 2]


def test_outside_operators_only_the_directly_following_synchronisation_counts() -> None:
    builder = TraceBuilder()
    builder.copy(5, 30, launch=(1, 2))
    builder.call("cudaStreamSynchronize", 8, 32)
    builder.copy(41, 50, launch=(40, 41))
    builder.kernel("a", 55, 60, launch=(42, 43))
    builder.call("cudaStreamSynchronize", 44, 61)
    assert _measure(builder).sync_call.tolist() == [1, -1]


def test_synchronisation_known_to_wait_for_another_stream_does_not_count() -> None:
    builder = TraceBuilder()
    builder.copy(5, 30, launch=(1, 2), stream=7)
    builder.call("cudaStreamSynchronize", 8, 32, correlation=55)
    builder.wait(8, 32, kind=WaitKind.STREAM, stream=20, correlation=55)
    assert _measure(builder).sync_call.tolist() == [-1]


def test_copies_belong_to_the_window_that_issued_them() -> None:
    builder = TraceBuilder()
    builder.copy(12, 20, launch=(5, 6))
    builder.copy(25, 28)  # without launch: by its own start
    copies = _measure(builder, steps_of((0, 10), (10, 30)))
    assert copies.window.tolist() == [0, 1]


def test_unknown_size_makes_the_sum_unknown_not_smaller() -> None:
    builder = TraceBuilder()
    builder.copy(0, 5, size_bytes=100)
    builder.copy(6, 8, size_bytes=-1)
    assert _measure(builder).report.h2d.bytes is None


def test_directions_are_kept_apart() -> None:
    builder = TraceBuilder()
    builder.copy(0, 5, direction=CopyDirection.D2H, size_bytes=7)
    builder.copy(6, 8, direction=CopyDirection.P2P, size_bytes=9)
    report = _measure(builder).report
    assert (report.h2d.count, report.d2h.count, report.d2d.count, report.p2p.count) == (0, 1, 0, 1)
    assert (report.d2h.bytes, report.p2p.bytes) == (7, 9)


@pytest.mark.shared
def test_pageable_run_has_65_of_65_h2d_copies_from_pageable_memory() -> None:
    trace = recording("traces/h200/pageable.pt.trace.json.gz")
    copies = measure_copies(trace, devices_of(trace), profiler_steps(trace))
    assert copies.report.h2d.count == 65
    assert {k: v.count for k, v in copies.report.h2d.by_host_memory.items()} == {"pageable": 65}
    # PyTorch synchronises after every copy that is not non_blocking: 65 input copies and 50 reads
    assert int((copies.sync_call >= 0).sum()) == 115


@pytest.mark.shared
def test_item_run_reads_back_41_more_values_per_step_than_a_healthy_one() -> None:
    counts = {}
    for name in ("good", "item"):
        trace = recording(f"traces/h200/{name}.pt.trace.json.gz")
        steps = profiler_steps(trace)
        copies = measure_copies(trace, devices_of(trace), steps)
        d2h = copies.window[copies.direction == CopyDirection.D2H]
        counts[name] = [int((d2h == w).sum()) for w in range(len(steps))]
    assert counts == {"good": [10] * 5, "item": [51] * 3}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "copy_ns"),
    [("h100_bert_small", 2_240), ("h100_timesformer", 3_464_142), ("vllm_decode_graph", 43_190)],
)
def test_copy_time_agrees_with_the_published_totals(name: str, copy_ns: int) -> None:
    trace = recording(f"traces/public/tracelens/{name}.json.gz")
    report = measure_copies(trace, devices_of(trace), steps_of()).report
    parts = (report.h2d, report.d2h, report.d2d, report.p2p)
    # published in float microseconds: each copy may be off by a nanosecond
    assert sum(p.time_ns for p in parts) == pytest.approx(copy_ns, abs=sum(p.count for p in parts))
    for part in parts:
        assert part.time_ns == part.overlapped_ns + part.not_under_kernel_ns
