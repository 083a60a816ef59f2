"""The run folder is readable whatever ends the run."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from traceanalyzer.errors import UsageError
from traceanalyzer.recording import run_folder
from traceanalyzer.recording.run_folder import RunFolder, describe_error


def state(path: Path) -> str:
    return str(json.loads((path / "run.json").read_text())["state"])


def test_a_new_folder_is_readable_from_the_start(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "RUN")
    assert state(tmp_path / "RUN") == "running"
    folder.close("complete")
    assert state(tmp_path / "RUN") == "complete"
    assert [entry.name for entry in (tmp_path / "RUN").iterdir()] == ["run.json"]


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    RunFolder(tmp_path / "RUN").close("complete")
    with pytest.raises(UsageError, match="already exists; name a new folder or add --overwrite"):
        RunFolder(tmp_path / "RUN")


def test_overwrite_replaces_an_earlier_run(tmp_path: Path) -> None:
    RunFolder(tmp_path / "RUN").close("complete")
    (tmp_path / "RUN" / "rank0.pt.trace.json.gz").write_bytes(b"old")
    (tmp_path / "RUN" / "sub").mkdir()
    RunFolder(tmp_path / "RUN", overwrite=True).close("complete")
    assert [entry.name for entry in (tmp_path / "RUN").iterdir()] == ["run.json"]


def test_overwrite_does_not_empty_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years of work")
    with pytest.raises(UsageError, match="not a run folder"):
        RunFolder(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "RUN").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        RunFolder(tmp_path / "RUN")


def test_a_full_disk_leaves_the_last_state_written_into_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "RUN")
    write = run_folder._write_atomically
    reserve = tmp_path / "RUN" / ".reserve"

    def full(path: Path, text: str) -> None:
        if reserve.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, text)

    monkeypatch.setattr(run_folder, "_write_atomically", full)
    folder.close("failed", "OSError: no space")
    assert json.loads((tmp_path / "RUN" / "run.json").read_text())["error"] == "OSError: no space"


def test_a_write_that_fails_half_way_leaves_the_previous_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "RUN")

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(run_folder.os, "fsync", broken)
    folder.document["state"] = "complete"
    with pytest.raises(OSError, match="Input/output"):
        folder.save()
    assert state(tmp_path / "RUN") == "running"
    assert not (tmp_path / "RUN" / "run.json.part").exists()


def test_a_second_pass_continues_the_document(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "RUN")
    first.document["passes"] = [{"profiler": "torch"}]
    first.close("complete")
    assert RunFolder(tmp_path / "RUN", append=True).document["passes"] == [{"profiler": "torch"}]


def test_an_error_is_described_in_one_line_without_folders() -> None:
    error = FileNotFoundError("cannot open /home/someone/data/x.yaml\nsecond line")
    assert describe_error(error) == "FileNotFoundError: cannot open x.yaml"
