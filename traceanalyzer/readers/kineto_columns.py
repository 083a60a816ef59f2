"""The columns a chunk of event text becomes, whichever parser reads it, and the categories that decide where it goes.

``ChunkParser`` is the seam: something that turns whole events into ``Columns`` and refuses anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from traceanalyzer.model.schema import (
    Activities,
    ActivityKind,
    Calls,
    CodeArray,
    MemoryEvents,
    Overheads,
    SliceKind,
    Slices,
    Waits,
)
from traceanalyzer.readers.kineto_chunks import Chunk, Chunks

# every spelling of torch 1.8 to 2.x, lower case
ACTIVITY_KINDS = {
    "kernel": ActivityKind.KERNEL,
    "concurrent_kernel": ActivityKind.KERNEL,
    "gpu_memcpy": ActivityKind.COPY,
    "memcpy": ActivityKind.COPY,
    "gpu_memset": ActivityKind.MEMSET,
    "memset": ActivityKind.MEMSET,
}
CALL_CATEGORIES = frozenset(
    {
        "cuda_runtime",
        "cuda_driver",
        "runtime",
        "driver",
        "hip_runtime",
        "xpu_runtime",
        "xpu_driver",
        "mtia_runtime",
        "privateuse1_runtime",
        "privateuse1_driver",
    }
)
SLICE_KINDS = {
    "cpu_op": SliceKind.OPERATOR,
    "operator": SliceKind.OPERATOR,
    "user_annotation": SliceKind.ANNOTATION,
    "python_function": SliceKind.PYTHON,
}
SYNC_CATEGORY = "cuda_sync"
OVERHEAD_CATEGORY = "overhead"
# spans that restate other rows: never an event of their own
IGNORED_CATEGORIES = frozenset(
    {"trace", "gpu_user_annotation", "ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu"}
)


class Codes(dict[Any, int]):
    """Numbers values in order of first appearance."""

    def __missing__(self, value: Hashable) -> int:
        code = self[value] = len(self)
        return code

    def column(self, values: Sequence[Any]) -> CodeArray:
        """Return the codes of a whole column."""
        return np.fromiter(map(self.__getitem__, values), dtype=np.int32, count=len(values))


# tables without rows hold nothing that could be changed, so every chunk may share them
_NO_ACTIVITIES, _NO_CALLS, _NO_SLICES = Activities.build(), Calls.build(), Slices.build()
_NO_OVERHEADS, _NO_WAITS, _NO_MEMORY = Overheads.build(), Waits.build(), MemoryEvents.build()


@dataclass
class Columns:
    """The events of one stretch of a file, in file order, times in the file's own clock (ns).

    Attributes:
        count: Events of any kind.
        activities, calls, slices, overheads, waits, memory: The rows; names and threads are codes of the parser.
        thread_names: Names the recording gives threads, by process and thread id as the file spells them.
        copied_bytes: Sizes that only the copying calls state (AMD), bytes by correlation id.
        capture_ns: Longest span the profiler says it recorded, ns; 0 where it does not say.
        first_ns: Start of the first timed event, or None.
        last_ns: Start of the last timed event, or None.
    """

    count: int = 0
    activities: Activities = _NO_ACTIVITIES
    calls: Calls = _NO_CALLS
    slices: Slices = _NO_SLICES
    overheads: Overheads = _NO_OVERHEADS
    waits: Waits = _NO_WAITS
    memory: MemoryEvents = _NO_MEMORY
    thread_names: dict[tuple[Any, Any], str] = field(default_factory=dict)
    copied_bytes: dict[int, int] = field(default_factory=dict)
    capture_ns: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


class ChunkParser(Protocol):
    """Turns text that holds whole events into columns.

    Attributes:
        names: Codes of every string in a ``name`` or ``shapes`` column.
        threads: Codes of (pid, tid) as the file spells them.
    """

    names: Codes
    threads: Codes

    def parse(self, events: bytes) -> Columns:
        """Parse a JSON list of events.

        Raises:
            ValueError: The text is not a well-formed list of events; nothing of it has been counted.
        """

    def parsed(self, chunks: Chunks) -> Iterator[tuple[Chunk, Callable[[], Columns]]]:
        """Yield each chunk with a function that returns its columns, or raises as ``parse`` does.

        The parser may work ahead, but a chunk whose function is not called counts for nothing.
        """
