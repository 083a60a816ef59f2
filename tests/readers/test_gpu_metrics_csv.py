"""nvidia-smi samples become counters on the recording's clock, whatever the layout and time zone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers import gpu_metrics_csv

QUERY = """\
timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W], fan.speed [%], throttled
2026/11/30 21:10:22.500, 0, NVIDIA H200, 40 %, 1024 MiB, 300.25 W, [N/A], Not Active
2026/11/30 21:10:23.501, 0, NVIDIA H200, 60 %, 2048 MiB, 310.00 W, [N/A], Active
"""

DMON = """\
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem     fb
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %     MB
 20261130   21:10:22      0     70     34      -     40      3   1024
 20261130   21:10:22      1     71     35      -      0      0      2
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem     fb
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %     MB
 20261130   21:10:23      0     72     34      -     60      4   2048
"""


def written(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "gpu.csv"
    path.write_text(text, encoding=encoding)
    return path


def recording(start: str, seconds: int) -> Trace:
    """A recording that starts at a UTC time and keeps its GPU busy half of the time."""
    trace = TraceBuilder()
    for second in range(seconds):
        at = second * 1_000_000
        trace.kernel("k", at, at + 500_000, launch=(at, at + 10))
    trace.kernel("k", seconds * 1_000_000 - 1, seconds * 1_000_000)
    epoch = int(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp()) * 1_000_000_000
    return replace(trace.build(), origin_ns=epoch)


def series(trace: Trace) -> dict[str, list[tuple[int, float]]]:
    result: dict[str, list[tuple[int, float]]] = {}
    for time, code, value in zip(*(column.tolist() for column in trace.counters.columns().values()), strict=True):
        result.setdefault(trace.names[code], []).append((time, value))
    return result


def test_query_samples_keep_their_unit_in_the_series_and_absent_values_are_skipped(tmp_path: Path) -> None:
    metrics = gpu_metrics_csv.read_metrics(written(tmp_path, QUERY))
    assert metrics.series == (
        "gpu0 utilization.gpu [%]",
        "gpu0 memory.used [MiB]",
        "gpu0 power.draw [W]",
        "gpu0 throttled",
    )
    assert metrics.value.tolist() == [40, 1024, 300.25, 0, 60, 2048, 310, 1]
    assert metrics.time_ns[4] - metrics.time_ns[0] == 1_001_000_000


def test_values_without_units_are_the_same(tmp_path: Path) -> None:
    plain = QUERY.replace(" %,", ",").replace(" MiB,", ",").replace(" W,", ",")
    assert gpu_metrics_csv.read_metrics(written(tmp_path, plain)).value.tolist() == [
        40,
        1024,
        300.25,
        0,
        60,
        2048,
        310,
        1,
    ]


def test_dmon_samples_of_several_gpus_use_the_query_names(tmp_path: Path) -> None:
    metrics = gpu_metrics_csv.read_metrics(written(tmp_path, DMON))
    assert metrics.series[:5] == (
        "gpu0 power.draw [W]",
        "gpu0 temperature.gpu [C]",
        "gpu0 utilization.gpu [%]",
        "gpu0 utilization.memory [%]",
        "gpu0 memory.used [MiB]",
    )
    assert metrics.series[5] == "gpu1 power.draw [W]"
    assert metrics.device == (0, 0, 0, 0, 0, 1, 1, 1, 1, 1)


def test_samples_in_utc_land_on_the_recordings_clock(tmp_path: Path) -> None:
    trace = recording("2026-11-30T21:10:21", 4)
    found = series(gpu_metrics_csv.attach_metrics(trace, gpu_metrics_csv.read_metrics(written(tmp_path, QUERY))))
    assert found["gpu0 utilization.gpu [%]"] == [(1_500_000_000, 40.0), (2_501_000_000, 60.0)]


@pytest.mark.parametrize(("start", "hours"), [("2026-11-30T16:10:21", "+5"), ("2026-12-01T02:40:21", "-5.5")])
def test_the_time_zone_is_the_one_in_which_samples_and_recording_meet(tmp_path: Path, start: str, hours: str) -> None:
    trace = gpu_metrics_csv.attach_metrics(recording(start, 4), gpu_metrics_csv.read_metrics(written(tmp_path, QUERY)))
    assert series(trace)["gpu0 utilization.gpu [%]"] == [(1_500_000_000, 40.0), (2_501_000_000, 60.0)]
    assert any(f"{hours} h from UTC" in note for note in trace.integrity.notes)


def test_times_of_day_past_midnight_take_the_recordings_date(tmp_path: Path) -> None:
    text = """\
#Time        gpu     sm
#HH:MM:SS    Idx      %
 23:59:59      0     10
 00:00:01      0     20
"""
    trace = recording("2026-11-30T23:59:58", 5)
    found = series(gpu_metrics_csv.attach_metrics(trace, gpu_metrics_csv.read_metrics(written(tmp_path, text))))
    assert found["gpu0 utilization.gpu [%]"] == [(1_000_000_000, 10.0), (3_000_000_000, 20.0)]


def test_utilisation_is_compared_with_the_timeline(tmp_path: Path) -> None:
    trace = gpu_metrics_csv.attach_metrics(
        recording("2026-11-30T21:10:21", 4), gpu_metrics_csv.read_metrics(written(tmp_path, QUERY))
    )
    (note,) = [note for note in trace.integrity.notes if "in use" in note]
    assert "2 samples say GPU 0 was in use 50 % of the time; the timeline has kernels running 50 %" in note


def test_samples_of_another_day_are_left_out_with_a_note(tmp_path: Path) -> None:
    trace = recording("2026-12-24T12:00:00", 4)
    after = gpu_metrics_csv.attach_metrics(trace, gpu_metrics_csv.read_metrics(written(tmp_path, QUERY)))
    assert len(after.counters) == 0
    assert any("none of the GPU samples was taken during the recording" in note for note in after.integrity.notes)


def test_a_cut_last_line_is_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    metrics = gpu_metrics_csv.read_metrics(written(tmp_path, QUERY + "2026/11/30 21:10:24.501, 0, NVID"))
    assert (len(metrics.value), metrics.skipped) == (8, 1)


def test_utf16_as_powershell_writes_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, QUERY, "utf-16")
    assert gpu_metrics_csv.sniff(path, path.read_bytes())
    assert len(gpu_metrics_csv.read_metrics(path).value) == 8


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty"),
        ("a, b\n1, 2\n", "names no 'timestamp' column"),
        (QUERY.splitlines()[0] + "\n", "there is no sample in the file"),
        ("# gpu   sm\n# Idx    %\n    0   40\n", "the samples carry no time"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(TraceFormatError, match=problem):
        gpu_metrics_csv.read_metrics(written(tmp_path, text))


def test_samples_are_told_from_other_csv_files_and_refused_alone(tmp_path: Path) -> None:
    assert gpu_metrics_csv.sniff(tmp_path, QUERY.encode())
    assert gpu_metrics_csv.sniff(tmp_path, DMON.encode())
    assert not gpu_metrics_csv.sniff(tmp_path, b"Time (%),Total Time (ns),Instances\n")
    with pytest.raises(TraceFormatError, match="give the file beside a recording"):
        gpu_metrics_csv.read(written(tmp_path, QUERY))


def test_a_sample_of_the_year_9999_is_counted_as_not_understood(tmp_path: Path) -> None:
    metrics = gpu_metrics_csv.read_metrics(written(tmp_path, QUERY + "9999/12/31 21:10:24.501, 0, GPU, 1 %, , , ,\n"))
    assert (len(metrics.value), metrics.skipped) == (8, 1)
