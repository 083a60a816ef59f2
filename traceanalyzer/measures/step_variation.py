"""One value per step window of everything a comparison or a step plot needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.arithmetic import (
    count_per_window,
    covered_within,
    sum_by,
    sum_per_window,
    union_of,
    windows_of,
)
from traceanalyzer.measures.copies import Copies
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.kernels import Kernels, issue_window
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import ActivityKind, CallKind, CopyDirection, IntArray, among
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import PerStep
from traceanalyzer.results.vocabulary import CAUSES

TOP_FAMILIES = 40
OTHER_FAMILIES = "other"
_CALL_COUNTERS = {
    "launches": (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH),
    "graph_launches": (CallKind.GRAPH_LAUNCH,),
    "synchronisations": (CallKind.SYNCHRONIZE,),
    "device_mallocs": (CallKind.DEVICE_MALLOC,),
    "device_frees": (CallKind.DEVICE_FREE,),
    "host_allocs": (CallKind.HOST_ALLOC,),
}
_COPY_COUNTERS = {
    "h2d": CopyDirection.H2D,
    "d2h": CopyDirection.D2H,
    "d2d": CopyDirection.D2D,
    "p2p": CopyDirection.P2P,
}
_LAUNCHING = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Per-window series.

    Attributes:
        report: The document part.
    """

    report: PerStep


def measure_step_series(
    trace: Trace,
    steps: Steps,
    devices: tuple[DeviceTimeline, ...],
    idle: IdleLedger,
    copies: Copies,
    kernels: Kernels,
) -> StepSeries:
    """Compute the per-window series of the busiest device.

    Busy and idle are clipped to windows by time; kernels, copies and calls belong to the window that issued them.
    Call counters are of the whole process, the others of the device.
    """
    windows = len(steps)
    calls = trace.calls
    call_window = windows_of(calls.start_ns, steps)
    counters = {
        name: count_per_window(call_window[among(calls.kind, kinds)], windows) for name, kinds in _CALL_COUNTERS.items()
    }
    launching = among(calls.kind, _LAUNCHING)
    length = sum_per_window(call_window[launching], (calls.end_ns - calls.start_ns)[launching], windows)
    count = np.array(count_per_window(call_window[launching], windows), dtype=np.int64)
    launch_mean = np.where(count > 0, length / np.maximum(count, 1), 0.0)
    window_ns = steps.end_ns - steps.start_ns
    empty = np.zeros(windows, dtype=np.int64)
    device = max(devices, key=lambda d: (d.busy_ns, -d.device_id)) if devices else None
    boundary = idle_ns = max_gap = kernel_ns = exposed = empty
    causes: dict[str, list[int]] = {}
    kinds: dict[str, list[int]] = {}
    families: dict[str, list[int]] = {}
    if device is not None:
        busy = covered_within(steps.start_ns, steps.end_ns, device.busy_start_ns, device.busy_end_ns)
        idle_ns = window_ns - busy
        marker_end = np.minimum(steps.marker_end_ns, steps.end_ns)
        after_marker = covered_within(marker_end, steps.end_ns, device.busy_start_ns, device.busy_end_ns)
        boundary = steps.end_ns - marker_end - after_marker
        max_gap = _longest_idle(steps, device)
        kinds = _busy_by_kind(steps, device, busy)
        causes = _idle_by_cause(idle, device, windows)
        ours = kernels.device == device.device_id
        kernel_ns = sum_per_window(kernels.window[ours], kernels.duration_ns[ours], windows)
        families = _families(kernels, ours, windows)
        h2d = (copies.direction == CopyDirection.H2D) & (copies.device == device.device_id)
        bare = copies.end_ns - copies.start_ns - copies.overlapped_ns
        exposed = sum_per_window(copies.window[h2d], bare[h2d], windows)
        counters |= _device_counters(trace, steps, device, copies, kernels)
    return StepSeries(
        report=PerStep(
            start_ns=steps.start_ns.tolist(),
            window_ns=window_ns.tolist(),
            idle_ns=idle_ns.tolist(),
            boundary_idle_ns=boundary.tolist(),
            kernel_ns=kernel_ns.tolist(),
            exposed_h2d_ns=exposed.tolist(),
            idle_by_cause_ns=causes,
            busy_by_kind_ns=kinds,
            max_gap_ns=max_gap.tolist(),
            log_host_factor_ref_ns=launch_mean.tolist(),
            kernel_family_ns=families,
            counters=counters,
            device_id=device.device_id if device is not None else None,
        )
    )


def _idle_by_cause(idle: IdleLedger, device: DeviceTimeline, windows: int) -> dict[str, list[int]]:
    """Cause → idle per window, of the causes that occur."""
    rows = np.flatnonzero((idle.device == device.device_id) & (idle.window >= 0))
    if not len(rows):
        return {}
    table = sum_by((len(CAUSES), windows), (idle.cause[rows], idle.window[rows]), idle.duration_ns[rows])
    return {CAUSES[code].value: table[code].tolist() for code in np.flatnonzero(table.any(axis=1)).tolist()}


def _busy_by_kind(steps: Steps, device: DeviceTimeline, busy: IntArray) -> dict[str, list[int]]:
    """Split busy time into disjoint kinds: compute, communication outside it, copies outside both."""
    compute = covered_within(steps.start_ns, steps.end_ns, device.compute_start_ns, device.compute_end_ns)
    # compute ∪ communication = compute ∪ all kernels
    both = union_of(
        np.concatenate((device.compute_start_ns, device.kernel_start_ns)),
        np.concatenate((device.compute_end_ns, device.kernel_end_ns)),
    )
    working = covered_within(steps.start_ns, steps.end_ns, *both)
    return {
        "compute": compute.tolist(),
        "exposed_communication": (working - compute).tolist(),
        "exposed_copy": (busy - working).tolist(),
    }


def _longest_idle(steps: Steps, device: DeviceTimeline) -> IntArray:
    """Longest stretch without activity inside each window (the window's edges end a stretch)."""
    result = np.zeros(len(steps), dtype=np.int64)
    for window, (begin, end) in enumerate(zip(steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True)):
        low = int(np.searchsorted(device.busy_end_ns, begin, side="right"))
        high = int(np.searchsorted(device.busy_start_ns, end, side="left"))
        if low >= high:
            result[window] = end - begin
            continue
        starts = np.append(device.busy_start_ns[low:high], end)
        ends = np.concatenate(([begin], device.busy_end_ns[low:high]))
        result[window] = max(0, int((starts - ends).max()))
    return result


def _families(
    kernels: Kernels, ours: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], windows: int
) -> dict[str, list[int]]:
    count = len(kernels.families)
    if not count or not windows:
        return {}
    rows = np.flatnonzero(ours & (kernels.window >= 0))
    table = sum_by((count, windows), (kernels.family[rows], kernels.window[rows]), kernels.duration_ns[rows])
    total = table.sum(axis=1)
    ranked = sorted((i for i in range(count) if total[i] > 0), key=lambda i: (-int(total[i]), kernels.families[i]))
    result = {kernels.families[i]: table[i].tolist() for i in ranked[:TOP_FAMILIES]}
    if len(ranked) > TOP_FAMILIES:
        result[OTHER_FAMILIES] = table[ranked[TOP_FAMILIES:]].sum(axis=0).tolist()
    return result


def _device_counters(
    trace: Trace, steps: Steps, device: DeviceTimeline, copies: Copies, kernels: Kernels
) -> dict[str, list[int]]:
    windows = len(steps)
    memsets = np.flatnonzero(
        (trace.activities.kind == ActivityKind.MEMSET) & (trace.activities.device == device.device_id)
    )
    result = {
        "kernels": count_per_window(kernels.window[kernels.device == device.device_id], windows),
        "memsets": count_per_window(issue_window(trace, memsets, steps), windows),
    }
    for name, direction in _COPY_COUNTERS.items():
        chosen = (copies.direction == direction) & (copies.device == device.device_id)
        result[name] = count_per_window(copies.window[chosen], windows)
    return result
