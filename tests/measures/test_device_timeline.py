"""Busy, idle and exposed time per device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import slow_kineto
from tests.builders import TraceBuilder, ns
from tests.shared_data import shared
from traceanalyzer.measures.device_timeline import DeviceTimeline, collective_names, measure_device_timelines
from traceanalyzer.model.schema import ActivityKind, CopyDirection


def only(builder: TraceBuilder) -> DeviceTimeline:
    (device,) = measure_device_timelines(builder.build())
    return device


def test_busy_is_the_union_of_all_streams_and_never_exceeds_the_span() -> None:
    b = TraceBuilder()
    b.kernel("a", 0, 100, stream=7)
    b.kernel("b", 80, 150, stream=7)
    b.kernel("c", 20, 40, stream=9)
    b.kernel("d", 200, 210, stream=9)
    device = only(b)
    assert (device.span_ns, device.busy_ns, device.idle_ns) == (ns(210), ns(160), ns(50))
    assert device.gap_start_ns.tolist() == [ns(150)]
    assert device.gap_end_ns.tolist() == [ns(200)]


def test_the_span_ends_with_the_last_activity_to_end_not_the_last_to_start() -> None:
    b = TraceBuilder()
    b.kernel("long", 0, 100)
    b.kernel("short", 10, 20, stream=9)
    assert only(b).span_ns == ns(100)


def test_a_copy_is_exposed_where_neither_compute_nor_communication_runs() -> None:
    b = TraceBuilder()
    b.kernel("gemm", 0, 10)
    b.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 20, stream=20)
    b.copy(5, 30, stream=9)
    device = only(b)
    assert device.compute_ns == ns(10)
    assert device.communication_ns == ns(10)
    assert device.exposed_communication_ns == ns(10)
    assert device.copy_ns == ns(25)
    assert device.exposed_copy_ns == ns(10)


def test_communication_under_compute_is_not_exposed() -> None:
    b = TraceBuilder()
    b.kernel("ncclKernel_AllReduce_RING_LL_Sum_float", 0, 30, stream=20)
    b.kernel("gemm", 10, 25)
    device = only(b)
    assert (device.communication_ns, device.exposed_communication_ns) == (ns(30), ns(15))
    # the union of all kernels, which hides copies, holds both
    assert device.kernel_start_ns.tolist() == [0]
    assert device.kernel_end_ns.tolist() == [ns(30)]


def test_memsets_and_whole_graphs_are_compute() -> None:
    b = TraceBuilder()
    b.memset(0, 5)
    b.activity("CUDA graph", 10, 30, kind=ActivityKind.GRAPH)
    b.copy(40, 41, direction=CopyDirection.D2H)
    assert only(b).compute_ns == ns(25)


def test_gap_percentiles_are_lengths_of_real_gaps() -> None:
    b = TraceBuilder()
    end = 0.0
    for gap in (4, 1, 3, 2):
        b.kernel("k", end, end + 1)
        end += 1 + gap
    b.kernel("k", end, end + 1)
    gaps = only(b).gaps
    assert (gaps.count, gaps.p50_ns, gaps.p90_ns, gaps.p99_ns, gaps.max_ns) == (4, ns(2), ns(4), ns(4), ns(4))


def test_devices_are_measured_apart_and_a_host_only_recording_has_none() -> None:
    b = TraceBuilder()
    b.kernel("a", 0, 10, device=1)
    b.kernel("b", 20, 30, device=0)
    b.kernel("c", 40, 50, device=1)
    zero, one = measure_device_timelines(b.build())
    assert (zero.device_id, zero.span_ns, zero.idle_ns) == (0, ns(10), 0)
    assert (one.device_id, one.span_ns, one.idle_ns) == (1, ns(50), ns(30))
    host_only = TraceBuilder()
    host_only.operator("aten::add", 0, 5)
    assert measure_device_timelines(host_only.build()) == ()


def test_an_activity_without_length_neither_splits_a_gap_nor_is_busy() -> None:
    b = TraceBuilder()
    b.kernel("a", 0, 10)
    b.kernel("nothing", 15, 15)
    b.kernel("b", 20, 30)
    device = only(b)
    assert (device.busy_ns, device.gaps.count) == (ns(20), 1)


def test_only_kernels_of_the_collective_libraries_are_communication() -> None:
    names = ["ncclDevKernel_SendRecv(int)", "void ncclKernel_x()", "rcclGenericKernel<1>", "my_nccl_like_gemm", "gemm"]
    table = collective_names(names, np.arange(len(names), dtype=np.int32))
    assert table[:-1].tolist() == [True, True, True, False, False]


PUBLISHED = {
    # name: total, busy, computation, copy (ms; None where the source publishes no figure)
    "h100_vit": (7.559844, 1.225309, 1.225309, None),
    "h100_bert_small": (3.907825, 0.309438, 0.307198, 0.002240),
    "h100_timesformer": (159.992427, 158.433173, 154.969031, 3.464142),
    "vllm_decode_graph": (10.743182, 10.717697, 10.674507, 0.043190),
    "mi210_gpu_only": (5.979503, 5.343370, None, None),
    "torch_compile_triton": (12.549032, 12.549021, None, None),
    "h100_qwen_unlinked_kernels": (49.653, 45.647, None, None),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_agree_with_the_published_gpu_timeline(name: str) -> None:
    trace = slow_kineto.read(shared(f"traces/public/tracelens/{name}.json.gz"))
    (device,) = measure_device_timelines(trace)
    total, busy, compute, copy = PUBLISHED[name]
    # the published sums were made in floating-point microseconds: up to 1 ns per activity apart
    slack = max(1000 if name.startswith("h100_qwen") else 0, len(device.rows))
    assert device.span_ns == pytest.approx(total * 1e6, abs=slack)
    assert device.busy_ns == pytest.approx(busy * 1e6, abs=slack)
    assert device.busy_ns + device.idle_ns == device.span_ns
    if compute is not None:
        assert device.compute_ns == pytest.approx(compute * 1e6, abs=slack)
    if copy is not None:
        assert device.copy_ns == device.exposed_copy_ns == pytest.approx(copy * 1e6, abs=slack)


@pytest.mark.shared
@pytest.mark.parametrize(("workers", "kernel_us", "copy_us"), [("0", 98_588.67, 1_915.3), ("4", 99_144.67, 3_159.8)])
def test_resnet50_kernel_and_copy_time_per_step_are_the_published_ones(
    workers: str, kernel_us: float, copy_us: float
) -> None:
    path: Path = shared(f"traces/public/kineto/resnet50_num_workers_{workers}.pt.trace.json.gz")
    (device,) = measure_device_timelines(slow_kineto.read(path))
    kernel_ns = int((device.kernel_end_ns - device.kernel_start_ns).sum())
    assert kernel_ns / 6 == pytest.approx(kernel_us * 1000, abs=5)
    assert device.copy_ns / 6 == pytest.approx(copy_us * 1000, abs=50)
