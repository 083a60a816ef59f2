"""What a memory snapshot says about each device's allocator, on the recording's clock where both exist."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceanalyzer.measures.memory_history import DeviceHistory, rebuild_history
from traceanalyzer.measures.memory_incidents import Shift, find_ooms, find_retries
from traceanalyzer.measures.memory_sites import Sites
from traceanalyzer.measures.steps import STEADY, Steps
from traceanalyzer.model.memory_snapshot import HOST_DEVICE, BlockState, MemoryAction, MemorySnapshot
from traceanalyzer.model.schema import IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import AllocatorReport, MemoryCurve
from traceanalyzer.results.memory import (
    AllocatorCurve,
    CallSite,
    DeviceMemory,
    MemoryReport,
    SegmentGroup,
    SegmentMap,
)
from traceanalyzer.units import format_bytes

CURVE_POINTS = 2000
MAP_SEGMENTS = 120
MAP_RUNS = 160
MOST_INCIDENTS = 50
_NEAR_START = 20  # a twentieth of the step
_CLOCK_SLACK_NS = 600_000_000_000
_SETTINGS = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "expandable_segments",
    "max_split_size",
    "garbage_collection_threshold",
    "pinned_use_cuda_host_register",
)


def measure_memory(trace: Trace, steps: Steps, recorder: Mapping[str, object] | None = None) -> MemoryReport | None:
    """Measure the allocator from the trace's snapshot.

    Args:
        trace: The recording.
        steps: Its step windows.
        recorder: Facts of the run folder; ``gpus`` tells how much memory a device has.

    Returns:
        The document part; None without a snapshot.
    """
    snapshot = trace.snapshot
    if snapshot is None:
        return None
    times = snapshot.events.time_ns
    known = times[times >= 0]
    matched = _on_the_same_clock(trace, known)
    shift = Shift(trace.origin_ns if matched or not len(known) else int(known.min()))
    sites = Sites(snapshot)
    contradictions = segment_contradictions(snapshot)
    devices = []
    for device in snapshot.device_ids:
        history = rebuild_history(snapshot, device)
        contradictions += history.contradictions
        total = _device_bytes(trace, snapshot, device, recorder or {})
        devices.append(_device(snapshot, history, sites, shift, steps if matched else None, total))
    return MemoryReport(
        path=snapshot.source.path,
        has_history=len(snapshot.events) > 0,
        clock_matched=matched,
        first_ns=shift(int(known.min())) if len(known) else None,
        last_ns=shift(int(known.max())) if len(known) else None,
        settings={name: snapshot.settings[name] for name in _SETTINGS if snapshot.settings.get(name)},
        contradictions=contradictions,
        devices=devices,
    )


def main_device(memory: MemoryReport | None) -> DeviceMemory | None:
    """Return the GPU whose allocator held most memory; None without one."""
    gpus = [device for device in memory.devices if device.device_id >= 0] if memory is not None else []
    return max(gpus, key=lambda device: (device.peak_reserved_bytes, -device.device_id), default=None)


def with_snapshot(report: AllocatorReport, memory: MemoryReport | None) -> AllocatorReport:
    """Fill what the recording's own allocator events leave open from the snapshot."""
    import msgspec

    device = main_device(memory)
    if memory is None or device is None:
        return report
    found: dict[str, object] = {"fragmentation": device.fragmentation}
    if memory.has_history:
        found |= {"retries": device.retries, "ooms": device.ooms}
        if report.allocations is None:
            found |= {"allocations": device.allocations, "frees": device.frees}
    if report.peak_allocated_bytes is None:
        found["peak_allocated_bytes"] = device.peak_allocated_bytes
    if report.peak_reserved_bytes is None:
        found["peak_reserved_bytes"] = device.peak_reserved_bytes
    return msgspec.structs.replace(report, **found)


def curve_of(memory: MemoryReport | None) -> MemoryCurve | None:
    """Return the main device's curve where it lies on the recording's clock."""
    device = main_device(memory)
    if memory is None or device is None or device.curve is None or not memory.clock_matched:
        return None
    curve = device.curve
    return MemoryCurve(
        time_ns=curve.time_ns, allocated_bytes=curve.allocated_bytes, reserved_bytes=curve.reserved_bytes
    )


def allocated_at_step_start(trace: Trace, steps: Steps, memory: MemoryReport | None) -> IntArray:
    """Allocated bytes of the main device when each step window starts, by the history; -1 where it does not reach.

    Args:
        trace: The recording.
        steps: Its step windows.
        memory: What its snapshot says.
    """
    unknown = np.full(len(steps), -1, dtype=np.int64)
    device = main_device(memory)
    if memory is None or device is None or not memory.clock_matched or device.curve is None or trace.snapshot is None:
        return unknown
    history = rebuild_history(trace.snapshot, device.device_id)
    time = history.events.time_ns - trace.origin_ns
    at = np.searchsorted(time, steps.start_ns, side="right")
    # a step that began just before the first event began with the state before it
    reach = time[0] - (steps.end_ns - steps.start_ns) // _NEAR_START
    inside = (steps.start_ns >= reach) & (steps.start_ns <= time[-1])
    return np.where(inside, history.allocated_bytes[at], unknown)


def segment_contradictions(snapshot: MemorySnapshot) -> list[str]:
    """Check that the blocks of every segment add up to it, and to what it says is allocated and active."""
    segments, blocks = snapshot.segments, snapshot.blocks
    found = []
    has_blocks = np.bincount(blocks.segment, minlength=len(segments)) > 0
    checks = (
        ("its size", segments.total_bytes, np.ones(len(blocks), dtype=np.bool_)),
        ("what it calls allocated", segments.allocated_bytes, blocks.state == BlockState.ALLOCATED),
        ("what it calls active", segments.active_bytes, blocks.state != BlockState.FREE),
    )
    for what, said, counted in checks:
        total = np.zeros(len(segments), dtype=np.int64)
        np.add.at(total, blocks.segment[counted], blocks.size_bytes[counted])
        wrong = np.flatnonzero((said >= 0) & (total != said) & has_blocks)
        if len(wrong):
            first = int(wrong[0])
            found.append(
                f"in {len(wrong)} of {len(segments)} segments the blocks do not add up to {what}: segment {first} says "
                f"{format_bytes(int(said[first]))}, its blocks {format_bytes(int(total[first]))}"
            )
    known = np.flatnonzero(segments.address >= 0)
    for device in np.unique(segments.device[known]).tolist():
        mine = known[segments.device[known] == device]
        mine = mine[np.argsort(segments.address[mine], kind="stable")]
        ends = segments.address[mine] + segments.total_bytes[mine]
        overlapping = int(np.count_nonzero(segments.address[mine][1:] < ends[:-1]))
        if overlapping:
            found.append(f"{overlapping} segments of device {device} overlap")
    return found


def _on_the_same_clock(trace: Trace, known: IntArray) -> bool:
    """Say whether the history's times fall into the recording (or within ten minutes of it)."""
    if not len(known):
        return False
    ends = [int(t.end_ns.max()) for t in (trace.activities, trace.calls, trace.slices) if len(t)]
    if not ends:
        return int(known.min()) == trace.origin_ns  # a snapshot alone is its own clock
    starts = [int(t.start_ns.min()) for t in (trace.activities, trace.calls, trace.slices) if len(t)]
    first, last = int(known.min()) - trace.origin_ns, int(known.max()) - trace.origin_ns
    return first <= max(ends) + _CLOCK_SLACK_NS and last >= min(starts) - _CLOCK_SLACK_NS


def _device(
    snapshot: MemorySnapshot,
    history: DeviceHistory,
    sites: Sites,
    shift: Shift,
    steps: Steps | None,
    device_bytes: int | None,
) -> DeviceMemory:
    events, peak = history.events, history.peak
    at_peak, at_end = history.lifetimes.alive(peak - 1), history.lifetimes.alive(len(events) - 1)
    reserved, active = int(history.reserved_bytes[peak]), int(history.active_bytes[peak])
    retries = find_retries(snapshot, history, sites, shift)
    counters = snapshot.counters.get(history.device_id, {})
    ooms = find_ooms(snapshot, history, sites, shift, counters.get("limit_bytes"))
    mine = snapshot.segments.device[snapshot.blocks.segment] == history.device_id
    free = snapshot.blocks.size_bytes[mine & (snapshot.blocks.state == BlockState.FREE)]
    lives = history.lifetimes
    groups, drawn, left_out = _segments(snapshot, history.device_id)
    return DeviceMemory(
        device_id=history.device_id,
        device_bytes=device_bytes,
        events=len(events),
        segments=int(np.count_nonzero(snapshot.segments.device == history.device_id)),
        peak_time_ns=shift(int(events.time_ns[max(peak - 1, 0)])) if len(events) else None,
        peak_allocated_bytes=int(history.allocated_bytes.max()),
        peak_active_bytes=active,
        peak_reserved_bytes=int(history.reserved_bytes.max()),
        fragmentation=(reserved - active) / reserved if reserved > 0 else None,
        final_allocated_bytes=int(history.allocated_bytes[-1]),
        final_active_bytes=int(history.active_bytes[-1]),
        final_reserved_bytes=int(history.reserved_bytes[-1]),
        final_largest_free_bytes=int(free.max()) if len(free) else 0,
        allocations=int(np.count_nonzero(events.action == MemoryAction.ALLOC)),
        frees=int(np.count_nonzero(events.action == MemoryAction.FREE_COMPLETED)),
        retries=len(retries) if retries is not None else None,
        ooms=len(ooms),
        retries_since_start=counters.get("num_alloc_retries"),
        ooms_since_start=counters.get("num_ooms"),
        limit_bytes=counters.get("limit_bytes"),
        curve=_curve(history, shift),
        groups=groups,
        map=drawn,
        map_left_out=left_out,
        sites_at_peak=sites.top(lives.stack[at_peak], lives.size_bytes[at_peak]),
        sites_at_end=sites.top(lives.stack[at_end], lives.size_bytes[at_end]),
        growth=_growth(history, sites, shift, steps),
        retry_events=(retries or [])[:MOST_INCIDENTS],
        oom_events=ooms[:MOST_INCIDENTS],
    )


def _growth(history: DeviceHistory, sites: Sites, shift: Shift, steps: Steps | None) -> list[CallSite]:
    """Sum by place what was allocated in a steady step and outlived the next: still held when the last one begins."""
    time = history.events.time_ns
    if steps is None or not len(time) or bool((time < 0).any()):
        return []
    steady = steps.step_class == STEADY
    begun = steps.start_ns[steady] + shift.origin_ns
    near = (steps.end_ns - steps.start_ns)[steady] // _NEAR_START
    begun = begun[(begun >= time[0] - near) & (begun <= time[-1])]
    if len(begun) < 3:
        return []
    first, before_last, last = (int(np.searchsorted(time, begun[i], side="right")) - 1 for i in (0, -2, -1))
    lives = history.lifetimes
    kept = (lives.begin > first) & (lives.begin <= before_last) & (lives.released > last)
    return sites.top(lives.stack[kept], lives.size_bytes[kept])


def _curve(history: DeviceHistory, shift: Shift) -> AllocatorCurve | None:
    time = history.events.time_ns
    if not len(time) or bool((time < 0).any()):
        return None
    allocated, active, reserved = (
        values[1:] for values in (history.allocated_bytes, history.active_bytes, history.reserved_bytes)
    )
    kept = np.arange(len(time))
    if len(time) > CURVE_POINTS:
        border = np.linspace(0, len(time), CURVE_POINTS // 4 + 1).astype(np.int64)
        chosen: set[int] = {len(time) - 1}
        for begin, end in zip(border[:-1].tolist(), border[1:].tolist(), strict=True):
            chosen.update((begin, begin + int(active[begin:end].argmin()), begin + int(active[begin:end].argmax())))
            chosen.add(begin + int(reserved[begin:end].argmax()))
        kept = np.array(sorted(chosen), dtype=np.int64)
    return AllocatorCurve(
        time_ns=(time[kept] - shift.origin_ns).tolist(),
        allocated_bytes=allocated[kept].tolist(),
        active_bytes=active[kept].tolist(),
        reserved_bytes=reserved[kept].tolist(),
    )


def _segments(snapshot: MemorySnapshot, device: int) -> tuple[list[SegmentGroup], list[SegmentMap], int]:
    """Group a device's segments by kind and state, and draw the largest of them."""
    segments, blocks = snapshot.segments, snapshot.blocks
    used = np.zeros(len(segments), dtype=np.int64)
    is_used = blocks.state != BlockState.FREE
    np.add.at(used, blocks.segment[is_used], blocks.size_bytes[is_used])
    rows = np.flatnonzero(segments.device == device)
    groups: dict[tuple[str, str], tuple[int, int, int]] = {}
    for row in rows.tolist():
        total, active = int(segments.total_bytes[row]), int(used[row])
        state = "free" if not active else "in use" if active >= total else "partly free"
        key = (_kind(snapshot, row), state)
        before = groups.get(key, (0, 0, 0))
        groups[key] = (before[0] + 1, before[1] + total, before[2] + active)
    made = [
        SegmentGroup(kind=kind, state=state, count=count, total_bytes=total, active_bytes=active)
        for (kind, state), (count, total, active) in sorted(groups.items())
    ]
    order = rows[np.lexsort((rows, -segments.total_bytes[rows]))]
    drawn = [_map(snapshot, int(row)) for row in order[:MAP_SEGMENTS]]
    return made, drawn, max(len(order) - MAP_SEGMENTS, 0)


def _kind(snapshot: MemorySnapshot, row: int) -> str:
    segments = snapshot.segments
    if segments.device[row] == HOST_DEVICE:
        return "pinned host"
    name = "private pool" if segments.is_private[row] else "small" if segments.is_small[row] else "large"
    return f"expandable {name}" if segments.is_expandable[row] else name


def _map(snapshot: MemorySnapshot, row: int) -> SegmentMap:
    mine = np.flatnonzero(snapshot.blocks.segment == row)
    state, size = snapshot.blocks.state[mine], snapshot.blocks.size_bytes[mine]
    if not len(mine):
        return SegmentMap(total_bytes=int(snapshot.segments.total_bytes[row]), size_bytes=[], state=[])
    first = np.flatnonzero(np.concatenate(([True], state[1:] != state[:-1])))
    return SegmentMap(
        total_bytes=int(snapshot.segments.total_bytes[row]),
        size_bytes=np.add.reduceat(size, first)[:MAP_RUNS].tolist(),
        state=state[first][:MAP_RUNS].tolist(),
    )


def _device_bytes(trace: Trace, snapshot: MemorySnapshot, device: int, recorder: Mapping[str, object]) -> int | None:
    """Memory of a device: as the recording says, else the recorder, else the snapshot's own counters."""
    for known in trace.devices:
        if known.device_id == device and known.memory_bytes:
            return known.memory_bytes
    gpus = recorder.get("gpus")
    for gpu in gpus if isinstance(gpus, list) else ():
        if isinstance(gpu, Mapping) and gpu.get("index") == device and isinstance(gpu.get("memory_bytes"), int):
            return int(gpu["memory_bytes"])
    return snapshot.counters.get(device, {}).get("total_memory_bytes")
