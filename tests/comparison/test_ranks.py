"""Several ranks: each is compared with its own number, and the worst is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.benchmarks.gate_study import add_copy, stretch_kernels
from tests.comparison.documents import labelled_document
from tests.comparison.test_repeated_runs import runs
from traceanalyzer import cli
from traceanalyzer.comparison.compare import compare_runs
from traceanalyzer.comparison.options import CompareOptions, parse_budget
from traceanalyzer.comparison.samples import Run
from traceanalyzer.errors import UsageError
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.comparison import Comparison, Family, Verdict


@pytest.fixture(scope="module")
def eight() -> list[Run]:
    run = runs()["idle host"][0]
    return [replace(run, rank=number, ranks=8) for number in range(8)]


def test_the_one_rank_that_got_worse_is_found_and_named(eight: list[Run]) -> None:
    candidate = [stretch_kernels(1.05)(run) if run.rank == 5 else run for run in eight]
    comparison = compare_runs(eight, candidate)
    assert comparison.verdict is Verdict.REGRESSION
    assert comparison.ranks == list(range(8))
    kernels = next(t for t in comparison.regressions if t.family is Family.PRIMARY)
    assert (kernels.name, kernels.rank) == ("kernel_time", 5)
    assert "(rank 5 of 8 only)" in comparison.summary
    assert {t.rank for t in comparison.other_ranks if t.name == "kernel_time"} == {0, 1, 2, 3, 4, 6, 7}


def test_the_worst_of_several_ranks_speaks_and_the_others_are_counted(eight: list[Run]) -> None:
    factors = {2: 1.05, 6: 1.08}
    candidate = [stretch_kernels(factors.get(run.rank, 1.0))(run) for run in eight]
    kernels = next(t for t in compare_runs(eight, candidate).regressions if t.family is Family.PRIMARY)
    assert kernels.rank == 6
    assert "(rank 6, and 1 more of 8 ranks)" in kernels.detail


def test_the_correction_counts_every_rank(eight: list[Run]) -> None:
    one = compare_runs(eight[:1], [stretch_kernels(1.05)(eight[0])])
    all_ranks = compare_runs(eight, [stretch_kernels(1.05)(eight[0]), *eight[1:]])

    def adjusted(comparison: Comparison) -> float:
        return next(t.p_adjusted or 0.0 for t in comparison.regressions if t.name == "kernel_time")

    # Holm over 4 primaries of one rank, and over 32 of eight
    assert adjusted(all_ranks) == pytest.approx(8 * adjusted(one))


def test_the_order_in_which_ranks_come_does_not_matter(eight: list[Run]) -> None:
    candidate = [add_copy(run) if run.rank == 3 else run for run in eight]
    straight, mixed = compare_runs(eight, candidate), compare_runs(eight[::-1], candidate[3:] + candidate[:3])
    assert [(t.name, t.rank) for t in straight.regressions] == [("h2d", 3)]
    assert straight.tests == mixed.tests


def test_a_budget_is_judged_by_the_worst_rank(eight: list[Run]) -> None:
    limit = eight[0].kernel_ns.mean() * 1.02 / 1e6
    budget = parse_budget(f"kernel_time<={limit:.3f}ms")
    candidate = [stretch_kernels(1.05)(run) if run.rank == 7 else run for run in eight]
    options = CompareOptions(budgets=(budget,))
    assert compare_runs(eight, eight, options).budgets[0].met is True
    assert compare_runs(eight, candidate, options).budgets[0].met is False


def test_another_number_of_ranks_stops_the_comparison_and_common_ones_are_compared_when_allowed(
    eight: list[Run],
) -> None:
    four = [replace(run, ranks=4) for run in eight[:4]]
    with pytest.raises(UsageError, match="ranks: 8 → 4"):
        compare_runs(eight, four)
    comparison = compare_runs(eight, four, CompareOptions(allow_different=True))
    assert comparison.ranks == [0, 1, 2, 3]
    assert any("not compared: rank 4, 5, 6, 7" in note for note in comparison.notes)
    with pytest.raises(UsageError, match="no rank in common"):
        compare_runs(eight[:2], eight[2:])


def test_documents_and_baselines_of_two_ranks_name_the_slower_one_in_every_report(tmp_path: Path) -> None:
    document = Analysis.from_json(labelled_document("good").read_bytes())
    slow = Analysis.from_json(labelled_document("single-process-loader").read_bytes()).ranks[0]
    (first,) = document.ranks

    def write(name: str, second: object) -> str:
        ranks = [first, msgspec.structs.replace(second, rank=1)]  # type: ignore[type-var]
        path = tmp_path / name
        path.write_bytes(msgspec.structs.replace(document, ranks=ranks).to_json())
        return str(path)

    before, after = write("before.json", first), write("after.json", slow)
    held = str(tmp_path / "held.json")
    names = {kind: tmp_path / f"out.{kind}" for kind in ("html", "json", "markdown", "junit", "github")}
    words = [word for kind, path in names.items() for word in (f"--{kind}", str(path))]
    assert cli.main(["compare", before, after, *words]) == 1
    assert cli.main(["baseline", "update", held, before]) == 0
    assert cli.main(["baseline", "check", held, after]) == 1
    assert cli.main(["baseline", "check", held, before]) == 0
    comparison = Comparison.from_json(names["json"].read_bytes())
    assert {t.rank for t in comparison.regressions} == {1}
    assert comparison.base.labels == [before]
    for kind, path in names.items():
        assert "rank 1" in path.read_text(), kind
