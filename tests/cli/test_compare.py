"""``compare``, ``baseline`` and ``trend`` as a user or a workflow runs them, on analyses of sample recordings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
import typer

from tests.comparison.documents import labelled_document
from tests.sample_analysis import sample_analysis
from tests.shared_data import ROOT
from traceanalyzer import cli
from traceanalyzer.cli import app, judging
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.comparison import Comparison, Verdict


def _error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("traceanalyzer: ")
    assert err.count("\n") == 1
    return err


@pytest.fixture
def good() -> str:
    return str(labelled_document("good"))


@pytest.fixture
def slow() -> str:
    return str(labelled_document("single-process-loader"))


def test_exit_codes_tell_regression_improvement_and_undecided_apart(good: str, slow: str) -> None:
    assert cli.main(["compare", good, slow]) == 1
    assert cli.main(["compare", slow, good]) == 0
    assert cli.main(["compare", good, good]) == 0
    # five steps cannot prove that idle stayed the same
    assert cli.main(["compare", good, good, "--strict"]) == 3


def test_the_terminal_says_the_verdict_first_and_names_the_cause(
    good: str, slow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["compare", good, slow])
    out = capsys.readouterr().out
    assert out.startswith("Regression: ")
    assert "idle from input_wait" in re.sub(r"\s+", " ", out)


def test_every_report_agrees_on_the_regressions(good: str, slow: str, tmp_path: Path) -> None:
    names = {kind: tmp_path / f"out.{kind}" for kind in ("html", "json", "markdown", "junit", "github")}
    words = [word for kind, path in names.items() for word in (f"--{kind}", str(path))]
    assert cli.main(["compare", good, slow, *words]) == 1
    document = Comparison.from_json(names["json"].read_bytes())
    assert document.verdict is Verdict.REGRESSION
    expected = [t.name for t in document.regressions]
    suite = ElementTree.parse(names["junit"]).getroot()
    assert [c.get("name") for c in suite.iter("testcase") if c.find("failure") is not None] == expected
    assert suite.get("failures") == str(len(expected))
    annotations = names["github"].read_text().splitlines()
    assert len(annotations) == len(expected)
    assert all(line.startswith("::error title=") for line in annotations)
    assert names["markdown"].read_text().startswith("### Kernel gaps: ❌ regression")
    page = names["html"].read_text()
    assert all(name in page for name in expected)


def test_the_page_is_whole_runs_no_script_and_shows_both_timelines(good: str, slow: str, tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    cli.main(["compare", good, slow, "--html", str(path)])
    page = path.read_text()
    seen: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append(tag)

    Tags().feed(page)
    assert "script" not in seen
    assert seen.count("svg") == 2
    assert "default-src 'none'" in page
    assert "http" not in re.sub(r"<title>.*?</title>", "", page).replace("http-equiv", "")


def test_hostile_names_stay_text_in_the_page(tmp_path: Path) -> None:
    document = sample_analysis()
    evil = tmp_path / "<img src=x onerror=alert(1)>.json"
    evil.write_bytes(document.to_json())
    page = tmp_path / "out.html"
    code = cli.main(["compare", str(evil), str(evil), "--html", str(page)])
    if code == 2:
        pytest.skip("the document made by hand has no steady step")
    assert "<img" not in page.read_text()


def test_a_baseline_document_compares_like_the_run_it_holds(good: str, slow: str, tmp_path: Path) -> None:
    held = str(tmp_path / "held.json")
    assert cli.main(["baseline", "update", held, good, "--release", "1.0"]) == 0
    assert cli.main(["baseline", "update", held, slow, "--release", "1.1"]) == 0
    assert cli.main(["baseline", "check", held, good, "--release", "1.0"]) == 0
    assert cli.main(["baseline", "check", held, slow, "--release", "1.0"]) == 1
    assert cli.main(["baseline", "check", held, slow]) == 0
    assert cli.main(["compare", f"{held}@1.0", slow]) == 1
    by_document, by_baseline = tmp_path / "a.json", tmp_path / "b.json"
    cli.main(["compare", good, slow, "--json", str(by_document)])
    cli.main(["compare", f"{held}@1.0", slow, "--json", str(by_baseline)])
    first, second = (Comparison.from_json(p.read_bytes()) for p in (by_document, by_baseline))
    assert [(t.name, t.verdict) for t in first.regressions] == [(t.name, t.verdict) for t in second.regressions]
    assert second.host.ratio == pytest.approx(first.host.ratio, rel=0.02)


def test_a_release_of_the_same_name_is_replaced(good: str, slow: str, tmp_path: Path) -> None:
    held = tmp_path / "held.json"
    for run in (slow, good):
        assert cli.main(["baseline", "update", str(held), run, "--release", "1.0"]) == 0
    assert [r["name"] for r in json.loads(held.read_bytes())["releases"]] == ["1.0"]
    assert cli.main(["baseline", "check", str(held), slow]) == 1


def test_a_trend_names_the_release_that_changed_and_what(
    good: str, slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = str(tmp_path / "held.json")
    for name, run in (("1.0", good), ("1.1", good), ("1.2", slow), ("1.3", slow)):
        cli.main(["baseline", "update", held, run, "--release", name])
    capsys.readouterr()
    assert cli.main(["trend", held]) == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "1.2: regression since 1.0" in out
    assert "input_wait" in out
    assert "1.1: " not in out
    assert "1.3: " not in out


def test_several_runs_a_side_are_taken_together(good: str, slow: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    words = ["compare", "--base", good, "--base", good, "--candidate", slow, "--candidate", slow, "--json", str(path)]
    assert cli.main(words) == 1
    document = Comparison.from_json(path.read_bytes())
    assert (len(document.base.labels), len(document.candidate.labels)) == (2, 2)
    # 4 prior degrees of freedom and 2 + 2 − 2 of the runs
    assert next(t for t in document.tests if t.name == "kernel_time").degrees_of_freedom == 6


def test_gates_choose_what_decides_and_budgets_limit_the_candidate(good: str, slow: str) -> None:
    assert cli.main(["compare", good, slow, "--gate", "counters", "--gate", "kernel_time:2%:0.2ms"]) == 0
    assert cli.main(["compare", good, good, "--budget", "step<=1ms"]) == 1
    assert cli.main(["compare", good, good, "--budget", "step<=10s"]) == 0


def test_what_cannot_be_compared_is_one_line_and_exit_code_2(
    good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu_only = tmp_path / "cpu.json"
    document = Analysis.from_json(Path(good).read_bytes())
    ranks = [msgspec.structs.replace(rank, devices=[]) for rank in document.ranks]
    cpu_only.write_bytes(msgspec.structs.replace(document, ranks=ranks).to_json())
    assert "holds no GPU activity" in _error(capsys, "compare", str(cpu_only), good)
    assert "no such file" in _error(capsys, "compare", str(tmp_path / "absent.json"), good)
    assert "needs BASE and CANDIDATE" in _error(capsys, "compare", good)
    assert "choose from" in _error(capsys, "compare", good, good, "--gate", "speed")
    assert "holds 1.0" in _unknown_release(good, tmp_path, capsys)
    cut = tmp_path / "cut.json"
    cut.write_bytes(Path(good).read_bytes()[:-100])
    assert "not a whole document" in _error(capsys, "compare", str(cut), good)
    assert "recorded with memory" in _error(capsys, "compare", good, str(labelled_document("empty-cache")))


def _unknown_release(good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    held = str(tmp_path / "held.json")
    cli.main(["baseline", "update", held, good, "--release", "1.0"])
    capsys.readouterr()
    return _error(capsys, "baseline", "check", held, good, "--release", "2.0")


def test_comparing_documents_takes_half_a_second_and_starts_neither_compiler_nor_plots(good: str, slow: str) -> None:
    script = (
        "import sys\nfrom traceanalyzer.cli import main\ncode = main(sys.argv[1:])\n"
        "print('HEAVY', [m for m in ('numba', 'pandas', 'matplotlib', 'scipy', 'pyarrow') if m in sys.modules])"
    )
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-c", script, "compare", good, slow], capture_output=True, text=True, cwd=ROOT
    )
    after = os.times()
    assert "HEAVY []" in done.stdout, done.stderr
    # processor time, so that a busy machine does not fail it; twice the goal for slow ones
    assert after.children_user - before.children_user + after.children_system - before.children_system < 1.0


def test_a_plain_comparison_is_read_like_the_option_parser_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[judging.Request] = []
    monkeypatch.setattr("traceanalyzer.cli.judging.judge", lambda request: seen.append(request) or 0)
    monkeypatch.setattr("traceanalyzer.cli.compare.judge", lambda request: seen.append(request) or 0)
    for line in (
        "a b",
        "--base a --base=b --candidate c --candidate d",
        "a b --gate counters --gate=step:3% --budget step<=1ms --strict --allow-different --redact",
        "a --html h b --json - --markdown m --junit j --github=-",
        "- b --json one --json two",
    ):
        words = line.split()
        quick = judging.read_words(words)
        assert quick is not None
        assert app.run(["compare", *words]) == 0
        assert seen.pop() == quick


def test_every_option_of_compare_is_known_to_the_quick_way_or_left_to_the_parser() -> None:
    command = typer.main.get_command(app.make_app("compare")).commands["compare"]  # type: ignore[attr-defined]
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert options - {"--step-marker", "--steps", "--profiler", "--help"} == set(judging.QUICK_OPTIONS)


@pytest.mark.parametrize("line", ["", "--help", "-h", "a b --html", "a b --html --json x", "a b --strict=1", "a b --x"])
def test_what_needs_explaining_is_left_to_the_option_parser(line: str) -> None:
    assert judging.read_words(line.split()) is None


def test_redacted_reports_name_no_folder_and_no_user(good: str, slow: str, tmp_path: Path) -> None:
    home = tmp_path / "home" / "jane_roe" / "runs"
    home.mkdir(parents=True)
    base, candidate = home / "good.json", home / "slow.json"
    base.write_bytes(Path(good).read_bytes())
    candidate.write_bytes(Path(slow).read_bytes())
    names = {kind: tmp_path / f"out.{kind}" for kind in ("html", "json", "markdown", "junit", "github")}
    words = [word for kind, path in names.items() for word in (f"--{kind}", str(path))]
    assert cli.main(["compare", str(base), str(candidate), "--redact", *words]) == 1
    plain = Comparison.from_json(_compared(base, candidate, tmp_path))
    redacted = Comparison.from_json(names["json"].read_bytes())
    assert redacted.candidate.labels == ["/redacted/slow.json"]
    assert [(t.name, t.p, t.verdict) for t in redacted.tests] == [(t.name, t.p, t.verdict) for t in plain.tests]
    for path in names.values():
        assert "jane_roe" not in path.read_text()


def _compared(base: Path, candidate: Path, folder: Path) -> bytes:
    path = folder / "plain.json"
    cli.main(["compare", str(base), str(candidate), "--json", str(path)])
    assert b"jane_roe" in path.read_bytes()
    return path.read_bytes()


def test_a_redacted_baseline_holds_no_folder_and_compares_the_same(good: str, slow: str, tmp_path: Path) -> None:
    home = tmp_path / "home" / "jane_roe"
    home.mkdir(parents=True)
    run = home / "good.json"
    run.write_bytes(Path(good).read_bytes())
    held = tmp_path / "held.json"
    assert cli.main(["baseline", "update", str(held), str(run), "--redact"]) == 0
    assert b"jane_roe" not in held.read_bytes()
    assert str(tmp_path).encode() not in held.read_bytes()
    assert cli.main(["baseline", "check", str(held), good]) == 0
    assert cli.main(["baseline", "check", str(held), slow]) == 1
