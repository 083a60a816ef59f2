"""The table of real regressions in the gate's documentation is what ``compare`` says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import traceanalyzer
from tests.shared_data import ROOT, shared
from traceanalyzer.errors import UsageError
from traceanalyzer.results.analysis import Analysis

PAGE = ROOT / "traceanalyzer" / "comparison" / "README.md"
FOLDERS = {
    "h200/nsys_": "traces/h200/{}.sqlite.gz",
    "h200/": "traces/h200/{}.pt.trace.json.gz",
    "public/mfu_": "traces/public/nsys_ai/{}.sqlite.gz",
    "public/": "traces/public/kineto/{}.pt.trace.json.gz",
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    base: str
    candidate: str
    allowed: bool
    verdict: str
    named: str


def _rows() -> list[Row]:
    section = PAGE.read_text(encoding="utf-8").split("## Real regressions")[1].split("\n## ")[0]
    lines = [
        line for line in section.splitlines() if line.startswith("| ") and not line.startswith(("| base", "| ---"))
    ]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [
        Row(base, candidate, allowed == "allowed", verdict, named) for base, candidate, allowed, verdict, named in cells
    ]


def _path(name: str) -> Path:
    if name.startswith("labelled/"):
        return ROOT / "sample_traces" / name
    prefix = next(prefix for prefix in FOLDERS if name.startswith(prefix))
    return shared(FOLDERS[prefix].format(name.split("/")[1]))


@cache
def _analysis(name: str) -> Analysis:
    return traceanalyzer.analyze(_path(name))


def _case(row: Row) -> object:
    inside = row.base.startswith("labelled/")
    return pytest.param(row, id=row.candidate, marks=[] if inside else [pytest.mark.shared])


def test_the_table_holds_every_pair_it_promises() -> None:
    promised = {"item", "empty", "pageable", "workers0", "nsys_workers0", "resnet50_num_workers_0", "mfu_2gpu_after"}
    assert promised <= {row.candidate.split("/")[1] for row in _rows()}


@pytest.mark.parametrize("row", [_case(row) for row in _rows()])
def test_the_verdict_and_the_first_named_difference_are_those_of_the_table(row: Row) -> None:
    base, candidate = _analysis(row.base), _analysis(row.candidate)
    if row.allowed:
        with pytest.raises(UsageError, match="not recorded alike"):
            traceanalyzer.compare(base, candidate)
    comparison = traceanalyzer.compare(base, candidate, allow_different=row.allowed)
    assert comparison.verdict.value == row.verdict
    if comparison.regressions:
        assert re.sub(r" \([^()]*98 % interval.*", "", comparison.regressions[0].detail) == row.named
    else:
        assert any(row.named in note for note in comparison.notes)
