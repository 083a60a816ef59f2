"""The two front ends offer the same options."""

from __future__ import annotations

import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

from traceanalyzer.cli.record import app
from traceanalyzer.recording import command
from traceanalyzer.recording.command import build_parser, from_values, main
from traceanalyzer.recording.options import ScriptOptions, YoloOptions, flag, to_words


def parse(*words: str) -> YoloOptions:
    values = vars(build_parser().parse_args(["yolo", *words]))
    options: YoloOptions = from_values(YoloOptions, values)
    return options


def test_defaults_are_the_same_whoever_parses() -> None:
    assert parse() == YoloOptions()


def test_words_round_trip() -> None:
    options = YoloOptions(steps=3, amp=False, memory=True, fault=("pageable", "gc-storm"), out=Path("x"), images=9)
    assert parse(*to_words(options)) == options


@pytest.mark.parametrize(("name", "kind"), [("yolo", YoloOptions), ("script", ScriptOptions)])
def test_typer_offers_every_declared_option_with_its_help(name: str, kind: Any) -> None:
    commands: Any = typer.main.get_command(app)
    offered = {option.name: option for option in commands.commands[name].params}
    for entry in fields(kind):
        if entry.metadata:
            assert flag(entry.name) in offered[entry.name].opts
            assert offered[entry.name].help == entry.metadata["help"]


def test_typer_hands_over_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(command, "run_yolo", seen.append)
    import importlib

    import traceanalyzer.cli.record as record

    reloaded = importlib.reload(record)
    words = ["yolo", "--steps", "4", "--imgsz", "64", "--batch", "2", "--no-amp", "--fault", "pageable", "--memory"]
    typer.main.get_command(reloaded.app).main(args=words, standalone_mode=False)
    assert seen == [YoloOptions(steps=4, imgsz=64, batch=2, amp=False, fault=("pageable",), memory=True)]
    monkeypatch.undo()
    importlib.reload(record)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch", "0"), "--batch 0: must be at least 1"),
        (("--set", "mosaic"), "--set mosaic: write name=value"),
        (("--steps", "-1"), "--steps -1: must not be negative"),
        (("--steps", "0"), "--steps 0 records nothing"),
        (("--fault", "nothing"), "unknown fault 'nothing'"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["yolo", "--out", str(tmp_path / "RUN"), *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message}")
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "RUN").exists()


def test_faults_are_listed_with_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults"]) == 0
    assert "pageable               TA301" in capsys.readouterr().out


def test_several_devices_are_recorded_by_one_process_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    started: list[list[str]] = []

    def run(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        started.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["yolo", "--device=0,1", "--batch=8", "--no-amp", f"--out={tmp_path / 'RUN'}"]) == 0
    assert started[0][1:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert started[0][5:] == [
        "-m", "traceanalyzer.recording", "yolo", f"--out={tmp_path / 'RUN'}", "--batch=8", "--device=0,1", "--no-amp",
    ]  # fmt: skip
