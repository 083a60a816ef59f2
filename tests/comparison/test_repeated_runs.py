"""Real runs of one configuration must never be called a regression of each other, on an idle or a loaded host.

The twelve runs (YOLO11n, batch 16, 640 px, one H200, ten recorded steps each, one process a run) were made one after
the other by the recorder; during four of them twelve other processes kept the host busy. They are kept as a baseline.
"""

from __future__ import annotations

import gzip
import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.shared_data import ROOT
from traceanalyzer import cli
from traceanalyzer.comparison.baseline import run_of, update_baseline
from traceanalyzer.comparison.compare import compare_runs
from traceanalyzer.comparison.samples import Run, select_steps
from traceanalyzer.results.baseline import Baseline
from traceanalyzer.results.comparison import Verdict

RUNS = ROOT / "sample_traces" / "repeated_runs" / "h200_yolo11n.baseline.json.gz"


@cache
def runs() -> dict[str, tuple[Run, ...]]:
    baseline = Baseline.from_json(gzip.decompress(RUNS.read_bytes()))
    return {r.name: tuple(run_of(run, r.name) for run in r.runs) for r in baseline.releases}


def test_the_runs_are_eight_on_an_idle_and_four_on_a_loaded_host() -> None:
    assert {name: len(group) for name, group in runs().items()} == {"idle host": 8, "loaded host": 4}
    assert all(run.steps == 7 for group in runs().values() for run in group)


def test_no_pair_of_runs_is_a_regression_in_either_direction() -> None:
    everything = [run for group in runs().values() for run in group]
    comparisons = [compare_runs([a], [b]) for a, b in itertools.permutations(everything, 2)]
    assert len(comparisons) == 132
    assert [c.summary for c in comparisons if c.verdict is Verdict.REGRESSION] == []


@pytest.mark.parametrize("first", list(itertools.combinations(range(8), 4))[::2])
def test_no_split_of_the_idle_runs_is_a_regression(first: tuple[int, ...]) -> None:
    idle = runs()["idle host"]
    rest = [run for i, run in enumerate(idle) if i not in first]
    assert compare_runs([idle[i] for i in first], rest).verdict is not Verdict.REGRESSION


def test_four_runs_against_four_with_one_more_copy_per_step_name_the_copy() -> None:
    idle = runs()["idle host"]
    worse = [replace(run, counters={**run.counters, "h2d": run.counters["h2d"] + 1}) for run in idle[4:]]
    comparison = compare_runs(list(idle[:4]), worse)
    assert comparison.verdict is Verdict.REGRESSION
    assert comparison.regressions[0].name == "h2d"


def test_the_compressed_baseline_is_compared_as_it_lies_there() -> None:
    assert cli.main(["compare", f"{RUNS}@idle host", f"{RUNS}@loaded host"]) == 0


def test_a_compressed_document_cut_short_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(RUNS.read_bytes()[:-1000])
    assert cli.main(["compare", str(cut), str(RUNS)]) == 2
    assert "damaged gzip" in capsys.readouterr().err


def test_runs_of_a_release_share_the_steps_whose_positions_are_kept() -> None:
    long = select_steps(runs()["idle host"][0], np.tile(np.arange(7), 10))
    one, _ = update_baseline(Baseline(releases=[]), [long], "one")
    four, _ = update_baseline(Baseline(releases=[]), [long] * 4, "four")
    assert [len(run.interval_ns[0]) for run in one.releases[0].runs] == [50]
    assert [len(run.interval_ns[0]) for run in four.releases[0].runs] == [12] * 4
