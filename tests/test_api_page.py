"""The page about the Python interface: its examples give what it says, and it leaves nothing public out."""

from __future__ import annotations

import doctest
import inspect
import re

import pandas as pd
import pytest

import traceanalyzer
from tests.shared_data import ROOT
from traceanalyzer.pipeline import analyze
from traceanalyzer.results.analysis import Analysis

PAGE = ROOT / "traceanalyzer" / "docs" / "api.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_examples_give_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    # fences are not prompts, so that the examples are what is left
    test = doctest.DocTestParser().get_doctest(TEXT, {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 35
    said: list[str] = []
    doctest.DocTestRunner(optionflags=options, verbose=False).run(test, out=said.append)
    assert "".join(said) == ""


def test_every_block_of_examples_ends_with_an_empty_line_so_that_its_fence_is_no_output() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    assert [block for block in blocks if ">>>" in block and not block.endswith("\n\n")] == []


def test_every_public_name_and_every_keyword_of_analyze_is_on_the_page() -> None:
    for name in traceanalyzer.__all__:
        assert name == "__version__" or f"`{name}" in TEXT
    keywords = [p.name for p in inspect.signature(analyze).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert [name for name in keywords if f"`{name}=" not in TEXT] == []


@pytest.mark.parametrize("table", ["steps", "idle", "gaps", "kernels", "copies"])
def test_columns_of_the_tables_are_those_of_the_page(table: str) -> None:
    analysis = analyze(ROOT / "sample_traces" / "labelled" / "pageable")
    frame: pd.DataFrame = getattr(Analysis, table)(analysis)
    (row,) = re.findall(rf"^\| `{table}\(\)` \|[^|]*\|([^|]*)\|$", TEXT, re.M)
    named = set(re.findall(r"`([\w.<> ]+)`", row))
    columns = {re.sub(r"^(idle|busy)\..*", r"\1", column) for column in frame.columns}
    shapes = {name for name in named if "<" in name}
    prefixes = {name.split(".")[0] for name in shapes}
    assert {c for c in columns if "." not in c} - {"idle", "busy"} == named - shapes
    assert {c.split(".")[0] for c in frame.columns if "." in c} <= prefixes
