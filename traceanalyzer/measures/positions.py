"""The launch sequence of a step, aligned by name to the most frequent one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from traceanalyzer.measures.kernel_names import family
from traceanalyzer.measures.steps import STEADY, Steps
from traceanalyzer.model.schema import ActivityKind, CodeArray, IntArray, distinct_codes
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import Positions

MAX_STEPS = 300
MIN_STEPS = 100
MAX_CELLS = 1_200_000  # steps × positions: keeps the document below some 15 MB
MAX_POSITIONS = MAX_CELLS // MIN_STEPS


@dataclass(frozen=True, slots=True)
class StepPositions:
    """Aligned launch sequences of the steady steps.

    Attributes:
        window: Step window of each column of the report's matrices.
        report: The document part.
    """

    window: IntArray
    report: Positions


def measure_positions(trace: Trace, steps: Steps) -> StepPositions:
    """Align every steady step's launches to the modal sequence.

    Launches are those with an activity in the recording, of all threads, in the order they began; kernels are named
    by family so that a vectorised variant does not count as another launch. The first launch of a step has no
    interval (it would hold the step boundary). Long recordings are thinned evenly over their steps, and a step of
    more than 12,000 launches is cut there.
    """
    call, code, names = _launch_sequence(trace)
    start, end = trace.calls.start_ns[call], trace.calls.end_ns[call]
    low, high = np.searchsorted(start, steps.start_ns), np.searchsorted(start, steps.end_ns)
    steady = np.flatnonzero((steps.step_class == STEADY) & (high > low)).tolist()
    bounds = {w: slice(int(low[w]), int(high[w])) for w in steady}
    sequences = {w: code[bounds[w]] for w in steady}
    if not steady:
        return StepPositions(np.zeros(0, dtype=np.int64), Positions(name=[], interval_ns=[], launch_call_ns=[]))
    counts = Counter(sequence.tobytes() for sequence in sequences.values())
    modal_bytes = counts.most_common(1)[0][0]
    modal = np.frombuffer(modal_bytes, dtype=np.int32)[:MAX_POSITIONS]
    kept = _thin(steady, max(MIN_STEPS, min(MAX_STEPS, MAX_CELLS // len(modal))))
    interval, launch_call = _Matrix(len(modal), len(kept)), _Matrix(len(modal), len(kept))
    alignments: dict[bytes, tuple[IntArray, IntArray]] = {}
    for column, w in enumerate(kept):
        rows = bounds[w]
        key = sequences[w].tobytes()
        if key not in alignments:
            alignments[key] = _align(modal, sequences[w])
        position, taken = alignments[key]
        launch_call.fill(column, position, (end[rows] - start[rows])[taken])
        between = np.concatenate(([0], np.diff(end[rows])))
        inner = taken > 0
        interval.fill(column, position[inner], between[taken[inner]])
    return StepPositions(
        window=np.array(kept, dtype=np.int64),
        report=Positions(
            name=[names[c] for c in modal.tolist()], interval_ns=interval.rows(), launch_call_ns=launch_call.rows()
        ),
    )


class _Matrix:
    """Positions by steps, of which some cells stay unknown; kept step by step, as they are filled."""

    def __init__(self, positions: int, steps: int) -> None:
        self._values = np.zeros((steps, positions), dtype=np.int64)
        self._is_known = np.zeros((steps, positions), dtype=np.bool_)

    def fill(self, step: int, positions: IntArray, values: IntArray) -> None:
        self._values[step, positions] = values
        self._is_known[step, positions] = True

    def rows(self) -> list[list[int | None]]:
        """One list per position, None where a step has no value."""
        made: list[list[int | None]] = [list(row) for row in self._values.T.tolist()]
        for step, position in zip(*(axis.tolist() for axis in np.nonzero(~self._is_known)), strict=True):
            made[position][step] = None
        return made


def _launch_sequence(trace: Trace) -> tuple[IntArray, CodeArray, list[str]]:
    """Launch calls in start order, each with a code of the name of what it enqueued."""
    activities, calls = trace.activities, trace.calls
    rows = np.flatnonzero(trace.activity_call >= 0)
    linked = trace.activity_call[rows]
    launched = np.bincount(linked, minlength=len(calls))
    earliest = np.zeros(len(calls), dtype=np.int64)
    earliest[linked[::-1]] = rows[::-1]  # the last one written stays
    call = np.flatnonzero(launched)  # calls are sorted by start
    activity, count = earliest[call], launched[call]
    is_many = count > 1  # a graph: named by its call
    name = np.where(is_many, calls.name[call], activities.name[activity])
    is_kernel = (activities.kind[activity] == ActivityKind.KERNEL) & ~is_many
    table: dict[str, int] = {}
    code = np.full(len(call), -1, dtype=np.int32)
    for kernel in (True, False):
        mine = is_kernel == kernel
        used = distinct_codes(name[mine]).tolist()
        labels = np.zeros(max(used, default=0) + 2, dtype=np.int32)  # the last entry answers for -1
        for c in used:
            text = trace.names[c] if c >= 0 else ""
            label = family(text) if kernel else text
            labels[c] = table.setdefault(label, len(table))
        code[mine] = labels[name[mine]]
    return call, code, list(table)


def _thin(steady: list[int], limit: int) -> list[int]:
    if len(steady) <= limit:
        return steady
    chosen = np.linspace(0, len(steady) - 1, limit).round().astype(np.int64)
    return [steady[i] for i in chosen.tolist()]


def _align(modal: CodeArray, sequence: CodeArray) -> tuple[IntArray, IntArray]:
    """Match positions of the modal sequence with places of another; both results are rising."""
    shorter = min(len(modal), len(sequence))
    differs = np.flatnonzero(modal[:shorter] != sequence[:shorter])
    head = int(differs[0]) if len(differs) else shorter
    rest = shorter - head
    differs = np.flatnonzero(modal[::-1][:rest] != sequence[::-1][:rest])
    tail = int(differs[0]) if len(differs) else rest
    # what equal ends leave over is short, so the quadratic matcher stays cheap
    middle_modal = modal[head : len(modal) - tail].tolist()
    middle = sequence[head : len(sequence) - tail].tolist()
    blocks = SequenceMatcher(None, middle_modal, middle, autojunk=False).get_matching_blocks()
    pairs = [(np.arange(head), np.arange(head))]
    pairs += [(head + b.a + np.arange(b.size), head + b.b + np.arange(b.size)) for b in blocks]
    pairs.append((np.arange(len(modal) - tail, len(modal)), np.arange(len(sequence) - tail, len(sequence))))
    return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])
