"""Step markers as plain arrays, and a period found in the launch sequence where nobody marked the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.model.schema import CodeArray, IntArray
from traceanalyzer.model.trace import Trace

MIN_PERIODS = 3  # a sequence has to repeat twice before it is called a period
MIN_PERIOD = 4  # launches; shorter repetitions are loops inside a step
MIN_AGREEMENT = 0.97  # share of launches that name the same work one period later


@dataclass(frozen=True, slots=True)
class Markers:
    """Step windows before they are classified; arrays as in ``Steps``."""

    start_ns: IntArray
    end_ns: IntArray
    marker_end_ns: IntArray
    names: tuple[str, ...]
    thread: int


def make_markers(
    start: npt.ArrayLike, end: npt.ArrayLike, marker_end: npt.ArrayLike, names: tuple[str, ...], thread: int
) -> Markers:
    """Build markers from anything array-like."""
    return Markers(
        np.asarray(start, dtype=np.int64),
        np.asarray(end, dtype=np.int64),
        np.asarray(marker_end, dtype=np.int64),
        names,
        thread,
    )


def markers_from_slices(trace: Trace, rows: IntArray) -> Markers:
    """Make windows of non-overlapping slices of one thread: each runs to the next one's start, the last to its end."""
    start = trace.slices.start_ns[rows]
    own_end = trace.slices.end_ns[rows]
    end = np.concatenate((start[1:], own_end[-1:]))
    names = tuple(trace.names[code] for code in trace.slices.name[rows])
    return make_markers(start, end, np.minimum(own_end, end), names, int(trace.slices.thread[rows[0]]))


def infer_markers(trace: Trace) -> Markers | None:
    """Find a period in the sequence of launched work.

    The launches of the busiest thread are named by the first activity each one started. A period must hold over
    the whole sequence; its windows begin at the launch with the longest usual pause before it.

    Args:
        trace: The recording.

    Returns:
        One window per whole period, or None without a period.
    """
    linked = np.flatnonzero(trace.activity_call >= 0)
    if not len(linked):
        return None
    calls, first = np.unique(trace.activity_call[linked], return_index=True)  # rows of calls are in time order
    threads = trace.calls.thread[calls]
    thread = int(np.bincount(threads).argmax())
    mine = threads == thread
    calls, names = calls[mine], trace.activities.name[linked[first[mine]]]
    period = find_period(names)
    if period is None:
        return None
    start = trace.calls.start_ns[calls]
    pause = np.zeros(len(start), dtype=np.int64)
    pause[1:] = start[1:] - trace.calls.end_ns[calls[:-1]]
    usual = [float(np.median(pause[offset::period][int(offset == 0) :])) for offset in range(period)]
    offset = int(np.argmax(usual))
    at = np.arange(offset, len(start), period)
    whole = at[at + period <= len(start)]
    if len(whole) < MIN_PERIODS - 1:
        return None
    # a launch's work may end after its call, but the host's last call bounds what this window asked for
    last = whole[-1] + period
    end = start[last] if last < len(start) else int(trace.calls.end_ns[calls[-1]])
    borders = np.append(start[whole], end)
    return make_markers(borders[:-1], borders[1:], borders[1:], tuple("" for _ in whole), thread)


def find_period(names: CodeArray) -> int | None:
    """Return the shortest period of a sequence of names, or None.

    Args:
        names: Name codes in launch order.

    Returns:
        Number of launches per period.
    """
    total = len(names)
    if total < MIN_PERIODS * MIN_PERIOD:
        return None
    for lag in _candidate_lags(names):
        if lag < MIN_PERIOD or lag * MIN_PERIODS > total + lag // 2:
            continue
        if len(np.unique(names[:lag])) > 1 and float((names[lag:] == names[:-lag]).mean()) >= MIN_AGREEMENT:
            return lag
    return None


def _candidate_lags(names: CodeArray) -> Sequence[int]:
    """Return distances at which rare names recur, shortest first: the period is among them."""
    codes, counts = np.unique(names, return_counts=True)
    order = np.argsort(counts, kind="stable")
    rare = codes[order[counts[order] >= MIN_PERIODS - 1]][:24]
    lags = {int(np.median(np.diff(np.flatnonzero(names == code)))) for code in rare}
    return sorted(lags)
