"""Driver allocation calls, and the framework allocator as its events show it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.arithmetic import windows_of
from traceanalyzer.measures.steps import STEADY, Steps
from traceanalyzer.model.schema import (
    ByteArray,
    CallKind,
    CodeArray,
    IntArray,
    among,
)
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import AllocatorReport, CallTotal, MemoryCurve

CURVE_POINTS = 4000
_TREND_STEPS = 500  # pairs grow with the square
_KINDS = (CallKind.DEVICE_MALLOC, CallKind.DEVICE_FREE, CallKind.HOST_ALLOC, CallKind.HOST_FREE)


@dataclass(frozen=True, slots=True)
class Allocator:
    """Allocation calls (one row per outermost call, in time order) and allocator totals.

    Attributes:
        call: Row of ``Trace.calls``: device malloc, device free, host alloc or host free.
        kind: ``CallKind`` code of it.
        window: Step window the call began in; -1 none.
        thread: Thread index.
        start_ns: Call start.
        end_ns: Call end.
        curve: Allocated and reserved bytes over time of the device with most events, or None without allocator
            events. Without a framework allocator's events (Nsight) both are what was taken from the driver.
        curve_is_driver: Whether the curve shows memory taken from the driver instead of the framework allocator.
        largest_steady_growth_bytes: Largest growth of allocated bytes between the starts of consecutive steady
            steps, or None when unknown.
        steady_growth_per_step_bytes: Trend of allocated bytes at the starts of steady steps: the median of the slopes
            between all pairs of them, so that steps taking turns between two levels show none; None with fewer than 3.
        allocated_at_step_start: Allocated bytes at the start of each step window; -1 unknown.
        driver_allocations: Device memory obtained from the driver, by events; None without such events.
        driver_peak_bytes: Peak of device memory held from the driver since the recording began, or None.
        report: The document part.
    """

    call: IntArray
    kind: ByteArray
    window: CodeArray
    thread: CodeArray
    start_ns: IntArray
    end_ns: IntArray
    curve: MemoryCurve | None
    curve_is_driver: bool
    largest_steady_growth_bytes: int | None
    steady_growth_per_step_bytes: float | None
    allocated_at_step_start: IntArray
    driver_allocations: int | None
    driver_peak_bytes: int | None
    report: AllocatorReport


def measure_allocator(trace: Trace, steps: Steps) -> Allocator:
    """Measure allocation calls and allocator events."""
    calls, memory = trace.calls, trace.memory
    rows = _outermost(trace, np.flatnonzero(among(calls.kind, _KINDS)))
    kind = calls.kind[rows]
    framework = _main_device(memory.device, (memory.device >= 0) & (memory.is_driver == 0))
    driver = _main_device(memory.device, (memory.device >= 0) & (memory.is_driver == 1))
    held = np.cumsum(memory.delta_bytes[driver])
    time, allocated, reserved = (
        memory.time_ns[framework],
        _allocated(trace, framework),
        memory.reserved_bytes[framework],
    )
    curve_is_driver = not len(framework) and bool(len(driver))
    if curve_is_driver:
        curve = _curve(memory.time_ns[driver], held, held)
    else:
        curve = _curve(time, allocated, reserved) if len(framework) else None
    at_step = _at_moments(steps.start_ns, time, allocated)
    return Allocator(
        call=rows,
        kind=kind,
        window=windows_of(calls.start_ns[rows], steps),
        thread=calls.thread[rows],
        start_ns=calls.start_ns[rows],
        end_ns=calls.end_ns[rows],
        curve=curve,
        curve_is_driver=curve_is_driver,
        largest_steady_growth_bytes=_largest_growth(at_step, steps),
        steady_growth_per_step_bytes=_trend(at_step, steps),
        allocated_at_step_start=at_step,
        driver_allocations=int((memory.delta_bytes[driver] > 0).sum()) if len(driver) else None,
        driver_peak_bytes=int(held.max()) if len(driver) else None,
        report=AllocatorReport(
            device_malloc=_total(trace, rows[kind == CallKind.DEVICE_MALLOC]),
            device_free=_total(trace, rows[kind == CallKind.DEVICE_FREE]),
            host_alloc=_total(trace, rows[kind == CallKind.HOST_ALLOC]),
            allocations=int((memory.delta_bytes[framework] > 0).sum()) if len(framework) else None,
            frees=int((memory.delta_bytes[framework] < 0).sum()) if len(framework) else None,
            peak_allocated_bytes=_peak(allocated),
            peak_reserved_bytes=_peak(reserved),
        ),
    )


def _outermost(trace: Trace, rows: IntArray) -> IntArray:
    """Leave out calls nested in another allocation call of the same thread (a driver call under its runtime call)."""
    if len(rows) < 2:
        return rows
    calls = trace.calls
    order = rows[np.argsort(calls.thread[rows], kind="stable")]
    keep = np.ones(len(order), dtype=np.bool_)
    for thread in np.unique(calls.thread[order]).tolist():
        mine = np.flatnonzero(calls.thread[order] == thread)
        reach = np.maximum.accumulate(calls.end_ns[order[mine]])
        keep[mine[1:]] = calls.start_ns[order[mine[1:]]] >= reach[:-1]
    return np.sort(order[keep])


def _total(trace: Trace, rows: IntArray) -> CallTotal:
    return CallTotal(count=len(rows), time_ns=int((trace.calls.end_ns[rows] - trace.calls.start_ns[rows]).sum()))


def _main_device(device: CodeArray, selected: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> IntArray:
    """Rows of the device with most events: totals of different devices must not be mixed into one curve."""
    rows = np.flatnonzero(selected)
    if not len(rows):
        return rows
    ids, count = np.unique(device[rows], return_counts=True)
    chosen: IntArray = rows[device[rows] == ids[np.argmax(count)]]
    return chosen


def _allocated(trace: Trace, rows: IntArray) -> IntArray:
    return trace.memory.allocated_bytes[rows]


def _peak(values: IntArray) -> int | None:
    known = values[values >= 0]
    return int(known.max()) if len(known) else None


def _at_moments(moment: IntArray, time: IntArray, values: IntArray) -> IntArray:
    """Value in force at each moment; -1 before the first event."""
    if not len(time):
        return np.full(len(moment), -1, dtype=np.int64)
    last = np.searchsorted(time, moment, side="right") - 1
    return np.where(last >= 0, values[np.maximum(last, 0)], -1).astype(np.int64)


def _largest_growth(at_step: IntArray, steps: Steps) -> int | None:
    both = (
        (steps.step_class[1:] == STEADY) & (steps.step_class[:-1] == STEADY) & (at_step[1:] >= 0) & (at_step[:-1] >= 0)
    )
    growth = (at_step[1:] - at_step[:-1])[both]
    return int(growth.max()) if len(growth) else None


def _trend(at_step: IntArray, steps: Steps) -> float | None:
    step = np.flatnonzero((steps.step_class == STEADY) & (at_step >= 0))
    if len(step) < 3:
        return None
    if len(step) > _TREND_STEPS:
        step = step[np.linspace(0, len(step) - 1, _TREND_STEPS).astype(np.int64)]
    earlier, later = np.triu_indices(len(step), k=1)
    rise = at_step[step[later]] - at_step[step[earlier]]
    return float(np.median(rise / (step[later] - step[earlier])))


def _curve(time: IntArray, allocated: IntArray, reserved: IntArray) -> MemoryCurve | None:
    """Down-sample so that the highest allocated and reserved value of every stretch survive."""
    known = np.flatnonzero((allocated >= 0) & (reserved >= 0))
    if not len(known):
        return None
    time, allocated, reserved = time[known], allocated[known], reserved[known]
    kept = np.arange(len(time))
    if len(time) > CURVE_POINTS:
        # four points per stretch: first, lowest, highest allocated and highest reserved
        border = np.linspace(0, len(time), CURVE_POINTS // 4).astype(np.int64)
        chosen: set[int] = {len(time) - 1}
        for begin, end in zip(border[:-1].tolist(), border[1:].tolist(), strict=True):
            part = allocated[begin:end]
            chosen.update((begin, begin + int(part.argmin()), begin + int(part.argmax())))
            chosen.add(begin + int(reserved[begin:end].argmax()))
        kept = np.array(sorted(chosen), dtype=np.int64)
    return MemoryCurve(
        time_ns=time[kept].tolist(), allocated_bytes=allocated[kept].tolist(), reserved_bytes=reserved[kept].tolist()
    )
