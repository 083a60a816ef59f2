"""Every way torch 1.8 to 2.x, NVIDIA or AMD, spells the same things."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.schema import CallKind, CopyDirection, MemoryKind, SliceKind, WaitKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers import open_recording
from traceanalyzer.readers.kineto_copies import direction, host_memory


def span(category: str | None, name: str, ts: Any, dur: Any, pid: Any = 1, tid: Any = 1, **args: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
    return {key: value for key, value in event.items() if value is not None}


OPERATOR = span("cpu_op", "aten::mm", 100, 10)


def read(tmp_path: Path, events: list[dict[str, Any]], name: str = "trace.json", **metadata: Any) -> Trace:
    path = tmp_path / name
    path.write_text(json.dumps({**metadata, "traceEvents": events}))
    return open_recording(path).traces[0]


def test_relative_times_are_exact_to_the_nanosecond_and_absolute_with_the_base(tmp_path: Path) -> None:
    # a float64 holds neither the sum with the base nor, beyond 4.4e12 us, every nanosecond
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 5214898743465.409, '
        '"dur": 0.001}], "baseTimeNanoseconds": 1790857026000000000}'
    )
    trace = open_recording(path).traces[0]
    assert trace.origin_ns == 1_790_857_026_000_000_000 + 5_214_898_743_465_409
    assert trace.slices.start_ns.tolist() == [0]
    assert trace.slices.end_ns.tolist() == [1]


def test_absolute_microseconds_of_seventeen_digits_keep_every_digit(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '[{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1623142623460111.123, "dur": 25},'
        '{"ph": "X", "cat": "cpu_op", "name": "b", "pid": 1, "tid": 1, "ts": 1623142623460111.124, "dur": 25.999}]'
    )
    trace = open_recording(path).traces[0]
    assert trace.origin_ns == 1_623_142_623_460_111_123
    assert trace.slices.start_ns.tolist() == [0, 1]
    assert trace.slices.end_ns.tolist() == [25_000, 26_000]


@pytest.mark.parametrize("layout", ["compact", "indented", "metadata last"])
def test_layout_and_place_of_the_metadata_do_not_matter(tmp_path: Path, layout: str) -> None:
    metadata = {
        "deviceProperties": [{"id": 0, "name": "GPU A"}, {"id": 1, "name": "GPU B"}],
        "distributedInfo": {"rank": 3, "world_size": 8},
        "with_stack": 1,
    }
    events = {"traceEvents": [OPERATOR, span("kernel", "k", 105, 1, 0, 7, device=0, stream=7)]}
    document = {**events, **metadata} if layout == "metadata last" else {**metadata, **events}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document, indent=2 if layout == "indented" else None))
    trace = open_recording(path).traces[0]
    assert [device.name for device in trace.devices] == ["GPU A", "GPU B"]
    assert (trace.rank, trace.world_size) == (3, 8)
    assert trace.metadata["with_stack"] == "1"
    assert not trace.integrity.notes
    assert not trace.integrity.dropped


def test_the_word_trace_events_inside_the_metadata_is_not_the_list(tmp_path: Path) -> None:
    trace = read(tmp_path, [OPERATOR], note={"traceEvents": [{"ph": "X", "name": "fake"}]}, schemaVersion=1)
    assert len(trace.slices) == 1
    assert "aten::mm" in trace.names


@pytest.mark.parametrize(
    ("category", "kernel", "runtime", "operator"),
    [("new", "kernel", "cuda_runtime", "cpu_op"), ("old", "Kernel", "Runtime", "Operator")],
)
def test_old_and_new_category_names_mean_the_same(
    tmp_path: Path, category: str, kernel: str, runtime: str, operator: str
) -> None:
    tid = "stream 7" if category == "old" else 7
    events = [
        span(operator, "aten::mm", 100, 50),
        span(runtime, "cudaLaunchKernel", 110, 5, 1, "1" if category == "old" else 1, correlation=9),
        span(kernel, "gemm", 120, 30, 0, tid, correlation=9),
    ]
    trace = read(tmp_path, events)
    assert len(trace.threads) == 1
    assert trace.activities.device.tolist() == [0]
    assert trace.activities.stream.tolist() == [7]
    assert trace.activity_call.tolist() == [0]
    assert trace.calls.kind.tolist() == [CallKind.LAUNCH]
    assert trace.slices.kind.tolist() == [SliceKind.OPERATOR]


def test_old_annotations_filed_as_operators_are_annotations(tmp_path: Path) -> None:
    names = ["ProfilerStep#3", "enumerate(DataLoader)#_Iter.__next__", "Optimizer.step#SGD.step", "aten::add"]
    trace = read(tmp_path, [span("Operator", name, 10 * i, 5) for i, name in enumerate(names)])
    kinds = dict(zip([trace.names[code] for code in trace.slices.name], trace.slices.kind.tolist(), strict=True))
    assert kinds == {**dict.fromkeys(names[:3], SliceKind.ANNOTATION), "aten::add": SliceKind.OPERATOR}


def test_the_exporter_without_categories_tells_host_from_device_by_process_name(tmp_path: Path) -> None:
    events = [
        span(None, "aten::mm", 100, 50, "CPU functions", 1),
        {"name": "aten::mm", "ph": "s", "ts": 100, "tid": 1, "pid": "CPU functions", "id": 5, "cat": "cpu_to_cuda"},
        {"name": "aten::mm", "ph": "f", "ts": 120, "tid": 0, "pid": "CUDA functions", "id": 5, "cat": "cpu_to_cuda"},
        span(None, "gemm", 120, 30, "CUDA functions", 0),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    trace = open_recording(path).traces[0]
    assert len(trace.activities) == len(trace.slices) == 1
    assert trace.activities.device.tolist() == [0]
    assert trace.activities.correlation.tolist() == [-1]
    assert not trace.integrity.dropped


def test_spans_that_restate_others_are_no_events(tmp_path: Path) -> None:
    events = [
        OPERATOR,
        span("Trace", "PyTorch Profiler (0)", 0, 1000, "Spans", "PyTorch Profiler"),
        span("gpu_user_annotation", "forward", 100, 500, 0, 7),
        {"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", "tid": "Trace", "ts": 0},
        {"name": "process_name", "ph": "M", "ts": 0, "pid": "", "tid": 0, "args": {"name": "python"}},
    ]
    trace = read(tmp_path, events)
    assert len(trace.slices) == 1
    assert len(trace.activities) == 0
    assert not trace.integrity.dropped
    assert trace.integrity.notes == ["no GPU activity in this recording"]


def test_synchronisation_rows_name_what_they_wait_for(tmp_path: Path) -> None:
    events = [
        span("cuda_sync", "Stream Sync", 1, 2, 0, 7, stream=7, device=0, correlation=4),
        span("cuda_sync", "Context Sync", 2, 2, 0, -1, stream=-1, device=0, correlation=5),
        span("cuda_sync", "Event Sync", 3, 2, 0, -1, stream=4294967295, device=0, correlation=6),
        span(
            "cuda_sync", "Stream Wait Event", 4, 2, 0, 7,
            stream=20, device=0, correlation=7, wait_on_cuda_event_record_corr_id=3, wait_on_cuda_event_id=11,
        ),
    ]  # fmt: skip
    waits = read(tmp_path, events).waits
    assert waits.kind.tolist() == [WaitKind.STREAM, WaitKind.DEVICE, WaitKind.EVENT, WaitKind.STREAM_WAIT_EVENT]
    assert waits.stream.tolist() == [7, -1, -1, 20]
    assert waits.correlation.tolist() == [4, 5, 6, 7]
    assert waits.source_correlation.tolist() == [-1, -1, -1, 3]
    assert waits.event.tolist() == [-1, -1, -1, 11]


def test_profiler_work_holds_for_every_thread_and_lazy_loading_is_told_apart(tmp_path: Path) -> None:
    events = [
        OPERATOR,
        span("overhead", "Activity Buffer Request", 1, 2, -1, 0),
        span("overhead", "Lazy Function Loading", 4, 2, -1, 0),
        span("overhead", "Runtime Triggered Module Loading", 8, 2, -1, 0),
    ]
    overheads = read(tmp_path, events).overheads
    assert overheads.thread.tolist() == [-1, -1, -1]
    assert overheads.is_module_load.tolist() == [0, 1, 0]


def test_allocator_instants_keep_device_totals_and_addresses(tmp_path: Path) -> None:
    def instant(ts: int, **args: Any) -> dict[str, Any]:
        return {
            "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts,
            "args": args,
        }  # fmt: skip

    events = [
        instant(1, **{"Device Type": 1, "Device Id": 2, "Bytes": 512, "Total Allocated": 1024, "Total Reserved": 2048}),
        instant(2, **{"Device Type": 0, "Device Id": -1, "Bytes": -4, "Addr": 2**63 + 5}),
    ]
    memory = read(tmp_path, events).memory
    assert memory.device.tolist() == [2, -1]
    assert memory.delta_bytes.tolist() == [512, -4]
    assert memory.allocated_bytes.tolist() == [1024, -1]
    assert memory.reserved_bytes.tolist() == [2048, -1]
    assert memory.address.tolist() == [0, -(2**63) + 5]


def test_kernel_geometry_is_blocks_and_threads(tmp_path: Path) -> None:
    arguments = {"grid": [4, 3, 2], "block": [32, 4, 1], "registers per thread": 40, "shared memory": 1024}
    kernel = span("kernel", "k", 1, 1, 0, 7, device=1, context=3, **arguments, **{"graph node id": 77})
    activities = read(tmp_path, [kernel]).activities
    assert activities.grid_blocks.tolist() == [24]
    assert activities.block_threads.tolist() == [128]
    assert activities.registers_per_thread.tolist() == [40]
    assert activities.shared_memory_bytes.tolist() == [1024]
    assert activities.graph_node.tolist() == [77]
    assert (activities.device.tolist(), activities.context.tolist()) == ([1], [3])


def test_input_shapes_are_kept_as_compact_json(tmp_path: Path) -> None:
    trace = read(tmp_path, [span("cpu_op", "aten::mm", 1, 1, **{"Input Dims": [[16, 3], [], [[2], [4]]]}), OPERATOR])
    assert trace.names[trace.slices.shapes[0]] == "[[16,3],[],[[2],[4]]]"
    assert trace.slices.shapes[1] == -1


def test_a_garbage_collection_the_recorder_named_is_one(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [span("user_annotation", "step", 0, 50), span("user_annotation", "garbage_collection", 10, 5), OPERATOR],
    )
    kinds = {trace.names[name]: kind for name, kind in zip(trace.slices.name, trace.slices.kind, strict=True)}
    assert kinds["garbage_collection"] == SliceKind.GARBAGE_COLLECTION
    assert kinds["step"] == SliceKind.ANNOTATION


def test_garbage_collection_is_told_from_python_frames(tmp_path: Path) -> None:
    frame = span("python_function", "train.py(3): main", 0, 50, **{"Python id": 1, "Python parent id": None})
    trace = read(tmp_path, [frame, span("python_function", "Python GC", 10, 5, **{"Python id": 2})])
    assert trace.slices.kind.tolist() == [SliceKind.PYTHON, SliceKind.GARBAGE_COLLECTION]
    assert trace.metadata["with_stack"] == "1"


def test_correlation_zero_joins_nothing(tmp_path: Path) -> None:
    events = [
        span("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=0),
        span("kernel", "k", 3, 1, 0, 7, correlation=0),
    ]
    assert read(tmp_path, events).activity_call.tolist() == [-1]


@pytest.mark.parametrize(
    ("title", "way", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", CopyDirection.H2D, MemoryKind.PAGEABLE),
        ("Memcpy HtoD (Pinned -> Device)", CopyDirection.H2D, MemoryKind.PINNED),
        ("Memcpy DtoH (Device -> Pinned)", CopyDirection.D2H, MemoryKind.PINNED),
        ("Memcpy DtoH (Device -> Managed)", CopyDirection.D2H, MemoryKind.MANAGED),
        ("Memcpy DtoD (Device -> Device)", CopyDirection.D2D, MemoryKind.UNKNOWN),
        ("Memcpy PtoP (Device -> Device)", CopyDirection.P2P, MemoryKind.UNKNOWN),
        ("Memcpy HtoA (Pageable -> Array)", CopyDirection.H2D, MemoryKind.PAGEABLE),
        ("Memcpy HtoH (Pageable -> Pinned)", CopyDirection.OTHER, MemoryKind.PAGEABLE),
        ("CopyHostToDevice", CopyDirection.H2D, MemoryKind.UNKNOWN),
        ("CopyDeviceToHost", CopyDirection.D2H, MemoryKind.UNKNOWN),
        ("Memcpy HtoD (Host -> Device)", CopyDirection.H2D, MemoryKind.UNKNOWN),
        ("Memcpy Unknown", CopyDirection.OTHER, MemoryKind.UNKNOWN),
    ],
)
def test_a_copy_title_says_direction_and_host_memory(title: str, way: CopyDirection, kind: MemoryKind) -> None:
    assert direction(title) == way
    assert host_memory(title) == kind


@pytest.mark.parametrize(
    ("name", "rank", "world_size"),
    [("rank-34.json", 34, None), ("eager_rank0of8.json", 0, 8), ("run_rank_12.json", 12, None), ("t.json", None, None)],
)
def test_rank_from_the_file_name_where_the_trace_is_silent(
    tmp_path: Path, name: str, rank: int | None, world_size: int | None
) -> None:
    trace = read(tmp_path, [OPERATOR], name=name)
    assert (trace.rank, trace.world_size) == (rank, world_size)


def test_an_amd_copy_takes_its_size_from_the_call(tmp_path: Path) -> None:
    events = [
        span("cuda_runtime", "hipMemcpyAsync", 1, 1, correlation=5, src="0x1", dst="0x2", bytes="2560", kind="1"),
        span("cuda_runtime", "hipMemcpyWithStream", 3, 1, correlation=6, src="0x1", dst="0x2", size="64", kind="1"),
        span("gpu_memcpy", "CopyHostToDevice", 2, 1, 0, 0, correlation=5),
        span("gpu_memcpy", "CopyHostToDevice", 4, 1, 0, 0, correlation=6),
        span("gpu_memcpy", "CopyHostToDevice", 6, 1, 0, 0),
    ]
    activities = read(tmp_path, events).activities
    assert activities.size_bytes.tolist() == [2560, 64, -1]
    assert activities.direction.tolist() == [CopyDirection.H2D] * 3


def test_thread_names_come_along(tmp_path: Path) -> None:
    named = {"name": "thread_name", "ph": "M", "ts": 0, "pid": 1, "tid": 1, "args": {"name": "thread 1 (main)"}}
    (thread,) = read(tmp_path, [OPERATOR, named]).threads
    assert (thread.pid, thread.tid, thread.name) == (1, 1, "thread 1 (main)")


def test_user_host_and_path_names_stay_out_of_the_metadata(tmp_path: Path) -> None:
    private = {"username": "alice", "host_name": "box17", "traceName": "/home/alice/x.json", "torch_version": "2.11.0"}
    trace = read(tmp_path, [OPERATOR], **private)
    assert dict(trace.metadata) == {"torch": "2.11.0"}


def test_an_unknown_category_is_counted_not_swallowed(tmp_path: Path) -> None:
    trace = read(tmp_path, [OPERATOR, span("quantum_op", "q", 1, 1), span("quantum_op", "q", 2, 1)])
    assert trace.integrity.dropped["event of unknown category 'quantum_op'"].count == 2


def test_an_object_whose_trace_events_are_no_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": null}')
    with pytest.raises(TraceFormatError, match="traceEvents is not a list"):
        open_recording(path)
