"""Series with one value per step window."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import TraceBuilder
from tests.measures.handmade import devices_of, ledger_of, profiler_steps, recording, steps_of
from traceanalyzer.measures.copies import measure_copies
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.kernels import measure_kernels
from traceanalyzer.measures.step_variation import measure_step_series
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import CopyDirection
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import PerStep
from traceanalyzer.results.vocabulary import Cause

_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def _series(trace: Trace, steps: Steps, idle: IdleLedger | None = None) -> PerStep:
    devices = devices_of(trace)
    copies, kernels = measure_copies(trace, devices, steps), measure_kernels(trace, steps)
    return measure_step_series(trace, steps, devices, idle if idle is not None else ledger_of(), copies, kernels).report


def test_idle_is_clipped_to_windows_by_time() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 30)
    builder.kernel("b", 95, 120)  # lies across the border
    series = _series(builder.build(), steps_of((0, 100), (100, 200)))
    assert series.window_ns == [100_000, 100_000]
    assert series.idle_ns == [75_000, 80_000]
    assert series.max_gap_ns == [65_000, 80_000]


def test_boundary_idle_lies_outside_the_marker() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 85)
    series = _series(builder.build(), steps_of((0, 80, 100)))
    assert series.idle_ns == [25_000]
    assert series.boundary_idle_ns == [15_000]


def test_kernel_time_belongs_to_the_window_that_launched_it() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 110, 130, launch=(50, 55))
    series = _series(builder.build(), steps_of((0, 100), (100, 200)))
    assert series.kernel_ns == [20_000, 0]
    assert series.kernel_family_ns == {"a": [20_000, 0]}
    assert series.counters["kernels"] == [1, 0]
    assert series.idle_ns == [100_000, 80_000]


def test_busy_kinds_are_disjoint_and_sum_to_busy() -> None:
    builder = TraceBuilder()
    builder.kernel("gemm", 0, 30)
    builder.kernel(_ALL_REDUCE, 20, 50, stream=20)
    builder.copy(40, 70, stream=21)
    builder.memset(90, 95)
    series = _series(builder.build(), steps_of((0, 100)))
    assert series.busy_by_kind_ns == {"compute": [35_000], "exposed_communication": [20_000], "exposed_copy": [20_000]}
    assert sum(v[0] for v in series.busy_by_kind_ns.values()) + series.idle_ns[0] == series.window_ns[0]


def test_exposed_h2d_leaves_out_what_kernels_hide() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 0, 20)
    builder.copy(10, 30, launch=(1, 2), stream=9)
    builder.copy(40, 50, launch=(3, 4), stream=9, direction=CopyDirection.D2H)
    assert _series(builder.build(), steps_of((0, 100))).exposed_h2d_ns == [10_000]


def test_causes_are_summed_per_window() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 0, 10)
    idle = ledger_of(
        (10, 60, Cause.INPUT_WAIT, 0),
        (60, 100, Cause.PYTHON, 0),
        (100, 200, Cause.INPUT_WAIT, 1),
        (300, 310, Cause.UNKNOWN, -1),
    )
    series = _series(builder.build(), steps_of((0, 100), (100, 200)), idle)
    assert series.idle_by_cause_ns == {"input_wait": [50_000, 100_000], "python": [40_000, 0]}


def test_counters_count_calls_and_activities_per_window() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 10, 11, launch=(1, 3))
    builder.memset(12, 13, launch=(4, 5))
    builder.copy(14, 15, launch=(6, 7))
    builder.copy(16, 17, launch=(8, 9), direction=CopyDirection.D2H)
    builder.call("cudaStreamSynchronize", 10, 18)
    builder.call("cudaMalloc", 110, 112)
    builder.call("cudaFree", 113, 114)
    builder.call("cudaHostAlloc", 115, 116)
    builder.kernel("a", 130, 131, launch=(120, 126))
    series = _series(builder.build(), steps_of((0, 100), (100, 200)))
    assert series.counters == {
        "launches": [1, 1],
        "graph_launches": [0, 0],
        "synchronisations": [1, 0],
        "device_mallocs": [0, 1],
        "device_frees": [0, 1],
        "host_allocs": [0, 1],
        "kernels": [1, 1],
        "memsets": [1, 0],
        "h2d": [1, 0],
        "d2h": [1, 0],
        "d2d": [0, 0],
        "p2p": [0, 0],
    }
    assert series.log_host_factor_ref_ns == [2_000.0, 6_000.0]


def test_rare_families_are_added_up_as_other() -> None:
    builder = TraceBuilder()
    letters = [f"kernel{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(50)]
    for index, name in enumerate(letters):
        builder.kernel(name, 10 * index, 10 * index + 1 + 0.1 * index)
    series = _series(builder.build(), steps_of((0, 1000)))
    assert len(series.kernel_family_ns) == 41
    assert sum(v[0] for v in series.kernel_family_ns.values()) == series.kernel_ns[0]
    assert series.kernel_family_ns["other"] == [sum(1_000 + 100 * i for i in range(10))]


def test_the_busiest_device_is_taken() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 0, 10, device=0)
    builder.kernel("b", 0, 90, device=1)
    series = _series(builder.build(), steps_of((0, 100)))
    assert series.device_id == 1
    assert series.idle_ns == [10_000]
    assert series.counters["kernels"] == [1]


def test_a_window_without_activity_is_all_idle() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 0, 10)
    series = _series(builder.build(), steps_of((0, 100), (100, 150)))
    assert series.idle_ns == [90_000, 50_000]
    assert series.max_gap_ns == [90_000, 50_000]
    assert series.log_host_factor_ref_ns == [0.0, 0.0]


def test_without_a_device_the_host_counters_remain() -> None:
    builder = TraceBuilder()
    builder.call("cudaLaunchKernel", 1, 2, correlation=5)
    series = _series(builder.build(), steps_of((0, 100)))
    assert series.device_id is None
    assert series.counters["launches"] == [1]
    assert series.idle_ns == [0]
    assert series.busy_by_kind_ns == {}


@pytest.mark.shared
def test_public_recording_issues_1219_activities_in_each_of_its_five_steps() -> None:
    trace = recording("traces/public/hta/ns_resolution_rank-0.pt.trace.json.gz")
    counters = _series(trace, profiler_steps(trace)).counters
    issued = np.sum([counters[name] for name in ("kernels", "memsets", "h2d", "d2h", "d2d", "p2p")], axis=0)
    assert issued.tolist() == [1_219] * 5
    assert int(issued[:-1].sum()) == 4_876


@pytest.mark.shared
def test_idle_and_busy_kinds_fill_every_window_of_a_real_recording() -> None:
    trace = recording("traces/h200/pageable.pt.trace.json.gz")
    series = _series(trace, profiler_steps(trace))
    for window in range(len(series.window_ns)):
        parts = sum(values[window] for values in series.busy_by_kind_ns.values())
        assert parts + series.idle_ns[window] == series.window_ns[window]
    # 65 copies in 5 steps, none under a kernel
    assert series.counters["h2d"] == [13] * 5
    assert sum(series.exposed_h2d_ns) == 10_335_003
