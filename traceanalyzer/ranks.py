"""One rank from its trace to its part of the document, and many of them on any ``concurrent.futures`` executor.

A worker returns small summaries, never tables, so memory grows with the workers and not with the ranks. The parts of
a report that only a reader of one rank looks at travel compressed and are unpacked for the ranks shown in detail.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import msgspec

from traceanalyzer.errors import TraceAnalyzerError, UsageError
from traceanalyzer.measures import Measures, Options
from traceanalyzer.measures.ahead import measured_ahead
from traceanalyzer.measures.provenance import configuration_of, recorded_with
from traceanalyzer.measures.summary import summarise_rank
from traceanalyzer.model.trace import Source
from traceanalyzer.readers.column_cache import ColumnCache
from traceanalyzer.readers.heap import return_memory
from traceanalyzer.readers.inputs import open_inputs
from traceanalyzer.readers.nsys_rep import nsys_program
from traceanalyzer.results.analysis import Configuration, Input, PlanStep, Positions, RankReport, RecordedWith, Series
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.job import MissingRank
from traceanalyzer.results.timeline import Timeline
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules.priced import price
from traceanalyzer.rules.remedies import with_remedies
from traceanalyzer.rules.run import check_all

HIGHLIGHTS_PER_FINDING = 3
LONG_RECORDING = 500_000  # calls and slices from which on freed memory is worth returning between stages
# a worker holds its imports and, of a recording, some ten times the compressed or five times the plain text
WORKER_BYTES, PER_BYTE_PACKED, PER_BYTE = 250_000_000, 40, 8
_PACKED = (".gz", ".xz", ".zst", ".bz2")


class Stages:
    """Adds the seconds of each stage to the caller's mapping."""

    def __init__(self, timings: MutableMapping[str, float] | None = None) -> None:
        self._timings = timings if timings is not None else {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time what runs inside."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._timings[stage] = self._timings.get(stage, 0.0) + time.perf_counter() - begun


@dataclass(frozen=True, slots=True)
class RankOptions:
    """What a user chose for every rank alike (see ``pipeline.analyze``)."""

    step_marker: str | None = None
    steps: tuple[int | None, int | None] | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    cache: ColumnCache | None = None
    nsys: Path | None = None


def judge_rank(
    measures: Measures, options: RankOptions, clock: Stages
) -> tuple[RankReport, list[Finding], list[PlanStep]]:
    """Measure, judge, price and summarise one rank."""
    trace = measures.trace
    is_long = len(trace.calls) + len(trace.slices) > LONG_RECORDING
    with measured_ahead(measures) as draft:
        with clock("measure"):
            _ = measures.idle  # what every rule starts from, so that its time is not blamed on the first rule
        if is_long:
            return_memory()
        with clock("check"):
            found = check_all(measures, options.select, options.ignore)
        with clock("replay"):
            found, plan = price(measures, found)
        found = with_remedies(found, measures.recorder)
        with clock("summarise"):
            if is_long:
                return_memory()
            timeline = draft.result().finish(_highlights(found))
            if is_long:
                return_memory()
            report = summarise_rank(measures, timeline)
    return report, found, plan


def _highlights(findings: Sequence[Finding]) -> list[tuple[int, int, str]]:
    firing = [finding for finding in findings if finding.status is Status.FAIL]
    # round by round, so that every finding's first place is kept exact before any finding's second
    return [
        (finding.evidence[turn].start_ns, finding.evidence[turn].end_ns, f"evidence of {finding.code}")
        for turn in range(HIGHLIGHTS_PER_FINDING)
        for finding in firing
        if turn < len(finding.evidence)
    ]


def describe_input(source: Source) -> Input:
    """Name an input in the document."""
    return Input(
        path=source.path,
        format=source.format,
        bytes=source.size_bytes,
        fingerprint=source.fingerprint,
        producer=source.producer or None,
    )


class _Detail(msgspec.Struct, frozen=True):
    timeline: Timeline
    positions: Positions
    series: Series


@dataclass(frozen=True, slots=True)
class RankPart:
    """What a worker sends back of one trace.

    Attributes:
        path: The input.
        said_rank: Rank the recording names itself; None where it does not.
        report: The report without what only a view of this one rank shows.
        detail: That, compressed.
        findings: Verdicts of all rules.
        plan: Fixes in the order to make them.
        configuration: Settings of the run.
        recorded_with: Options of the recording.
    """

    path: str
    said_rank: int | None
    report: RankReport
    detail: bytes
    findings: list[Finding]
    plan: list[PlanStep]
    configuration: Configuration
    recorded_with: RecordedWith

    def numbered(self, rank: int) -> RankPart:
        """Return the part of this rank."""
        return RankPart(
            self.path,
            self.said_rank,
            msgspec.structs.replace(self.report, rank=rank),
            self.detail,
            [msgspec.structs.replace(finding, rank=rank) for finding in self.findings],
            self.plan,
            self.configuration,
            self.recorded_with,
        )

    def in_detail(self) -> RankReport:
        """Return the report with everything in it."""
        detail = msgspec.json.decode(zlib.decompress(self.detail), type=_Detail)
        return msgspec.structs.replace(
            self.report, timeline=detail.timeline, positions=detail.positions, series=detail.series
        )


@dataclass(frozen=True, slots=True)
class InputPart:
    """What a worker sends back of one input: its ranks, or why there are none (errors do not travel as such)."""

    inputs: list[Input] = field(default_factory=list)
    ranks: list[RankPart] = field(default_factory=list)
    error: str = ""


def analyze_input(name: str, options: RankOptions) -> InputPart:
    """Analyse one recording; runs in a worker."""
    try:
        with nsys_program(options.nsys):
            (opened,) = open_inputs([name], cache=options.cache)
        parts = []
        for trace in opened.recording.traces:
            measures = Measures(trace, Options(step_marker=options.step_marker, steps=options.steps), opened.recorder)
            report, findings, plan = judge_rank(measures, options, Stages())
            detail = _Detail(report.timeline, report.positions, report.series)
            light = msgspec.structs.replace(
                report,
                timeline=Timeline(start_ns=0, end_ns=0, strings=[], tracks=[]),
                positions=Positions(name=[], interval_ns=[], launch_call_ns=[]),
                series=Series(),
            )
            packed = zlib.compress(msgspec.json.encode(detail), 1)
            settings = configuration_of(measures), recorded_with(measures)
            parts.append(RankPart(name, trace.rank, light, packed, findings, plan, *settings))
        return InputPart([describe_input(s) for s in (opened.recording.source, *opened.beside)], parts)
    except TraceAnalyzerError as error:
        return InputPart(error=str(error))
    finally:
        return_memory()


def analyze_many(
    names: Sequence[str],
    options: RankOptions,
    executor: Executor | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[list[InputPart], list[MissingRank]]:
    """Analyse recordings side by side.

    Args:
        names: Recordings.
        options: Choices for all of them.
        executor: Where to; by default processes of this machine, as many as it has processors and memory for.
        progress: Told how many recordings are done.

    Returns:
        The parts in the order of the names, and the recordings whose worker died twice.

    Raises:
        UsageError: A recording cannot be used; the first one that shows it.
    """
    done: dict[str, InputPart] = {}
    lost = _run(names, options, executor, done, progress)
    # who was at work when a pool broke is not known to have broken it: each is tried again alone
    missing = []
    for name in lost:
        for path, why in _run([name], options, executor, done, progress, workers=1).items():
            missing.append(MissingRank(path=path, problem=f"its worker failed twice ({why})"))
    return [done[name] for name in names if name in done], missing


def _run(
    names: Sequence[str],
    options: RankOptions,
    executor: Executor | None,
    done: dict[str, InputPart],
    progress: Callable[[str, int, int], None] | None,
    workers: int | None = None,
) -> dict[str, str]:
    """Run what can be run, into ``done``; return the names whose worker died, each with what is known of it."""
    if executor is not None:
        return _drain(names, options, executor, done, progress, at_once=None)
    lost: dict[str, str] = {}
    left = list(names)
    while left:
        count = workers or workers_for(left)
        # not forked: a fork of a process with threads may hang
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            lost |= _drain(left, options, pool, done, progress, at_once=count)
        left = [name for name in left if name not in done and name not in lost]
    return lost


def _drain(
    names: Sequence[str],
    options: RankOptions,
    pool: Executor,
    done: dict[str, InputPart],
    progress: Callable[[str, int, int], None] | None,
    at_once: int | None,
) -> dict[str, str]:
    """Hand out the names, at most so many at once; stop handing out when the pool breaks."""
    queue = list(reversed(names))
    running: dict[Future[InputPart], str] = {}
    lost: dict[str, str] = {}
    is_broken = False
    while running or (queue and not is_broken):
        while queue and not is_broken and (at_once is None or len(running) < at_once):
            try:
                running[pool.submit(analyze_input, queue[-1], options)] = queue[-1]
            except BrokenExecutor:
                is_broken = True
                break
            queue.pop()
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            name = running.pop(future)
            error = future.exception()
            if error is not None:
                # a worker answers for the input in its result, so whatever is raised is the worker's own end
                has_died = isinstance(error, BrokenExecutor)
                lost[name] = "the process died; out of memory?" if has_died else f"{type(error).__name__}: {error}"
                is_broken |= has_died
                continue
            part = future.result()
            if part.error:
                for other in running:
                    other.cancel()
                raise UsageError(part.error)
            done[name] = part
            if progress is not None:
                progress(name, len(done), len(done) + len(running) + len(queue))
    return lost


def workers_for(names: Sequence[str]) -> int:
    """Choose how many local processes to use: one per processor, as long as their recordings fit into memory."""
    fitting = _free_bytes() // (WORKER_BYTES + max(map(_needed_bytes, names), default=0))
    return max(
        1,
        min(
            len(names),
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            fitting,
        ),
    )


def fit_together(names: Sequence[str]) -> bool:
    """Say whether one process can hold all these recordings at once."""
    return WORKER_BYTES + sum(map(_needed_bytes, names)) <= _free_bytes()


def _needed_bytes(name: str) -> int:
    """Estimate what analysing a recording takes."""
    path = Path(name)
    size = path.stat().st_size if path.is_file() else 0
    return size * (PER_BYTE_PACKED if path.suffix in _PACKED else PER_BYTE)


def _free_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 4_000_000_000  # not Linux: a modest machine
    kib = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 4_000_000)
    return kib * 1024 * 3 // 4  # the rest is for whoever else is at work


@contextmanager
def executor_for(address: str | None) -> Iterator[Executor | None]:
    """Open the executor that ``--executor`` names; None stands for processes of this machine.

    Raises:
        UsageError: It is not of the form ``dask://host:port``, dask is not installed, or nobody answers there.
    """
    if address is None or address == "processes":
        yield None
        return
    scheme, _, place = address.partition("://")
    if scheme != "dask" or not place:
        raise UsageError(f"--executor {address!r}: use 'processes' or dask://host:port")
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(
            "--executor dask://… needs dask; install it with: pip install 'traceanalyzer[cluster]'"
        ) from None
    try:
        client = Client(f"tcp://{place}", timeout="10s")
    except (OSError, ValueError) as error:
        raise UsageError(f"--executor {address}: no scheduler answers there ({error})") from None
    with client, client.get_executor(pure=False) as executor:
        yield executor
