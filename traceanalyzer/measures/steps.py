"""Step windows: where one training iteration ends and the next begins, and which windows are comparable."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.errors import UsageError
from traceanalyzer.measures import phases
from traceanalyzer.measures.step_classes import CUT, EPISODIC, STEADY, WARM_UP, classify_windows
from traceanalyzer.measures.step_markers import Markers, infer_markers, make_markers, markers_from_slices
from traceanalyzer.model.schema import (
    ByteArray,
    IntArray,
    SliceKind,
    among,
    distinct_codes,
)
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import StepClass, StepSource

__all__ = [
    "CUT",
    "EPISODIC",
    "STEADY",
    "STEP_CLASSES",
    "WARM_UP",
    "Steps",
    "base_name",
    "find_steps",
    "looks_like_step",
]

STEP_CLASSES: tuple[StepClass, ...] = tuple(StepClass)  # codes of ``Steps.step_class``


@dataclass(frozen=True, slots=True)
class Steps:
    """Step windows in time order; arrays have one entry per window.

    Attributes:
        source: Where the borders come from; with ``none`` the whole span is one window.
        start_ns: Window start (the marker's start).
        end_ns: Window end (the next marker's start; the last window: its marker's end).
        marker_end_ns: End of the marker itself; ``[marker_end_ns, end_ns)`` is the boundary.
        step_class: Code into ``STEP_CLASSES``.
        names: Marker name of each window.
        thread: Thread index of the markers; -1 without markers.
    """

    source: StepSource
    start_ns: IntArray
    end_ns: IntArray
    marker_end_ns: IntArray
    step_class: ByteArray
    names: tuple[str, ...]
    thread: int

    def __len__(self) -> int:
        return len(self.start_ns)


def find_steps(trace: Trace, marker: str | None, selection: tuple[int | None, int | None] | None) -> Steps:
    """Find the step windows of a trace, by the order of preference of the definitions.

    Args:
        trace: The recording.
        marker: Name of the range that marks a step, or None to look for one.
        selection: Half-open selection of windows by position, or None for all.

    Returns:
        The windows in time order.

    Raises:
        UsageError: No range has the name asked for, or the selection is empty.
    """
    source, markers = _find_markers(trace, marker)
    classes = classify_windows(trace, markers, source)
    first, last, _ = slice(*(selection or (None, None))).indices(len(markers.start_ns))
    if selection is not None and last <= first:
        raise UsageError(
            f"the selection of steps {_selection_text(selection)} is empty: the recording has {len(markers.start_ns)}"
        )
    keep = slice(first, last)
    return Steps(
        source=source,
        start_ns=markers.start_ns[keep],
        end_ns=markers.end_ns[keep],
        marker_end_ns=markers.marker_end_ns[keep],
        step_class=classes[keep],
        names=markers.names[keep],
        thread=markers.thread,
    )


def _selection_text(selection: tuple[int | None, int | None]) -> str:
    return ":".join("" if bound is None else str(bound) for bound in selection)


def _find_markers(trace: Trace, marker: str | None) -> tuple[StepSource, Markers]:
    names = trace.slices.name
    used = [int(code) for code in distinct_codes(names) if code >= 0]
    if marker is not None:
        wanted = [code for code in used if marker in (trace.names[code], base_name(trace.names[code]))]
        rows = np.flatnonzero(among(names, wanted))
        if not len(rows):
            raise UsageError(f"no range is named {marker!r}; --step-marker takes the name of a range in the recording")
        return StepSource.NAMED, markers_from_slices(trace, _one_thread(trace, rows))
    profiler = [code for code in used if _PROFILER_STEP.fullmatch(trace.names[code])]
    rows = np.flatnonzero(among(names, profiler) & (trace.slices.kind != SliceKind.PYTHON))
    if len(rows):
        return StepSource.PROFILER, markers_from_slices(trace, _one_thread(trace, rows))
    rows = _step_like_rows(trace, used)
    if len(rows):
        return StepSource.NVTX, markers_from_slices(trace, rows)
    inferred = infer_markers(trace)
    if inferred is not None:
        return StepSource.INFERRED, inferred
    return StepSource.NONE, _whole_span(trace)


def base_name(name: str) -> str:
    """Return a range's name without the number at its end: ``step 12``, ``step#12`` and ``step[12]`` are ``step``."""
    return _TRAILING_NUMBER.sub("", name)


def looks_like_step(name: str) -> bool:
    """Say whether a range's name (without its number) is that of a training step."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(map(_STEP_WORD.fullmatch, words)) and not any(map(_NOT_STEP_WORD.fullmatch, words))


_PROFILER_STEP = re.compile(r"ProfilerStep#\d+")
_TRAILING_NUMBER = re.compile(r"[\s_#:.\-(\[/]*\d+(?:\s*/\s*\d+)?[\])]?\s*$")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_STEP_WORD = re.compile(r"step|iteration|iter|batch")
# parts of a step, and steps of something else than training
_NOT_STEP_WORD = re.compile(
    r"optimizer|optim|opt|scheduler|lr|ema|norm|grad|gradient|zero|scaler|load|loader|data|fetch|next|copy|to|device"
    r"|forward|backward|loss|validate|validation|val|eval|test|predict|checkpoint|save|log|epoch"
)
MIN_REPEATS = 2  # a range that occurs once marks nothing


def _one_thread(trace: Trace, rows: IntArray) -> IntArray:
    """Keep the rows of the thread that has most of them, without those inside another."""
    threads = trace.slices.thread[rows]
    rows = rows[threads == np.bincount(threads).argmax()]
    ends = np.maximum.accumulate(trace.slices.end_ns[rows])
    keep = np.ones(len(rows), dtype=np.bool_)
    keep[1:] = trace.slices.start_ns[rows[1:]] >= ends[:-1]
    return rows[keep]


def _step_like_rows(trace: Trace, used: list[int]) -> IntArray:
    """Return the ranges of the best candidate: one thread, repeated, not overlapping; the outermost covers most."""
    slices = trace.slices
    groups: dict[str, list[int]] = {}
    written = (slices.kind == SliceKind.ANNOTATION) & ~phases.in_library_domain(trace)
    annotated = distinct_codes(slices.name[written])
    for code in sorted(set(used) & {int(c) for c in annotated}):
        base = base_name(trace.names[code]).removeprefix("phase:")
        if looks_like_step(base):
            groups.setdefault(base, []).append(code)
    best = np.empty(0, dtype=np.int64)
    best_covered = -1
    for codes in groups.values():
        rows = np.flatnonzero(among(slices.name, codes) & written)
        for thread in np.unique(slices.thread[rows]):
            mine = rows[slices.thread[rows] == thread]
            start, end = slices.start_ns[mine], slices.end_ns[mine]
            if len(mine) < MIN_REPEATS or bool((start[1:] < end[:-1]).any()):
                continue
            covered = int((end - start).sum())
            if covered > best_covered:
                best, best_covered = mine, covered
    return best


def _whole_span(trace: Trace) -> Markers:
    """Return the whole span of the devices as one window (of the host, where no device was recorded)."""
    for tables in ((trace.activities,), (trace.slices, trace.calls)):
        starts = [int(table.start_ns[0]) for table in tables if len(table)]
        if starts:
            end = max(int(table.end_ns.max()) for table in tables if len(table))
            return make_markers([min(starts)], [end], [end], ("",), -1)
    return make_markers([], [], [], (), -1)
