"""The state and history of PyTorch's caching allocator, as ``torch.cuda.memory`` snapshots hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray, Table, column
from traceanalyzer.model.trace import Integrity, Source

HOST_DEVICE = -1  # pinned host memory of the framework's own host allocator


class MemoryAction(IntEnum):
    """What an entry of the history says."""

    ALLOC = 0
    FREE_REQUESTED = 1  # the program let go; a stream may still use the block
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5  # an expandable segment grew
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    OOM = 8


class BlockState(IntEnum):
    """State of a block of a segment."""

    ALLOCATED = 0
    PENDING_FREE = 1  # freed by the program, still in use by a stream
    FREE = 2


class Frame(NamedTuple):
    """One frame of a stack.

    Attributes:
        function: Function name.
        file: File as recorded.
        line: Line number; 0 unknown.
    """

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Segments(Table):
    """Memory taken from the driver, in the snapshot's order."""

    device: CodeArray = column(np.int32, "device id; -1 pinned host memory")
    address: IntArray = column(np.int64, "start address as a signed 64-bit pattern; -1 unknown", -1)
    total_bytes: IntArray = column(np.int64, "size, bytes")
    allocated_bytes: IntArray = column(np.int64, "in blocks the program holds, as the snapshot says; -1 not said", -1)
    active_bytes: IntArray = column(np.int64, "allocated or still used by a stream, as said; -1 not said", -1)
    stream: IntArray = column(np.int64, "stream handle", 0)
    is_small: ByteArray = column(np.int8, "1: holds blocks of at most 1 MiB", 0)
    is_private: ByteArray = column(np.int8, "1: belongs to a private pool (CUDA graphs, MemPool)", 0)
    is_expandable: ByteArray = column(np.int8, "1: grows in place", 0)


@dataclass(frozen=True, slots=True)
class Blocks(Table):
    """Parts of segments, in address order within a segment."""

    segment: CodeArray = column(np.int32, "row of Segments")
    address: IntArray = column(np.int64, "start address; -1 unknown", -1)
    size_bytes: IntArray = column(np.int64, "size, bytes")
    requested_bytes: IntArray = column(np.int64, "size the program asked for; -1 unknown", -1)
    state: ByteArray = column(np.int8, "BlockState")
    stack: CodeArray = column(np.int32, "where it was allocated, code into MemorySnapshot.stacks; -1 unknown", -1)


@dataclass(frozen=True, slots=True)
class AllocatorEvents(Table):
    """The history, per device in the order it happened."""

    time_ns: IntArray = column(np.int64, "when, epoch ns; -1 unknown", -1)
    device: CodeArray = column(np.int32, "device id")
    action: ByteArray = column(np.int8, "MemoryAction")
    address: IntArray = column(np.int64, "address as a signed 64-bit pattern; -1 none", -1)
    size_bytes: IntArray = column(np.int64, "size asked for (blocks) or taken (segments), bytes")
    stack: CodeArray = column(np.int32, "code into MemorySnapshot.stacks; -1 none", -1)
    device_free_bytes: IntArray = column(np.int64, "oom: free memory of the device, bytes; -1 not said", -1)


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """One snapshot.

    Attributes:
        source: The file.
        segments: State at the end: memory taken from the driver.
        blocks: State at the end: what the segments hold.
        events: History before it; empty where none was recorded.
        stacks: Interned stacks, innermost frame first.
        settings: Allocator settings as text.
        counters: Per device, counters of the allocator since the program began (``num_alloc_retries``, ``num_ooms``),
            where the recorder added them.
        integrity: What reading found wrong.
    """

    source: Source
    segments: Segments
    blocks: Blocks
    events: AllocatorEvents
    stacks: tuple[tuple[Frame, ...], ...]
    settings: Mapping[str, str]
    counters: Mapping[int, Mapping[str, int]]
    integrity: Integrity

    @property
    def device_ids(self) -> list[int]:
        """Devices with a segment or an event, in order."""
        return [int(d) for d in np.unique(np.concatenate((self.segments.device, self.events.device)))]
