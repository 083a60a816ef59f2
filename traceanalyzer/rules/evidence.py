"""Turns rows of measures into places a reader can open on the timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures import Measures
from traceanalyzer.measures.gap_attribution import BoolArray
from traceanalyzer.measures.steps import looks_like_step
from traceanalyzer.results.finding import Evidence
from traceanalyzer.results.vocabulary import PHASE_CODE, PHASES, Phase

# enough to see a pattern in the report, little enough to keep the document small
MOST = 24


def longest(durations: npt.NDArray[np.int64], most: int = MOST) -> list[int]:
    """Positions of the longest entries, in their original (time) order."""
    if len(durations) <= most:
        return list(range(len(durations)))
    # the earlier of equal ones is kept; everything below the last place is left unsorted
    least = np.partition(durations, len(durations) - most)[len(durations) - most]
    candidates = np.flatnonzero(durations >= least)
    order = np.argsort(-durations[candidates], kind="stable")[:most]
    return sorted(candidates[order].tolist())


def idle_evidence(
    measures: Measures, mask: BoolArray, what: Callable[[int], str] | None = None
) -> tuple[list[Evidence], int]:
    """Show the longest of the selected idle pieces.

    Pieces that follow each other inside one gap under one description are shown as one.

    Args:
        measures: One rank.
        mask: Selection of the idle ledger.
        what: Describes a ledger row; by default the slice or call that was open.

    Returns:
        At most ``MOST`` places in time order, and how many there are in all.
    """
    idle = measures.idle
    rows = np.flatnonzero(mask)
    if not len(rows):
        return [], 0
    follows = idle.start_ns[rows[1:]] == idle.end_ns[rows[:-1]]
    # most pieces follow nothing, so the other columns are only looked at where one does
    touching = np.flatnonzero(follows)
    before, after = rows[touching], rows[touching + 1]
    for column in (idle.device, idle.cause, idle.slice_row, idle.window):
        follows[touching] &= column[after] == column[before]
    first = rows[np.concatenate([[True], ~follows])]
    last = rows[np.concatenate([~follows, [True]])]
    durations = idle.end_ns[last] - idle.start_ns[first]
    describe = what or (lambda row: describe_idle(measures, row))
    places = []
    for at in longest(durations):
        row = int(first[at])
        thread = int(idle.thread[row])
        places.append(
            Evidence(
                start_ns=int(idle.start_ns[row]),
                end_ns=int(idle.end_ns[last[at]]),
                thread=measures.facts.tid(thread),
                stream=measures.facts.stream(int(idle.activity[row])),
                what=describe(row),
                where=where(measures, thread, int(idle.start_ns[row])),
            )
        )
    return places, len(first)


def most_time_in(measures: Measures, mask: BoolArray) -> tuple[str, int]:
    """Say which part of the step holds most of the selected idle time, all pieces together.

    The longest single piece is often an oddity; a cause of thousands of short pieces is where they add up.

    Args:
        measures: One rank.
        mask: Selection of the idle ledger.

    Returns:
        The phase (``phase backward``) where ranges name phases, else the innermost operator or range, and its idle
        time, ns; an empty name where neither was recorded.
    """
    idle = measures.idle
    rows = np.flatnonzero(mask)
    by_phase = np.bincount(idle.phase[rows], weights=idle.duration_ns[rows], minlength=len(PHASES))
    by_phase[PHASE_CODE[Phase.OTHER]] = 0
    if by_phase.sum() * 2 > int(idle.duration_ns[rows].sum()):
        top = int(np.argmax(by_phase))
        return f"phase {PHASES[top]}", round(float(by_phase[top]))
    rows = rows[idle.slice_row[rows] >= 0]
    slices, first = np.unique(idle.slice_row[rows], return_inverse=True)
    sums = np.zeros(len(slices), dtype=np.int64)
    np.add.at(sums, first, idle.duration_ns[rows])
    times: Counter[str] = Counter()
    for row, time in zip(slices.tolist(), sums.tolist(), strict=True):
        name = measures.facts.slice_name(row)
        # the step marker encloses everything
        if name and not name.startswith("ProfilerStep#") and name not in measures.steps.names:
            times[name] += time
    return max(times.items(), key=lambda item: (item[1], item[0]), default=("", 0))


def describe_idle(measures: Measures, row: int) -> str:
    """Name what the host was doing in an idle piece."""
    idle = measures.idle
    name = measures.facts.call_name(int(idle.call_row[row])) or measures.facts.slice_name(int(idle.slice_row[row]))
    return f"device idle during {name}" if name else "device idle, nothing recorded on the host"


def where(measures: Measures, thread: int, time_ns: int) -> str | None:
    """Code location or innermost range at a moment; None where the recording holds neither."""
    if thread < 0:
        return None
    name = measures.locations.at(thread, time_ns).where
    # the step marker encloses everything: it says when, not where
    if not name or name in measures.steps.names:
        return None
    is_range = not any(mark in name for mark in "./(:")
    return None if name.startswith("ProfilerStep#") or (is_range and looks_like_step(name)) else name
