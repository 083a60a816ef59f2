"""Real recordings read by the reader and, independently, by json.loads and Decimal, must agree to the nanosecond."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.shared_data import shared, shared_files
from traceanalyzer.model.schema import ActivityKind, CallKind, SliceKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers import open_recording

RECORDINGS = [
    *shared_files("traces/h200/*.pt.trace.json.gz"),
    *shared_files("traces/public/*/*.json.gz"),
]
ACTIVITIES = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "copy",
    "Memcpy": "copy",
    "gpu_memset": "memset",
    "Memset": "memset",
}
CALLS = ("cuda_runtime", "cuda_driver", "Runtime")
SLICES = ("cpu_op", "Operator", "user_annotation", "python_function")


@dataclass
class Expected:
    """Counts and exact totals found by the second parser; starts are absolute nanoseconds."""

    count: Counter[str] = field(default_factory=Counter)
    start_sum: Counter[str] = field(default_factory=Counter)
    duration_sum: Counter[str] = field(default_factory=Counter)
    earliest: int = 0
    correlations: set[int] = field(default_factory=set)
    linkable: int = 0
    bytes_copied: int = 0
    bytes_allocated: int = 0
    names: Counter[str] = field(default_factory=Counter)


def whole_ns(value: Any) -> int:
    exact = Decimal(value) * 1000
    assert exact == exact.to_integral_value(), "recordings have at most three decimals"
    return int(exact)


def group_of(event: dict[str, Any]) -> str | None:
    category = event.get("cat")
    if event["ph"] == "i":
        return "memory" if event["name"] == "[memory]" else None
    if event["ph"] != "X":
        return None
    if category in ACTIVITIES:
        return ACTIVITIES[category]
    if category in CALLS:
        return "call"
    if category in SLICES:
        return "slice"
    return {"cuda_sync": "wait", "overhead": "overhead"}.get(category)


def second_parser(path: Path) -> Expected:
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    base = document.get("baseTimeNanoseconds", 0)
    found = Expected()
    starts = []
    calls: Counter[int] = Counter()
    launched = []
    stated_by_call = {}
    silent_copies = []
    for event in document["traceEvents"]:
        group = group_of(event)
        if group is None:
            continue
        start = base + whole_ns(event["ts"])
        starts.append(start)
        found.count[group] += 1
        found.start_sum[group] += start
        found.duration_sum[group] += whole_ns(event.get("dur", 0))
        arguments = event.get("args", {})
        if group == "call":
            calls[arguments.get("correlation", 0)] += 1
            if "dst" in arguments:
                stated_by_call[arguments["correlation"]] = int(arguments.get("bytes", arguments.get("size", -1)))
        elif group in ("kernel", "copy", "memset"):
            launched.append(arguments.get("correlation", 0))
            found.names[event["name"]] += 1
            if group == "copy":
                found.bytes_copied += arguments.get("bytes", 0)
                if "bytes" not in arguments:
                    silent_copies.append(arguments["correlation"])
        elif group == "memory" and arguments["Bytes"] > 0:
            found.bytes_allocated += arguments["Bytes"]
    found.bytes_copied += sum(stated_by_call.get(correlation, -1) for correlation in silent_copies)
    found.earliest = min(starts)
    found.linkable = sum(1 for correlation in launched if correlation and calls[correlation] == 1)
    return found


def tables_of(trace: Trace) -> dict[str, Any]:
    activities = trace.activities
    return {
        "kernel": activities.take(activities.kind == ActivityKind.KERNEL),
        "copy": activities.take(activities.kind == ActivityKind.COPY),
        "memset": activities.take(activities.kind == ActivityKind.MEMSET),
        "call": trace.calls,
        "slice": trace.slices,
        "wait": trace.waits,
        "overhead": trace.overheads,
    }


@pytest.mark.shared
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_counts_and_exact_times_agree_with_a_second_parser(path: Path) -> None:
    expected = second_parser(path)
    trace = open_recording(path).traces[0]
    origin = trace.origin_ns
    assert origin == expected.earliest
    for group, table in tables_of(trace).items():
        assert len(table) == expected.count[group], group
        assert sum(table.start_ns.tolist()) + origin * len(table) == expected.start_sum[group], group
        assert int((table.end_ns - table.start_ns).sum()) == expected.duration_sum[group], group
    assert len(trace.memory) == expected.count["memory"]
    assert sum(trace.memory.time_ns.tolist()) + origin * len(trace.memory) == expected.start_sum["memory"]
    positive = trace.memory.delta_bytes > 0
    assert int(trace.memory.delta_bytes[positive].sum()) == expected.bytes_allocated
    copies = trace.activities.kind == ActivityKind.COPY
    assert int(trace.activities.size_bytes[copies].sum()) == expected.bytes_copied
    assert int((trace.activity_call >= 0).sum()) == expected.linkable
    codes, counts = np.unique(trace.activities.name, return_counts=True)
    assert {trace.names[c]: n for c, n in zip(codes.tolist(), counts.tolist(), strict=True)} == expected.names
    assert not trace.integrity.dropped
    assert not trace.integrity.is_truncated


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rank", "world_size"),
    [
        ("hta/cpu_only_rank-34.pt.trace.json.gz", 34, 300),
        ("hta/large_integer_rank-70.json.gz", 70, None),
        ("hta/graph_launches_rank0.json.gz", 0, 16),
        ("tracelens/b200_eager_rank0of8.json.gz", 0, 8),
        ("hta/distributed_info_missing.json.gz", None, None),
    ],
)
def test_rank_comes_from_the_recording_or_its_name_and_is_never_invented(
    name: str, rank: int | None, world_size: int | None
) -> None:
    trace = open_recording(shared(f"traces/public/{name}")).traces[0]
    assert (trace.rank, trace.world_size) == (rank, world_size)


@pytest.mark.shared
def test_a_whole_decode_step_hangs_on_one_graph_launch() -> None:
    trace = open_recording(shared("traces/public/tracelens/vllm_decode_graph.json.gz")).traces[0]
    kernels = trace.activities.kind == ActivityKind.KERNEL
    assert int(kernels.sum()) == 425
    launches, owned = np.unique(trace.activity_call[kernels], return_counts=True)
    assert owned.max() == 421
    assert trace.calls.kind[launches[owned.argmax()]] == CallKind.GRAPH_LAUNCH


@pytest.mark.shared
def test_synchronisation_rows_are_waits_and_never_activity() -> None:
    trace = open_recording(shared("traces/public/hta/cuda_event_sync_multi_stream.json.gz")).traces[0]
    assert len(trace.waits) == 5
    assert len(trace.activities) == 6
    assert int((trace.waits.source_correlation >= 0).sum()) == 3


@pytest.mark.shared
def test_python_frames_keep_the_chain_of_their_callers() -> None:
    trace = open_recording(shared("traces/h200/stack_mem.pt.trace.json.gz")).traces[0]
    frames = trace.slices.take(trace.slices.kind == SliceKind.PYTHON)
    assert len(frames) == 35_767
    known = frames.stack_parent >= 0
    assert set(frames.stack_parent[known].tolist()) <= set(frames.stack_id.tolist())
    assert trace.metadata["with_stack"] == trace.metadata["record_shapes"] == trace.metadata["profile_memory"] == "1"


@pytest.mark.shared
def test_profiler_steps_of_torch_1_8_are_annotations() -> None:
    trace = open_recording(shared("traces/public/kineto/resnet50_num_workers_0.pt.trace.json.gz")).traces[0]
    annotations = trace.slices.name[trace.slices.kind == SliceKind.ANNOTATION]
    steps = [name for name in (trace.names[code] for code in annotations) if name.startswith("ProfilerStep#")]
    assert len(steps) == 6
    assert len(trace.threads) == 2


@pytest.mark.shared
def test_nothing_private_reaches_the_metadata() -> None:
    trace = open_recording(shared("traces/public/hta/cpu_only_rank-34.pt.trace.json.gz")).traces[0]
    assert "mojif" not in json.dumps(dict(trace.metadata))
    assert not any("/" in value for value in trace.metadata.values())


@pytest.mark.shared
def test_a_renamed_copy_reads_the_same(tmp_path: Path) -> None:
    path = shared("traces/public/tracelens/h100_vit.json.gz")
    renamed = tmp_path / "no_suffix_at_all"
    shutil.copy(path, renamed)
    assert_same(open_recording(path).traces[0], open_recording(renamed).traces[0])


@pytest.mark.shared
def test_compressed_and_plain_text_read_the_same(tmp_path: Path) -> None:
    path = shared("traces/public/tracelens/h100_vit.json.gz")
    plain = tmp_path / "trace.json.gz"  # the name lies
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    assert_same(open_recording(path).traces[0], open_recording(plain).traces[0])


@pytest.mark.shared
def test_two_gzip_members_read_as_one(tmp_path: Path) -> None:
    path = shared("traces/public/hta/alexnet.json.gz")
    text = gzip.decompress(path.read_bytes())
    joined = tmp_path / "trace.json.gz"
    joined.write_bytes(gzip.compress(text[:100_000]) + gzip.compress(text[100_000:]) + b"\0" * 512)
    assert_same(open_recording(path).traces[0], open_recording(joined).traces[0])


def assert_same(left: Trace, right: Trace) -> None:
    assert left.origin_ns == right.origin_ns
    assert left.names == right.names
    for table in ("activities", "calls", "slices", "overheads", "waits", "memory"):
        mine, theirs = getattr(left, table).columns(), getattr(right, table).columns()
        for column, values in mine.items():
            assert np.array_equal(values, theirs[column]), (table, column)
