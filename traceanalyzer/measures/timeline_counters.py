"""Counter tracks of the drawn timeline: device busy share, run-ahead, memory and sampled values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.model.schema import IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.timeline import Track

COUNTER_POINTS = 600


def busy_counters(devices: Sequence[DeviceTimeline]) -> list[Track]:
    """Share of each bin of a device's span in which it was busy, percent; a value holds until the next time."""
    made = []
    for device in devices:
        if device.span_ns <= 0:
            continue
        edges = np.unique(np.linspace(device.span_start_ns, device.span_end_ns, COUNTER_POINTS + 1).astype(np.int64))
        before = np.concatenate(([0], np.cumsum(device.busy_end_ns - device.busy_start_ns)))
        at = np.searchsorted(device.busy_start_ns, edges, side="right")
        # busy time up to each edge: whole intervals begun before it, less what of the last one lies beyond it
        beyond = np.where(at > 0, np.maximum(device.busy_end_ns[np.maximum(at, 1) - 1] - edges, 0), 0)
        share = 100.0 * np.diff(before[at] - beyond) / np.diff(edges)
        made.append(
            Track(
                id=f"counter:busy:{device.device_id}",
                kind="counter",
                title=f"GPU {device.device_id} busy",
                counter_time_ns=edges.tolist(),
                counter_value=[*np.round(share, 2).tolist(), 0.0],
                unit="%",
            )
        )
    return made


def run_ahead_counter(trace: Trace) -> list[Track]:
    """Time from a launch call's end to its activity's start, ns, at the activity's start."""
    rows = np.flatnonzero(trace.activity_call >= 0)
    if not len(rows):
        return []
    time = trace.activities.start_ns[rows]
    ahead = np.maximum(time - trace.calls.end_ns[trace.activity_call[rows]], 0)
    time, ahead = _thin(time, ahead.astype(np.float64))
    return [_counter("counter:run_ahead", "Host ahead of GPU", time, ahead, "ns")]


def memory_counters(trace: Trace) -> list[Track]:
    """Allocated and reserved bytes of each device, where the allocator's totals were recorded."""
    memory = trace.memory
    made = []
    for label, values in (("allocated", memory.allocated_bytes), ("reserved", memory.reserved_bytes)):
        for device in np.unique(memory.device[(values >= 0) & (memory.device >= 0)]):
            rows = np.flatnonzero((values >= 0) & (memory.device == device))
            time, value = _thin(memory.time_ns[rows], values[rows].astype(np.float64))
            title = f"GPU {device} memory {label}"
            made.append(_counter(f"counter:memory_{label}:{device}", title, time, value, "B"))
    return made


def sampled_counters(trace: Trace, start: int, end: int) -> list[Track]:
    """Samples between two times, one track per series, in the unit the series names."""
    counters = trace.counters
    made = []
    for series in np.unique(counters.series):
        rows = np.flatnonzero((counters.series == series) & (counters.time_ns >= start) & (counters.time_ns <= end))
        if len(rows):
            time, value = _thin(counters.time_ns[rows], counters.value[rows])
            name = trace.names[int(series)]
            # nvidia-smi writes the unit behind the name: "power.draw [W]"
            title, _, unit = name.removesuffix("]").partition(" [") if name.endswith("]") else (name, "", "")
            made.append(_counter(f"counter:sampled:{name}", title, time, value, unit))
    return made


def _counter(identifier: str, title: str, time: IntArray, value: npt.NDArray[np.float64], unit: str) -> Track:
    return Track(
        id=identifier,
        kind="counter",
        title=title,
        counter_time_ns=time.tolist(),
        counter_value=value.tolist(),
        unit=unit,
    )


def _thin(time: IntArray, value: npt.NDArray[np.float64]) -> tuple[IntArray, npt.NDArray[np.float64]]:
    """Reduce a long series to the lowest and highest point of each of a few hundred bins, so that peaks survive.

    Times are ascending.
    """
    if len(time) <= 2 * COUNTER_POINTS:
        return time, value
    bins = np.minimum((time - time[0]) * COUNTER_POINTS // max(int(time[-1] - time[0]), 1), COUNTER_POINTS - 1)
    change = np.flatnonzero(np.diff(bins)) + 1
    kept: set[int] = set()
    for begin, end in zip([0, *change.tolist()], [*change.tolist(), len(bins)], strict=True):
        part = value[begin:end]
        # the first of several lowest and the last of several highest
        kept.update((begin + int(part.argmin()), end - 1 - int(part[::-1].argmax())))
    rows = np.array(sorted(kept), dtype=np.int64)
    return time[rows], value[rows]
