"""What analysis gets from a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.readers.run_folder import read_run_folder, sniff


def write(folder: Path, name: str = "run.json", **document: Any) -> Path:
    folder.mkdir(exist_ok=True)
    full = {"schema": "traceanalyzer.run/1", "state": "complete", "error": None, "passes": [], **document}
    (folder / name).write_text(json.dumps(full))
    return folder


def entry(file: str, **more: Any) -> dict[str, Any]:
    return {"file": file, "format": "kineto", "profiler": "torch", "pass": 0, "rank": 0, **more}


def test_recordings_come_by_pass_and_rank_with_the_facts_of_their_pass(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "RUN",
        passes=[
            {"profiler": "torch", "unprofiled": {"step_ns": [5]}, "profiled": {"step_ns": [9]}},
            {"profiler": "nsys", "unprofiled": {"step_ns": [6]}, "profiled": {"step_ns": [7]}},
        ],
        configuration={"batch": 16},
        recordings=[
            entry("b.sqlite", **{"pass": 1, "profiler": "nsys", "format": "nsys_sqlite"}),
            entry("a", memory=True),
        ],
    )
    write(folder, "run.rank1.json", passes=[{"profiler": "torch"}], recordings=[entry("c", rank=1)])
    for name in ("a", "b.sqlite", "c"):
        (folder / name).write_bytes(b"x")
    run = read_run_folder(folder)
    assert [(found.path.name, found.pass_index, found.rank) for found in run.recordings] == [
        ("a", 0, 0), ("c", 0, 1), ("b.sqlite", 1, 0),
    ]  # fmt: skip
    nsys = run.recordings[2].recorder
    assert nsys["profiled"] == {"step_ns": [7]}
    assert nsys["unprofiled"] == {"step_ns": [5]}
    assert nsys["configuration"] == {"batch": 16}
    assert run.recordings[0].recorder["recorded_with"] == {"stacks": False, "shapes": False, "memory": True}


def test_a_named_file_that_is_gone_is_a_note(tmp_path: Path) -> None:
    folder = write(tmp_path / "RUN", recordings=[entry("a"), entry("gone")])
    (folder / "a").write_bytes(b"x")
    run = read_run_folder(folder)
    assert len(run.recordings) == 1
    assert any("gone" in note for note in run.notes)


def test_a_name_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    folder = write(tmp_path / "RUN", recordings=[entry("../outside")])
    with pytest.raises(TraceFormatError, match="holds no recording"):
        read_run_folder(folder)


def test_a_run_that_failed_before_recording_says_why(tmp_path: Path) -> None:
    folder = write(tmp_path / "RUN", state="failed", error="OutOfMemoryError: CUDA out of memory", recordings=[])
    with pytest.raises(TraceFormatError, match=r"holds no recording .*failed, OutOfMemoryError: CUDA out of memory"):
        read_run_folder(folder)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a traceanalyzer.run/1"),
        ('{"schema": "other"}', "not a traceanalyzer.run/1"),
    ],
)
def test_another_document_is_refused_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert not sniff(tmp_path)
    with pytest.raises(TraceFormatError, match=problem) as caught:
        read_run_folder(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_document_is_no_run_folder(tmp_path: Path) -> None:
    assert not sniff(tmp_path)
    with pytest.raises(TraceFormatError, match=r"holds no run\.json"):
        read_run_folder(tmp_path)
