"""What a user may name as input, and how it becomes recordings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import traceanalyzer
from traceanalyzer.errors import TraceFormatError, UsageError
from traceanalyzer.readers.inputs import open_inputs

BASE_NS = 1_700_000_000_000_000_000


def recording(path: Path, *, kernel: str = "k", rank: int | None = None) -> Path:
    """Write a Kineto recording of one launch and its kernel."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 100, "dur": 5},
        {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": 110, "dur": 3_000_000},
    ]
    for event in events:
        event["args"] = {"correlation": 1, "device": 0, "stream": 7}
    document: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, "traceEvents": events}
    if rank is not None:
        document["distributedInfo"] = {"rank": rank, "world_size": 2}
    path.write_text(json.dumps(document))
    return path


def run_folder(path: Path, *profilers: str, **extra: object) -> Path:
    """Write a run folder with one pass per profiler."""
    path.mkdir()
    entries = []
    for index, profiler in enumerate(profilers):
        recording(path / f"{profiler}.json", kernel=f"kernel of {profiler}")
        entries.append({"file": f"{profiler}.json", "profiler": profiler, "pass": index, "rank": 0, "format": "kineto"})
    passes = [{"profiler": p, "unprofiled": {"step_ns": [1000]}, "profiled": {"step_ns": [2000]}} for p in profilers]
    document = {"schema": "traceanalyzer.run/1", "state": "complete", "recordings": entries, "passes": passes} | extra
    (path / "run.json").write_text(json.dumps(document))
    return path


def kernel_of(analysis: Any) -> str:
    return str(analysis.ranks[0].kernels.top[0].name)


def test_folder_with_one_recording_per_rank_is_read_as_ranks(tmp_path: Path) -> None:
    for rank in (1, 0):
        recording(tmp_path / f"r{rank}.json", rank=rank)
    (tmp_path / "notes.txt").write_text("not a recording")
    assert [rank.rank for rank in traceanalyzer.analyze(tmp_path).ranks] == [0, 1]


def test_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="no recording"):
        open_inputs([str(tmp_path)])


def test_first_pass_of_a_run_folder_is_analysed_and_the_other_is_mentioned(tmp_path: Path) -> None:
    analysis = traceanalyzer.analyze(run_folder(tmp_path / "run", "torch", "nsys"))
    assert kernel_of(analysis) == "kernel of torch"
    assert any("--profiler nsys" in note for note in analysis.ranks[0].integrity.notes)


def test_profiler_chooses_the_pass_of_a_run_folder(tmp_path: Path) -> None:
    assert kernel_of(traceanalyzer.analyze(run_folder(tmp_path / "run", "torch", "nsys"), profiler="nsys")) == (
        "kernel of nsys"
    )


def test_pass_that_was_not_recorded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no nsys recording; it has torch"):
        traceanalyzer.analyze(run_folder(tmp_path / "run", "torch"), profiler="nsys")


def test_what_the_recorder_knows_reaches_the_document(tmp_path: Path) -> None:
    settings = {"batch": 16, "workers": 8, "amp": True, "model": "yolo11n.yaml"}
    analysis = traceanalyzer.analyze(run_folder(tmp_path / "run", "torch", configuration=settings))
    configuration = analysis.configuration
    assert (configuration.batch, configuration.workers, configuration.amp) == (16, 8, True)
    # the recorder timed 1 µs without and 2 µs with the profiler
    assert analysis.ranks[0].observer.inflation == pytest.approx(2.0)


def test_interrupted_run_says_so(tmp_path: Path) -> None:
    analysis = traceanalyzer.analyze(run_folder(tmp_path / "run", "torch", state="interrupted"))
    assert any("ended early" in note for note in analysis.ranks[0].integrity.notes)


def test_samples_given_beside_a_recording_become_a_counter(tmp_path: Path) -> None:
    samples = tmp_path / "gpu.csv"
    # 2023-11-14 22:13:20 UTC is BASE_NS
    lines = [f"2023/11/14 22:13:{20 + second}.500, 0, {10 * second} %" for second in range(3)]
    samples.write_text("\n".join(["timestamp, index, utilization.gpu [%]", *lines]) + "\n")
    analysis = traceanalyzer.analyze([recording(tmp_path / "a.json"), samples])
    counters = [t for t in analysis.ranks[0].timeline.tracks if t.kind == "counter" and "utilization" in t.title]
    assert len(counters) == 1
    assert counters[0].counter_value == [0, 10, 20]


def test_samples_alone_are_refused(tmp_path: Path) -> None:
    samples = tmp_path / "gpu.csv"
    samples.write_text("timestamp, index, utilization.gpu [%]\n2023/11/14 22:13:20.500, 0, 10 %\n")
    with pytest.raises(UsageError, match="no timeline"):
        open_inputs([str(samples)])


def test_url_is_fetched_and_keeps_its_name(tmp_path: Path) -> None:
    url = recording(tmp_path / "a.json").as_uri()
    (opened,) = open_inputs([url])
    assert opened.recording.source.path == url


@pytest.mark.parametrize(
    ("url", "hint"),
    [("file:///no/such/recording.json", "check the address"), ("nonsense://x/y.json", "not known to fsspec")],
)
def test_url_that_cannot_be_fetched_is_the_projects_own_error(url: str, hint: str) -> None:
    with pytest.raises(TraceFormatError, match=f"cannot be fetched.*{hint}"):
        open_inputs([url])


def test_damaged_file_behind_a_url_is_named_by_its_url(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("hello")
    with pytest.raises(TraceFormatError, match="file://"):
        open_inputs([path.as_uri()])


def test_run_file_may_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "torch")
    shutil.move(folder / "torch.json", tmp_path / "outside.json")
    text = (folder / "run.json").read_text().replace("torch.json", "../outside.json")
    (folder / "run.json").write_text(text)
    with pytest.raises(TraceFormatError, match="no recording"):
        open_inputs([str(folder)])


def test_a_name_in_a_run_file_that_no_file_can_have_is_an_absent_file(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "torch", files={"gpu_samples": "x" * 5000, "memory_snapshot": "\0"})
    (opened,) = open_inputs([str(folder)])
    assert len(opened.recording.traces[0].activities) == 1
