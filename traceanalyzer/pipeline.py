"""read → measure → check → Analysis: the one function behind the command line and the Python interface."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from os import PathLike
from pathlib import Path

from traceanalyzer import __version__
from traceanalyzer.errors import UsageError
from traceanalyzer.measures import Measures, Options
from traceanalyzer.measures.frames import MeasuredFrames
from traceanalyzer.measures.job import ONE_RUN_NS, measure_job
from traceanalyzer.measures.provenance import configuration_of, recorded_with
from traceanalyzer.model.trace import Trace
from traceanalyzer.ranks import RankOptions, RankPart, Stages, analyze_many, describe_input, fit_together, judge_rank
from traceanalyzer.readers.column_cache import FOLDER_VARIABLE, ColumnCache, default_folder
from traceanalyzer.readers.inputs import InputProgress, OpenedInput, open_inputs, rank_in_name, separate_recordings
from traceanalyzer.readers.nsys_rep import nsys_program
from traceanalyzer.results.analysis import Analysis, PlanStep, RankReport, Tool
from traceanalyzer.results.document import read_document
from traceanalyzer.results.finding import Finding
from traceanalyzer.rules.run import order

RANKS_TOGETHER = 8  # up to so many ranks are read into one process, where rules see them side by side
RANKS_IN_DETAIL = 8  # of more ranks, only the worst and the median one are shown in every detail
APART = (
    "the ranks' clocks are more than a day apart (different bases, or different runs): "
    "times of different ranks cannot be set side by side"
)

PathArgument = str | PathLike[str]


def analyze(
    path: PathArgument | Sequence[PathArgument],
    *,
    step_marker: str | None = None,
    steps: tuple[int | None, int | None] | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    profiler: str | None = None,
    cache: bool | PathArgument = False,
    nsys: PathArgument | None = None,
    in_parallel: bool | None = False,
    executor: Executor | None = None,
    progress: InputProgress | None = None,
    timings: MutableMapping[str, float] | None = None,
) -> Analysis:
    """Find out why the GPU was idle.

    Args:
        path: A recording, a run folder, a folder with one recording per rank, a URL, or several of them (all of
            one run). Files of GPU samples (nvidia-smi) may be given beside them. An Analysis in JSON is returned as
            it is.
        step_marker: Name of the range that marks a training step; by default one is looked for.
        steps: Half-open selection of steps by position, ``(first, end)``; None for all.
        select: Check only these rules (code, slug or a prefix of the code).
        ignore: Leave these rules out.
        profiler: Which pass of a run folder to analyse, ``torch`` or ``nsys``; by default the first.
        cache: Keep recordings as columns, so that a second command on one does not parse it again: the folder, or
            True for the one ``TRACEANALYZER_CACHE`` names or the user's cache.
        nsys: The ``nsys`` program that exports a ``.nsys-rep`` report; by default it is looked for.
        in_parallel: Analyse several recordings in processes of this machine, as many as it has processors and memory
            for; None does so where they are many or do not fit into memory together. The tables behind such an Analysis
            (``gaps()``, ``kernels()``) stay in the workers, and rules that compare collectives of several ranks do not
            apply; ``job`` compares the ranks' steps either way.
        executor: Analyse several recordings on this executor instead.
        progress: Told how far reading is.
        timings: Filled with the seconds each stage took.

    Returns:
        The document, with one entry in ``ranks`` per process.

    Raises:
        TraceAnalyzerError: An input is not usable, inputs contradict each other, or a rule is unknown.
    """
    paths = [path] if isinstance(path, (str, PathLike)) else list(path)
    if not paths:
        raise UsageError("no input given; name a recording")
    clock = Stages(timings)
    if len(paths) == 1 and (document := read_document(Path(paths[0]))) is not None:
        if step_marker is not None or steps is not None or select or ignore:
            raise UsageError(f"{paths[0]}: an analysis cannot be analysed again with other options; name the recording")
        return document
    columns, program = _cache(cache), Path(nsys) if nsys is not None else None
    options = RankOptions(step_marker, steps, tuple(select), tuple(ignore), columns, program)
    is_asked = executor is not None or in_parallel
    many = separate_recordings([str(name) for name in paths]) if is_asked or in_parallel is None else []
    if len(many) > 1 and (is_asked or len(many) > RANKS_TOGETHER or not fit_together(many)):
        with clock("ranks"):
            return _side_by_side(many, options, executor, progress)
    with clock("read"), nsys_program(program):
        opened = open_inputs([str(name) for name in paths], progress, profiler, columns)
    recordings = [each.recording for each in opened]
    _refuse_same([(recording.source.path, recording.source.fingerprint) for recording in recordings])
    ranks: list[RankReport] = []
    findings: list[Finding] = []
    plan: list[PlanStep] = []
    numbered = _ranks(opened)
    _note_clocks([trace for trace, _ in numbered])
    chosen = Options(step_marker=step_marker, steps=steps)
    measured = [Measures(trace, chosen, recorder) for trace, recorder in numbered]
    for measures in measured:
        measures.peers = tuple(other for other in measured if other is not measures)
        report, found, planned = judge_rank(measures, options, clock)
        if not plan:
            plan = planned
        ranks.append(report)
        findings += found
    analysis = Analysis(
        tool=Tool(version=__version__),
        inputs=[describe_input(source) for each in opened for source in (each.recording.source, *each.beside)],
        configuration=configuration_of(measured[0]),
        recorded_with=recorded_with(measured[0]),
        plan=plan,
        ranks=ranks,
        findings=order(findings),
        job=measure_job(ranks) if len(ranks) > 1 else None,
    )
    return analysis.with_recording(MeasuredFrames(tuple(measured)))


def _cache(wanted: bool | PathArgument) -> ColumnCache | None:
    folder = default_folder() if wanted is True else Path(wanted) if wanted else None
    if folder is None and wanted:
        raise UsageError(f"there is no folder for a cache; name one in {FOLDER_VARIABLE}")
    return ColumnCache(folder, __version__) if folder is not None else None


def _refuse_same(inputs: Sequence[tuple[str, str]]) -> None:
    """Refuse content given twice; inputs are paths and fingerprints."""
    seen: dict[str, str] = {}
    for path, fingerprint in inputs:
        if fingerprint in seen:
            other = seen[fingerprint]
            raise UsageError(
                f"{path}: the same recording was given twice"
                + (f" (as {other})" if other != path else "")
                + "; name each recording once"
            )
        seen[fingerprint] = path


def number_ranks(traces: Sequence[tuple[str, int | None, bool]]) -> list[int]:
    """Give every trace a rank of its own: the one it says, else the one in its file's name, else the lowest free one.

    Args:
        traces: Path, rank the trace says (None unknown), and whether it is the only one of its input.

    Raises:
        UsageError: Two traces say the same rank.
    """
    taken: dict[int, str] = {}
    for path, said, _ in traces:
        if said is None:
            continue
        if said in taken:
            raise UsageError(
                f"{path}: says it is rank {said}, and so does {taken[said]}; "
                "give one recording per rank of one run (to set two runs against each other, compare them)"
            )
        taken[said] = path
    numbers = [said for _, said, _ in traces]
    for at, (path, said, is_only) in enumerate(traces):
        named = rank_in_name(path)
        if said is None and is_only and named is not None:
            if named in taken:
                raise UsageError(
                    f"{path}: its name says rank {named}, and so does {taken[named]}; "
                    "give one recording per rank of one run (to set two runs against each other, compare them)"
                )
            numbers[at] = named
            taken[named] = path
    free = (number for number in range(2 * len(traces)) if number not in taken)
    return [next(free) if number is None else number for number in numbers]


def _ranks(opened: Sequence[OpenedInput]) -> list[tuple[Trace, dict[str, object]]]:
    """Give every trace a rank of its own, in rank order."""
    traces = [(trace, each) for each in opened for trace in each.recording.traces]
    # a file analysed alone is rank 0 of what is known, whatever it is called
    named = len(opened) > 1
    numbers = number_ranks(
        [(each.recording.source.path, trace.rank, named and len(each.recording.traces) == 1) for trace, each in traces]
    )
    numbered = [
        (replace(trace, rank=number), each.recorder) for (trace, each), number in zip(traces, numbers, strict=True)
    ]
    return sorted(numbered, key=lambda pair: pair[0].rank or 0)


def _side_by_side(
    names: Sequence[str], options: RankOptions, executor: Executor | None, progress: InputProgress | None
) -> Analysis:
    """Analyse recordings in workers and put their parts together."""
    parts, missing = analyze_many(names, options, executor, progress)
    inputs = [each for part in parts for each in part.inputs]
    _refuse_same([(each.path, each.fingerprint) for each in inputs])
    found = [rank for part in parts for rank in part.ranks]
    if not found:
        raise UsageError(f"{names[0]}: none of the {len(names)} recordings could be analysed: {missing[0].problem}")
    numbers = number_ranks(
        [(rank.path, rank.said_rank, sum(r.path == rank.path for r in found) == 1) for rank in found]
    )
    ranks = sorted(
        (rank.numbered(number) for rank, number in zip(found, numbers, strict=True)), key=lambda each: each.report.rank
    )
    job = measure_job([rank.report for rank in ranks], missing, _strangers(ranks))
    shown = {job.worst_rank, job.median_rank} if len(ranks) > RANKS_IN_DETAIL else {rank.report.rank for rank in ranks}
    return Analysis(
        tool=Tool(version=__version__),
        inputs=inputs,
        configuration=ranks[0].configuration,
        recorded_with=ranks[0].recorded_with,
        plan=next((rank.plan for rank in ranks if rank.plan), []),
        ranks=[rank.in_detail() if rank.report.rank in shown else rank.report for rank in ranks],
        findings=order([finding for rank in ranks for finding in rank.findings]),
        job=job,
    )


def _strangers(ranks: Sequence[RankPart]) -> list[str]:
    """Say where recordings given together do not look like ranks of one run."""
    notes = []
    origins = [int(rank.report.origin_ns) for rank in ranks]
    if max(origins) - min(origins) > ONE_RUN_NS:
        notes.append(APART)
    if all(rank.said_rank is None for rank in ranks):
        gpus = sorted({device.name for rank in ranks for device in rank.report.devices if device.name})
        names = [frozenset(rank.report.steps.name) for rank in ranks]
        if len(gpus) > 1 or not frozenset.intersection(*names):
            notes.append(
                "none of these recordings names its rank, and they differ in "
                + (f"their GPUs ({', '.join(gpus)})" if len(gpus) > 1 else "all their steps")
                + ": they look like different runs, not ranks of one; to set two runs against each other, compare them"
            )
    return notes


def _note_clocks(traces: Sequence[Trace]) -> None:
    """Say where the ranks' clocks do not belong together, so that nobody sets their times side by side."""
    origins = [trace.origin_ns for trace in traces]
    if max(origins) - min(origins) <= ONE_RUN_NS:
        return
    for trace in traces:
        trace.integrity.note(APART)
