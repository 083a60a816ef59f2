"""One test for every sentence of the rules that give an idle nanosecond its cause, with hand-computed pieces."""

from __future__ import annotations

import numpy as np

from tests.builders import AUTOGRAD, MAIN, TraceBuilder, ns
from traceanalyzer.measures.device_timeline import measure_device_timelines
from traceanalyzer.measures.gap_attribution import IdleLedger, attribute_idle
from traceanalyzer.measures.host_timeline import flatten_host
from traceanalyzer.measures.steps import Steps, find_steps
from traceanalyzer.model.schema import MemoryKind, SliceKind, WaitKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import CAUSES, PHASES, Phase

Piece = tuple[float, float, str]
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
EVALUATE = "autograd::engine::evaluate_function: ConvolutionBackward0"


def ledger_of(trace: Trace, steps: Steps | None = None) -> IdleLedger:
    steps = steps or find_steps(trace, None, None)
    return attribute_idle(trace, steps, flatten_host(trace), measure_device_timelines(trace))


def causes(builder: TraceBuilder, device: int = 0) -> list[Piece]:
    """Return (start, end, cause) in µs inside the device's span, neighbours of one cause joined."""
    trace = builder.build()
    ledger = ledger_of(trace)
    pieces: list[Piece] = []
    rows = np.flatnonzero(ledger.mask(device=device) & (ledger.in_span == 1))
    for row in rows:
        start, end = int(ledger.start_ns[row]) / 1000, int(ledger.end_ns[row]) / 1000
        cause = CAUSES[ledger.cause[row]].value
        if pieces and pieces[-1][2] == cause and pieces[-1][1] == start:
            pieces[-1] = (pieces[-1][0], end, cause)
        else:
            pieces.append((start, end, cause))
    return pieces


def sums(ledger: IdleLedger, mask: np.ndarray) -> dict[str, int]:  # type: ignore[type-arg]
    return {
        CAUSES[code].value: int(ledger.duration_ns[mask & (ledger.cause == code)].sum())
        for code in np.unique(ledger.cause[mask])
    }


def started() -> TraceBuilder:
    """Return a trace whose device works until 10 µs; every test's gap begins there."""
    b = TraceBuilder()
    b.kernel("first", 0, 10, launch=(-5, -3))
    return b


# Rule 1: after the launch call


def test_time_after_a_launch_call_that_returned_inside_the_gap_is_launch_latency() -> None:
    b = started()
    b.kernel("k", 20, 30, launch=(5, 14))
    assert causes(b) == [(10, 14, "launch_call"), (14, 20, "launch_latency")]


def test_a_gap_before_work_that_was_already_queued_is_queue_turnaround() -> None:
    b = started()
    b.kernel("k", 12, 30, launch=(5, 10))
    assert causes(b) == [(10, 12, "queue_turnaround")]


def test_gaps_between_the_kernels_of_one_graph_launch_are_graph_turnaround() -> None:
    b = TraceBuilder()
    b.call("cudaGraphLaunch", 0, 5, correlation=9)
    b.activity("a", 6, 10, correlation=9)
    b.activity("b", 12, 15, correlation=9)
    b.call("cudaGraphLaunch", 7, 9, correlation=11)
    b.activity("c", 18, 20, correlation=11)
    assert causes(b) == [(10, 12, "graph_turnaround"), (15, 18, "queue_turnaround")]


def test_queued_work_that_waits_for_another_device_is_device_wait_until_that_activity_ends() -> None:
    b = started()
    other = b.kernel("elsewhere", 5, 25, launch=(-2, -1), device=1, stream=3)
    record = b.next_correlation()
    b.call("cudaEventRecord", 0, 1, correlation=record)
    wait = b.next_correlation()
    b.call("cudaStreamWaitEvent", 2, 3, correlation=wait)
    b.wait(2, 3, kind=WaitKind.STREAM_WAIT_EVENT, correlation=wait, source_correlation=record)
    b.kernel("k", 28, 40, launch=(4, 6))
    assert other != record
    assert causes(b) == [(10, 25, "device_wait"), (25, 28, "queue_turnaround")]


def test_a_wait_that_the_recording_shows_reaching_into_the_gap_is_device_wait() -> None:
    b = started()
    wait = b.next_correlation()
    b.call("cudaStreamWaitEvent", 2, 3, correlation=wait)
    b.wait(2, 22, kind=WaitKind.STREAM_WAIT_EVENT, correlation=wait)
    b.kernel("k", 23, 40, launch=(4, 6))
    assert causes(b) == [(10, 22, "device_wait"), (22, 23, "queue_turnaround")]


def test_work_queued_behind_a_host_function_is_device_wait() -> None:
    b = started()
    b.call("cudaLaunchHostFunc", 1, 2)
    b.kernel("k", 30, 40, launch=(4, 6))
    assert causes(b) == [(10, 30, "device_wait")]


# Rule 2: inside the launch call


def test_a_copy_without_async_blocks_the_host_and_is_copy_call() -> None:
    b = started()
    b.copy(20, 22, launch=(12, 25), call="cudaMemcpy")
    assert causes(b) == [(10, 12, "unknown"), (12, 20, "copy_call")]


def test_a_pageable_copy_is_copy_call_only_above_64_kib() -> None:
    b = started()
    b.copy(20, 22, launch=(10, 25), host_memory=MemoryKind.PAGEABLE, size_bytes=65_537)
    b.copy(30, 32, launch=(22, 35), host_memory=MemoryKind.PAGEABLE, size_bytes=65_536)
    b.copy(40, 42, launch=(32, 45), host_memory=MemoryKind.PINNED, size_bytes=1_000_000)
    assert causes(b) == [(10, 20, "copy_call"), (22, 30, "launch_call"), (32, 40, "launch_call")]


def test_time_inside_a_graph_launch_is_graph_launch() -> None:
    b = started()
    b.call("cudaGraphLaunch", 10, 18, correlation=9)
    b.activity("a", 20, 25, correlation=9)
    assert causes(b) == [(10, 18, "graph_launch"), (18, 20, "launch_latency")]


def test_profiler_overhead_wins_inside_a_launch_call_and_not_after_it() -> None:
    b = started()
    b.overhead("Activity Buffer Request", 12, 22)
    b.kernel("k", 25, 30, launch=(10, 20))
    assert causes(b) == [(10, 12, "launch_call"), (12, 20, "profiler_overhead"), (20, 25, "launch_latency")]


# Rule 3: before the launch call


def launched_after(b: TraceBuilder, until: float, *, thread: int = MAIN) -> TraceBuilder:
    """Let the gap end at ``until`` with a launch that takes no time, so that rule 3 explains all of it."""
    b.kernel("k", until, until + 10, launch=(until, until), thread=thread)
    return b


def test_profiler_overhead_holds_for_every_thread_and_lazy_loading_is_module_load() -> None:
    b = started()
    b.operator("aten::add", 0, 40)
    b.overhead("Buffer Flush", 12, 15)
    b.overhead("Lazy Function Loading", 20, 26, is_module_load=True)
    assert causes(launched_after(b, 40)) == [
        (10, 12, "operator_dispatch"),
        (12, 15, "profiler_overhead"),
        (15, 20, "operator_dispatch"),
        (20, 26, "module_load"),
        (26, 40, "operator_dispatch"),
    ]


def test_overhead_of_another_thread_does_not_count() -> None:
    b = started()
    b.operator("aten::add", 0, 40)
    b.operator("aten::add", 0, 40, thread=3)
    b.overhead("Buffer Flush", 12, 15, thread=3)
    b.overhead("Buffer Flush", 20, 22, thread=MAIN)
    assert causes(launched_after(b, 40)) == [
        (10, 20, "operator_dispatch"),
        (20, 22, "profiler_overhead"),
        (22, 40, "operator_dispatch"),
    ]


def test_garbage_collection_wins_over_the_loader_and_the_loader_over_what_it_calls() -> None:
    b = started()
    b.annotation(LOADER, 12, 38)
    b.operator("aten::stack", 20, 30)
    b.call("cudaStreamSynchronize", 22, 24)
    b.garbage_collection(25, 27)
    b.annotation("ProfilerStep#1", 0, 60)
    assert causes(launched_after(b, 40)) == [
        (10, 12, "python"),
        (12, 25, "input_wait"),
        (25, 27, "garbage_collection"),
        (27, 38, "input_wait"),
        (38, 40, "python"),
    ]


def test_data_ranges_and_the_loaders_python_frame_are_input_wait() -> None:
    b = started()
    b.annotation("phase:data", 10, 15)
    b.annotation("data", 15, 20)
    b.python("torch/utils/data/dataloader.py(733): __next__", 20, 30)
    b.python("torch/utils/data/_utils/fetch.py(50): fetch", 22, 28)
    b.python("torch/utils/data/dataloader.py(733): __iter__", 30, 40)
    assert causes(launched_after(b, 40)) == [(10, 30, "input_wait"), (30, 40, "python")]


def test_each_kind_of_runtime_call_has_its_cause() -> None:
    b = started()
    b.operator("aten::item", 0, 80)
    for name, start, end in (
        ("cudaStreamSynchronize", 10, 20),
        ("cudaMemcpy", 20, 25),
        ("cudaMalloc", 25, 30),
        ("cudaFree", 30, 32),
        ("cudaHostAlloc", 32, 34),
        ("cuMemMap", 34, 36),
        ("cuModuleLoadData", 40, 45),
        ("cudaMemcpyAsync", 45, 50),
        ("cudaLaunchKernel", 50, 55),
        ("cudaMemsetAsync", 55, 57),
    ):
        b.call(name, start, end)
    assert causes(launched_after(b, 60)) == [
        (10, 25, "sync_wait"),
        (25, 36, "allocator"),
        (36, 40, "operator_dispatch"),
        (40, 45, "module_load"),
        (45, 50, "copy_call"),
        (50, 57, "launch_call"),
        (57, 60, "operator_dispatch"),
    ]


def test_other_calls_count_as_what_encloses_them() -> None:
    b = started()
    b.operator("aten::add", 10, 20)
    b.call("cudaStreamIsCapturing", 12, 14)
    b.call("cudaEventRecord", 16, 18)
    b.annotation("ProfilerStep#1", 0, 60)
    b.call("cudaEventQuery", 22, 24)
    assert causes(launched_after(b, 30)) == [(10, 20, "operator_dispatch"), (20, 30, "python")]


def test_a_driver_call_inside_a_runtime_call_takes_the_first_match() -> None:
    b = started()
    b.call("cudaMalloc", 10, 30)
    b.call("cuModuleLoadData", 12, 18)  # allocating comes before loading in the rule
    b.call("cudaLaunchKernel", 30, 40)
    b.call("cuModuleLoadData", 32, 38)  # loading before launching
    assert causes(launched_after(b, 40)) == [
        (10, 30, "allocator"),
        (30, 32, "launch_call"),
        (32, 38, "module_load"),
        (38, 40, "launch_call"),
    ]


def test_checkpoint_and_logging_ranges_claim_what_runs_inside_but_not_its_waits() -> None:
    b = started()
    b.annotation("checkpoint", 10, 30)
    b.operator("aten::clone", 12, 20)
    b.call("cudaMemcpy", 14, 18)
    b.annotation("phase:log", 30, 40)
    b.python("logger.py(1): write", 32, 38)
    assert causes(launched_after(b, 40)) == [
        (10, 14, "checkpoint"),
        (14, 18, "sync_wait"),
        (18, 30, "checkpoint"),
        (30, 40, "logging"),
    ]


def test_inside_an_operator_is_dispatch_and_inside_a_frame_or_range_is_python() -> None:
    b = started()
    b.annotation("forward", 10, 50)
    b.python("model.py(7): forward", 12, 48)
    b.operator("aten::relu", 20, 30)
    b.python("hook.py(2): inside", 24, 26)
    assert causes(launched_after(b, 50)) == [
        (10, 20, "python"),
        (20, 24, "operator_dispatch"),
        (24, 26, "python"),
        (26, 30, "operator_dispatch"),
        (30, 50, "python"),
    ]


def test_an_operating_system_call_counts_as_what_encloses_it() -> None:
    b = started()
    b.operator("aten::add", 10, 20)
    b.slice("pthread_mutex_lock", 12, 15, SliceKind.OS_CALL)
    b.slice("poll", 20, 30, SliceKind.OS_CALL)
    assert causes(launched_after(b, 30)) == [(10, 20, "operator_dispatch"), (20, 30, "unknown")]


def test_a_library_range_is_like_an_operator_and_no_phase() -> None:
    b = started()
    b.annotation("step", 0, 60)
    b.annotation("forward", 10, 20, domain="CCCL")
    assert causes(launched_after(b, 30)) == [(10, 20, "operator_dispatch"), (20, 30, "python")]
    ledger = ledger_of(b.build())
    assert {PHASES[p] for p in ledger.phase} == {Phase.OTHER}


def searching(name: str, long_us: float, *, launch_inside: bool = True) -> list[Piece]:
    """Return the causes while an operator that usually takes 100 µs itself takes longer once."""
    b = TraceBuilder()
    for i in range(5):
        b.operator(name, i * 200, i * 200 + 110)
        b.kernel("k", i * 200 + 101, i * 200 + 105, launch=(i * 200 + 100, i * 200 + 101))
    b.operator(name, 1000, 1000 + long_us + 10)
    b.call("cudaStreamIsCapturing", 1200, 1201)  # neither ends the stretch nor counts as a launch
    if launch_inside:
        b.kernel("k", 1000 + long_us + 1, 1000 + long_us + 9, launch=(1000 + long_us, 1000 + long_us + 1))
    else:
        b.kernel("k", 1000 + long_us + 11, 1000 + long_us + 19, launch=(1000 + long_us + 10, 1000 + long_us + 11))
    return [p for p in causes(b) if p[0] >= 1000]


def test_a_long_own_stretch_of_a_convolution_before_its_launch_is_plan_search() -> None:
    assert searching("aten::cudnn_convolution", 1000) == [(1000, 2000, "plan_search"), (2000, 2001, "launch_call")]
    assert searching("aten::addmm", 1500)[0] == (1000, 2500, "plan_search")
    assert searching("aten::_scaled_dot_product_flash_attention", 1500)[0][2] == "plan_search"


def test_plan_search_needs_a_millisecond_ten_medians_a_planned_operator_and_a_launch() -> None:
    assert searching("aten::cudnn_convolution", 999)[0][2] == "operator_dispatch"
    assert searching("aten::sum", 5000)[0][2] == "operator_dispatch"
    assert searching("aten::cudnn_convolution", 5000, launch_inside=False)[0][2] == "operator_dispatch"
    b = TraceBuilder()  # always as slow: its median is the same, so it is no search
    for i in range(3):
        b.operator("aten::mm", i * 2000, i * 2000 + 1600)
        b.kernel("k", i * 2000 + 1501, i * 2000 + 1510, launch=(i * 2000 + 1500, i * 2000 + 1501))
    assert "plan_search" not in {p[2] for p in causes(b)}


# Rule 4: nothing open on the launching thread


def backward() -> TraceBuilder:
    """Return a main thread that waits in a range while the autograd thread evaluates two nodes with a pause."""
    b = TraceBuilder()
    b.step(1, 0, 200)
    b.operator(EVALUATE, 10, 20, thread=AUTOGRAD)
    b.kernel("a", 15, 21, launch=(14, 15), thread=AUTOGRAD)
    b.operator(EVALUATE, 40, 50, thread=AUTOGRAD)
    b.kernel("b", 46, 60, launch=(44, 45), thread=AUTOGRAD)
    return b


def test_between_two_evaluations_of_one_backward_pass_the_engine_runs() -> None:
    assert causes(backward()) == [
        (21, 40, "autograd_engine"),
        (40, 44, "operator_dispatch"),
        (44, 45, "launch_call"),
        (45, 46, "launch_latency"),
    ]


def test_two_backward_passes_are_told_apart_by_what_the_main_thread_opens_between_them() -> None:
    b = backward()
    b.operator("aten::add", 25, 35)
    assert causes(b)[:3] == [(21, 25, "python"), (25, 35, "operator_dispatch"), (35, 40, "python")]


def test_the_launching_thread_scheduled_out_with_nothing_open_is_preempted() -> None:
    b = started()
    b.operator("aten::add", 10, 14)
    b.scheduled_out(12, 18)
    assert causes(launched_after(b, 20)) == [
        (10, 14, "operator_dispatch"),
        (14, 18, "preempted"),
        (18, 20, "unknown"),
    ]


def test_a_thread_without_anything_open_is_explained_by_the_thread_that_hands_it_work() -> None:
    b = TraceBuilder()
    b.step(1, 0, 200)
    b.kernel("first", 0, 10, launch=(0, 1), thread=2)
    b.annotation(LOADER, 12, 20)
    b.operator("aten::add", 20, 30)
    launched_after(b, 40, thread=2)
    assert causes(b) == [
        (10, 12, "python"),
        (12, 20, "input_wait"),
        (20, 30, "operator_dispatch"),
        (30, 40, "python"),
    ]


def test_with_nothing_open_anywhere_the_cause_is_unknown() -> None:
    assert causes(launched_after(started(), 40)) == [(10, 40, "unknown")]


# Links


def test_an_activity_without_a_launch_leaves_its_gap_unknown_though_the_host_is_busy() -> None:
    b = started()
    b.operator("aten::add", 0, 40)
    b.kernel("unlinked", 20, 30)
    b.kernel("k", 35, 40, launch=(36, 37))
    assert causes(b) == [(10, 20, "unknown"), (30, 35, "operator_dispatch")]


def test_an_ambiguous_correlation_id_is_unknown() -> None:
    b = started()
    b.call("cudaLaunchKernel", 12, 13, correlation=7)
    b.call("cudaLaunchKernel", 14, 15, correlation=7)
    b.activity("k", 20, 30, correlation=7)
    assert causes(b) == [(10, 20, "unknown")]


def test_of_activities_that_start_together_a_linked_one_with_the_lowest_id_explains_the_gap() -> None:
    b = started()
    b.activity("unlinked", 20, 30, stream=1, correlation=1)
    b.activity("later", 20, 30, stream=2, correlation=5)
    b.call("cudaLaunchKernel", 16, 17, correlation=5)
    b.activity("earlier", 20, 30, stream=3, correlation=4)
    b.call("cudaLaunchKernel", 8, 12, correlation=4)
    assert causes(b) == [(10, 12, "launch_call"), (12, 20, "launch_latency")]


def test_a_launch_after_its_activity_began_is_clock_skew_and_the_whole_gap_is_before_it() -> None:
    b = started()
    b.operator("aten::add", 0, 40)
    b.kernel("k", 20, 30, launch=(22, 24))
    assert causes(b) == [(10, 20, "operator_dispatch")]


# Windows


def test_windows_are_tiled_exactly_with_the_idle_before_and_after_the_devices_work() -> None:
    b = TraceBuilder()
    b.step(1, 0, 100)
    b.step(2, 100, 200)
    b.operator("aten::add", 5, 20)
    b.kernel("a", 20, 30, launch=(18, 19))
    b.annotation(LOADER, 95, 110)
    b.kernel("b", 120, 130, launch=(115, 118))
    b.operator("aten::mul", 140, 150)
    trace = b.build()
    steps = find_steps(trace, None, None)
    ledger = ledger_of(trace, steps)
    assert ledger.per_window(ledger.mask(), 2).tolist() == [ns(90), ns(90)]
    assert sums(ledger, ledger.window == 0) == {
        # 0-5, 30-95; 5-18; 18-19; 19-20; 95-100
        "python": ns(70),
        "operator_dispatch": ns(13),
        "launch_call": ns(1),
        "launch_latency": ns(1),
        "input_wait": ns(5),
    }
    assert sums(ledger, ledger.window == 1) == {
        # 100-110; 110-115 and the tail 130-140, 150-200 on the markers' thread; 115-118; 118-120; 140-150
        "input_wait": ns(10),
        "python": ns(65),
        "launch_call": ns(3),
        "launch_latency": ns(2),
        "operator_dispatch": ns(10),
    }
    inside = ledger.in_span == 1
    assert int(ledger.duration_ns[inside].sum()) == ns(90)
    assert set(ledger.gap[~inside].tolist()) == {-1}
    assert set(ledger.activity[ledger.start_ns >= ns(130)].tolist()) == {-1}


def test_time_between_markers_is_boundary_of_the_window_before() -> None:
    b = TraceBuilder()
    for i in range(3):
        b.annotation("step", i * 100, i * 100 + 60)
        b.kernel("k", i * 100 + 20, i * 100 + 30, launch=(i * 100 + 10, i * 100 + 12))
    trace = b.build()
    ledger = ledger_of(trace)
    boundary = ledger.per_window(ledger.boundary == 1, 3)
    assert boundary.tolist() == [ns(40), ns(40), 0]
