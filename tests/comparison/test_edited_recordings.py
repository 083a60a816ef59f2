"""Halves of real recordings with a known change in their tables, through the command line: what a user would see.

The recording in the repository is six steps long, so it stands on both sides and shows what few steps can: counts,
kernels, the host's speed. Halves and one gap of many need some fifty steps a side; they are 100 of 300 recorded steps.
``tests/benchmarks/gate_halves.py`` does the same with all 300.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import traceanalyzer
from tests.shared_data import ROOT, shared
from tests.tools import edit_nsys
from traceanalyzer import cli
from traceanalyzer.results.comparison import Comparison, Family, Verdict

GAP_TURN, GAP_NS = 1100, 50_000
COPY_TURN = 300
CHANGES = {
    "slow": lambda path: edit_nsys.slow_host(path, 50),
    "kernels": lambda path: edit_nsys.stretch_kernels(path, 50),
    "copy": lambda path: edit_nsys.add_copy(path, COPY_TURN),
    "gap": lambda path: edit_nsys.add_gap(path, GAP_TURN, GAP_NS),
    "cpu": edit_nsys.drop_gpu,
}


@dataclass(frozen=True)
class Halves:
    """Two stretches of a recording, and changed copies of the second, analysed when asked for."""

    folder: Path

    @cache  # noqa: B019 - two instances, each as long as the tests of this file
    def document(self, name: str) -> str:
        """Return the analysis of ``first``, ``second`` or the second with a change."""
        export = self.folder / f"{name}.sqlite"
        if name in CHANGES:
            edit_nsys.edited(self.folder / "second.sqlite", export, CHANGES[name])
        written = self.folder / f"{name}.json"
        written.write_bytes(traceanalyzer.analyze(export).to_json())
        return str(written)

    def compare(self, base: str, candidate: str) -> tuple[int, Comparison]:
        """Return exit code and document of ``compare``."""
        out = self.folder / "out.json"
        code = cli.main(["compare", self.document(base), self.document(candidate), "--json", str(out)])
        return code, Comparison.from_json(out.read_bytes())


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Halves:
    folder = tmp_path_factory.mktemp("few")
    packed = ROOT / "sample_traces" / "labelled" / "nsys-good" / "nsys.sqlite.gz"
    with gzip.open(packed) as source, (folder / "first.sqlite").open("wb") as target:
        shutil.copyfileobj(source, target)
    shutil.copyfile(folder / "first.sqlite", folder / "second.sqlite")
    return Halves(folder)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Halves:
    folder = tmp_path_factory.mktemp("many")
    with (
        lzma.open(shared("traces/h200/nsys_good_300steps.sqlite.xz")) as source,
        (folder / "whole.sqlite").open("wb") as target,
    ):
        shutil.copyfileobj(source, target)
    edit_nsys.cut_steps(folder / "whole.sqlite", folder / "first.sqlite", 100, 150)
    edit_nsys.cut_steps(folder / "whole.sqlite", folder / "second.sqlite", 150, 200)
    return Halves(folder)


@pytest.fixture(params=["few", pytest.param("many", marks=pytest.mark.shared)])
def halves(request: pytest.FixtureRequest) -> Halves:
    chosen: Halves = request.getfixturevalue(request.param)
    return chosen


def test_half_against_half_is_no_regression(halves: Halves) -> None:
    for sides in (("first", "second"), ("second", "first")):
        code, comparison = halves.compare(*sides)
        assert code == 0
        assert comparison.regressions == []


def test_five_percent_more_host_time_is_a_slower_host(halves: Halves) -> None:
    code, comparison = halves.compare("second", "slow")
    assert code == 0
    assert comparison.regressions == []
    assert comparison.host.ratio == pytest.approx(1.05, abs=0.004)
    assert comparison.host.note.startswith("The candidate's host was 4.")
    assert "% slower" in comparison.host.note
    assert halves.compare("first", "slow")[0] == 0


def test_five_percent_longer_kernels_are_named_and_the_reverse_is_an_improvement(halves: Halves) -> None:
    code, comparison = halves.compare("first", "kernels")
    assert code == 1
    first = comparison.regressions[0]
    assert (first.family, first.name) == (Family.PRIMARY, "kernel_time")
    assert first.change == pytest.approx(0.05, abs=0.006)
    families = [t for t in comparison.regressions if t.family is Family.KERNEL_FAMILY]
    assert families or comparison.base.steady_steps == [6]  # ranks of six values cannot tell families apart
    assert {t.family for t in comparison.regressions} <= {Family.PRIMARY, Family.KERNEL_FAMILY}
    code, back = halves.compare("kernels", "first")
    assert (code, back.verdict, back.regressions) == (0, Verdict.IMPROVEMENT, [])


def test_one_more_copy_per_step_is_named_and_the_reverse_is_an_improvement(halves: Halves) -> None:
    code, comparison = halves.compare("first", "copy")
    assert code == 1
    assert [(t.family, t.name) for t in comparison.regressions] == [(Family.COUNTER, "h2d")]
    copies = comparison.regressions[0]
    assert (copies.candidate or 0) - (copies.base or 0) == pytest.approx(1)
    code, back = halves.compare("copy", "first")
    assert (code, back.verdict, back.regressions) == (0, Verdict.IMPROVEMENT, [])


def _rectangles(strip: str, y: int) -> list[tuple[float, float]]:
    found = re.findall(rf'<rect x="([0-9.]+)" y="{y}[0-9.]*" width="([0-9.]+)"', strip)
    return [(float(x), float(width)) for x, width in found]


@pytest.mark.shared
def test_fifty_microseconds_before_one_launch_are_named_there_and_the_reverse_is_an_improvement(many: Halves) -> None:
    code, comparison = many.compare("first", "gap")
    assert code == 1
    assert [(t.family, t.position) for t in comparison.regressions] == [(Family.POSITION, GAP_TURN)]
    gap = comparison.regressions[0]
    assert comparison.host.ratio is not None
    # intervals are stated at the base's host speed, which these 50 microseconds were not made with
    assert (gap.candidate or 0) - (gap.base or 0) == pytest.approx(GAP_NS / comparison.host.ratio, rel=0.1)
    page = many.folder / "out.html"
    cli.main(["compare", many.document("first"), many.document("gap"), "--html", str(page)])
    # both timelines, aligned there, though the candidate's median step holds eight launches more than usual
    text = page.read_text()
    assert f"around launch {GAP_TURN + 1} of" in text
    strips = text.split("<svg")[1:3]
    edges = [re.findall(r'<line x1="([0-9.]+)"', strip) for strip in strips]
    assert len(edges[0]) == 1
    assert edges[0] == edges[1]
    # in each, a launch begins at the line, and only the candidate has nothing but idle for 50 microseconds before it
    launches = [_rectangles(strip, y=46) for strip in strips]
    line = float(edges[0][0])
    assert all(any(abs(x - line) < 0.1 for x, _ in side) for side in launches)
    room = [line - max(x + width for x, width in side if x + width <= line) for side in launches]
    pixel_ns = 2 * 300_000 / (1080 - 96)
    assert room[0] * pixel_ns < 30_000
    assert room[1] * pixel_ns > 45_000
    code, back = many.compare("gap", "first")
    assert (code, back.verdict, back.regressions) == (0, Verdict.IMPROVEMENT, [])
    assert back.tests[0].position == GAP_TURN


def test_a_cpu_only_recording_cannot_be_compared_with_one_of_a_gpu(
    few: Halves, capsys: pytest.CaptureFixture[str]
) -> None:
    for sides in (("first", "cpu"), ("cpu", "first")):
        assert cli.main(["compare", *(few.document(side) for side in sides)]) == 2
        out, error = capsys.readouterr()
        assert (out, error.count("\n")) == ("", 1)
        assert "holds no GPU activity" in error


def test_the_changes_are_in_the_tables(few: Halves) -> None:
    def rows(name: str, query: str) -> list[tuple[int, ...]]:
        few.document(name)
        with closing(sqlite3.connect(few.folder / f"{name}.sqlite")) as connection:
            return connection.execute(query).fetchall()

    kernels = f"SELECT SUM(end - start) FROM {edit_nsys.KERNEL}"
    assert rows("kernels", kernels)[0][0] == pytest.approx(1.05 * rows("second", kernels)[0][0], rel=1e-3)
    copies = f"SELECT COUNT(*) FROM {edit_nsys.MEMCPY} WHERE copyKind = 1"
    assert rows("copy", copies)[0][0] == rows("second", copies)[0][0] + 6
    calls = f"SELECT SUM(end - start), MAX(end) - MIN(start) FROM {edit_nsys.RUNTIME}"
    for slow, usual in zip(rows("slow", calls)[0], rows("second", calls)[0], strict=True):
        assert slow == pytest.approx(1.05 * usual, rel=1e-3)
