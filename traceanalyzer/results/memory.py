"""The document's part about the caching allocator, from a memory snapshot."""

from __future__ import annotations

import msgspec


class AllocatorCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over time, relative to the rank's origin, thinned so that peaks survive."""

    time_ns: list[int]
    allocated_bytes: list[int]
    active_bytes: list[int]
    reserved_bytes: list[int]


class CallSite(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks allocated at one place.

    Attributes:
        where: ``function at file.py:12``, or that no stack was recorded.
        stack: The frames around it, innermost first, shortened.
        count: Blocks.
        size_bytes: Their sizes, summed.
    """

    where: str
    stack: list[str] = []
    count: int
    size_bytes: int


class SegmentGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Segments of one kind: ``large``, ``small``, ``private pool`` or ``pinned host``, by how full they are.

    Attributes:
        kind: Kind of segment; ``expandable`` is put before it where it grows in place.
        state: ``in use``, ``partly free`` or ``free``.
        count: Segments.
        total_bytes: Their size.
        active_bytes: What of it is in use.
    """

    kind: str
    state: str
    count: int
    total_bytes: int
    active_bytes: int


class SegmentMap(msgspec.Struct, frozen=True, kw_only=True):
    """One segment as runs of equal state, for drawing: ``state`` holds a code per run (0 used, 1 pending, 2 free)."""

    total_bytes: int
    size_bytes: list[int]
    state: list[int]


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """The allocator gave all its free segments back and tried again.

    Attributes:
        start_ns: Event before it, relative to the origin; None where times are unknown.
        end_ns: Event that ended it: a new segment, or running out of memory.
        freed_segments: Segments given back.
        freed_bytes: Their size.
        asked_bytes: Size of the segment that did not fit.
        reserved_bytes: Reserved before it.
        succeeded: Whether the second try found room.
        where: Call site that asked.
    """

    start_ns: int | None
    end_ns: int | None
    freed_segments: int
    freed_bytes: int
    asked_bytes: int
    reserved_bytes: int
    succeeded: bool
    where: str


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One out-of-memory error, taken apart.

    Attributes:
        time_ns: When, relative to the origin; None unknown.
        asked_bytes: Size asked for.
        device_free_bytes: What the driver still had; None not said.
        reserved_bytes: Held by the allocator.
        active_bytes: Of it in use.
        free_bytes: Of it free.
        largest_free_bytes: Largest free stretch; None unknown.
        reason: Why it did not fit.
        advice: Which change would have helped.
        where: Call site that asked.
        fits_joined: Whether it would have fitted if the free memory lay in one piece.
    """

    time_ns: int | None
    asked_bytes: int
    device_free_bytes: int | None
    reserved_bytes: int
    active_bytes: int
    free_bytes: int
    largest_free_bytes: int | None
    reason: str
    advice: str
    where: str
    fits_joined: bool = False


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The allocator of one device; ``device_id`` -1 is pinned host memory.

    ``fragmentation`` is (reserved − active) / reserved at the moment most memory was active. The ``final_`` values
    are the state the snapshot shows; ``growth`` is what steady steps allocated and did not let go in
    the step after. ``limit_bytes`` is what the process may take, where the recorder noted a limit.
    """

    device_id: int
    device_bytes: int | None
    events: int
    segments: int
    peak_time_ns: int | None
    peak_allocated_bytes: int
    peak_active_bytes: int
    peak_reserved_bytes: int
    fragmentation: float | None
    final_allocated_bytes: int
    final_active_bytes: int
    final_reserved_bytes: int
    final_largest_free_bytes: int
    allocations: int
    frees: int
    retries: int | None
    ooms: int
    retries_since_start: int | None = None
    ooms_since_start: int | None = None
    limit_bytes: int | None = None
    curve: AllocatorCurve | None = None
    groups: list[SegmentGroup] = []
    map: list[SegmentMap] = []
    map_left_out: int = 0
    sites_at_peak: list[CallSite] = []
    sites_at_end: list[CallSite] = []
    growth: list[CallSite] = []
    retry_events: list[Retry] = []
    oom_events: list[OutOfMemory] = []


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory snapshot says.

    Attributes:
        path: The snapshot.
        has_history: Whether it holds allocator events.
        clock_matched: Whether its events lie on the recording's clock; otherwise times count from its first event.
        first_ns: First event of the history; None without times.
        last_ns: Last event.
        settings: Allocator settings that differ from the defaults or concern fragmentation.
        contradictions: Where the snapshot does not add up; empty when everything does.
        devices: One entry per device.
    """

    path: str
    has_history: bool
    clock_matched: bool
    first_ns: int | None
    last_ns: int | None
    settings: dict[str, str]
    contradictions: list[str]
    devices: list[DeviceMemory]
