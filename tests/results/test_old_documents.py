"""Documents of earlier versions: those of this schema are rendered and compared, others refused in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from traceanalyzer import cli
from traceanalyzer.renderers.html import render_html
from traceanalyzer.renderers.markdown import render_markdown
from traceanalyzer.results.analysis import SCHEMA, Analysis

OLD = gzip.decompress((Path(__file__).parent / "old_documents" / "analysis-1.json.gz").read_bytes())
# the newest schema is the first: there is no older one to read
OTHERS = ["traceanalyzer.analysis/0", "traceanalyzer.analysis/2", "traceanalyzer.analysis/", "traceanalyzer.analysis"]
FORMATS = ("html", "markdown", "perfetto", "sarif", "github")


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "old.json"
    path.write_bytes(OLD)
    return path


def edited(**changes: Any) -> bytes:
    return json.dumps({**json.loads(OLD), **changes}).encode()


def test_the_old_document_really_lacks_keys_that_came_later() -> None:
    old = json.loads(OLD)
    assert old["schema"] == SCHEMA
    new = json.loads(Analysis.from_json(OLD).to_json())
    assert "job" in set(new) - set(old)
    assert "remedy" in set(new["findings"][0]) - set(old["findings"][0])
    assert {"ranges", "memory"} <= set(new["ranks"][0]) - set(old["ranks"][0])


def test_an_old_document_is_rendered_in_every_format(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = {name: document.with_suffix(f".{name}") for name in FORMATS}
    words = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    assert cli.main(["report", str(document), *words]) == 0
    assert capsys.readouterr().out.startswith("TA101  The main process loads the data")
    assert all(path.stat().st_size for path in paths.values())
    assert "279 ms" in paths["html"].read_text(encoding="utf-8")


def test_an_old_document_says_the_numbers_it_was_written_with() -> None:
    analysis = Analysis.from_json(OLD)
    assert [f.code for f in analysis.findings if f.status.value == "fail"] == ["TA101", "TA201"]
    for text in (render_html(analysis), render_markdown(analysis)):
        assert "The device is idle 279 ms of the 417 ms step (67.0 %)" in text


def test_an_old_document_is_compared(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", str(document), str(document)]) == 0
    assert "Regression" not in capsys.readouterr().out


def test_keys_of_a_later_minor_version_are_passed_over(document: Path) -> None:
    old = json.loads(OLD)
    document.write_bytes(
        edited(
            later={"a": 1},
            findings=[{**finding, "later": [1], "remedy": {"later": 2}} for finding in old["findings"]],
            ranks=[{**rank, "later": None} for rank in old["ranks"]],
        )
    )
    page = document.with_suffix(".html")
    assert cli.main(["report", str(document), "--html", str(page)]) == 0
    assert "279 ms" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("schema", OTHERS)
@pytest.mark.parametrize("command", [["report"], ["analyze"], ["compare", "old.json"]])
def test_another_schema_is_refused_in_one_line_that_says_which(
    command: list[str],
    schema: str,
    document: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document.write_bytes(edited(schema=schema))
    monkeypatch.chdir(document.parent)
    assert cli.main([*command, "old.json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert repr(schema) in err
    assert SCHEMA in err
    assert not (document.parent / "report.html").exists()


@pytest.mark.parametrize("schema", [None, 1, [], {"a": 1}])
def test_a_schema_that_is_no_text_is_refused_in_one_line(
    schema: Any, document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document.write_bytes(edited(schema=schema))
    assert cli.main(["report", str(document)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
