"""What the tests need from an Analysis document: the comparable steps of one rank as arrays."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt

from traceanalyzer.comparison.matrices import as_matrix, read_matrix
from traceanalyzer.errors import UsageError
from traceanalyzer.results.analysis import Analysis, Configuration, RankReport, RecordedWith
from traceanalyzer.results.comparable import ComparableAnalysis, ComparableRank
from traceanalyzer.results.vocabulary import StepClass, StepSource

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """One run's steady steps; series have one value per steady step, matrices are steps × positions.

    Attributes:
        label: Path or name.
        rank: The rank compared.
        steps: Number of steady steps.
        dropped: Steps left out.
        start_ns: Window starts.
        step_ns: Window lengths.
        in_step_idle_ns: Idle inside the marker.
        boundary_idle_ns: Idle between the markers.
        kernel_ns: Kernel sums.
        exposed_h2d_ns: H2D copy time not under a kernel.
        max_gap_ns: Longest idle piece.
        idle_by_cause_ns: Cause → series.
        kernel_family_ns: Family → series.
        counters: Counter → series.
        position_names: Activity name per position of the modal step.
        interval_ns: Host interval per step and position; NaN where absent.
        launch_call_ns: Launch-call time per step and position; NaN where absent.
        h2d_time_ns: Σ durations of the H2D copies of the whole recording.
        h2d_overlapped_ns: Part of it under kernels.
        peak_reserved_bytes: Peak of the allocator's reserved memory, or None.
        configuration: Settings of the recorded run.
        recorded_with: Options of the profiler.
        format: Reader name; the export formats of Nsight Systems count as one, ``nsys``.
        ranks: Ranks in the document.
        steps_are_marked: The recording marks its steps; otherwise they were inferred, or the span is one window.
        kernel_totals: Kernel family → count and Σ durations over the whole recording, all ranks; the families with
            most time.
    """

    label: str
    rank: int
    steps: int
    dropped: int
    start_ns: FloatArray
    step_ns: FloatArray
    in_step_idle_ns: FloatArray
    boundary_idle_ns: FloatArray
    kernel_ns: FloatArray
    exposed_h2d_ns: FloatArray
    max_gap_ns: FloatArray
    idle_by_cause_ns: dict[str, FloatArray]
    kernel_family_ns: dict[str, FloatArray]
    counters: dict[str, FloatArray]
    position_names: tuple[str, ...]
    interval_ns: FloatArray
    launch_call_ns: FloatArray
    h2d_time_ns: int
    h2d_overlapped_ns: int
    peak_reserved_bytes: int | None
    configuration: Configuration
    recorded_with: RecordedWith
    format: str
    ranks: int
    steps_are_marked: bool = True
    kernel_totals: dict[str, tuple[int, int]] = field(default_factory=dict)


def load_ranks(analysis: Analysis | ComparableAnalysis, label: str) -> list[Run]:
    """Take the comparable steps of every rank with GPU activity.

    Warm-up, validation, checkpoint, epoch-edge and cut windows are left out, by their class and never for being slow.

    Args:
        analysis: The document.
        label: Name for messages.

    Returns:
        One run per rank, by rank number; ranks without a steady step are left out.

    Raises:
        UsageError: No GPU activity or no steady step to compare, or the document contradicts itself.
    """
    ranks = [r for r in analysis.ranks if r.devices]
    if not ranks:
        raise UsageError(f"{label}: holds no GPU activity, so there are no kernel gaps to compare; record it on a GPU")
    numbers = [r.rank for r in ranks]
    if len(set(numbers)) < len(numbers):  # recordings that do not know their rank
        numbers = list(range(len(ranks)))
    steady = [any(c is StepClass.STEADY for c in r.steps.step_class) for r in ranks]
    if not any(steady):
        raise UsageError(f"{label}: no steady steps to compare; record more steps, or mark them with a step range")
    totals = _kernel_totals(analysis)
    return sorted(
        (
            _load(analysis, rank, number, label, totals)
            for rank, number, comparable in zip(ranks, numbers, steady, strict=True)
            if comparable
        ),
        key=lambda run: run.rank,
    )


def load_run(analysis: Analysis | ComparableAnalysis, label: str) -> Run:
    """Take the comparable steps of a document's first rank; see ``load_ranks``."""
    return load_ranks(analysis, label)[0]


def _load(
    analysis: Analysis | ComparableAnalysis,
    rank: RankReport | ComparableRank,
    number: int,
    label: str,
    totals: dict[str, tuple[int, int]],
) -> Run:
    series = rank.per_step
    steady = np.array([c is StepClass.STEADY for c in rank.steps.step_class], dtype=np.bool_)

    def pick(values: list[int]) -> FloatArray:
        if len(values) != len(steady):
            raise UsageError(f"{label}: not a whole document (steps and series differ in length); make it again")
        return np.asarray(values, dtype=np.float64)[steady]

    positions = len(rank.positions.name)
    interval = _matrix(rank.positions.interval_ns, positions, label)
    calls = _matrix(rank.positions.launch_call_ns, positions, label)
    if positions and not len(interval) == len(calls) == steady.sum():
        raise UsageError(f"{label}: not a whole document (steps and positions differ in length); make it again")
    idle, boundary = pick(series.idle_ns), pick(series.boundary_idle_ns)
    return Run(
        label=label,
        rank=number,
        steps=int(steady.sum()),
        dropped=int((~steady).sum()),
        start_ns=pick(series.start_ns),
        step_ns=pick(series.window_ns),
        in_step_idle_ns=idle - boundary,
        boundary_idle_ns=boundary,
        kernel_ns=pick(series.kernel_ns),
        exposed_h2d_ns=pick(series.exposed_h2d_ns),
        max_gap_ns=pick(series.max_gap_ns),
        idle_by_cause_ns={k: pick(v) for k, v in series.idle_by_cause_ns.items()},
        kernel_family_ns={k: pick(v) for k, v in series.kernel_family_ns.items()},
        counters={k: pick(v) for k, v in series.counters.items()},
        position_names=tuple(rank.positions.name),
        interval_ns=interval,
        launch_call_ns=calls,
        h2d_time_ns=rank.copies.h2d.time_ns,
        h2d_overlapped_ns=rank.copies.h2d.overlapped_ns,
        peak_reserved_bytes=rank.allocator.peak_reserved_bytes,
        configuration=analysis.configuration,
        recorded_with=analysis.recorded_with,
        format=_format(analysis),
        ranks=len(analysis.ranks),
        steps_are_marked=rank.steps.source not in (StepSource.INFERRED, StepSource.NONE),
        kernel_totals=totals,
    )


def select_steps(run: Run, rows: npt.NDArray[np.int64]) -> Run:
    """Return a run holding only the given steady steps, in that order; for resampling studies."""
    return replace(
        run,
        steps=len(rows),
        start_ns=run.start_ns[rows],
        step_ns=run.step_ns[rows],
        in_step_idle_ns=run.in_step_idle_ns[rows],
        boundary_idle_ns=run.boundary_idle_ns[rows],
        kernel_ns=run.kernel_ns[rows],
        exposed_h2d_ns=run.exposed_h2d_ns[rows],
        max_gap_ns=run.max_gap_ns[rows],
        idle_by_cause_ns={k: v[rows] for k, v in run.idle_by_cause_ns.items()},
        kernel_family_ns={k: v[rows] for k, v in run.kernel_family_ns.items()},
        counters={k: v[rows] for k, v in run.counters.items()},
        interval_ns=run.interval_ns[rows],
        launch_call_ns=run.launch_call_ns[rows],
    )


def align_positions(runs: list[Run]) -> list[Run]:
    """Bring every run's positions to those of the first run, by name.

    Args:
        runs: Runs of both sides; the first one's modal step is the template.

    Returns:
        The runs with equal ``position_names``; NaN where a run lacks a position.
    """
    if not runs:
        return runs
    template = runs[0].position_names
    aligned = [runs[0]]
    for run in runs[1:]:
        if run.position_names == template:
            aligned.append(run)
            continue
        blocks = _matching_blocks(template, run.position_names)
        to = np.concatenate([np.arange(a, a + size) for a, _, size in blocks]) if blocks else np.empty(0, np.int64)
        of = np.concatenate([np.arange(b, b + size) for _, b, size in blocks]) if blocks else np.empty(0, np.int64)
        interval = np.full((run.steps, len(template)), np.nan)
        call = np.full((run.steps, len(template)), np.nan)
        if run.interval_ns.shape[1]:
            interval[:, to.astype(np.int64)] = run.interval_ns[:, of.astype(np.int64)]
            call[:, to.astype(np.int64)] = run.launch_call_ns[:, of.astype(np.int64)]
            # where the runs' sequences part, the previous launch is another one: that interval is not comparable
            for a, b, size in blocks:
                if size and a != 0 and b != 0:
                    interval[:, a] = np.nan
        aligned.append(replace(run, position_names=template, interval_ns=interval, launch_call_ns=call))
    return aligned


def _matching_blocks(template: tuple[str, ...], names: tuple[str, ...]) -> list[tuple[int, int, int]]:
    """Match two sequences; equal ends are cut off first, so that the quadratic matcher sees only what differs."""
    shorter = min(len(template), len(names))
    head = 0
    while head < shorter and template[head] == names[head]:
        head += 1
    tail = 0
    while tail < shorter - head and template[-1 - tail] == names[-1 - tail]:
        tail += 1
    inner = difflib.SequenceMatcher(
        None, template[head : len(template) - tail], names[head : len(names) - tail], autojunk=False
    )
    blocks = [(0, 0, head)]
    blocks += [(head + b.a, head + b.b, b.size) for b in inner.get_matching_blocks() if b.size]
    blocks.append((len(template) - tail, len(names) - tail, tail))
    return blocks


def _matrix(values: Sequence[list[int | None]] | msgspec.Raw, positions: int, label: str) -> FloatArray:
    """Turn the document's position-major lists, or their text, into steps × positions; null becomes NaN."""
    if isinstance(values, msgspec.Raw):
        return read_matrix(memoryview(values), positions, label).T
    return as_matrix(values, positions, label).T


def _kernel_totals(analysis: Analysis | ComparableAnalysis) -> dict[str, tuple[int, int]]:
    totals: dict[str, tuple[int, int]] = {}
    for rank in analysis.ranks:
        for kernel in rank.kernels.top:
            family = kernel.family or kernel.name
            count, time_ns = totals.get(family, (0, 0))
            totals[family] = (count + kernel.count, time_ns + kernel.time_ns)
    return totals


def _format(analysis: Analysis | ComparableAnalysis) -> str:
    # the export formats of one profiler hold the same events
    names = sorted({"nsys" if i.format.startswith("nsys") else i.format for i in analysis.inputs})
    return "+".join(names)
