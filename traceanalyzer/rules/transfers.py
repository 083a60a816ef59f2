"""Host-to-device copies that stop the host, and what letting it run on would win."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import among
from traceanalyzer.measures.facts import BoolArray, CallKind, CopyDirection, IntArray, MemoryKind
from traceanalyzer.replay.bounds import JudgedSteps, judged_idle, won_by_running_ahead
from traceanalyzer.results.finding import Evidence
from traceanalyzer.results.vocabulary import Cause
from traceanalyzer.rules.evidence import longest, where

# CUDA runtime API, synchronisation behaviour: pageable memory up to 64 KB is copied to a buffer and the call returns
STAGED_BYTES = 65_536

_HELD = (Cause.COPY_CALL, Cause.SYNC_WAIT)


@dataclass(frozen=True, slots=True)
class BlockingCopies:
    """Host-to-device copies that blocked the host, in time order.

    Attributes:
        row: Rows of ``measures.copies``.
        start_ns: When the host stopped: start of the issuing call.
        end_ns: When it went on: end of the call, or of the synchronisation that completes the copy.
        won_ns: Idle that vanishes when the host need not stop in any of them, credited to each.
        idle_ns: Idle inside these calls, in all.
    """

    row: IntArray
    start_ns: IntArray
    end_ns: IntArray
    won_ns: IntArray
    idle_ns: int


def uploads(measures: Measures, judged: JudgedSteps) -> BoolArray:
    """Select the host-to-device copies of the judged windows."""
    copies = measures.copies
    sent: BoolArray = np.logical_and(copies.device == judged.device_id, copies.direction == CopyDirection.H2D)
    return sent & judged.holds(copies.window)


def blocking_uploads(measures: Measures, judged: JudgedSteps, selection: BoolArray) -> BlockingCopies:
    """Find the copies of a selection that stop the host.

    A copy stops the host when a synchronisation completes it, when its call is not asynchronous, or when pageable
    memory has to be staged.

    Args:
        measures: One rank.
        judged: The windows.
        selection: Rows of ``measures.copies``.
    """
    copies = measures.copies
    kind = measures.facts.call_kinds(copies.call)
    # staging a large pageable copy holds the host inside the issuing call itself
    is_staged = (copies.host_memory == MemoryKind.PAGEABLE) & (
        (copies.size_bytes > STAGED_BYTES) | (copies.size_bytes < 0)
    )
    blocks = (copies.sync_call >= 0) | (kind == CallKind.BLOCKING_COPY) | is_staged
    rows = np.flatnonzero(selection & blocks & (copies.call >= 0))
    start, end, _ = measures.facts.call_columns(copies.call[rows])
    synced = copies.sync_call[rows] >= 0
    if np.any(synced):
        end = end.copy()
        end[synced] = np.maximum(end[synced], measures.facts.call_columns(copies.sync_call[rows][synced])[1])
    order = np.argsort(start, kind="stable")
    rows, start, end = rows[order], start[order], end[order]
    waits = measures.synchronisations
    kept = waits.start_ns[~among(waits.call, copies.sync_call[rows])]
    won = won_by_running_ahead(measures, judged, start, end, kept)
    calls = np.concatenate([copies.call[rows], copies.sync_call[rows][copies.sync_call[rows] >= 0]])
    inside_calls = judged_idle(measures, judged) & among(measures.idle.call_row, calls)
    # a copy whose launch latency alone is idle would leave that idle when it no longer blocks
    held = inside_calls & measures.idle.mask(*_HELD)
    return BlockingCopies(rows, start, end, won, int(measures.idle.duration_ns[held].sum()))


def copy_evidence(measures: Measures, found: BlockingCopies, what: str) -> tuple[list[Evidence], int]:
    """Show the copies that cost the host most."""
    copies = measures.copies
    places = []
    for at in longest(found.end_ns - found.start_ns):
        row = int(found.row[at])
        thread = measures.facts.call_thread(int(copies.call[row]))
        places.append(
            Evidence(
                start_ns=int(found.start_ns[at]),
                end_ns=int(found.end_ns[at]),
                thread=measures.facts.tid(thread),
                stream=measures.facts.stream(int(copies.activity[row])),
                what=what,
                where=where(measures, thread, int(found.start_ns[at])),
            )
        )
    return places, len(found.row)


def bandwidth(measures: Measures, selection: BoolArray) -> float | None:
    """Bytes per second of some copies; None without bytes or time."""
    copies = measures.copies
    rows = selection & (copies.size_bytes > 0)
    time_ns = int((copies.end_ns - copies.start_ns)[rows].sum())
    return float(copies.size_bytes[rows].sum()) / time_ns * 1e9 if time_ns else None
