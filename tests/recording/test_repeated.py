"""Several runs in one command, on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recording.test_script import TRAIN
from traceanalyzer import cli
from traceanalyzer.errors import UsageError
from traceanalyzer.recording.options import ScriptOptions, YoloOptions
from traceanalyzer.recording.repeated import Repetition, next_command, plan_runs

QUICK = ["--steps", "2", "--unprofiled", "1", "--warm-up", "0"]


def _state(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["state"])


def _checkout(folder: Path, script: str) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(script.replace("int(sys.argv[1])", "50"))
    return folder


def test_two_sides_alternate_so_that_drift_falls_on_both() -> None:
    options = ScriptOptions(out=Path("out"), steps=5)
    runs = plan_runs("script", options, Repetition(runs=4, ab=("python a.py", "python b.py --fast")))
    assert [run.folder.name for run in runs] == ["A-1", "B-1", "B-2", "A-2", "A-3", "B-3", "B-4", "A-4"]
    assert runs[0].words == ["script", "--steps=5", "--", "python", "a.py"]
    assert runs[1].words == ["script", "--steps=5", "--", "python", "b.py", "--fast"]


def test_yolo_sides_are_further_options() -> None:
    runs = plan_runs("yolo", YoloOptions(out=Path("out"), batch=4), Repetition(ab=("", "--fault item-per-step")))
    assert [run.words for run in runs] == [["yolo", "--batch=4"], ["yolo", "--batch=4", "--fault", "item-per-step"]]


def test_checkouts_run_the_same_command_in_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "data.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    options = YoloOptions(out=Path("out"), data="data.yaml", dataset_dir=Path("kept"))
    runs = plan_runs("yolo", options, Repetition(ab=("old", "new")))
    assert [run.place for run in runs] == [tmp_path / "old", tmp_path / "new"]
    # what was named relative to here is still found from there
    assert runs[0].words == ["yolo", f"--data={tmp_path / 'data.yaml'}", f"--dataset-dir={tmp_path / 'kept'}"]


@pytest.mark.parametrize(
    ("ab", "command", "message"),
    [
        (("python a.py", "python b.py"), ("python", "c.py"), "takes none after --"),
        (("{folder}", "{folder}"), (), "needs the command to run in both"),
        (("{folder}", "python b.py"), (), "the other side is not"),
        (("python 'a.py", "python b.py"), (), "No closing quotation"),
    ],
)
def test_sides_that_cannot_be_told_are_refused(
    ab: tuple[str, str], command: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    sides = (ab[0].format(folder=tmp_path), ab[1].format(folder=tmp_path))
    with pytest.raises(UsageError, match=message):
        plan_runs("script", ScriptOptions(command=command), Repetition(ab=sides))


def test_the_command_to_run_next_is_a_comparison_or_a_baseline() -> None:
    assert next_command([Path("o/A-1"), Path("o/A-2")], [Path("o/B 1")]) == (
        "traceanalyzer compare --base o/A-1 --base o/A-2 --candidate 'o/B 1'"
    )
    assert next_command([Path("o/run-1")], []) == "traceanalyzer baseline update BASELINE.json o/run-1"


def test_nonsense_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")]
    for words, message in (
        (["--runs", "0", "--", "x.py"], "--runs 0: must be at least 1"),
        (["--runs", "-3", "--", "x.py"], "--runs -3: must be at least 1"),
        (["--compare", "--", "x.py"], "--compare needs two sides"),
        (["--runs", "1000000000", "--", "x.py"], "at most 1000"),
        (["--runs", "2"], "needs a script"),
        (["--ab", "a.py", "--", "b.py"], ""),
        (["--ab", "python a.py", ""], "side B names neither a command nor a checkout"),
    ):
        assert cli.main(["record", "script", *out, *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_a_place_that_cannot_hold_runs_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cli.main(["record", "script", "--out", str(tmp_path / "file"), "--runs", "2", "--", "x.py"]) == 2
    error = capsys.readouterr().err
    assert "cannot hold the runs: File exists" in error
    assert error.count("\n") == 1


@pytest.mark.torch
def test_every_run_gets_a_complete_folder_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    script = _checkout(tmp_path / "x", TRAIN) / "train.py"
    out = tmp_path / "out"
    words = ["record", "script", "--out", str(out), *QUICK, "--runs", "2"]
    assert cli.main([*words, "--", "python", str(script)]) == 0
    assert f"baseline update BASELINE.json {out}/run-1 {out}/run-2" in capsys.readouterr().out
    assert [_state(out / name) for name in ("run-1", "run-2")] == ["complete", "complete"]
    assert cli.main([*words, "--", "python", str(script)]) == 2
    assert "pass --resume" in capsys.readouterr().err


@pytest.mark.torch
def test_a_failed_run_is_named_and_resuming_records_only_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    good, bad = _checkout(tmp_path / "old", TRAIN), _checkout(tmp_path / "new", "import sys\nsys.exit(7)\n")
    out = tmp_path / "out"
    words = ["record", "script", "--out", str(out), *QUICK, "--ab", str(good), str(bad), "--compare"]
    command = ["--", "python", "train.py"]
    assert cli.main([*words, *command]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{out / 'B-1'}: recording failed" in error
    assert "--resume" in error
    kept = (out / "A-1" / "run.json").read_bytes()
    (bad / "train.py").write_text((good / "train.py").read_text())
    seen: list[tuple[list[str], list[str]]] = []
    monkeypatch.setattr("traceanalyzer.cli.record.judge", lambda r: seen.append((r.base, r.candidate)) or 1)
    assert cli.main([*words, "--resume", *command]) == 1  # the exit code of the comparison
    assert seen == [([str(out / "A-1")], [str(out / "B-1")])]
    assert "A-1 (1 of 2): recorded already" in capsys.readouterr().out
    assert (out / "A-1" / "run.json").read_bytes() == kept
    assert _state(out / "B-1") == "complete"
