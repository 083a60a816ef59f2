"""The numbers behind the report's figures, binned or sampled to a size a page can hold."""

from __future__ import annotations

import numpy as np
from numba import njit

from traceanalyzer.measures.allocator import Allocator
from traceanalyzer.measures.arithmetic import nearest_rank
from traceanalyzer.measures.copies import Copies
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.launches import Launches
from traceanalyzer.model.schema import CopyDirection, IntArray, MemoryKind
from traceanalyzer.results.analysis import CopyPoints, DepthDelay, Histogram, RunAhead, Series
from traceanalyzer.results.vocabulary import CAUSES

MAX_POINTS = 2000
# 100 ns to 10 s in steps of about 10^(1/4)
EDGES_NS: tuple[int, ...] = (0, *(round(10 ** (2 + k / 4)) for k in range(33)))
# queue depths are told apart up to 8, then by doubling
DEPTHS: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7, 8, *(1 << k for k in range(4, 17)))


def measure_series(idle: IdleLedger, launches: Launches, copies: Copies, allocator: Allocator) -> Series:
    """Bin and sample what the figures show.

    Args:
        idle: Idle pieces with causes; pieces inside the devices' spans are drawn.
        launches: Launch delays and queue depths.
        copies: Copies.
        allocator: Memory curve.
    """
    return Series(
        gap_histogram_by_cause=_gap_histogram(idle),
        launch_delay_by_queue_depth=_delay_by_depth(launches),
        copy_size_bandwidth=_copy_points(copies),
        memory=allocator.curve,
        run_ahead=_run_ahead(launches),
    )


def _gap_histogram(idle: IdleLedger) -> dict[str, Histogram]:
    """Bin, per cause, the time it took of each gap (a gap's slices of one cause are one piece here)."""
    count, total, longest = _bin_gaps(
        idle.start_ns, idle.end_ns, idle.cause, idle.gap, idle.device, idle.in_span, len(CAUSES), np.array(EDGES_NS)
    )
    edges = list(EDGES_NS)
    if longest >= edges[-1]:
        edges.append(longest + 1)
    bins = len(edges) - 1
    return {
        CAUSES[code].value: Histogram(edges=edges, count=count[code, :bins].tolist(), ns=total[code, :bins].tolist())
        for code in np.flatnonzero(count.any(axis=1)).tolist()
    }


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _bin_gaps(  # type: ignore[no-untyped-def, unused-ignore]
    start_ns, end_ns, cause, gap, device, in_span, causes, edges
):  # fmt: skip
    """Count and sum, per cause and bin, the time a cause took of each gap; the last bin has no upper edge.

    Pieces are in time order per device, so those of one gap are neighbours. Also returns the longest time found.
    """
    count = np.zeros((causes, len(edges)), np.int64)
    total = np.zeros((causes, len(edges)), np.int64)
    taken = np.full(causes, -1, np.int64)  # of the gap at hand; -1 where it has no piece of the cause
    longest = np.int64(0)
    before = -1
    for i in range(len(start_ns) + 1):
        is_end = i == len(start_ns)
        if not is_end and in_span[i] != 1:
            continue
        if before >= 0 and (is_end or gap[i] != gap[before] or device[i] != device[before]):
            for code in range(causes):
                if taken[code] >= 0:
                    place = np.searchsorted(edges, taken[code], side="right") - 1
                    count[code, place] += 1
                    total[code, place] += taken[code]
                    longest = max(longest, taken[code])
                    taken[code] = -1
        if not is_end:
            taken[cause[i]] = max(taken[cause[i]], 0) + end_ns[i] - start_ns[i]
            before = i
    return count, total, longest


def _delay_by_depth(launches: Launches) -> DepthDelay | None:
    first = launches.is_first == 1
    if not first.any():
        return None
    delay, depth = launches.delay_ns[first], launches.queue_depth[first]
    place = np.searchsorted(DEPTHS, depth, side="right") - 1
    bins = np.unique(place).tolist()
    ordered = [np.sort(delay[place == b]) for b in bins]
    return DepthDelay(
        depth=[DEPTHS[b] for b in bins],
        count=[len(o) for o in ordered],
        p50_ns=[int(o[nearest_rank(len(o), 50)]) for o in ordered],
        p90_ns=[int(o[nearest_rank(len(o), 90)]) for o in ordered],
    )


def _copy_points(copies: Copies) -> CopyPoints | None:
    rows = np.flatnonzero((copies.size_bytes >= 0) & (copies.end_ns > copies.start_ns))
    if not len(rows):
        return None
    chosen = _evenly(rows, MAX_POINTS)
    return CopyPoints(
        direction=[CopyDirection(d).name.lower() for d in copies.direction[chosen].tolist()],
        host_memory=[MemoryKind(m).name.lower() for m in copies.host_memory[chosen].tolist()],
        size_bytes=copies.size_bytes[chosen].tolist(),
        duration_ns=(copies.end_ns - copies.start_ns)[chosen].tolist(),
        sampled_from=len(rows),
    )


def _run_ahead(launches: Launches) -> RunAhead | None:
    first = launches.is_first == 1
    if not first.any():
        return None
    order = np.argsort(launches.call_end_ns[first], kind="stable")
    time, ahead = launches.call_end_ns[first][order], launches.delay_ns[first][order]
    if len(time) > MAX_POINTS:
        # the extremes of every stretch: a drained queue (0) matters as much as a long one
        border = np.linspace(0, len(time), MAX_POINTS // 2 + 1).astype(np.int64)
        chosen: set[int] = set()
        for begin, end in zip(border[:-1].tolist(), border[1:].tolist(), strict=True):
            chosen.update((begin + int(ahead[begin:end].argmin()), begin + int(ahead[begin:end].argmax())))
        kept = np.array(sorted(chosen), dtype=np.int64)
        time, ahead = time[kept], ahead[kept]
    return RunAhead(time_ns=time.tolist(), ahead_ns=ahead.tolist())


def _evenly(rows: IntArray, limit: int) -> IntArray:
    if len(rows) <= limit:
        return rows
    return rows[np.linspace(0, len(rows) - 1, limit).round().astype(np.int64)]
