"""The assembled part of the document, and whether a recording can be trusted."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import pytest

from tests.builders import TraceBuilder
from tests.measures.handmade import devices_of, recording
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.measures.launches import measure_launches
from traceanalyzer.measures.summary import integrity_report, summarise_rank
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import IntegrityReport, RankReport
from traceanalyzer.results.timeline import Timeline
from traceanalyzer.results.vocabulary import CAUSES

_TIMELINE = Timeline(start_ns=0, end_ns=0, strings=[], tracks=[])


def _summarise(trace: Trace) -> RankReport:
    return summarise_rank(Measures(trace), _TIMELINE)


def _integrity(trace: Trace) -> IntegrityReport:
    return integrity_report(trace, measure_launches(trace, devices_of(trace)))


def _busy_builder() -> TraceBuilder:
    builder = TraceBuilder()
    for step in range(4):
        start = 100 * step
        builder.step(step, start, start + 90)
        for index in range(5):
            at = start + 10 + 10 * index
            builder.kernel(f"k{index}", at + 3, at + 8, launch=(at, at + 2))
    return builder


def test_sound_recording_is_complete_and_every_part_is_filled() -> None:
    report = _summarise(_busy_builder().build())
    assert report.integrity.verdict == "complete"
    assert report.steps.count == 4
    assert report.kernels.count == 20
    assert report.launches.count == 20
    assert (report.rank, report.world_size, report.origin_ns) == (0, 1, "0")
    assert report.positions.name == ["k0", "k1", "k2", "k3", "k4"]
    device = report.devices[0]
    assert device.busy_ns + device.idle_ns == device.span_ns


def test_every_cause_is_listed_and_they_sum_to_idle() -> None:
    device = _summarise(_busy_builder().build()).devices[0]
    assert list(device.idle_by_cause_ns) == [cause.value for cause in CAUSES]
    assert sum(device.idle_by_cause_ns.values()) == device.idle_ns
    assert sum(row.ns for row in device.idle_by_cause_and_phase_ns) == device.idle_ns


def test_windows_of_the_device_agree_with_the_per_step_series() -> None:
    report = _summarise(_busy_builder().build())
    in_windows = sum(row.ns for row in report.devices[0].windows_idle_by_cause_and_phase_ns)
    assert in_windows == sum(report.per_step.idle_ns)
    for window, idle in enumerate(report.per_step.idle_ns):
        assert sum(series[window] for series in report.per_step.idle_by_cause_ns.values()) == idle


def test_the_part_survives_json() -> None:
    report = _summarise(_busy_builder().build())
    assert msgspec.json.decode(msgspec.json.encode(report), type=RankReport) == report


def test_recording_without_gpu_activity_has_no_devices_and_says_so() -> None:
    builder = TraceBuilder()
    builder.operator("aten::add", 0, 10)
    report = _summarise(builder.build())
    assert report.devices == []
    assert report.integrity.verdict == "complete"
    assert report.integrity.notes == ["no GPU activity in this recording"]


def test_launches_without_any_gpu_activity_make_it_unusable() -> None:
    builder = TraceBuilder()
    for index in range(3):
        builder.call("cudaLaunchKernel", 10 * index, 10 * index + 5, correlation=index + 1)
    report = _integrity(builder.build())
    assert report.verdict == "unusable"
    assert report.launches_without_activity == 3
    assert "3 kernels were launched" in report.notes[0]


def test_an_empty_recording_is_unusable() -> None:
    assert _summarise(TraceBuilder().build()).integrity.verdict == "unusable"


def test_missing_kernels_make_it_partial_not_idle_without_a_word() -> None:
    builder = TraceBuilder()
    for index in range(10):
        correlation = builder.next_correlation()
        builder.call("cudaLaunchKernel", 10 * index, 10 * index + 2, correlation=correlation)
        if index >= 6:
            builder.activity("k", 10 * index + 3, 10 * index + 5, correlation=correlation)
    report = _integrity(builder.build())
    assert (report.verdict, report.launches_without_activity) == ("partial", 6)
    assert "6 kernel launches have no GPU activity" in report.notes[0]


def test_empty_memsets_do_not_make_it_partial() -> None:
    builder = _busy_builder()
    for index in range(10):
        builder.call("cudaMemsetAsync", 500 + index, 500.5 + index, correlation=9_000 + index)
    report = _integrity(builder.build())
    assert (report.verdict, report.launches_without_activity) == ("complete", 10)


def test_unlinked_activities_make_it_partial() -> None:
    builder = _busy_builder()
    builder.kernel("lost", 900, 901)
    report = _integrity(builder.build())
    assert (report.verdict, report.activities_without_launch) == ("partial", 1)


def test_dropped_records_and_truncation_make_it_partial() -> None:
    dropped, truncated = _busy_builder().build(), _busy_builder().build()
    dropped.integrity.drop("negative duration", "kernel k at 5", 3)
    truncated.integrity.is_truncated = True
    truncated.integrity.note("truncated after 20 events")
    assert _integrity(dropped).verdict == "partial"
    assert (_integrity(dropped).dropped[0].reason, _integrity(dropped).dropped[0].count) == ("negative duration", 3)
    assert (_integrity(truncated).verdict, _integrity(truncated).notes) == ("partial", ["truncated after 20 events"])


@pytest.mark.shared
@pytest.mark.parametrize("name", ["good", "workers0", "empty", "boundary"])
def test_real_recordings_are_complete_and_sum_exactly(name: str) -> None:
    report = _summarise(recording(f"traces/h200/{name}.pt.trace.json.gz"))
    assert report.integrity.verdict == "complete"
    assert report.integrity.activities_without_launch == 0
    for device in report.devices:
        assert sum(device.idle_by_cause_ns.values()) == device.idle_ns == device.span_ns - device.busy_ns
    series = report.per_step
    for window, idle in enumerate(series.idle_ns):
        assert sum(values[window] for values in series.idle_by_cause_ns.values()) == idle
        assert sum(values[window] for values in series.busy_by_kind_ns.values()) + idle == series.window_ns[window]


@pytest.mark.shared
def test_509_unlinked_kernels_of_a_public_recording_are_kept_and_stated() -> None:
    report = _integrity(recording("traces/public/tracelens/h100_qwen_unlinked_kernels.json.gz"))
    assert (report.verdict, report.activities_without_launch) == ("partial", 509)


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.shared
@pytest.mark.parametrize("name", ["nsys_good", "nsys_workers0"])
def test_kernel_copy_and_allocation_totals_agree_with_nsys_stats(name: str) -> None:
    measures = Measures(recording(f"traces/h200/{name}.sqlite.gz"))
    folder = shared("traces/h200/nsys_stats")
    kernels = _table(folder / f"{name}_cuda_gpu_kern_sum.csv")
    assert measures.kernels.report.count == sum(int(row["Instances"]) for row in kernels)
    assert measures.kernels.report.time_sum_ns == sum(int(row["Total Time (ns)"]) for row in kernels)
    longest = measures.kernels.report.top[0]
    assert (longest.count, longest.time_ns) == max(
        ((int(row["Instances"]), int(row["Total Time (ns)"])) for row in kernels), key=lambda pair: pair[1]
    )
    copied = {row["Operation"]: row for row in _table(folder / f"{name}_cuda_gpu_mem_time_sum.csv")}
    report = measures.copies.report
    for title, part in (
        ("Host-to-Device", report.h2d),
        ("Device-to-Host", report.d2h),
        ("Device-to-Device", report.d2d),
    ):
        row = copied[f"[CUDA memcpy {title}]"]
        assert (part.count, part.time_ns) == (int(row["Count"]), int(row["Total Time (ns)"]))
    calls = _table(folder / f"{name}_cuda_api_sum.csv")

    def called(*names: str) -> tuple[int, int]:
        rows = [row for row in calls if row["Name"] in names]
        return sum(int(row["Num Calls"]) for row in rows), sum(int(row["Total Time (ns)"]) for row in rows)

    allocator = measures.allocator.report
    assert (allocator.host_alloc.count, allocator.host_alloc.time_ns) == called("cudaHostAlloc")
    assert (allocator.device_free.count, allocator.device_free.time_ns) == called("cudaFree")
    assert (allocator.device_malloc.count, allocator.device_malloc.time_ns) == called("cudaMalloc")
