"""The numbers behind the report's figures, binned or sampled to a size a page can hold."""

from __future__ import annotations

import numpy as np

from traceanalyzer.measures.allocator import Allocator
from traceanalyzer.measures.arithmetic import nearest_rank
from traceanalyzer.measures.copies import Copies
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.launches import Launches
from traceanalyzer.model.schema import CopyDirection, IntArray, MemoryKind, distinct_codes
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
    inside = np.flatnonzero(idle.in_span == 1)
    if not len(inside):
        return {}
    gap, device = idle.gap[inside], idle.device[inside]
    # numbers the gaps; pieces are in time order per device, so those of one gap are neighbours
    key = np.zeros(len(inside), dtype=np.int64)
    np.cumsum((gap[1:] != gap[:-1]) | (device[1:] != device[:-1]), out=key[1:])
    key *= len(CAUSES)
    key += idle.cause[inside]
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    cause = key[first] % len(CAUSES)
    del key, gap, device  # of millions of rows; what follows needs as much again
    taken = np.add.reduceat(idle.duration_ns[inside[order]], first)
    edges = list(EDGES_NS)
    if int(taken.max()) >= edges[-1]:
        edges.append(int(taken.max()) + 1)
    place = np.searchsorted(edges, taken, side="right") - 1
    result: dict[str, Histogram] = {}
    for code in distinct_codes(cause).tolist():
        mine = cause == code
        total = np.zeros(len(edges) - 1, dtype=np.int64)
        np.add.at(total, place[mine], taken[mine])
        count = np.bincount(place[mine], minlength=len(edges) - 1)
        result[CAUSES[code].value] = Histogram(edges=edges, count=count.tolist(), ns=total.tolist())
    return result


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
