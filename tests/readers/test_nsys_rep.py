"""Reports are exported by the nsys that is found, once per content, or one line says how to export them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.readers.nsys_exports import small_export
from traceanalyzer.cli import main
from traceanalyzer.errors import TraceFormatError, UsageError
from traceanalyzer.readers import nsys_rep

REPORT = b"NVIDIA Tegra Profiler Report 2025@3@2@0." + bytes(1000)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No nsys on this machine, and a cache of the test's own."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(nsys_rep.NSYS_VARIABLE, raising=False)
    monkeypatch.setattr(nsys_rep, "_INSTALL_FOLDERS", ())
    (tmp_path / "bin").mkdir()


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(REPORT)
    return path


def stand_in(folder: Path, export: Path, *, knows_parquet: bool = True, exit_code: int = 0) -> Path:
    """A program that does what ``nsys export`` does: it copies a finished export to ``--output`` and logs the call."""
    program = folder / "nsys"
    program.write_text(
        f"""#!{sys.executable}
import shutil, sys
from pathlib import Path
arguments = sys.argv[1:]
with open({str(folder / "log")!r}, "a") as log:
    log.write(" ".join(arguments[:3]) + "\\n")
if {exit_code} or (arguments[2] == "parquetdir" and not {knows_parquet}):
    print("Processing [50%", "the report is newer than this tool", sep="\\r", file=sys.stderr)
    sys.exit({exit_code} or 1)
output = Path(arguments[arguments.index("--output") + 1])
source = Path({str(export)!r})
shutil.copytree(source, output) if source.is_dir() else shutil.copyfile(source, output)
"""
    )
    program.chmod(0o755)
    return program


def calls(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_a_report_is_recognised_by_content(report: Path) -> None:
    assert nsys_rep.sniff(report, REPORT[:65536])
    assert not nsys_rep.sniff(report, b"SQLite format 3\0")


def test_without_nsys_one_line_says_how_to_export(report: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"nsys export --type sqlite run\.nsys-rep") as caught:
        nsys_rep.read(report)
    assert "\n" not in str(caught.value)


def test_a_report_is_exported_as_parquet_once_and_the_cache_is_used_after_that(tmp_path: Path, report: Path) -> None:
    folder = tmp_path / "bin"
    stand_in(folder, small_export().folder(tmp_path / "made", "parquet"))
    first = nsys_rep.read(report)
    again = nsys_rep.read(report)
    assert len(first.traces[0].activities) == len(again.traces[0].activities) == 3
    assert calls(folder) == ["export --type parquetdir"]
    assert first.source.format == "nsys-rep"
    assert first.source.path == str(report)
    assert first.source.size_bytes == len(REPORT)


def test_the_cache_follows_content_not_names(tmp_path: Path, report: Path) -> None:
    folder = tmp_path / "bin"
    stand_in(folder, small_export().folder(tmp_path / "made", "parquet"))
    nsys_rep.read(report)
    renamed = report.rename(tmp_path / "other.nsys-rep")
    nsys_rep.read(renamed)
    assert len(calls(folder)) == 1
    renamed.write_bytes(REPORT + b"more")
    nsys_rep.read(renamed)
    assert len(calls(folder)) == 2


def test_an_nsys_without_parquet_exports_a_database(tmp_path: Path, report: Path) -> None:
    folder = tmp_path / "bin"
    stand_in(folder, small_export().sqlite(tmp_path / "made.sqlite"), knows_parquet=False)
    assert len(nsys_rep.read(report).traces[0].activities) == 3
    assert calls(folder) == ["export --type parquetdir", "export --type sqlite"]


def test_a_failing_export_says_what_nsys_said_and_leaves_nothing(tmp_path: Path, report: Path) -> None:
    folder = tmp_path / "bin"
    stand_in(folder, tmp_path, exit_code=3)
    with pytest.raises(TraceFormatError, match="the report is newer than this tool"):
        nsys_rep.read(report)
    assert list((tmp_path / "cache").rglob("*.parquet")) == []
    assert list((tmp_path / "cache" / "traceanalyzer" / "nsys").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_replaced_by_a_folder_beside_the_report(
    tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    stand_in(tmp_path / "bin", small_export().folder(tmp_path / "made", "parquet"))
    nsys_rep.read(report)
    assert len(list(tmp_path.glob(".run.traceanalyzer-*"))) == 1


def test_the_named_program_wins_and_must_exist(tmp_path: Path, report: Path) -> None:
    export = small_export().folder(tmp_path / "made", "parquet")
    stand_in(tmp_path / "bin", export)
    named = tmp_path / "named"
    named.mkdir()
    stand_in(named, export)
    nsys_rep.read(report, nsys=named / "nsys")
    assert calls(named) == ["export --type parquetdir"]
    assert not (tmp_path / "bin" / "log").exists()
    with pytest.raises(UsageError, match="no nsys program there"):
        nsys_rep.find_nsys(tmp_path / "absent")


def test_the_newest_of_several_installed_versions_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("2023.4.4", "2025.10.1", "2025.3.2"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        stand_in(folder, tmp_path)
    monkeypatch.setattr(nsys_rep, "_INSTALL_FOLDERS", (f"{tmp_path}/*/bin",))
    assert nsys_rep.find_nsys() == tmp_path / "2025.10.1" / "bin" / "nsys"


def test_the_program_named_on_the_command_line_exports_the_report(tmp_path: Path, report: Path) -> None:
    program = stand_in(tmp_path, small_export().folder(tmp_path / "made", "parquet"))
    assert main(["analyze", str(report), "--nsys", str(program), "--json", str(tmp_path / "out.json")]) == 0
    assert calls(tmp_path) == ["export --type parquetdir"]
    assert json.loads((tmp_path / "out.json").read_text())["inputs"][0]["format"] == nsys_rep.NAME


def test_a_program_named_on_the_command_line_that_is_absent_is_one_line(
    tmp_path: Path, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(report), "--nsys", str(tmp_path / "absent")]) == 2
    assert "no nsys program there" in capsys.readouterr().err
