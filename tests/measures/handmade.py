"""Steps, device timelines and idle ledgers written by hand or in the plainest way: each measure is tested alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tests.builders import ns
from tests.shared_data import shared
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.kernel_names import is_communication
from traceanalyzer.measures.steps import STEADY, Steps
from traceanalyzer.model.schema import ActivityKind, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers import kineto, nsys_sqlite
from traceanalyzer.results.analysis import Gaps
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, Phase, StepSource


@lru_cache(maxsize=3)
def recording(relative: str) -> Trace:
    """Read a shared recording of one process, once for several tests; skips where it is absent."""
    path = shared(relative)
    reader = nsys_sqlite if ".sqlite" in relative else kineto
    (trace,) = reader.read(path).traces
    return trace


def steps_of(*windows: tuple[float, float] | tuple[float, float, float], classes: Sequence[int] | None = None) -> Steps:
    """Step windows in microseconds: (start, end) or (start, marker end, end); all steady unless said otherwise."""
    return Steps(
        source=StepSource.PROFILER if windows else StepSource.NONE,
        start_ns=np.array([ns(w[0]) for w in windows], dtype=np.int64),
        end_ns=np.array([ns(w[-1]) for w in windows], dtype=np.int64),
        marker_end_ns=np.array([ns(w[1]) for w in windows], dtype=np.int64),
        step_class=np.array(classes if classes is not None else [STEADY] * len(windows), dtype=np.int8),
        names=tuple(f"ProfilerStep#{i}" for i in range(len(windows))),
        thread=0 if windows else -1,
    )


def profiler_steps(trace: Trace) -> Steps:
    """Windows from a trace's ``ProfilerStep#N`` (or NVTX ``step``) ranges, all steady."""
    slices = trace.slices
    rows = [
        row
        for row in range(len(slices))
        if trace.names[slices.name[row]].startswith("ProfilerStep#") or trace.names[slices.name[row]] == "step"
    ]
    start, marker_end = slices.start_ns[rows], slices.end_ns[rows]
    return Steps(
        source=StepSource.PROFILER,
        start_ns=start,
        end_ns=np.append(start[1:], marker_end[-1:]),
        marker_end_ns=marker_end,
        step_class=np.full(len(rows), STEADY, dtype=np.int8),
        names=tuple(trace.names[slices.name[row]] for row in rows),
        thread=int(slices.thread[rows[0]]) if rows else -1,
    )


def union(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge intervals, one by one."""
    merged: list[list[int]] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return [(a, b) for a, b in merged]


def length(intervals: list[tuple[int, int]]) -> int:
    """Total length of disjoint intervals."""
    return sum(b - a for a, b in intervals)


def _columns(intervals: list[tuple[int, int]]) -> tuple[IntArray, IntArray]:
    return np.array([a for a, _ in intervals], dtype=np.int64), np.array([b for _, b in intervals], dtype=np.int64)


def devices_of(trace: Trace) -> tuple[DeviceTimeline, ...]:
    """Device timelines, computed by sorting and merging Python tuples."""
    activities = trace.activities
    result = []
    for device in sorted(set(activities.device.tolist())):
        rows = np.flatnonzero(activities.device == device)
        everything, compute, communication, copies, kernels = [], [], [], [], []
        for row in rows.tolist():
            interval = (int(activities.start_ns[row]), int(activities.end_ns[row]))
            everything.append(interval)
            kind = activities.kind[row]
            if kind == ActivityKind.COPY:
                copies.append(interval)
                continue
            if kind == ActivityKind.KERNEL:
                kernels.append(interval)
            collective = kind == ActivityKind.KERNEL and is_communication(trace.names[activities.name[row]])
            (communication if collective else compute).append(interval)
        busy, work = union(everything), union(compute)
        gaps = [(a[1], b[0]) for a, b in pairwise(busy)]
        span = (min(a for a, _ in everything), max(b for _, b in everything))
        compute_or_communication = length(union(compute + communication))
        result.append(
            DeviceTimeline(
                device_id=device,
                name="",
                rows=rows,
                span_start_ns=span[0],
                span_end_ns=span[1],
                busy_start_ns=_columns(busy)[0],
                busy_end_ns=_columns(busy)[1],
                busy_ns=length(busy),
                idle_ns=span[1] - span[0] - length(busy),
                compute_start_ns=_columns(work)[0],
                compute_end_ns=_columns(work)[1],
                compute_ns=length(work),
                communication_ns=length(union(communication)),
                exposed_communication_ns=compute_or_communication - length(work),
                copy_ns=length(union(copies)),
                exposed_copy_ns=length(busy) - compute_or_communication,
                kernel_start_ns=_columns(union(kernels))[0],
                kernel_end_ns=_columns(union(kernels))[1],
                gap_start_ns=_columns(gaps)[0],
                gap_end_ns=_columns(gaps)[1],
                gaps=Gaps(count=len(gaps)),
            )
        )
    return tuple(result)


def ledger_of(*pieces: tuple[float, float, Cause, int], device: int = 0, phase: Phase = Phase.OTHER) -> IdleLedger:
    """Idle pieces (start, end, cause, window) in microseconds, all inside the span and a steady window."""
    count = len(pieces)
    window = np.array([p[3] for p in pieces], dtype=np.int32)
    return IdleLedger(
        start_ns=np.array([ns(p[0]) for p in pieces], dtype=np.int64),
        end_ns=np.array([ns(p[1]) for p in pieces], dtype=np.int64),
        device=np.full(count, device, dtype=np.int32),
        cause=np.array([CAUSE_CODE[p[2]] for p in pieces], dtype=np.int8),
        phase=np.full(count, PHASE_CODE[phase], dtype=np.int8),
        window=window,
        step_class=np.where(window >= 0, STEADY, -1).astype(np.int8),
        boundary=np.zeros(count, dtype=np.int8),
        in_span=np.ones(count, dtype=np.int8),
        gap=np.arange(count, dtype=np.int32),
        activity=np.full(count, -1, dtype=np.int64),
        thread=np.full(count, -1, dtype=np.int64),
        slice_row=np.full(count, -1, dtype=np.int64),
        call_row=np.full(count, -1, dtype=np.int64),
    )
