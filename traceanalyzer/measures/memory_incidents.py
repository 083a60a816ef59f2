"""Allocation retries and out-of-memory errors in the allocator's history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.memory_history import DeviceHistory, free_blocks
from traceanalyzer.measures.memory_sites import Sites
from traceanalyzer.model.memory_snapshot import MemoryAction, MemorySnapshot
from traceanalyzer.results.memory import OutOfMemory, Retry
from traceanalyzer.units import format_bytes

# between giving segments back and the second try lies one driver allocation; used only where no stacks tell
_SECOND_TRY_NS = 10_000_000
_GIVES_BACK = (int(MemoryAction.SEGMENT_FREE), int(MemoryAction.SEGMENT_UNMAP))
_ENDS = (int(MemoryAction.SEGMENT_ALLOC), int(MemoryAction.SEGMENT_MAP), int(MemoryAction.OOM))


@dataclass(frozen=True, slots=True)
class Shift:
    """Turns a time of the history into one relative to the rank's origin."""

    origin_ns: int

    def __call__(self, time_ns: int) -> int | None:
        """Return the relative time; None for an unknown one."""
        return int(time_ns) - self.origin_ns if time_ns >= 0 else None


def find_retries(snapshot: MemorySnapshot, history: DeviceHistory, sites: Sites, shift: Shift) -> list[Retry] | None:
    """Find where the allocator gave all free segments back because a new one did not fit, and tried again.

    It shows as segments given back one after the other and, directly behind them, the new segment or the error, asked
    for by the same call. A program that empties the cache itself has that in its stack.

    Args:
        snapshot: The snapshot.
        history: One device of it.
        sites: Names of places.
        shift: To the rank's clock.

    Returns:
        The retries in order; None where the allocator also gives segments back on its own (a threshold for garbage
        collection is set), so that the two cannot be told apart.
    """
    if float(_number(snapshot.settings.get("garbage_collection_threshold", "0"))) > 0:
        return None
    events = history.events
    action = events.action
    found: list[Retry] = []
    gives = np.isin(action, _GIVES_BACK)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], gives, [False])).astype(np.int8)))
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if end >= len(events) or int(action[end]) not in _ENDS:
            continue
        stacks = (int(events.stack[end - 1]), int(events.stack[end]))
        if stacks[0] >= 0 and stacks[1] >= 0:
            if stacks[0] != stacks[1]:
                continue
        elif events.time_ns[end] - events.time_ns[end - 1] > _SECOND_TRY_NS:
            continue
        if _empties_the_cache(snapshot, stacks[0]):
            continue
        found.append(
            Retry(
                start_ns=shift(events.time_ns[max(begin - 1, 0)]),
                end_ns=shift(events.time_ns[end]),
                freed_segments=end - begin,
                freed_bytes=int(events.size_bytes[begin:end].sum()),
                asked_bytes=int(events.size_bytes[end]),
                reserved_bytes=int(history.reserved_bytes[begin]),
                succeeded=int(action[end]) != MemoryAction.OOM,
                where=sites.of(stacks[1])[0],
            )
        )
    return found


def find_ooms(
    snapshot: MemorySnapshot, history: DeviceHistory, sites: Sites, shift: Shift, limit_bytes: int | None = None
) -> list[OutOfMemory]:
    """Take every out-of-memory error apart: what was asked, what was free, and why it did not fit.

    Args:
        snapshot: The snapshot.
        history: One device's history.
        sites: Names call sites.
        shift: Brings times onto the recording's clock.
        limit_bytes: What the process may take from the driver, where that is known.
    """
    events = history.events
    made = []
    for row in np.flatnonzero(events.action == MemoryAction.OOM).tolist():
        asked, said = int(events.size_bytes[row]), int(events.device_free_bytes[row])
        reserved, active = int(history.reserved_bytes[row + 1]), int(history.active_bytes[row + 1])
        free = reserved - active
        stretches = free_blocks(snapshot, history, row)
        largest = None if stretches is None else int(stretches[0]) if len(stretches) else 0
        left = None if said < 0 else said
        if limit_bytes is not None:
            below = max(limit_bytes - reserved, 0)
            left = below if left is None else min(left, below)
        reason, advice = explain_oom(asked, left, active, free, largest)
        made.append(
            OutOfMemory(
                time_ns=shift(events.time_ns[row]),
                asked_bytes=asked,
                device_free_bytes=None if said < 0 else said,
                reserved_bytes=reserved,
                active_bytes=active,
                free_bytes=free,
                largest_free_bytes=largest,
                reason=reason,
                advice=advice,
                where=sites.of(int(events.stack[row]))[0],
                fits_joined=left is not None and left < asked <= left + free,
            )
        )
    return made


def explain_oom(asked: int, device_free: int | None, active: int, free: int, largest: int | None) -> tuple[str, str]:
    """Say why a request did not fit and which change would have helped.

    Args:
        asked: Size asked for.
        device_free: What the driver, or a known limit on the process, had left, or None.
        active: In use in the allocator.
        free: Reserved and free.
        largest: Largest free stretch, or None.
    """
    if device_free is not None and device_free >= asked:
        return (
            f"the driver had {format_bytes(device_free)} left, more than the {format_bytes(asked)} asked for: a limit "
            "on this process (set_per_process_memory_fraction) refused it",
            "raise the limit, or use less memory",
        )
    if free + (device_free or 0) >= asked:
        piece = f"; the largest free stretch was {format_bytes(largest)}" if largest is not None else ""
        return (
            f"the {format_bytes(free)} reserved and free lie in pieces too small for {format_bytes(asked)}{piece}",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that free pieces can be joined",
        )
    return (
        f"{format_bytes(active)} were in use and only {format_bytes(free + (device_free or 0))} free in all",
        "a smaller batch, gradient accumulation, mixed precision or activation checkpointing",
    )


def _empties_the_cache(snapshot: MemorySnapshot, stack: int) -> bool:
    if stack < 0:
        return False
    return any("empty_cache" in f.function or "emptyCache" in f.function for f in snapshot.stacks[stack])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
