"""The commands, run in this process on a document made by hand or on a sample recording."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.sample_analysis import sample_analysis
from tests.shared_data import ROOT
from traceanalyzer import cli
from traceanalyzer.results.analysis import Analysis

GOOD = ROOT / "sample_traces" / "labelled" / "good" / "rank0.pt.trace.json.gz"
HEAVY = ("numpy", "numba", "pandas", "pyarrow", "matplotlib", "scipy", "torch", "msgspec", "jinja2")


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "analysis.json"
    path.write_bytes(sample_analysis().to_json())
    return path


def failure(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int = 2) -> str:
    """Run a command that must fail with one line on standard error; returns that line."""
    assert cli.main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("traceanalyzer: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("arguments", [["--help"], ["analyze", "--help"], ["report", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom traceanalyzer.cli import main\ncode = main(sys.argv[1:])\n"
        f"print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0
    assert "HEAVY []" in done.stdout


def test_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "traceanalyzer", "--version"], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"traceanalyzer \d+\.\d+\.\d+\n", done.stdout)


def test_every_command_is_one_file_and_one_registry_line() -> None:
    shared = {"__init__", "app", "console", "judging", "output", "source_tree"}
    files = {path.stem for path in (ROOT / "traceanalyzer" / "cli").glob("*.py")} - shared
    assert {target.split(":")[0].rsplit(".", 1)[1] for target in cli.COMMANDS.values()} == files
    assert all(target.split(":")[1] in (name.replace("-", "_"), "app") for name, target in cli.COMMANDS.items())


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f" {name} " in out for name in cli.COMMANDS)


def test_no_command_prints_the_help_and_counts_as_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "Usage:" in capsys.readouterr().out


def test_report_renders_a_document_without_its_recording(document: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.md"
    assert cli.main(["report", str(document), "--markdown", str(target)]) == 0
    assert target.read_text().startswith("## " + sample_analysis().findings[0].title)


def test_report_without_an_output_option_writes_html_and_prints_the_answer(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", str(document)]) == 0
    assert (tmp_path / "report.html").read_text().lower().startswith("<!doctype html>")
    assert capsys.readouterr().out.startswith(sample_analysis().findings[0].code)


def test_analysis_given_to_analyze_is_passed_through(document: Path, tmp_path: Path) -> None:
    target = tmp_path / "again.json"
    assert cli.main(["analyze", str(document), "--json", str(target)]) == 0
    assert Analysis.from_json(target.read_bytes()) == sample_analysis()


def test_dash_writes_to_standard_output_and_nothing_else_does(
    document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["analyze", str(document), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "traceanalyzer.analysis/1"


@pytest.mark.parametrize(("severity", "code"), [("high", 1), ("medium", 1), ("low", 1)])
def test_fail_on_exits_with_1_when_a_finding_is_that_severe(document: Path, severity: str, code: int) -> None:
    assert cli.main(["analyze", str(document), "--fail-on", severity, "--markdown", "-"]) == code


def test_fail_on_ignores_findings_less_severe(document: Path, tmp_path: Path) -> None:
    sample = sample_analysis()
    mild = msgspec.structs.replace(sample, findings=[f for f in sample.findings if f.severity != "high"])
    path = tmp_path / "mild.json"
    path.write_bytes(mild.to_json())
    assert cli.main(["analyze", str(path), "--fail-on", "high", "--markdown", "-"]) == 0
    assert cli.main(["analyze", str(path), "--fail-on", "low", "--markdown", "-"]) == 1


def test_rules_lists_one_rule_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r"TA\d{3}  [a-z0-9-]+ +(fault|limiter|note) ", line) for line in lines)
    assert len(lines) > 10


def test_explain_accepts_code_and_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "ta101"]) == 0
    by_code = capsys.readouterr().out
    assert cli.main(["explain", "loader-in-main-process"]) == 0
    assert capsys.readouterr().out == by_code
    assert by_code.startswith("# TA101 ")


def test_explain_of_an_unknown_code_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "TA999" in failure(capsys, ["explain", "TA999"])


def test_schema_prints_the_schema_of_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    assert capsys.readouterr().out == (ROOT / "traceanalyzer" / "results" / "schema.json").read_text()


def test_reader_of_the_output_may_go_away_early() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "traceanalyzer", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["analyze"], "Missing argument"),
        (["analyze", "x", "--no-such-option"], "No such option"),
        (["no-such-command"], "No such command"),
        (["analyze", "absent.json"], "absent.json"),
        (["analyze", "x.json", "--steps", "3"], "3:10"),
        (["analyze", "x.json", "--steps", "a:b"], "3:10"),
        (["analyze", "x.json", "--fail-on", "dreadful"], "'--fail-on': 'dreadful' is not one of"),
        (["report", "absent.json"], "no such file"),
    ],
)
def test_wrong_usage_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert says in failure(capsys, arguments)


def test_control_characters_of_a_file_name_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\\x1b" in failure(capsys, ["analyze", "absent\x1b[2J\n.json"])


def test_interrupt_is_one_line_and_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("traceanalyzer.pipeline.analyze", interrupted)
    assert failure(capsys, ["analyze", "x.json"], 130) == "traceanalyzer: interrupted\n"


@pytest.mark.parametrize(
    "content",
    ["{", '{"schema":"traceanalyzer.analysis/1"}', '{"schema":"traceanalyzer.analysis/999"}', "not json", ""],
)
def test_damaged_document_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    assert "broken.json" in failure(capsys, ["report", str(path)])


def test_document_cut_short_is_refused_by_analyze_too(capsys: pytest.CaptureFixture[str], document: Path) -> None:
    document.write_bytes(document.read_bytes()[:-100])
    assert "not a whole analysis" in failure(capsys, ["analyze", str(document)])


@pytest.mark.parametrize("place", [("steps", "class"), ("per_step", "idle_ns"), ("per_step", "counters", "launches")])
def test_a_series_without_one_value_per_step_is_named(
    capsys: pytest.CaptureFixture[str], document: Path, place: tuple[str, ...]
) -> None:
    tree = json.loads(document.read_bytes())
    series = tree["ranks"][0]
    for key in place:
        series = series[key]
    series.append(series[0] if series else 0)
    document.write_text(json.dumps(tree))
    line = failure(capsys, ["report", str(document)])
    assert "not a whole analysis" in line
    assert place[-1] in line


def test_options_that_need_the_recording_are_refused_on_a_document(
    capsys: pytest.CaptureFixture[str], document: Path
) -> None:
    assert "name the recording" in failure(capsys, ["analyze", str(document), "--steps", "1:2"])


def test_report_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], document: Path, tmp_path: Path
) -> None:
    for target in (tmp_path / "absent" / "r.md", tmp_path):
        assert str(target) in failure(capsys, ["report", str(document), "--markdown", str(target)])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk_is_one_line(capsys: pytest.CaptureFixture[str], document: Path) -> None:
    assert "No space left" in failure(capsys, ["report", str(document), "--markdown", "/dev/full"])


def test_read_only_report_is_not_replaced(
    capsys: pytest.CaptureFixture[str], document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "r.md"
    target.write_text("old")
    target.chmod(0o444)
    # root may write anywhere, so what the system would answer to anyone else is put in its place
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    assert "read-only" in failure(capsys, ["report", str(document), "--markdown", str(target)])
    assert target.read_text() == "old"


def test_failed_write_leaves_the_old_report_and_nothing_beside_it(
    capsys: pytest.CaptureFixture[str], document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "r.md").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    failure(capsys, ["report", str(document), "--markdown", str(folder / "r.md")])
    assert [path.name for path in folder.iterdir()] == ["r.md"]
    assert (folder / "r.md").read_text() == "old"


def test_report_behind_a_link_is_replaced_and_the_link_stays(document: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert cli.main(["report", str(document), "--markdown", str(link)]) == 0
    assert link.is_symlink()
    assert real.read_text().startswith("## ")
    assert real.stat().st_mode & 0o777 == 0o640


def test_two_reports_may_not_share_a_file(capsys: pytest.CaptureFixture[str], document: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "same")
    assert "same name" in failure(capsys, ["report", str(document), "--html", target, "--markdown", target])
