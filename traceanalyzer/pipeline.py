"""read → measure → check → Analysis: the one function behind the command line and the Python interface."""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path

from traceanalyzer import __version__
from traceanalyzer.errors import UsageError
from traceanalyzer.measures import Measures, Options
from traceanalyzer.measures.frames import MeasuredFrames
from traceanalyzer.measures.provenance import configuration_of, recorded_with
from traceanalyzer.measures.summary import summarise_rank
from traceanalyzer.measures.timeline import build_timeline
from traceanalyzer.model.trace import Recording, Source, Trace
from traceanalyzer.readers.column_cache import FOLDER_VARIABLE, ColumnCache, default_folder
from traceanalyzer.readers.inputs import InputProgress, OpenedInput, open_inputs
from traceanalyzer.results.analysis import Analysis, Input, PlanStep, RankReport, Tool
from traceanalyzer.results.document import read_document
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.timeline import Timeline
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules.priced import price
from traceanalyzer.rules.run import check_all, order

HIGHLIGHTS_PER_FINDING = 3
# ranks of one run start within minutes of each other; a clock that counts from boot is decades from one of the epoch
ONE_RUN_NS = 86_400 * 1_000_000_000

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
    clock = _Stages(timings if timings is not None else {})
    if len(paths) == 1 and (document := read_document(Path(paths[0]))) is not None:
        if step_marker is not None or steps is not None or select or ignore:
            raise UsageError(f"{paths[0]}: an analysis cannot be analysed again with other options; name the recording")
        return document
    with clock("read"):
        opened = open_inputs([str(name) for name in paths], progress, profiler, _cache(cache))
    recordings = [each.recording for each in opened]
    _refuse_repeated(recordings)
    ranks: list[RankReport] = []
    findings: list[Finding] = []
    plan: list[PlanStep] = []
    numbered = _ranks(opened)
    _note_clocks([trace for trace, _ in numbered])
    options = Options(step_marker=step_marker, steps=steps)
    measured = [Measures(trace, options, recorder) for trace, recorder in numbered]
    for measures in measured:
        measures.peers = tuple(other for other in measured if other is not measures)
        with clock("measure"):
            _ = measures.idle  # what every rule starts from, so that its time is not blamed on the first rule
        with clock("check"):
            found = check_all(measures, select, ignore)
        with clock("replay"):
            found, planned = price(measures, found)
            if not plan:
                plan = planned
        with clock("summarise"):
            ranks.append(summarise_rank(measures, _timeline(measures, found)))
        findings += found
    analysis = Analysis(
        tool=Tool(version=__version__),
        inputs=[_input(source) for each in opened for source in (each.recording.source, *each.beside)],
        configuration=configuration_of(measured[0]),
        recorded_with=recorded_with(measured[0]),
        plan=plan,
        ranks=ranks,
        findings=order(findings),
    )
    return analysis.with_recording(MeasuredFrames(tuple(measured)))


def _cache(wanted: bool | PathArgument) -> ColumnCache | None:
    folder = default_folder() if wanted is True else Path(wanted) if wanted else None
    if folder is None and wanted:
        raise UsageError(f"there is no folder for a cache; name one in {FOLDER_VARIABLE}")
    return ColumnCache(folder, __version__) if folder is not None else None


class _Stages:
    """Adds the seconds of each stage to the caller's mapping."""

    def __init__(self, timings: MutableMapping[str, float]) -> None:
        self._timings = timings

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._timings[stage] = self._timings.get(stage, 0.0) + time.perf_counter() - begun


def _refuse_repeated(recordings: Sequence[Recording]) -> None:
    seen: dict[str, str] = {}
    for recording in recordings:
        source = recording.source
        if source.fingerprint in seen:
            other = seen[source.fingerprint]
            raise UsageError(
                f"{source.path}: the same recording was given twice"
                + (f" (as {other})" if other != source.path else "")
                + "; name each recording once"
            )
        seen[source.fingerprint] = source.path


def _ranks(opened: Sequence[OpenedInput]) -> list[tuple[Trace, dict[str, object]]]:
    """Give every trace a rank of its own, in rank order; those that do not say get the lowest free numbers."""
    taken: dict[int, str] = {}
    traces = [(trace, each) for each in opened for trace in each.recording.traces]
    for trace, each in traces:
        if trace.rank is None:
            continue
        path = each.recording.source.path
        if trace.rank in taken:
            raise UsageError(
                f"{path}: says it is rank {trace.rank}, and so does {taken[trace.rank]}; "
                "give one recording per rank of one run (to set two runs against each other, compare them)"
            )
        taken[trace.rank] = path
    free = (number for number in range(len(traces) + len(taken)) if number not in taken)
    numbered = [
        (trace if trace.rank is not None else replace(trace, rank=next(free)), each.recorder) for trace, each in traces
    ]
    return sorted(numbered, key=lambda pair: pair[0].rank or 0)


def _note_clocks(traces: Sequence[Trace]) -> None:
    """Say where the ranks' clocks do not belong together, so that nobody sets their times side by side."""
    origins = [trace.origin_ns for trace in traces]
    if max(origins) - min(origins) <= ONE_RUN_NS:
        return
    for trace in traces:
        trace.integrity.note(
            "the ranks' clocks are more than a day apart (different bases, or different runs): "
            "times of different ranks cannot be set side by side"
        )


def _timeline(measures: Measures, findings: Sequence[Finding]) -> Timeline:
    firing = [finding for finding in findings if finding.status is Status.FAIL]
    # round by round, so that every finding's first place is kept exact before any finding's second
    places = [
        (finding.evidence[turn].start_ns, finding.evidence[turn].end_ns, f"evidence of {finding.code}")
        for turn in range(HIGHLIGHTS_PER_FINDING)
        for finding in firing
        if turn < len(finding.evidence)
    ]
    return build_timeline(measures.trace, measures.steps, measures.idle, measures.devices, measures.host, places)


def _input(source: Source) -> Input:
    return Input(
        path=source.path,
        format=source.format,
        bytes=source.size_bytes,
        fingerprint=source.fingerprint,
        producer=source.producer or None,
    )
