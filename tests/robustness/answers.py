"""How the tests of damaged input ask for an answer: the Python interface, or the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import traceanalyzer
from tests.robustness.invariants import assert_plausible
from tests.robustness.recordings import Event, kineto_document
from traceanalyzer import cli
from traceanalyzer.results.analysis import Analysis, RankReport


@dataclass
class CommandLine:
    """Runs ``analyze`` in this process and hands back what a user sees of it."""

    capsys: pytest.CaptureFixture[str]
    folder: Path

    def analysed(self, path: Path) -> Analysis:
        """Analyse an input that has an answer: exit 0, nothing on standard error."""
        target = self.folder / "answer.json"
        assert cli.main(["analyze", str(path), "--json", str(target)]) == 0
        assert self.capsys.readouterr().err == ""
        analysis = Analysis.from_json(target.read_bytes())
        assert_plausible(analysis)
        return analysis

    def refused(self, path: Path) -> str:
        """Analyse an input that has none: exit 2 and one line on standard error, which is returned."""
        assert cli.main(["analyze", str(path), "--json", str(self.folder / "answer.json")]) == 2
        out, err = self.capsys.readouterr()
        assert out == ""
        assert err.startswith("traceanalyzer: ")
        assert err.count("\n") == 1
        assert not (self.folder / "answer.json").exists()
        return err


def analyse(path: Path, **options: Any) -> RankReport:
    """Analyse a recording of one rank and check that nothing in the answer contradicts itself."""
    analysis = traceanalyzer.analyze(path, **options)
    assert_plausible(analysis)
    (rank,) = analysis.ranks
    return rank


def analyse_events(folder: Path, events: list[Event], **members: Any) -> RankReport:
    """Analyse a Kineto document of these events."""
    return analyse(write_text(folder, json.dumps(kineto_document(events, **members))))


def write_text(folder: Path, text: str | bytes, name: str = "trace.json") -> Path:
    """Write a file as it is given."""
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return path


def dropped(rank: RankReport) -> dict[str, int]:
    """Records left out, by reason."""
    return {entry.reason: entry.count for entry in rank.integrity.dropped}
