"""From files to a document: sums that must agree exactly, ranks, and what contradicts itself."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import traceanalyzer
from tests.shared_data import ROOT
from tests.tools.make_reports import SAMPLES as REPORTED
from traceanalyzer.errors import TraceAnalyzerError, UsageError
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.vocabulary import Cause, Status

SAMPLES = [ROOT / "sample_traces" / "labelled" / name / "rank0.pt.trace.json.gz" for name in REPORTED]
WORKERS0 = ROOT / "sample_traces" / "labelled" / "single-process-loader" / "rank0.pt.trace.json.gz"


@pytest.fixture(scope="module")
def workers0() -> Analysis:
    return traceanalyzer.analyze(WORKERS0)


@pytest.fixture(scope="module", params=SAMPLES, ids=lambda path: path.parent.name)
def analysis(request: pytest.FixtureRequest) -> Analysis:
    return traceanalyzer.analyze(request.param)


def tiny(path: Path, *, rank: int | None = None, world_size: int = 2, shift_us: int = 0) -> Path:
    """Write a recording of one kernel and its launch."""
    events = [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": 100 + shift_us,
            "dur": 5,
        },
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 110 + shift_us, "dur": 20},
    ]
    for event in events:
        event["args"] = {"correlation": 1, "device": 0, "stream": 7}
    document: dict[str, Any] = {"schemaVersion": 1, "traceEvents": events}
    if rank is not None:
        document["distributedInfo"] = {"rank": rank, "world_size": world_size}
    path.write_text(json.dumps(document))
    return path


def test_busy_and_idle_make_up_the_span(analysis: Analysis) -> None:
    device = analysis.ranks[0].devices[0]
    assert device.busy_ns + device.idle_ns == device.span_ns


def test_causes_make_up_idle_to_the_nanosecond(analysis: Analysis) -> None:
    device = analysis.ranks[0].devices[0]
    assert sum(device.idle_by_cause_ns.values()) == device.idle_ns
    assert sum(part.ns for part in device.idle_by_cause_and_phase_ns) == device.idle_ns
    assert set(device.idle_by_cause_ns) == {cause.value for cause in Cause}


def test_causes_make_up_idle_in_every_step(analysis: Analysis) -> None:
    series = analysis.ranks[0].per_step
    by_cause = list(series.idle_by_cause_ns.values())
    busy = list(series.busy_by_kind_ns.values())
    for step, window in enumerate(series.window_ns):
        assert sum(values[step] for values in by_cause) == series.idle_ns[step]
        assert series.idle_ns[step] + sum(values[step] for values in busy) == window


def test_window_causes_make_up_the_steps_idle(analysis: Analysis) -> None:
    rank = analysis.ranks[0]
    assert sum(part.ns for part in rank.devices[0].windows_idle_by_cause_and_phase_ns) == sum(rank.per_step.idle_ns)


def test_no_rule_breaks(analysis: Analysis) -> None:
    assert [f.code for f in analysis.findings if f.status is Status.ERROR] == []


def test_document_survives_json_and_is_byte_stable(analysis: Analysis) -> None:
    text = analysis.to_json()
    assert Analysis.from_json(text) == analysis
    again = traceanalyzer.analyze(analysis.inputs[0].path)
    assert again.to_json() == text


def test_number_of_activities_is_what_a_plain_json_parser_counts(analysis: Analysis) -> None:
    with gzip.open(analysis.inputs[0].path) as stream:
        events = json.load(stream)["traceEvents"]
    counted = sum(event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"} for event in events)
    assert analysis.ranks[0].integrity.gpu_activities == counted


def test_content_decides_the_format_not_the_name(workers0: Analysis, tmp_path: Path) -> None:
    renamed = tmp_path / "holiday.jpg"
    shutil.copy(WORKERS0, renamed)
    assert traceanalyzer.analyze(renamed).ranks == workers0.ranks


def test_configuration_comes_from_the_recording(workers0: Analysis) -> None:
    assert workers0.configuration.gpu == "NVIDIA H200"
    assert workers0.configuration.workers in (None, 0)
    assert not workers0.recorded_with.stacks


def test_memory_events_are_noticed() -> None:
    assert traceanalyzer.analyze(ROOT / "sample_traces" / "labelled" / "empty-cache").recorded_with.memory


def test_timings_name_every_stage() -> None:
    timings: dict[str, float] = {}
    traceanalyzer.analyze(WORKERS0, timings=timings)
    assert list(timings) == ["read", "measure", "check", "replay", "summarise"]
    assert all(seconds >= 0 for seconds in timings.values())


def test_progress_ends_at_the_whole_input(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    traceanalyzer.analyze(WORKERS0, progress=lambda *call: calls.append(call))
    name, done, total = calls[-1]
    assert name == str(WORKERS0)
    assert done == total > 0
    assert [d for _, d, _ in calls] == sorted(d for _, d, _ in calls)


def test_select_and_ignore_choose_rules() -> None:
    assert {f.code for f in traceanalyzer.analyze(WORKERS0, select=["TA1"]).findings} >= {"TA101"}
    assert all(f.code.startswith("TA1") for f in traceanalyzer.analyze(WORKERS0, select=["TA1"]).findings)
    assert "TA101" not in {f.code for f in traceanalyzer.analyze(WORKERS0, ignore=["loader-in-main-process"]).findings}


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="TA999"):
        traceanalyzer.analyze(WORKERS0, select=["TA999"])


def test_steps_selects_by_position(workers0: Analysis) -> None:
    chosen = traceanalyzer.analyze(WORKERS0, steps=(1, None)).ranks[0].steps
    assert chosen.name == workers0.ranks[0].steps.name[1:]


def test_ranks_come_in_rank_order_whatever_the_order_of_inputs(tmp_path: Path) -> None:
    paths = [tiny(tmp_path / f"{rank}.json", rank=rank, shift_us=rank) for rank in (1, 0)]
    analysis = traceanalyzer.analyze(paths)
    assert [rank.rank for rank in analysis.ranks] == [0, 1]
    assert {f.rank for f in analysis.findings} == {0, 1}
    assert [source.path for source in analysis.inputs] == [str(path) for path in paths]


def test_recordings_that_name_no_rank_get_the_free_numbers(tmp_path: Path) -> None:
    paths = [tiny(tmp_path / "a.json", shift_us=5), tiny(tmp_path / "b.json", rank=0)]
    assert [rank.rank for rank in traceanalyzer.analyze(paths).ranks] == [0, 1]


def test_one_recording_given_twice_is_refused(tmp_path: Path) -> None:
    path = tiny(tmp_path / "a.json")
    copy = tmp_path / "copy.json"
    shutil.copy(path, copy)
    with pytest.raises(UsageError, match="given twice"):
        traceanalyzer.analyze([path, copy])


def test_two_recordings_of_one_rank_are_refused(tmp_path: Path) -> None:
    paths = [tiny(tmp_path / f"{i}.json", rank=0, shift_us=i) for i in range(2)]
    with pytest.raises(UsageError, match="rank 0"):
        traceanalyzer.analyze(paths)


def test_no_input_is_refused() -> None:
    with pytest.raises(UsageError):
        traceanalyzer.analyze([])


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"hello", b"\x1f\x8b\x08", b"\x00" * 100])
def test_unusable_input_raises_the_projects_own_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(TraceAnalyzerError, match=r"x\.json"):
        traceanalyzer.analyze(path)


def test_gaps_add_up_to_idle(workers0: Analysis) -> None:
    gaps = workers0.gaps()
    device = workers0.ranks[0].devices[0]
    assert int(gaps.loc[gaps["in_span"], "duration_ns"].sum()) == device.idle_ns
    by_cause = gaps[gaps["in_span"]].groupby("cause", observed=True)["duration_ns"].sum()
    assert by_cause.to_dict() == {cause: ns for cause, ns in device.idle_by_cause_ns.items() if ns}


def test_kernels_add_up_to_the_documents_sum(workers0: Analysis) -> None:
    kernels = workers0.kernels()
    assert len(kernels) == workers0.ranks[0].kernels.count
    assert int(kernels["duration_ns"].sum()) == workers0.ranks[0].kernels.time_sum_ns


def test_copies_add_up_to_the_documents_sums(workers0: Analysis) -> None:
    copies = workers0.copies()
    reports = workers0.ranks[0].copies
    for direction, report in (("h2d", reports.h2d), ("d2h", reports.d2h), ("d2d", reports.d2d)):
        rows = copies[copies["direction"] == direction]
        assert len(rows) == report.count
        assert int(rows["bytes"].sum()) == report.bytes
        assert int(rows["duration_ns"].sum()) == report.time_ns
        assert int(rows["overlapped_ns"].sum()) == report.overlapped_ns
        assert int(rows["host_blocked_ns"].sum()) == report.host_blocked_ns
    assert reports.h2d.count > 0


def test_steps_frame_holds_the_documents_series(workers0: Analysis) -> None:
    steps = workers0.steps()
    assert steps["window_ns"].tolist() == workers0.ranks[0].per_step.window_ns
    assert steps["idle.input_wait_ns"].tolist() == workers0.ranks[0].per_step.idle_by_cause_ns["input_wait"]
    assert steps["class"].tolist() == ["steady"] * 3


def test_idle_frame_adds_up(workers0: Analysis) -> None:
    assert int(workers0.idle()["ns"].sum()) == workers0.ranks[0].devices[0].idle_ns


def test_frames_that_need_the_recording_say_so_on_a_loaded_document(workers0: Analysis) -> None:
    loaded = Analysis.from_json(workers0.to_json())
    pd.testing.assert_frame_equal(loaded.steps(), workers0.steps())
    for table in (loaded.gaps, loaded.kernels):
        with pytest.raises(UsageError, match="needs the recording"):
            table()
