"""What the README says can be done: commands and options exist, and its Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from tests.shared_data import ROOT
from traceanalyzer import cli
from traceanalyzer.cli.app import make_app

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.M | re.S)
SHELL = [body for language, body in BLOCKS if language == "sh"]
PYTHON = [body for language, body in BLOCKS if language == "python"]
COMMANDS = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]


def options_of(command: str, *, inner: bool = True) -> set[str]:
    """Return the options of a command; with ``inner`` those of its own commands too (``record yolo``)."""
    found = COMMANDS[command]
    commands = [found, *(getattr(found, "commands", {}).values() if inner else ())]
    names = {name for each in commands for parameter in each.params for name in parameter.opts}
    return names | {"--help", "-h"}


def lines_of_tool() -> list[str]:
    lines = [line.split(" #")[0].strip() for block in SHELL for line in block.splitlines()]
    return [line for line in lines if line.startswith("traceanalyzer ")]


def test_first_block_sets_up_and_runs_in_one_line() -> None:
    first = SHELL[0].strip()
    assert "\n" not in first
    assert first.endswith("traceanalyzer demo")
    assert "pip install" in first


def test_second_block_runs_the_tests() -> None:
    script = ROOT / SHELL[1].strip()
    assert script.stat().st_mode & 0o111
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("line", lines_of_tool())
def test_command_lines_exist(line: str) -> None:
    _, command, *words = line.split(" -- ")[0].split()
    assert command in COMMANDS
    inner = getattr(COMMANDS[command], "commands", None)
    assert inner is None or words[0] in inner
    assert {word for word in words if word.startswith("-")} <= options_of(command)


def test_every_command_is_shown() -> None:
    assert set(COMMANDS) == {command for command in COMMANDS if re.search(rf"traceanalyzer {command}\b", README)}


def test_every_option_is_mentioned() -> None:
    missing = {
        option
        for command in COMMANDS
        for option in options_of(command, inner=False)
        if option.startswith("--") and option not in README and option != "--help"
    }
    assert missing == set()


def test_exit_codes_are_those_of_the_code() -> None:
    codes = set(map(int, re.findall(r"^\| (\d+) \|", README, re.M)))
    assert codes >= {0, 1, cli.UNUSABLE, cli.INTERRUPTED}


def test_python_snippet_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = (body for body in PYTHON if "import traceanalyzer" in body)
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    assert (tmp_path / "analysis.json").stat().st_size > 0


def test_recording_snippet_is_python() -> None:
    for body in PYTHON:
        compile(body, "README.md", "exec")


@pytest.mark.parametrize("page", ["README.md", "traceanalyzer/README.md", "sample_traces/README.md"])
def test_links_between_files_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link and not link.startswith("#")]
    assert [link for link in links if not (folder / link.split("#")[0]).exists()] == []
