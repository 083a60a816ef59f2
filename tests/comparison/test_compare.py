"""Verdicts on real recordings, each with the difference that was put into it or published about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import traceanalyzer
from tests.benchmarks.gate_study import add_copy, add_gap, add_item, slow_host, stretch_kernels
from tests.comparison.documents import labelled_document, sample_document, shared_document
from traceanalyzer.comparison.compare import compare_runs
from traceanalyzer.comparison.samples import Run, load_run, select_steps
from traceanalyzer.errors import UsageError
from traceanalyzer.results.comparable import read_comparable
from traceanalyzer.results.comparison import Comparison, Family, Verdict
from traceanalyzer.results.comparison import Test as Outcome


def _named(comparison: Comparison) -> list[tuple[str, str]]:
    return [(t.family.value, t.name) for t in comparison.regressions]


def _test(comparison: Comparison, family: Family, name: str) -> Outcome:
    return next(t for t in comparison.tests if t.family is family and t.name == name)


def test_a_recording_against_itself_is_no_regression_and_no_improvement() -> None:
    comparison = traceanalyzer.compare(labelled_document("good"), labelled_document("good"))
    assert comparison.verdict in (Verdict.NO_CHANGE, Verdict.INCONCLUSIVE)
    assert {t.verdict for t in comparison.tests if t.family is not Family.ADVISORY} <= {
        Verdict.NO_CHANGE,
        Verdict.INCONCLUSIVE,
    }


def test_a_loader_in_the_training_process_is_named_by_its_input_wait() -> None:
    comparison = traceanalyzer.compare(labelled_document("good"), labelled_document("single-process-loader"))
    assert comparison.verdict is Verdict.REGRESSION
    assert ("idle cause", "input_wait") in _named(comparison)
    assert not [name for family, name in _named(comparison) if family == "counter"]


def test_the_way_back_is_an_improvement() -> None:
    comparison = traceanalyzer.compare(labelled_document("single-process-loader"), labelled_document("good"))
    assert comparison.verdict is Verdict.IMPROVEMENT
    assert comparison.regressions == []
    assert _test(comparison, Family.CAUSE, "input_wait").verdict is Verdict.IMPROVEMENT


def test_emptying_the_cache_is_named_by_its_allocations() -> None:
    # 105 frees and allocations per step, counted in the recording itself (sample_traces/README.md)
    comparison = traceanalyzer.compare(sample_document("good"), sample_document("empty"), allow_different=True)
    assert comparison.verdict is Verdict.REGRESSION
    allocations = _test(comparison, Family.COUNTER, "device_mallocs")
    assert (allocations.verdict, allocations.base) == (Verdict.REGRESSION, 0)
    assert allocations.candidate == pytest.approx(105, abs=1)


def test_recording_with_memory_on_one_side_only_stops_the_comparison() -> None:
    with pytest.raises(UsageError, match="recorded with memory: False → True"):
        traceanalyzer.compare(sample_document("good"), sample_document("empty"))


@pytest.mark.shared
def test_an_item_per_target_image_is_named_by_41_copies_and_41_synchronisations() -> None:
    comparison = traceanalyzer.compare(sample_document("good"), shared_document("traces/h200/item.pt.trace.json.gz"))
    assert comparison.verdict is Verdict.REGRESSION
    for counter in ("d2h", "synchronisations"):
        test = _test(comparison, Family.COUNTER, counter)
        assert test.base is not None
        assert test.candidate is not None
        assert test.candidate - test.base == 41
    assert comparison.tests[0].family is Family.COUNTER


def test_pageable_batches_are_named_by_exposed_copies() -> None:
    comparison = traceanalyzer.compare(sample_document("good"), sample_document("pageable"), allow_different=True)
    assert comparison.verdict is Verdict.REGRESSION
    assert ("primary", "exposed_h2d") in _named(comparison)


@pytest.mark.shared
def test_nsys_sees_the_missing_workers_too() -> None:
    comparison = traceanalyzer.compare(
        shared_document("traces/h200/nsys_good.sqlite.gz"), shared_document("traces/h200/nsys_workers0.sqlite.gz")
    )
    assert comparison.verdict is Verdict.REGRESSION
    # its ranges end before the loader's wait, which is therefore between the steps
    assert ("primary", "boundary_idle") in _named(comparison)


@pytest.mark.shared
def test_resnet50_without_workers_regresses_though_it_launches_less() -> None:
    # published: the loader's share of the step is 0.84 % with four workers and 33.37 % without
    comparison = traceanalyzer.compare(
        shared_document("traces/public/kineto/resnet50_num_workers_4.pt.trace.json.gz"),
        shared_document("traces/public/kineto/resnet50_num_workers_0.pt.trace.json.gz"),
    )
    assert comparison.verdict is Verdict.REGRESSION
    assert _named(comparison) == [("idle cause", "input_wait")]
    waited = _test(comparison, Family.CAUSE, "input_wait")
    assert waited.candidate == pytest.approx(0.3337 * 177.6e6, rel=0.05)


@pytest.mark.shared
def test_totals_are_named_where_steps_are_inferred() -> None:
    # published: flash_fwd 68 → 60 calls (−31.56 ms), SendRecv 66 → 62 calls (+8.34 ms)
    comparison = traceanalyzer.compare(
        shared_document("traces/public/nsys_ai/mfu_2gpu_before.sqlite.gz"),
        shared_document("traces/public/nsys_ai/mfu_2gpu_after.sqlite.gz"),
    )
    flash = _test(comparison, Family.ADVISORY, "recording total of flash_fwd_kernel")
    send = _test(comparison, Family.ADVISORY, "recording total of ncclDevKernel_SendRecv")
    assert "68 → 60 calls" in flash.detail
    assert "66 → 62 calls" in send.detail
    assert (flash.candidate or 0) - (flash.base or 0) == pytest.approx(-31.56e6, abs=1e4)
    assert (send.candidate or 0) - (send.base or 0) == pytest.approx(8.34e6, abs=1e4)
    assert any("flash_fwd_kernel 68 → 60 calls" in note and "SendRecv" in note for note in comparison.notes)


@pytest.fixture(scope="module")
def halves() -> tuple[Run, Run]:
    """The two halves of a run of 300 real steps; changes below are made to their measured series."""
    document = read_comparable(shared_document("traces/h200/nsys_good_300steps.sqlite.xz"))
    run = load_run(document, "300 steps")  # type: ignore[arg-type]
    middle = run.steps // 2
    return select_steps(run, np.arange(middle)), select_steps(run, np.arange(middle, 2 * middle))


@pytest.mark.shared
def test_half_against_half_is_no_regression(halves: tuple[Run, Run]) -> None:
    first, second = halves
    assert compare_runs([first], [second]).regressions == []
    assert compare_runs([second], [first]).regressions == []


@pytest.mark.shared
def test_a_host_five_percent_slower_is_named_and_is_no_regression(halves: tuple[Run, Run]) -> None:
    first, _ = halves
    comparison = compare_runs([first], [slow_host(1.05)(first)])
    assert comparison.verdict is not Verdict.REGRESSION
    assert comparison.host.ratio == pytest.approx(1.05, abs=0.005)
    # a few percent of the calls are clipped, which takes a little off
    assert "host was 4.9 % slower" in comparison.host.note


@pytest.mark.shared
@pytest.mark.parametrize("position", [300, 1100, 1900])
def test_fifty_microseconds_before_one_launch_are_named_at_that_launch(halves: tuple[Run, Run], position: int) -> None:
    first, second = halves
    comparison = compare_runs([first], [add_gap(position, 50_000)(second)])
    assert comparison.verdict is Verdict.REGRESSION
    assert [t.position for t in comparison.regressions if t.family is Family.POSITION] == [position]
    back = compare_runs([add_gap(position, 50_000)(first)], [second])
    assert back.verdict is Verdict.IMPROVEMENT


@pytest.mark.shared
@pytest.mark.parametrize(
    ("change", "family", "name"),
    [
        (stretch_kernels(1.05), "primary", "kernel_time"),
        (add_copy, "counter", "h2d"),
        (add_item, "counter", "d2h"),
        (add_item, "counter", "synchronisations"),
    ],
    ids=["kernels", "copy", "item-copy", "item-sync"],
)
def test_a_known_change_of_every_step_is_named_and_its_reverse_is_an_improvement(
    halves: tuple[Run, Run], change: Callable[[Run], Run], family: str, name: str
) -> None:
    first, second = halves
    assert (family, name) in _named(compare_runs([first], [change(second)]))
    back = compare_runs([change(first)], [second])
    assert back.verdict is Verdict.IMPROVEMENT
    assert back.regressions == []


@pytest.mark.shared
def test_every_large_kernel_family_is_named_when_kernels_take_five_percent_longer(halves: tuple[Run, Run]) -> None:
    first, second = halves
    families = first.kernel_family_ns
    # + 5 % passes both floors (3 % and 5 µs) wherever a family takes more than 100 µs
    large = {name for name, values in families.items() if np.median(values) > 200_000}
    named = {t.name for t in compare_runs([first], [stretch_kernels(1.05)(second)]).regressions}
    assert large
    assert large <= named


def test_a_recording_without_gpu_activity_cannot_be_compared() -> None:
    document = read_comparable(labelled_document("good"))
    bare = msgspec.structs.replace(
        document,
        ranks=[msgspec.structs.replace(r, devices=[]) for r in document.ranks],  # type: ignore[union-attr]
    )
    with pytest.raises(UsageError, match="holds no GPU activity"):
        load_run(bare, "cpu.json")  # type: ignore[arg-type]


def _run() -> Run:
    document = read_comparable(labelled_document("good"))
    return load_run(document, "good")  # type: ignore[arg-type]


def test_a_count_that_a_few_steps_miss_is_compared_by_its_usual_value() -> None:
    run = _run()
    once = np.array([11, 11, 11, 11, 15], dtype=np.float64)
    before = replace(run, counters={**run.counters, "d2h": once})
    after = replace(run, counters={**run.counters, "d2h": once + 1})
    assert ("counter", "d2h") in _named(compare_runs([before], [after]))
    rarer = replace(run, counters={**run.counters, "d2h": np.array([11, 11, 11, 11, 19], dtype=np.float64)})
    assert ("counter", "d2h") not in _named(compare_runs([before], [rarer]))


def test_five_percent_of_kernel_time_is_found_with_one_run_a_side() -> None:
    run = _run()
    assert ("primary", "kernel_time") in _named(compare_runs([run], [stretch_kernels(1.05)(run)]))


@pytest.mark.shared
def test_ten_percent_of_idle_is_found_with_five_runs_a_side_that_differ_by_two_percent(
    halves: tuple[Run, Run],
) -> None:
    random = np.random.default_rng(7)
    run = halves[0]

    def runs(factor: float) -> list[Run]:
        levels = np.exp(random.normal(scale=0.02, size=5)) * factor
        return [replace(run, in_step_idle_ns=run.in_step_idle_ns * level) for level in levels]

    found = sum(("primary", "in_step_idle") in _named(compare_runs(runs(1.0), runs(1.1))) for _ in range(20))
    false = sum(("primary", "in_step_idle") in _named(compare_runs(runs(1.0), runs(1.0))) for _ in range(20))
    assert found >= 19
    assert false == 0


def test_the_frame_has_one_row_per_test_in_the_document_s_order() -> None:
    comparison = traceanalyzer.compare(labelled_document("good"), labelled_document("single-process-loader"))
    frame = comparison.frame()
    assert frame["name"].tolist() == [t.name for t in comparison.tests]
    assert frame.loc[frame["verdict"] == "regression", "name"].tolist()[0] == comparison.tests[0].name


def test_the_document_survives_json() -> None:
    comparison = traceanalyzer.compare(labelled_document("good"), labelled_document("single-process-loader"))
    assert Comparison.from_json(comparison.to_json()) == comparison
