"""The guide can be followed: its commands run in the order written, and print what it says they print."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.shared_data import ROOT
from tests.test_readme import COMMANDS, options_of
from traceanalyzer import cli
from traceanalyzer.pipeline import analyze
from traceanalyzer.results.answer import mean_step

PAGE = ROOT / "traceanalyzer" / "docs" / "guide.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.M | re.S)
RECORDING = "traceanalyzer record "


def plain(text: str) -> str:
    """One line without the bars of the terminal's tables and without runs of spaces."""
    return " ".join(re.sub(r"[█▒]", " ", text).split())


def run(line: str, folder: Path) -> str:
    """Run one command of the guide in the current folder and return what it printed."""
    command, _, remark = line.partition("    #")
    words = shlex.split(command)
    expected = re.search(r"exit code (\d)", remark)
    if words[0] == "cp":
        shutil.copytree(words[-2], words[-1])
        return ""
    assert words[0] == "traceanalyzer"
    out = io.StringIO()
    with redirect_stdout(out):
        code = cli.main(words[1:])
    assert code == int(expected[1] if expected else 0), line
    written = [folder / words[at + 1] for at, word in enumerate(words) if word in WRITES]
    assert all(path.stat().st_size for path in written)
    return out.getvalue()


WRITES = ("--html", "--json", "--markdown", "--sarif", "--github", "--junit")


def test_every_command_of_the_guide_runs_and_prints_what_the_guide_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    printed = ""
    ran = shown = 0
    for language, body in BLOCKS:
        lines = [line for line in body.splitlines() if line.strip()]
        if language == "sh":
            ran += len(lines)
            printed = plain("\n".join(run(line, tmp_path) for line in lines if not line.startswith(RECORDING)))
        elif language == "text":
            shown += len(lines)
            assert [line for line in lines if plain(line) not in printed] == []
        else:
            compile(body, str(PAGE), "exec")
    assert (ran, shown) > (15, 15)


def test_recording_commands_of_the_guide_exist_with_their_options() -> None:
    lines = [line for language, body in BLOCKS if language == "sh" for line in body.splitlines()]
    recordings = [line for line in lines if line.startswith(RECORDING)]
    assert recordings
    for line in recordings:
        words = shlex.split(line.split(" -- ")[0])[1:]
        assert words[1] in COMMANDS["record"].commands
        assert {word for word in words if word.startswith("-")} <= options_of("record")


def test_steps_quoted_in_the_text_are_those_of_the_recordings() -> None:
    (before,), (after,) = (
        [mean_step(rank) for rank in analyze(ROOT / "sample_traces" / "labelled" / name).ranks]
        for name in ("single-process-loader", "good")
    )
    assert before is not None
    assert after is not None
    assert f"from {before.window_ns / 1e6:.0f} to {after.window_ns / 1e6:.0f} ms" in " ".join(TEXT.split())


@pytest.mark.parametrize("page", ["guide.md", "api.md"])
def test_links_lead_somewhere_and_the_readme_links_here(page: str) -> None:
    text = (PAGE.parent / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if not (PAGE.parent / link.split("#")[0]).exists()] == []
    assert f"traceanalyzer/docs/{page}" in (ROOT / "README.md").read_text(encoding="utf-8")
