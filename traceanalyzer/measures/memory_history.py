"""The allocator's history as lifetimes of blocks and totals after every event, reckoned back from the final state.

The history need not begin with the program: a block freed in it without having been allocated in it was there before,
and so was a block of the final state that it never mentions. Sizes in the history are those asked for; they are rounded
up to 512 bytes as the allocator does, and blocks that still exist have their real size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.memory_snapshot import AllocatorEvents, BlockState, MemoryAction, MemorySnapshot
from traceanalyzer.model.schema import BoolArray, CodeArray, IntArray

ROUND_BYTES = 512
BEFORE = -1  # event index of what happened before the history

_GROWS = (MemoryAction.SEGMENT_ALLOC, MemoryAction.SEGMENT_MAP)
_SHRINKS = (MemoryAction.SEGMENT_FREE, MemoryAction.SEGMENT_UNMAP)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Blocks of one device that lived at some time of the history; times are event indices.

    Attributes:
        address: Start address; -1 unknown.
        size_bytes: Size.
        begin: Event that allocated it; ``BEFORE`` when older than the history.
        released: Event in which the program let go; the number of events when it never did.
        end: Event after which it was free; the number of events when it never was.
        stack: Where it was allocated; -1 unknown.
    """

    address: IntArray
    size_bytes: IntArray
    begin: IntArray
    released: IntArray
    end: IntArray
    stack: CodeArray

    def alive(self, index: int) -> BoolArray:
        """Say which are active after an event (``BEFORE`` for the state before the first one)."""
        alive: BoolArray = (self.begin <= index) & (index < self.end)
        return alive


@dataclass(frozen=True, slots=True)
class DeviceHistory:
    """One device's history; the arrays of totals have one entry more than there are events, the state before first.

    Attributes:
        device_id: The device; -1 pinned host memory.
        events: Its events.
        lifetimes: Its blocks.
        allocated_bytes: Held by the program.
        active_bytes: Held by the program or still used by a stream.
        reserved_bytes: Taken from the driver.
        contradictions: What does not fit together, in sentences.
    """

    device_id: int
    events: AllocatorEvents
    lifetimes: Lifetimes
    allocated_bytes: IntArray
    active_bytes: IntArray
    reserved_bytes: IntArray
    contradictions: tuple[str, ...]

    @property
    def peak(self) -> int:
        """Position in the totals at which most memory was active, the earliest of equals."""
        return int(self.active_bytes.argmax())


def rebuild_history(snapshot: MemorySnapshot, device: int) -> DeviceHistory:
    """Rebuild one device's past from its final state and its events.

    Args:
        snapshot: The snapshot.
        device: Device id.
    """
    events = snapshot.events.take(np.flatnonzero(snapshot.events.device == device))
    lifetimes, contradictions = _lifetimes(snapshot, device, events)
    count = len(events)
    held = int(snapshot.segments.total_bytes[snapshot.segments.device == device].sum())
    change = np.where(np.isin(events.action, _GROWS), events.size_bytes, 0)
    change = change - np.where(np.isin(events.action, _SHRINKS), events.size_bytes, 0)
    # the state after event i is the final one less everything that followed
    reserved = held - np.concatenate((np.cumsum(change[::-1])[::-1], [0]))
    active = _totals(lifetimes.size_bytes, lifetimes.begin, lifetimes.end, count)
    allocated = _totals(lifetimes.size_bytes, lifetimes.begin, lifetimes.released, count)
    if int(reserved.min()) < 0:
        contradictions.append(
            "the history takes more from the driver than the segments hold in the end: reserved memory would have been "
            "negative before it"
        )
    over = int(np.count_nonzero(active > reserved))
    if over and int(reserved.min()) >= 0:
        contradictions.append(f"at {over} of {count + 1} moments more memory is active than was taken from the driver")
    return DeviceHistory(device, events, lifetimes, allocated, active, reserved.astype(np.int64), tuple(contradictions))


def free_blocks(snapshot: MemorySnapshot, history: DeviceHistory, index: int) -> IntArray | None:
    """Return the sizes of the stretches of reserved memory that held nothing after an event.

    Args:
        snapshot: The snapshot.
        history: One device of it.
        index: Event index; the number of events less one is the final state.

    Returns:
        int64 sizes, largest first; None where addresses are missing or segments grew in place, so that only the
        final state could be told.
    """
    events = history.events
    mine = snapshot.segments.device == history.device_id
    address, size = snapshot.segments.address[mine], snapshot.segments.total_bytes[mine]
    if bool((address < 0).any()) or bool((snapshot.segments.is_expandable[mine] == 1).any()):
        return None
    # walk back: segments taken later were not there, segments given back later were
    taken = {int(a): int(s) for a, s in zip(address, size, strict=True)}
    later = np.flatnonzero(np.isin(events.action, (*_GROWS, *_SHRINKS)))
    for row in later[later > index][::-1].tolist():
        if events.action[row] in _GROWS:
            taken.pop(int(events.address[row]), None)
        else:
            taken[int(events.address[row])] = int(events.size_bytes[row])
    alive = history.lifetimes.alive(index)
    order = np.argsort(history.lifetimes.address[alive], kind="stable")
    begin = history.lifetimes.address[alive][order]
    end = begin + history.lifetimes.size_bytes[alive][order]
    free: list[int] = []
    for start, length in taken.items():
        first, last = np.searchsorted(begin, [start, start + length])
        edges = np.concatenate(([start], end[first:last]))
        next_begin = np.concatenate((begin[first:last], [start + length]))
        gaps = next_begin - edges
        free += gaps[gaps > 0].tolist()
    return np.sort(np.array(free, dtype=np.int64))[::-1]


def _lifetimes(snapshot: MemorySnapshot, device: int, events: AllocatorEvents) -> tuple[Lifetimes, list[str]]:
    count = len(events)
    contradictions: list[str] = []
    rows = np.flatnonzero(np.isin(events.action, (MemoryAction.ALLOC, MemoryAction.FREE_COMPLETED)))
    address = events.address[rows]
    order = np.argsort(address, kind="stable")
    rows, address = rows[order], address[order]
    is_alloc = events.action[rows] == MemoryAction.ALLOC
    same_next = np.concatenate((address[1:] == address[:-1], [False])) if len(rows) else np.zeros(0, dtype=np.bool_)
    next_row = np.concatenate((rows[1:], [count])) if len(rows) else rows
    # an allocation ends with the next event at its address; a free without one before it began before the history
    begun = np.flatnonzero(is_alloc)
    begin, end = rows[begun], np.where(same_next[begun], next_row[begun], count)
    previous_is_alloc = np.concatenate(([False], is_alloc[:-1] & same_next[:-1])) if len(rows) else is_alloc
    orphan = np.flatnonzero(~is_alloc & ~previous_is_alloc)
    twice = int(np.count_nonzero(is_alloc[1:] & is_alloc[:-1] & same_next[:-1])) if len(rows) else 0
    again = np.flatnonzero(~is_alloc[1:] & ~is_alloc[:-1] & same_next[:-1]) + 1 if len(rows) else orphan
    if twice or len(again):
        contradictions.append(
            f"{twice + len(again)} blocks of device {device} are allocated or freed twice in a row in the history"
        )
    final = _final_blocks(snapshot, device)
    size = np.concatenate((_rounded(events.size_bytes[begin]), _rounded(events.size_bytes[rows[orphan]])))
    all_begin = np.concatenate((begin, np.full(len(orphan), BEFORE)))
    all_end = np.concatenate((end, rows[orphan]))
    all_address = np.concatenate((events.address[begin], address[orphan]))
    stack = np.concatenate((events.stack[begin], np.full(len(orphan), -1)))
    # real sizes of blocks that still exist, and the blocks the history never mentions
    open_rows = np.flatnonzero(all_end == count)
    at = np.searchsorted(final.address, all_address[open_rows])
    known = at < len(final.address)
    known[known] = final.address[at[known]] == all_address[open_rows][known]
    size[open_rows[known]] = final.size_bytes[at[known]]
    if count and not known.all():
        lost = int(np.count_nonzero(~known))
        contradictions.append(
            f"{lost} blocks that the history of device {device} leaves allocated are not in its segments"
        )
        # not in the final state: the totals must still end there
        all_end[open_rows[~known]] = np.maximum(count - 1, 0)
    mentioned = np.zeros(len(final.address), dtype=np.bool_)
    mentioned[at[known]] = True
    older = np.flatnonzero(~mentioned)
    lifetimes_address = np.concatenate((all_address, final.address[older]))
    lifetimes_end = np.concatenate((all_end, np.full(len(older), count)))
    lifetimes_begin = np.concatenate((all_begin, np.full(len(older), BEFORE)))
    released = _released(events, lifetimes_address, lifetimes_begin, lifetimes_end)
    # blocks whose release is older than the history, or which the state alone shows as pending
    pending = final.state == BlockState.PENDING_FREE
    is_pending = np.zeros(len(lifetimes_end), dtype=np.bool_)
    is_pending[open_rows[known]] = pending[at[known]]
    is_pending[len(all_end) :] = pending[older]
    released = np.where(is_pending & (released == count), BEFORE, released)
    return (
        Lifetimes(
            address=lifetimes_address,
            size_bytes=np.concatenate((size, final.size_bytes[older])),
            begin=lifetimes_begin,
            released=released,
            end=lifetimes_end,
            stack=np.concatenate((stack, final.stack[older])).astype(np.int32),
        ),
        contradictions,
    )


@dataclass(frozen=True, slots=True)
class _Final:
    address: IntArray
    size_bytes: IntArray
    state: IntArray
    stack: CodeArray


def _final_blocks(snapshot: MemorySnapshot, device: int) -> _Final:
    blocks = snapshot.blocks
    rows = np.flatnonzero((blocks.state != BlockState.FREE) & (snapshot.segments.device[blocks.segment] == device))
    address = blocks.address[rows].copy()
    # layouts without addresses: numbers of their own, so that no block is taken for another
    address[address < 0] = -2 - np.arange(int(np.count_nonzero(address < 0)))
    order = np.argsort(address, kind="stable")
    rows = rows[order]
    return _Final(address[order], blocks.size_bytes[rows], blocks.state[rows].astype(np.int64), blocks.stack[rows])


def _rounded(size: IntArray) -> IntArray:
    return np.maximum((size + ROUND_BYTES - 1) // ROUND_BYTES, 1) * ROUND_BYTES


def _released(events: AllocatorEvents, address: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Last request to free each address within its lifetime; its end where none was recorded."""
    count = len(events)
    asked = np.flatnonzero(events.action == MemoryAction.FREE_REQUESTED)
    if not len(asked) or not len(address):
        return end.copy()
    code = np.unique(np.concatenate((events.address[asked], address)), return_inverse=True)[1]
    key = np.sort(code[: len(asked)] * (count + 2) + asked)
    wanted = code[len(asked) :] * (count + 2)
    at = np.searchsorted(key, wanted + end, side="left") - 1
    found = (at >= 0) & (key[np.maximum(at, 0)] > wanted + begin)
    return np.where(found, key[np.maximum(at, 0)] - wanted, end).astype(np.int64)


def _totals(size: IntArray, begin: IntArray, end: IntArray, count: int) -> IntArray:
    """Sum of sizes alive before the first event and after each event."""
    change = np.zeros(count + 2, dtype=np.int64)
    lasting = end > begin
    np.add.at(change, begin[lasting] + 1, size[lasting])
    np.subtract.at(change, end[lasting] + 1, size[lasting])
    return np.cumsum(change)[: count + 1]
