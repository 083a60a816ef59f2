"""Many ranks: parts from workers, ranks told apart, stragglers, unrelated files, and workers that die."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import traceanalyzer
from traceanalyzer import ranks as ranks_module
from traceanalyzer.cli import main
from traceanalyzer.errors import UsageError
from traceanalyzer.measures.job import measure_job
from traceanalyzer.pipeline import RANKS_IN_DETAIL, RANKS_TOGETHER, number_ranks
from traceanalyzer.ranks import InputPart, RankOptions, analyze_input, analyze_many, executor_for, workers_for
from traceanalyzer.results.analysis import Analysis

BESIDE = ["straggler-rank"]  # sees the other ranks' collectives, which stay in their workers
STEP_US, STEPS = 1_000, 4


def loop(path: Path, *, rank: int | None = None, busy_us: int = 400, gpu: str = "GPU A", label: str = "step") -> Path:
    """Write a loop of four steps of 1 ms; the host launches one kernel of ``busy_us`` at the start of each."""
    events: list[dict[str, Any]] = []
    for step in range(STEPS):
        at = step * STEP_US
        events += [
            {"cat": "user_annotation", "name": f"{label}#{step}", "pid": 1, "tid": 1, "ts": at, "dur": STEP_US},
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 5, "dur": 5},
            {"cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": at + 20, "dur": busy_us},
        ]
        events[-1]["args"] = events[-2]["args"] = {"correlation": step + 1, "device": 0, "stream": 7}
    document: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": gpu}],
        "traceEvents": [{"ph": "X", **event} for event in events],
        "note": path.name,  # equal content would be the same recording given twice
    }
    if rank is not None:
        document["distributedInfo"] = {"rank": rank, "world_size": 4}
    path.write_text(json.dumps(document))
    return path


def job(folder: Path, busy_us: tuple[int, ...] = (400, 400, 400)) -> list[str]:
    folder.mkdir(exist_ok=True)
    named = {"label": "ProfilerStep"}
    return [str(loop(folder / f"{n}.json", rank=n, busy_us=busy, **named)) for n, busy in enumerate(busy_us)]  # type: ignore[arg-type]


class Inline(Executor):
    """Runs work at once, or fails it the way a worker's death does, so many times per input."""

    def __init__(self, deaths: dict[str, int] | None = None) -> None:
        self.deaths = deaths or {}
        self.asked: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.asked.append(args[0])
        if self.deaths.get(args[0], 0):
            self.deaths[args[0]] -= 1
            future.set_exception(RuntimeError("worker lost"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_workers_give_the_same_ranks_and_findings_as_one_process(tmp_path: Path) -> None:
    paths = job(tmp_path)
    alone = traceanalyzer.analyze(paths, ignore=BESIDE)
    apart = traceanalyzer.analyze(paths, in_parallel=True, ignore=BESIDE)
    assert apart.to_json() == alone.to_json()


@pytest.mark.parametrize("executor", [Inline, lambda: ThreadPoolExecutor(2)], ids=["own", "threads"])
def test_any_executor_gives_the_same_document(tmp_path: Path, executor: Callable[[], Executor]) -> None:
    paths = job(tmp_path)
    with executor() as pool:
        apart = traceanalyzer.analyze(str(tmp_path), executor=pool, ignore=BESIDE)
    assert apart.to_json() == traceanalyzer.analyze(paths, ignore=BESIDE).to_json()


def test_a_worker_that_dies_once_changes_nothing(tmp_path: Path) -> None:
    paths = job(tmp_path)
    pool = Inline({paths[1]: 1})
    assert traceanalyzer.analyze(paths, executor=pool, ignore=BESIDE) == traceanalyzer.analyze(paths, ignore=BESIDE)
    assert sorted(pool.asked) == sorted([*paths, paths[1]])


def test_a_worker_that_dies_twice_costs_its_rank_not_the_job(tmp_path: Path) -> None:
    paths = job(tmp_path)
    analysis = traceanalyzer.analyze(paths, executor=Inline({paths[1]: 2}))
    assert [rank.rank for rank in analysis.ranks] == [0, 2]
    assert analysis.job is not None
    assert [missing.path for missing in analysis.job.missing] == [paths[1]]
    assert analysis.job.missing[0].problem == "its worker failed twice (RuntimeError: worker lost)"


def test_a_job_of_which_nothing_is_left_is_an_error(tmp_path: Path) -> None:
    paths = job(tmp_path)
    with pytest.raises(UsageError, match="none of the 3 recordings could be analysed"):
        traceanalyzer.analyze(paths, executor=Inline(dict.fromkeys(paths, 2)))


def die_on_1(name: str, options: RankOptions) -> InputPart:
    """What a worker runs that the system kills on one recording, whenever it gets it."""
    if Path(name).name == "1.json":
        os.kill(os.getpid(), signal.SIGKILL)
    return analyze_input(name, options)


def test_a_killed_process_loses_only_its_own_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = job(tmp_path)
    monkeypatch.setattr(ranks_module, "analyze_input", die_on_1)
    parts, missing = analyze_many(paths, RankOptions())
    assert [part.ranks[0].said_rank for part in parts] == [0, 2]
    assert [each.path for each in missing] == [paths[1]]
    assert "the process died" in missing[0].problem


def test_one_unusable_recording_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = job(tmp_path)
    Path(paths[1]).write_text("no recording")
    assert main(["analyze", *paths, "--json", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert paths[1] in line
    assert "not a recording" in line


def test_ranks_come_from_the_recording_then_the_name_then_the_order() -> None:
    traces = [("a.json", 1, True), ("rank3.json", None, True), ("b.json", None, True), ("c.json", None, True)]
    assert number_ranks(traces) == [1, 3, 0, 2]


def test_what_a_recording_says_wins_over_its_name() -> None:
    assert number_ranks([("rank0.json", 5, True), ("rank1.json", None, True)]) == [5, 1]


@pytest.mark.parametrize("second", [("b.json", 1, True), ("x/rank1.json", None, True)], ids=["says", "name"])
def test_a_rank_given_twice_is_refused(second: tuple[str, int | None, bool]) -> None:
    with pytest.raises(UsageError, match=r"rank 1, and so does a\.json"):
        number_ranks([("a.json", 1, True), second])


def test_duplicate_ranks_exit_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(loop(tmp_path / f"{n}.json", rank=0)) for n in "ab"]
    assert main(["analyze", *paths, "--json", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_slow_rank_is_the_straggler_and_its_own_work_is_why(tmp_path: Path) -> None:
    analysis = traceanalyzer.analyze(job(tmp_path))
    slow = analysis.ranks[1].per_step
    # rank 1 waits 500 µs longer for its input in every step
    later = {"input_wait": [ns + 500_000 for ns in slow.idle_by_cause_ns.get("input_wait", [0] * STEPS)]}
    import msgspec

    changed = msgspec.structs.replace(
        slow,
        window_ns=[ns + 500_000 for ns in slow.window_ns],
        idle_by_cause_ns=slow.idle_by_cause_ns | later,
    )
    held_up = [msgspec.structs.replace(rank) for rank in analysis.ranks]
    held_up[1] = msgspec.structs.replace(held_up[1], per_step=changed)
    report = measure_job(held_up)
    (straggler,) = report.stragglers
    assert (straggler.rank, straggler.behind_ns, report.worst_rank) == (1, 500_000, 1)
    assert straggler.causes_ns == {"input_wait": 500_000}
    assert report.spread[0].cause == "input_wait"
    assert (report.spread[0].low_ns, report.spread[0].high_ns, report.spread[0].high_rank) == (0, 500_000, 1)


def test_time_in_collectives_is_not_a_ranks_own(tmp_path: Path) -> None:
    analysis = traceanalyzer.analyze(job(tmp_path))
    import msgspec

    waiting = msgspec.structs.replace(
        analysis.ranks[0].per_step,
        busy_by_kind_ns={"exposed_communication": [600_000] * STEPS},
    )
    report = measure_job([msgspec.structs.replace(analysis.ranks[0], per_step=waiting), *analysis.ranks[1:]])
    first = report.ranks[0]
    assert first.step_ns - first.own_ns == 600_000
    assert report.worst_rank == 1


def test_steps_are_aligned_by_number(tmp_path: Path) -> None:
    analysis = traceanalyzer.analyze(job(tmp_path))
    assert analysis.job is not None
    assert analysis.job.aligned_steps == analysis.ranks[0].steps.count
    assert analysis.job.start_skew_ns == 0


def test_of_many_ranks_only_the_worst_and_the_median_keep_their_timeline(tmp_path: Path) -> None:
    paths = job(tmp_path, tuple(300 + 10 * n for n in range(RANKS_IN_DETAIL + 1)))
    analysis = traceanalyzer.analyze(paths, executor=Inline())
    assert analysis.job is not None
    detailed = {rank.rank for rank in analysis.ranks if rank.timeline.tracks}
    assert detailed == {analysis.job.worst_rank, analysis.job.median_rank}
    assert len(analysis.ranks) == len(paths)
    assert Analysis.from_json(analysis.to_json()) == analysis


def test_files_that_look_like_different_runs_are_warned_about(tmp_path: Path) -> None:
    paths = [loop(tmp_path / "a.json", gpu="GPU A"), loop(tmp_path / "b.json", gpu="GPU B")]
    analysis = traceanalyzer.analyze(paths, executor=Inline())
    assert analysis.job is not None
    (note,) = analysis.job.notes
    assert "GPU A, GPU B" in note
    assert "look like different runs" in note


def test_ranks_of_one_job_are_not_warned_about(tmp_path: Path) -> None:
    analysis = traceanalyzer.analyze(job(tmp_path), executor=Inline())
    assert analysis.job is not None
    assert analysis.job.notes == []


def test_a_single_recording_has_no_job(tmp_path: Path) -> None:
    assert traceanalyzer.analyze(job(tmp_path)[0]).job is None


def test_workers_are_as_many_as_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = job(tmp_path)
    monkeypatch.setattr(ranks_module, "_free_bytes", lambda: 1)
    assert workers_for(paths) == 1
    monkeypatch.setattr(ranks_module, "_free_bytes", lambda: 10**12)
    assert workers_for(paths) == min(3, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("count", "free", "apart"),
    [(3, 10**12, False), (3, 1, True), (RANKS_TOGETHER + 1, 10**12, True)],
    ids=["few", "too large", "many"],
)
def test_ranks_are_read_together_while_they_are_few_and_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, free: int, apart: bool
) -> None:
    job(tmp_path, (400,) * count)
    monkeypatch.setattr(ranks_module, "_free_bytes", lambda: free)
    timings: dict[str, float] = {}
    traceanalyzer.analyze(tmp_path, in_parallel=None, timings=timings)
    assert ("ranks" in timings) is apart


def test_every_report_says_which_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "ranks")
    html, markdown = tmp_path / "r.html", tmp_path / "r.md"
    assert main(["analyze", str(tmp_path / "ranks"), "--html", str(html), "--markdown", str(markdown)]) == 0
    assert "Ranks, the slowest first" in capsys.readouterr().out
    assert "Ranks, the slowest first" in html.read_text()
    assert "| rank | step | own work |" in markdown.read_text()


@pytest.mark.parametrize("address", ["dask://", "mpi://here", "here"])
def test_an_unknown_executor_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="use 'processes' or dask://host:port"), executor_for(address):
        pass


def test_a_broken_pool_is_the_error_it_is_taken_for() -> None:
    assert issubclass(BrokenProcessPool, ranks_module.BrokenExecutor)
