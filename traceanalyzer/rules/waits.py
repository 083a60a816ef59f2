"""Calls in which the host waits for the device, who made them, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import among
from traceanalyzer.measures.facts import BoolArray, CopyDirection, IntArray
from traceanalyzer.replay.bounds import JudgedSteps, judged_idle, won_by_running_ahead
from traceanalyzer.results.finding import Evidence
from traceanalyzer.results.vocabulary import CAUSE_CODE, Cause
from traceanalyzer.rules.anomaly_mode_left_on import in_checks, is_on
from traceanalyzer.rules.cache_emptied import Thresholds as CacheThresholds
from traceanalyzer.rules.cache_emptied import emptied_calls
from traceanalyzer.rules.evidence import longest, where

# in the names of the kernels (and of the operator) with which PyTorch's gradient scaler unscales gradients
_UNSCALE = "non_finite_check_and_unscale"


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of the judged windows that belong to no other rule, in time order.

    Attributes:
        call: Row of the waiting call.
        start_ns: Start.
        end_ns: End.
        won_ns: Idle that vanishes when all of them are removed together, credited to each.
        is_device_wide: 1 for a device-wide synchronisation.
        operator: Name code of the outermost operator; -1 none.
    """

    call: IntArray
    start_ns: IntArray
    end_ns: IntArray
    won_ns: IntArray
    is_device_wide: BoolArray
    operator: IntArray

    def take(self, rows: BoolArray) -> Waits:
        """Return some of the waits."""
        return Waits(
            self.call[rows],
            self.start_ns[rows],
            self.end_ns[rows],
            self.won_ns[rows],
            self.is_device_wide[rows],
            self.operator[rows],
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """Waits that come from one operator at one place.

    Attributes:
        operator: Operator or call name.
        where: Code location or range, or empty.
        count: Number of waits.
        won_ns: Idle won by removing them.
    """

    operator: str
    where: str
    count: int
    won_ns: int


def loop_waits(measures: Measures, judged: JudgedSteps) -> Waits:
    """Find the waits a change of the training loop could remove, and what that would win.

    Waits that complete a host-to-device copy belong to the copy rules, those of anomaly detection and of an emptied
    cache to theirs, those of the gradient scaler and of the recording's end to nobody; they stay in place here.
    """
    return measures.kept(("loop waits", *judged.key), lambda: _loop_waits(measures, judged))


def _loop_waits(measures: Measures, judged: JudgedSteps) -> Waits:
    found = measures.synchronisations
    copies = measures.copies
    to_device = copies.sync_call[(copies.direction == CopyDirection.H2D) & (copies.sync_call >= 0)]
    mine = judged.holds(found.window) & ~among(found.call, to_device)
    mine &= ~among(found.call, emptied_calls(measures, CacheThresholds()))
    mine &= ~_ends_recording(measures) & ~is_scalers(measures)
    if is_on(measures):
        _, _, thread = measures.facts.call_columns(found.call)
        mine &= ~in_checks(measures, found.start_ns, thread)
    start, end = found.start_ns[mine], found.end_ns[mine]
    won = won_by_running_ahead(measures, judged, start, end, found.start_ns[~mine])
    return Waits(
        found.call[mine], start, end, won, found.is_device_wide[mine] == 1, found.operator[mine].astype(np.int64)
    )


def is_scalers(measures: Measures) -> BoolArray:
    """Flag the waits in which the gradient scaler reads whether the gradients overflowed.

    PyTorch's scaler checks and unscales all gradients with kernels of their own and then reads one flag to decide
    whether the optimizer may step: the first wait after those kernels were launched.

    Args:
        measures: One rank.

    Returns:
        One flag per row of ``measures.synchronisations``.
    """
    found, facts, launches = measures.synchronisations, measures.facts, measures.launches
    flags = np.zeros(len(found.call), dtype=np.bool_)
    start, thread = launches.call_start_ns, launches.thread
    unscaling = facts.named_with(launches.activity, (_UNSCALE,))
    for one in np.unique(thread[unscaling]).tolist():
        waits = np.flatnonzero((found.thread == one) & (found.is_device_wide == 0))
        after = np.searchsorted(found.start_ns[waits], start[unscaling & (thread == one)])
        flags[waits[np.unique(after[after < len(waits)])]] = True
    return flags


def scaler_cost_ns(measures: Measures, judged: JudgedSteps) -> int:
    """Idle time that would vanish without the gradient scaler's own waits, ns over the judged windows."""
    found = measures.synchronisations
    mine = is_scalers(measures) & judged.holds(found.window)
    won = won_by_running_ahead(measures, judged, found.start_ns[mine], found.end_ns[mine], found.start_ns[~mine])
    return int(won.sum())


def _ends_recording(measures: Measures) -> BoolArray:
    """Flag device-wide waits after which nothing is launched any more: a profiler waits so before it stops."""
    found = measures.synchronisations
    starts = measures.launches.call_start_ns
    last = int(starts.max()) if len(starts) else 0
    ends: BoolArray = (found.is_device_wide == 1) & (found.start_ns > last)
    return ends


def waiting_idle_ns(measures: Measures, judged: JudgedSteps, waits: Waits) -> int:
    """Idle inside the waits themselves: what is certain to be won."""
    idle = measures.idle
    mask = judged_idle(measures, judged) & (idle.cause == CAUSE_CODE[Cause.SYNC_WAIT])
    mask &= among(idle.call_row, waits.call)
    return int(idle.duration_ns[mask].sum())


def callers(measures: Measures, waits: Waits) -> list[Caller]:
    """Group waits by operator and place, the costliest first."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for at in range(len(waits.call)):
        group = groups[_caller(measures, waits, at)]
        group[0] += 1
        group[1] += int(waits.won_ns[at])
    found = [Caller(operator, place, count, won) for (operator, place), (count, won) in groups.items()]
    return sorted(found, key=lambda c: (-c.won_ns, -c.count, c.operator, c.where))


def wait_evidence(measures: Measures, waits: Waits) -> tuple[list[Evidence], int]:
    """Show the waits that cost most."""
    costly = waits.take(waits.won_ns > 0)
    places = []
    for at in longest(costly.won_ns):
        operator, place = _caller(measures, costly, at)
        call = int(costly.call[at])
        places.append(
            Evidence(
                start_ns=int(costly.start_ns[at]),
                end_ns=int(costly.end_ns[at]),
                thread=measures.facts.tid(measures.facts.call_thread(call)),
                what=f"{operator} waits for the device ({measures.facts.call_name(call)})",
                where=place or None,
            )
        )
    return places, len(costly.call)


def _caller(measures: Measures, waits: Waits, at: int) -> tuple[str, str]:
    call = int(waits.call[at])
    operator = measures.name(int(waits.operator[at])) or measures.facts.call_name(call)
    return operator, where(measures, measures.facts.call_thread(call), int(waits.start_ns[at])) or ""
