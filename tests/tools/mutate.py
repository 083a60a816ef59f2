"""Takes a cause out of a recording: its calls, its GPU work, its ranges, and the time the device waited for them.

What is left is the recording a run without the cause could have given, so a rule that still names the cause looks at
something else than the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures.arithmetic import covered_before, union_of
from traceanalyzer.model.trace import Trace

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def named(trace: Trace, names: npt.NDArray[Any], pattern: str) -> Bools:
    """Say which rows of a name column match a regular expression."""
    wanted = [code for code, text in enumerate(trace.names) if re.search(pattern, text)]
    found: Bools = np.isin(names, wanted)
    return found


def inside(trace: Trace, table: Any, outer: Any) -> Bools:
    """Say which rows of a table begin inside a row of another on the same thread."""
    found = np.zeros(len(table), dtype=np.bool_)
    for thread in np.unique(outer.thread).tolist():
        mine = outer.thread == thread
        start, end = union_of(outer.start_ns[mine], outer.end_ns[mine])
        here = np.flatnonzero(table.thread == thread)
        at = np.searchsorted(start, table.start_ns[here], side="right") - 1
        found[here] = (at >= 0) & (table.start_ns[here] < end[np.maximum(at, 0)])
    return found


def without(
    trace: Trace,
    *,
    slices: Bools | None = None,
    calls: Bools | None = None,
    activities: Bools | None = None,
    close: tuple[Ints, Ints] | None = None,
) -> Trace:
    """Return a trace without some rows, and without the time in which the device waited for them.

    Args:
        trace: A recording.
        slices: Rows of ``slices`` to drop; their time is closed.
        calls: Rows of ``calls`` to drop, with the GPU work they launched; their time is closed.
        activities: Rows of ``activities`` to drop, with the calls that launched them.
        close: Further stretches (starts, ends) whose time is closed; what lies in them stays.
    """
    slices = np.zeros(len(trace.slices), dtype=np.bool_) if slices is None else slices
    calls = np.zeros(len(trace.calls), dtype=np.bool_) if calls is None else calls.copy()
    activities = np.zeros(len(trace.activities), dtype=np.bool_) if activities is None else activities.copy()
    launch = trace.activity_call
    linked = launch >= 0
    calls[launch[linked & activities]] = True
    activities[linked] |= calls[launch[linked]]
    gone = np.isin(trace.waits.correlation, trace.calls.correlation[calls]) & (trace.waits.correlation >= 0)
    starts = [trace.slices.start_ns[slices], trace.calls.start_ns[calls]]
    ends = [trace.slices.end_ns[slices], trace.calls.end_ns[calls]]
    if close is not None:
        starts.append(close[0])
        ends.append(close[1])
    kept = trace.activities.take(~activities)
    closed = _idle(kept.start_ns, kept.end_ns, *union_of(np.concatenate(starts), np.concatenate(ends)))

    def moved(table: Any) -> Any:
        if not len(table):
            return table
        columns = {
            n: _moved(getattr(table, n), *closed) for n in ("start_ns", "end_ns", "time_ns") if hasattr(table, n)
        }
        return replace(table, **columns)

    return Trace.build(
        names=trace.names,
        origin_ns=trace.origin_ns,
        threads=trace.threads,
        devices=trace.devices,
        activities=moved(kept),
        calls=moved(trace.calls.take(~calls)),
        slices=moved(trace.slices.take(~slices)),
        overheads=moved(trace.overheads),
        waits=moved(trace.waits.take(~gone)),
        memory=moved(trace.memory),
        schedules=moved(trace.schedules),
        rank=trace.rank,
        world_size=trace.world_size,
        metadata=trace.metadata,
    )


def renamed(trace: Trace, change: Callable[[str], str]) -> Trace:
    """Return a trace with other names."""
    return replace(trace, names=tuple(change(name) for name in trace.names))


def _idle(busy_start: Ints, busy_end: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Part of some disjoint stretches in which no GPU activity runs."""
    busy_start, busy_end = union_of(busy_start, busy_end)
    edges = np.unique(np.concatenate([start, end, busy_start, busy_end]))
    low, high = edges[:-1], edges[1:]
    wanted = _covers(low, start, end) & ~_covers(low, busy_start, busy_end)
    return union_of(low[wanted], high[wanted])


def _covers(moment: Ints, start: Ints, end: Ints) -> Bools:
    if not len(start):
        return np.zeros(len(moment), dtype=np.bool_)
    at = np.searchsorted(start, moment, side="right") - 1
    covers: Bools = (at >= 0) & (moment < end[np.maximum(at, 0)])
    return covers


def _moved(time: Ints, start: Ints, end: Ints) -> Ints:
    return time - covered_before(time, start, end) if len(start) else time
