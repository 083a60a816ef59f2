"""Real recordings: every total equals what Nsight Systems itself prints, to the nanosecond, in every export format."""

from __future__ import annotations

import csv
import gzip
import shutil
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from tests.readers.nsys_exports import as_values, texts
from tests.shared_data import shared
from traceanalyzer.measures.range_projection import project_ranges, sum_ranges
from traceanalyzer.model.calls import strip_version
from traceanalyzer.model.schema import ActivityKind, CopyDirection, MemoryKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers import nsys_arrow, nsys_sqlite

pytestmark = pytest.mark.shared

NAMES = ("nsys_good", "nsys_workers0")
MI = 1_000_000


@lru_cache(maxsize=2)
def recorded(name: str) -> Trace:
    (trace,) = nsys_sqlite.read(shared(f"traces/h200/{name}.sqlite.gz")).traces
    return trace


def printed(name: str, report: str) -> list[dict[str, str]]:
    with shared(f"traces/h200/nsys_stats/{name}_{report}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def totals(keys: list[str], lengths: np.ndarray) -> dict[str, tuple[int, int]]:
    """Sum and count of lengths by key."""
    result: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for key, length in zip(keys, lengths.tolist(), strict=True):
        result[key] = (result[key][0] + length, result[key][1] + 1)
    return dict(result)


@pytest.mark.parametrize("name", NAMES)
def test_kernel_sums_and_counts_equal_nsys_stats(name: str) -> None:
    trace = recorded(name)
    kernels = trace.activities.take(trace.activities.kind == ActivityKind.KERNEL)
    want = {r["Name"]: (int(r["Total Time (ns)"]), int(r["Instances"])) for r in printed(name, "cuda_gpu_kern_sum")}
    assert len(want) == 319
    assert totals(texts(trace, kernels.name), kernels.end_ns - kernels.start_ns) == want


@pytest.mark.parametrize("name", NAMES)
def test_copy_and_memset_sums_counts_and_sizes_equal_nsys_stats(name: str) -> None:
    activities = recorded(name).activities
    rows = {
        "[CUDA memcpy Host-to-Device]": activities.direction == CopyDirection.H2D,
        "[CUDA memcpy Device-to-Host]": activities.direction == CopyDirection.D2H,
        "[CUDA memcpy Device-to-Device]": activities.direction == CopyDirection.D2D,
        "[CUDA memset]": activities.kind == ActivityKind.MEMSET,
    }
    lengths = activities.end_ns - activities.start_ns
    times = {k: (str(lengths[m].sum()), str(m.sum())) for k, m in rows.items()}
    sizes = {k: (f"{activities.size_bytes[m].sum() / MI:.3f}", str(m.sum())) for k, m in rows.items()}
    time_rows, size_rows = printed(name, "cuda_gpu_mem_time_sum"), printed(name, "cuda_gpu_mem_size_sum")
    assert times == {r["Operation"]: (r["Total Time (ns)"], r["Count"]) for r in time_rows}
    assert sizes == {r["Operation"]: (r["Total (MB)"], r["Count"]) for r in size_rows}


@pytest.mark.parametrize("name", NAMES)
def test_call_sums_and_counts_equal_nsys_stats(name: str) -> None:
    trace = recorded(name)
    want: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in printed(name, "cuda_api_sum"):
        key = strip_version(row["Name"])
        want[key] = (want[key][0] + int(row["Total Time (ns)"]), want[key][1] + int(row["Num Calls"]))
    assert totals(texts(trace, trace.calls.name), trace.calls.end_ns - trace.calls.start_ns) == dict(want)


@pytest.mark.parametrize("name", NAMES)
def test_range_sums_equal_nsys_stats(name: str) -> None:
    trace = recorded(name)
    sums = {f"{s.domain}:{s.name}": (s.time_ns, s.count) for s in sum_ranges(trace, project_ranges(trace))}
    assert sums == {r["Range"]: (int(r["Total Time (ns)"]), int(r["Instances"])) for r in printed(name, "nvtx_sum")}


@pytest.mark.parametrize("name", NAMES)
def test_gpu_projections_equal_nsys_stats(name: str) -> None:
    trace = recorded(name)
    columns = ("Total Proj Time (ns)", "Total Range Time (ns)", "Range Instances", "Total GPU Ops")
    want = {r["Range"]: tuple(int(r[c]) for c in columns) for r in printed(name, "nvtx_gpu_proj_sum")}
    sums = sum_ranges(trace, project_ranges(trace))
    got = {f"{s.domain}:{s.name}": (s.projected_ns, s.time_ns, s.count, s.activities) for s in sums}
    assert {key: got[key] for key in want} == want


@pytest.mark.parametrize("name", NAMES)
def test_shortest_and_longest_projections_equal_nsys_stats(name: str) -> None:
    trace = recorded(name)
    projections = project_ranges(trace)
    names = np.array(texts(trace, trace.slices.name[projections.slice]))
    for row in printed(name, "nvtx_gpu_proj_sum"):
        mine = (names == row["Range"].split(":", 1)[1]) & (projections.activities > 0)
        lengths = projections.duration_ns[mine]
        assert (int(row["Proj Min (ns)"]), int(row["Proj Max (ns)"])) == (lengths.min(), lengths.max())


@pytest.mark.parametrize("name", NAMES)
def test_the_longest_synchronisations_are_the_ones_nsys_lists(name: str) -> None:
    trace = recorded(name)
    calls = trace.calls
    lengths = (calls.end_ns - calls.start_ns).tolist()
    present = set(zip(calls.start_ns.tolist(), lengths, texts(trace, calls.name), strict=True))
    for row in printed(name, "analyze_cuda_api_sync"):
        assert (int(row["Start (ns)"]), int(row["Duration (ns)"]), strip_version(row["API Name"])) in present


@pytest.mark.parametrize("name", NAMES)
def test_pageable_copies_are_the_ones_nsys_lists(name: str) -> None:
    activities = recorded(name).activities
    pageable = activities.take(activities.host_memory == MemoryKind.PAGEABLE)
    starts = dict(zip(pageable.start_ns.tolist(), (pageable.end_ns - pageable.start_ns).tolist(), strict=True))
    rows = printed(name, "analyze_cuda_memcpy_async")
    assert {int(r["Start (ns)"]): int(r["Duration (ns)"]) for r in rows}.items() <= starts.items()


@pytest.mark.parametrize("name", NAMES)
def test_every_activity_finds_its_launch(name: str) -> None:
    assert (recorded(name).activity_call >= 0).all()


def test_the_parquet_export_equals_the_database() -> None:
    database = nsys_sqlite.read(shared("traces/h200/nsys_good.sqlite.gz"))
    assert as_values(nsys_arrow.read(shared("traces/h200/nsys_good_parquetdir"))) == as_values(database)


def test_the_arrow_export_equals_the_database() -> None:
    database = nsys_sqlite.read(shared("traces/h200/nsys_workers0.sqlite.gz"))
    assert as_values(nsys_arrow.read(shared("traces/h200/nsys_workers0_arrowdir"))) == as_values(database)


@pytest.mark.parametrize(("name", "idle_percent"), [("healthy_1pct", "0.9876"), ("healthy_judged_1pct", "0.9411")])
def test_healthy_recordings_are_as_idle_as_published(name: str, idle_percent: str) -> None:
    (trace,) = nsys_sqlite.read(shared(f"traces/public/nsys_ai/{name}.sqlite.gz")).traces
    start, end = trace.activities.start_ns, trace.activities.end_ns
    gaps = np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0).sum()
    assert f"{100 * gaps / (end.max() - start.min()):.4f}" == idle_percent
    assert trace.devices[0].name == "NVIDIA H100 80GB HBM3"


def kernel_facts(name: str) -> dict[str, float]:
    traces = nsys_sqlite.read(shared(f"traces/public/nsys_ai/{name}.sqlite.gz")).traces
    assert [[d.device_id for d in trace.devices] for trace in traces] == [[0], [1]]
    facts: dict[str, float] = defaultdict(float)
    for trace in traces:
        kernels = trace.activities.take(trace.activities.kind == ActivityKind.KERNEL)
        lengths = kernels.end_ns - kernels.start_ns
        facts["kernel_ns"] += int(lengths.sum())
        for family in ("flash_fwd", "SendRecv"):
            mine = np.array([family in text for text in texts(trace, kernels.name)])
            facts[family] += int(mine.sum())
            facts[f"{family}_ns"] += int(lengths[mine].sum())
    first = min(int(trace.activities.start_ns.min()) for trace in traces)
    facts["wall_ms"] = (max(int(trace.activities.end_ns.max()) for trace in traces) - first) / MI
    return facts


def test_the_published_differences_of_the_two_gpu_pair_are_reproduced() -> None:
    before, after = kernel_facts("mfu_2gpu_before"), kernel_facts("mfu_2gpu_after")
    assert (f"{before['kernel_ns'] / MI:.2f}", f"{after['kernel_ns'] / MI:.2f}") == ("535.20", "488.84")
    assert (before["flash_fwd"], after["flash_fwd"]) == (68, 60)
    assert (before["SendRecv"], after["SendRecv"]) == (66, 62)
    assert f"{(after['flash_fwd_ns'] - before['flash_fwd_ns']) / MI:.2f}" == "-31.56"
    assert f"{(after['SendRecv_ns'] - before['SendRecv_ns']) / MI:.2f}" == "8.34"
    assert f"{before['wall_ms']:.1f}" == "299.9"


def test_nothing_is_left_beside_a_compressed_recording(tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite.gz"
    shutil.copyfile(shared("traces/public/nsys_ai/healthy_1pct.sqlite.gz"), copy)
    nsys_sqlite.read(copy)
    assert list(tmp_path.iterdir()) == [copy]
    assert gzip.decompress(copy.read_bytes())[:6] == b"SQLite"


def test_three_hundred_steps_with_os_calls_are_read_whole() -> None:
    (trace,) = nsys_sqlite.read(shared("traces/h200/nsys_good_300steps.sqlite.xz")).traces
    assert int((trace.activities.kind == ActivityKind.KERNEL).sum()) == 565_152
    assert len(trace.calls) == 1_167_224
    assert (trace.activity_call >= 0).all()
    (step,) = [s for s in sum_ranges(trace, project_ranges(trace)) if s.name == "step"]
    assert step.count == 300
    assert trace.metadata["loader_workers"] == "8"
