"""What each table of an Nsight Systems export becomes in a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readers.nsys_exports import AUTOGRAD, GLOBAL_PID, MAIN, PID, Export, small_export, texts
from traceanalyzer.model.schema import ActivityKind, CallKind, CopyDirection, MemoryKind, SliceKind, WaitKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers import nsys_sqlite


def read(export: Export, folder: Path) -> Trace:
    (trace,) = nsys_sqlite.read(export.sqlite(folder / "export.sqlite")).traces
    return trace


def test_times_count_from_the_session_start_and_the_origin_is_its_epoch(tmp_path: Path) -> None:
    trace = read(small_export(), tmp_path)
    assert trace.origin_ns == 1_796_072_613_000_000_000
    assert trace.activities.start_ns.tolist() == [2000, 3000, 6000]
    assert trace.activities.end_ns.tolist() == [2500, 3600, 6100]


def test_epoch_times_of_a_normalised_export_become_relative_again(tmp_path: Path) -> None:
    export = small_export()
    epoch = 1_796_072_613_000_000_000
    export.add("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_NORMALIZE", value="true")
    for rows in export.tables.values():
        for row in rows:
            for column in ("start", "end"):
                if row.get(column) is not None:
                    row[column] += epoch
    trace = read(export, tmp_path)
    assert trace.activities.start_ns.tolist() == [2000, 3000, 6000]
    assert trace.slices.start_ns.tolist() == [1000, 1500]


def test_kernels_carry_their_demangled_name_and_launch(tmp_path: Path) -> None:
    trace = read(small_export(), tmp_path)
    assert texts(trace, trace.activities.name) == ["Memcpy HtoD (Pinned -> Device)", "gemm<float>(int)", "relu(float*)"]
    launches = trace.activity_call.tolist()
    assert texts(trace, trace.calls.name[launches]) == ["cudaMemcpyAsync", "cudaLaunchKernel", "cudaLaunchKernel"]
    assert trace.calls.kind[launches].tolist() == [CallKind.COPY, CallKind.LAUNCH, CallKind.LAUNCH]
    assert [trace.threads[t].tid for t in trace.calls.thread[launches].tolist()] == [475, 475, 682]


def test_launch_shape_and_shared_memory_are_products_and_sums(tmp_path: Path) -> None:
    export = Export()
    shape = {"gridX": 4, "gridY": 3, "gridZ": 2, "blockX": 32, "blockY": 4, "blockZ": 1}
    shared = {"staticSharedMemory": 100, "dynamicSharedMemory": 24, "registersPerThread": 40}
    export.kernel("k", 10, 20, **shape, **shared)
    activities = read(export, tmp_path).activities
    assert (activities.grid_blocks[0], activities.block_threads[0]) == (24, 128)
    assert (activities.shared_memory_bytes[0], activities.registers_per_thread[0]) == (124, 40)


@pytest.mark.parametrize("with_enums", [True, False])
def test_pageable_and_pinned_follow_the_files_own_enum(tmp_path: Path, with_enums: bool) -> None:
    export = Export()
    if with_enums:
        export.enums()
    export.copy(100, 200, 1, 1, source=0)
    export.copy(300, 400, 2, 1, source=1)
    export.copy(500, 600, 3, 2, target=0)
    activities = read(export, tmp_path).activities
    assert activities.host_memory.tolist() == [MemoryKind.PAGEABLE, MemoryKind.PINNED, MemoryKind.PAGEABLE]
    assert activities.direction.tolist() == [CopyDirection.H2D, CopyDirection.H2D, CopyDirection.D2H]


def test_an_enum_with_other_numbers_is_believed(tmp_path: Path) -> None:
    export = Export()
    export.add("ENUM_CUDA_MEM_KIND", id=1, name="CUDA_MEMOPR_MEMORY_KIND_PAGEABLE")
    export.add("ENUM_CUDA_MEM_KIND", id=2, name="CUDA_MEMOPR_MEMORY_KIND_PINNED")
    export.copy(100, 200, 1, 1, source=1)
    export.copy(300, 400, 1, 1, source=2)
    assert read(export, tmp_path).activities.host_memory.tolist() == [MemoryKind.PAGEABLE, MemoryKind.PINNED]


def test_unified_memory_migrations_are_managed_copies_and_are_noted(tmp_path: Path) -> None:
    export = small_export()
    export.copy(7000, 7100, 65536, 11)
    trace = read(export, tmp_path)
    assert trace.activities.host_memory.tolist()[-1] == MemoryKind.MANAGED
    assert any("1 copies are unified-memory migrations (65536 bytes)" in note for note in trace.integrity.notes)


def test_registered_strings_domains_and_marks(tmp_path: Path) -> None:
    export = small_export()
    export.nvtx("CCCL", -5, None, kind=75, domainId=3)
    export.nvtx(None, 3000, 3100, textId=export.string("cub::Sort"), domainId=3)
    export.nvtx("a mark", 3050, None, kind=34)
    trace = read(export, tmp_path)
    assert texts(trace, trace.slices.name) == ["step", "forward", "cub::Sort"]
    domains = [trace.names[d] if d >= 0 else "" for d in trace.slices.domain.tolist()]
    assert domains == ["", "", "CCCL"]
    assert set(trace.slices.kind.tolist()) == {SliceKind.ANNOTATION}


def test_a_range_never_closed_ends_with_the_capture_and_marks_its_step_incomplete(tmp_path: Path) -> None:
    export = small_export()
    export.nvtx("step", 9100, None)
    export.kernel("late", 9500, 9900, call=(9200, 9300))
    trace = read(export, tmp_path)
    assert trace.slices.end_ns.tolist()[-1] == 9900
    assert trace.integrity.cut_ns == [(9899, 9900)]
    assert any("1 NVTX ranges were still open" in note for note in trace.integrity.notes)


def test_without_gpu_rows_there_is_one_trace_without_devices(tmp_path: Path) -> None:
    export = Export()
    export.nvtx("step", 1000, 2000)
    trace = read(export, tmp_path)
    assert trace.devices == ()
    assert "The recording holds no GPU activity." in trace.integrity.notes
    assert [(t.pid, t.tid) for t in trace.threads] == [(PID, PID)]


def test_whole_graphs_are_activities_whose_kernels_are_said_to_be_hidden(tmp_path: Path) -> None:
    export = Export()
    correlation = export.call("cudaGraphLaunch_v10000", 100, 200)
    export.gpu("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 300, 900, correlation, graphId=5, graphExecId=6)
    trace = read(export, tmp_path)
    assert trace.activities.kind.tolist() == [ActivityKind.GRAPH]
    assert texts(trace, trace.activities.name) == ["CUDA graph 5"]
    assert trace.activity_call.tolist() == [0]
    assert trace.calls.kind.tolist() == [CallKind.GRAPH_LAUNCH]
    assert any("their kernels are hidden" in note for note in trace.integrity.notes)


def test_node_level_graph_kernels_share_their_launch(tmp_path: Path) -> None:
    export = Export()
    correlation = export.call("cudaGraphLaunch_v10000", 100, 200)
    for node in (1, 2, 3):
        export.kernel("k", 200 * node + 100, 200 * node + 200, graphNodeId=(9 << 40) | node)
        export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][-1]["correlationId"] = correlation
    trace = read(export, tmp_path)
    assert trace.activity_call.tolist() == [0, 0, 0]
    assert trace.activities.graph_node.tolist() == [(9 << 40) | 1, (9 << 40) | 2, (9 << 40) | 3]


def test_several_processes_become_several_traces_with_their_own_rows(tmp_path: Path) -> None:
    export = small_export()
    other_pid = (1 << 48) | (476 << 24)
    other_thread = other_pid | 476
    correlation = export.call("cudaLaunchKernel_v7000", 2600, 2700, thread=other_thread, correlation=1001)
    export.kernel("other", 4000, 4400, deviceId=1, globalPid=other_pid)
    export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][-1]["correlationId"] = correlation
    export.nvtx("step", 100, 200, thread=other_thread)
    first, second = nsys_sqlite.read(export.sqlite(tmp_path / "two.sqlite")).traces
    assert [d.device_id for d in first.devices] == [0]
    assert [d.device_id for d in second.devices] == [1]
    assert texts(second, second.activities.name) == ["other"]
    assert second.slices.start_ns.tolist() == [100]
    assert len(first.slices) == 2
    # both processes number their correlations alike: each links within its own calls
    assert second.activity_call.tolist() == [0]
    assert [(t.pid, t.tid) for t in second.threads] == [(476, 476)]


def test_one_process_with_two_devices_is_one_trace(tmp_path: Path) -> None:
    export = small_export()
    export.kernel("peer", 4000, 4400, call=(3900, 3950), deviceId=1)
    trace = read(export, tmp_path)
    assert [d.device_id for d in trace.devices] == [0, 1]


def test_gpu_rows_without_a_process_take_it_from_their_launch(tmp_path: Path) -> None:
    export = small_export()
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"):
        for row in export.tables[table]:
            del row["globalPid"]
    trace = read(export, tmp_path)
    assert len(trace.activities) == 3
    assert trace.threads[0].pid == PID
    assert (trace.activity_call >= 0).all()


def test_correlation_zero_is_never_joined(tmp_path: Path) -> None:
    export = Export()
    export.call("cudaLaunchKernel_v7000", 10, 20, correlation=0)
    export.kernel("k", 30, 40)
    assert read(export, tmp_path).activity_call.tolist() == [-1]


def test_synchronisation_rows_become_waits_with_the_call_that_recorded_the_event(tmp_path: Path) -> None:
    export = small_export()
    unknown = 4_294_967_295
    for kind, stream, event, sync in ((1, unknown, 4, 11), (2, 7, 5, 12), (3, 7, unknown, unknown), (4, unknown, 0, 0)):
        row = {"streamId": stream, "eventId": event, "eventSyncId": sync, "deviceId": 0, "globalPid": GLOBAL_PID}
        start = 7000 + 10 * kind
        export.add(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=start, end=start + 5, correlationId=kind, syncType=kind, **row
        )
    export.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", correlationId=77, globalPid=GLOBAL_PID, eventId=5, eventSyncId=12)
    waits = read(export, tmp_path).waits
    kinds = [WaitKind.EVENT, WaitKind.STREAM_WAIT_EVENT, WaitKind.STREAM, WaitKind.DEVICE]
    assert waits.kind.tolist() == kinds
    assert waits.stream.tolist() == [-1, 7, 7, -1]
    assert waits.source_correlation.tolist() == [-1, 77, -1, -1]


def test_memory_usage_rows_are_driver_memory_with_signs_and_host_kind(tmp_path: Path) -> None:
    export = small_export()
    for start, size, kind, operation in ((10, 4096, 2, 0), (20, 512, 1, 0), (30, 4096, 2, 1)):
        row = {"globalPid": GLOBAL_PID, "deviceId": 0, "address": 123, "memKind": kind}
        export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=start, bytes=size, memoryOperationType=operation, **row)
    memory = read(export, tmp_path).memory
    assert memory.delta_bytes.tolist() == [4096, 512, -4096]
    assert memory.device.tolist() == [0, -1, 0]
    assert memory.host_memory.tolist() == [MemoryKind.UNKNOWN, MemoryKind.PINNED, MemoryKind.UNKNOWN]
    assert memory.is_driver.tolist() == [1, 1, 1]


def test_os_calls_are_kept_on_launching_threads_only(tmp_path: Path) -> None:
    export = small_export()
    idle_helper = GLOBAL_PID | 999
    for thread, name in ((MAIN, "poll"), (idle_helper, "sem_wait"), (AUTOGRAD, "futex")):
        export.add("OSRT_API", start=7000, end=7500, globalTid=thread, nameId=export.string(name))
    trace = read(export, tmp_path)
    os_calls = trace.slices.take(trace.slices.kind == SliceKind.OS_CALL)
    assert sorted(texts(trace, os_calls.name)) == ["futex", "poll"]
    assert {t.tid for t in trace.threads} == {PID, 682}


def test_loader_workers_are_recognised_and_their_reading_time_stated(tmp_path: Path) -> None:
    export = small_export()
    worker = (1 << 48) | (500 << 24)
    export.add("PROCESSES", globalPid=worker, pid=500, name="pt_data_worker")
    export.add("PROCESSES", globalPid=GLOBAL_PID, pid=PID, name="python3")
    export.add("OSRT_API", start=100, end=400, globalTid=worker | 500, nameId=export.string("read"))
    export.add("OSRT_API", start=500, end=600, globalTid=worker | 500, nameId=export.string("poll"))
    trace = read(export, tmp_path)
    assert trace.metadata["loader_workers"] == "1"
    assert trace.metadata["loader_worker_read_ns"] == "300"
    assert trace.metadata["loader_worker_os_call_ns"] == "400"


def test_scheduling_rows_become_stretches_off_the_core_unless_the_thread_slept(tmp_path: Path) -> None:
    export = small_export()
    running, asleep = 1, 2
    for start, is_in, state in ((100, 0, running), (150, 1, 1), (200, 0, asleep), (900, 1, 1), (950, 0, running)):
        export.add("SCHED_EVENTS", start=start, cpu=0, isSchedIn=is_in, globalTid=MAIN, threadState=state)
    schedules = read(export, tmp_path).schedules
    assert list(zip(schedules.start_ns.tolist(), schedules.end_ns.tolist(), strict=True)) == [(100, 150)]


def test_profiler_overhead_keeps_its_thread_and_tells_module_loading_apart(tmp_path: Path) -> None:
    export = small_export()
    export.add("ENUM_CUPTI_OVERHEAD_TYPE", id=3, name="OVERHEAD_CUPTI_BUFFER_FLUSH")
    export.add("ENUM_CUPTI_OVERHEAD_TYPE", id=7, name="OVERHEAD_LAZY_FUNCTION_LOADING")
    row = {"globalTid": MAIN, "nameId": export.string("whatever")}
    export.add("PROFILER_OVERHEAD", start=100, end=200, overheadType=3, **row)
    export.add("PROFILER_OVERHEAD", start=300, end=400, overheadType=7, **row)
    trace = read(export, tmp_path)
    assert trace.overheads.is_module_load.tolist() == [0, 1]
    assert {trace.threads[t].tid for t in trace.overheads.thread.tolist()} == {PID}


def test_a_garbage_collection_the_recorder_named_is_one(tmp_path: Path) -> None:
    export = small_export()
    export.nvtx("garbage_collection", 1600, 1700)
    trace = read(export, tmp_path)
    kinds = dict(zip(texts(trace, trace.slices.name), trace.slices.kind.tolist(), strict=True))
    assert kinds.pop("garbage_collection") == SliceKind.GARBAGE_COLLECTION
    assert SliceKind.GARBAGE_COLLECTION not in kinds.values()
