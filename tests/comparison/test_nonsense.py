"""What a gate is given in anger: contradictory documents and baselines, odd options. One line, exit code 2."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.comparison.documents import labelled_document
from traceanalyzer import cli


@pytest.fixture
def good() -> str:
    return str(labelled_document("good"))


def _refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def _rank(document: dict[str, Any]) -> dict[str, Any]:
    rank: dict[str, Any] = document["ranks"][0]
    return rank


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: _rank(d)["steps"]["class"].pop(), "steps and positions differ in length"),
        (lambda d: _rank(d)["per_step"]["counters"]["launches"].pop(), "steps and series differ in length"),
        (lambda d: _rank(d)["positions"]["interval_ns"][0].pop(), "positions differ in length"),
        (lambda d: _rank(d)["positions"]["interval_ns"].pop(), "positions differ in length"),
        (lambda d: _rank(d)["positions"]["name"].pop(), "positions differ in length"),
        (lambda d: [row.pop() for row in _rank(d)["positions"]["interval_ns"]], "steps and positions differ in length"),
        (lambda d: _rank(d)["positions"].update(launch_call_ns=[["x"]]), "positions: Expected `int | null`"),
        (lambda d: d.update(ranks=[]), "holds no GPU activity"),
        (lambda d: d.pop("ranks"), "missing required field `ranks`"),
        (lambda d: d.update(schema="traceanalyzer.analysis/2"), "its schema is 'traceanalyzer.analysis/2'"),
    ],
)
def test_a_document_that_contradicts_itself_is_refused(
    change: Callable[[dict[str, Any]], Any], message: str, good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(Path(good).read_bytes())
    change(document)
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document))
    for words in (("compare", good, str(bad)), ("compare", str(bad), good)):
        assert message in _refused(capsys, *words)
    assert message in _refused(capsys, "baseline", "update", str(tmp_path / "held.json"), str(bad))
    assert not (tmp_path / "held.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["series_ns"].pop("kernel_time"), "lacks kernel_time"),
        (lambda r: r["series_ns"]["kernel_time"].pop(), "kernel_time has 2 steps and the run 3"),
        (lambda r: r["counters"]["launches"].pop(), "launches has 2 steps and the run 3"),
        (lambda r: r["idle_by_cause_ns"]["input_wait"].pop(), "input_wait has 2 steps and the run 3"),
        (lambda r: r["launch_call_median_ns"].pop(), "positions differ in number"),
        (lambda r: r["interval_ns"].pop(), "positions differ in number"),
        (lambda r: r["interval_ns"][0].pop(), "intervals differ in length"),
        (lambda r: r.update(log_host_factor=[1e308] * 3), "host factor is out of range"),
        (lambda r: r.update(log_host_factor=[]), "holds no step"),
    ],
)
def test_a_baseline_that_was_edited_apart_is_refused(
    change: Callable[[dict[str, Any]], Any], message: str, good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = tmp_path / "held.json"
    cli.main(["baseline", "update", str(held), good])
    capsys.readouterr()
    document = json.loads(held.read_bytes())
    change(document["releases"][0]["runs"][0])
    held.write_text(json.dumps(document))
    for words in (
        ("compare", str(held), good),
        ("baseline", "show", str(held)),
        ("baseline", "check", str(held), good),
    ):
        assert message in _refused(capsys, *(word.format(held) for word in words))


def test_a_baseline_without_runs_or_with_odd_release_names(
    good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = str(tmp_path / "held@home.json")
    assert cli.main(["baseline", "update", held, good, "--release", "v1@rc"]) == 0
    assert cli.main(["compare", f"{held}@v1@rc", good]) == 0
    capsys.readouterr()
    assert "a release needs a name" in _refused(capsys, "baseline", "update", held, good, "--release", " ")
    document = json.loads(Path(held).read_bytes())
    document["releases"][0]["runs"] = []
    Path(held).write_text(json.dumps(document))
    for words in (("compare", held, good), ("baseline", "show", held), ("trend", held, held)):
        assert "holds no run" in _refused(capsys, *words)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--budget", "step<=1.2.3ms", "not NAME<=VALUE"),
        ("--budget", "step<=.ms", "not NAME<=VALUE"),
        ("--budget", "step<=60", "step has another unit; for example step<=60ms"),
        ("--budget", "step<=60%", "step has another unit"),
        ("--budget", "h2d_overlap>=80ms", "for example h2d_overlap>=80%"),
        ("--budget", "launches<=5%", "for example launches<=100"),
        ("--budget", "peak_reserved_bytes<=5ms", "for example peak_reserved_bytes<=20GiB"),
        ("--budget", "speed>=1", "no quantity 'speed'"),
        ("--gate", "kernel_time:1.2.3%", "not METRIC"),
        ("--gate", "kernel_time:5%:.ms", "not METRIC"),
        ("--gate", "", "not METRIC"),
        ("--gate", "counters:5%", "fixed floors"),
    ],
)
def test_gates_and_budgets_that_mean_nothing_are_refused(
    option: str, value: str, message: str, good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in _refused(capsys, "compare", good, good, option, value)


def test_a_counter_that_one_side_never_counted_is_not_zero(good: str, tmp_path: Path) -> None:
    held = tmp_path / "held.json"
    cli.main(["baseline", "update", str(held), good])
    document = json.loads(held.read_bytes())
    del document["releases"][0]["runs"][0]["counters"]["memsets"]  # as if an older version had made it
    held.write_text(json.dumps(document))
    assert cli.main(["baseline", "check", str(held), good]) == 0


def test_a_broken_budget_is_stated_in_its_own_unit(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", good, good, "--budget", "step<=1ms", "--budget", "h2d_overlap>=80%"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"budget step<=1ms: BROKEN \(measured 1\d\d ms\)", out)
    assert "budget h2d_overlap>=80%: BROKEN (measured 0.0 %)" in out
