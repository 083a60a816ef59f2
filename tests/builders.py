"""Hand-written traces: a few lines of a test say what ran when, in microseconds.

``TraceBuilder`` collects rows and returns a ``Trace``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from traceanalyzer.model.calls import classify
from traceanalyzer.model.schema import (
    Activities,
    ActivityKind,
    Calls,
    CopyDirection,
    MemoryEvents,
    MemoryKind,
    Overheads,
    Schedules,
    SliceKind,
    Slices,
    Waits,
)
from traceanalyzer.model.trace import Device, Thread, Trace

MAIN = 0
AUTOGRAD = 1


def ns(us: float) -> int:
    """Microseconds, as tests write them, to integer nanoseconds."""
    return round(us * 1000)


@dataclass
class TraceBuilder:
    """Collects rows in microseconds; threads are small integers, MAIN (0) exists from the start.

    Attributes:
        metadata: Passed to the trace.
        rank: Passed to the trace.
        world_size: Passed to the trace.
        devices: Passed to the trace.
    """

    metadata: dict[str, str] = field(default_factory=dict)
    rank: int | None = None
    world_size: int | None = None
    devices: list[Device] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _threads: int = 1
    _activities: list[dict[str, int]] = field(default_factory=list)
    _calls: list[dict[str, int]] = field(default_factory=list)
    _slices: list[dict[str, int]] = field(default_factory=list)
    _overheads: list[dict[str, int]] = field(default_factory=list)
    _waits: list[dict[str, int]] = field(default_factory=list)
    _memory: list[dict[str, int]] = field(default_factory=list)
    _schedules: list[dict[str, int]] = field(default_factory=list)
    _correlation: int = 100

    def code(self, name: str) -> int:
        """Intern a name."""
        return self._names.setdefault(name, len(self._names))

    def _thread(self, thread: int) -> int:
        self._threads = max(self._threads, thread + 1)
        return thread

    def next_correlation(self) -> int:
        """Return an unused correlation id."""
        self._correlation += 1
        return self._correlation

    def call(self, name: str, start: float, end: float, *, thread: int = MAIN, correlation: int = -1) -> int:
        """Add a runtime call; returns its correlation id (-1 when none was given)."""
        self._calls.append(
            {
                "start_ns": ns(start),
                "end_ns": ns(end),
                "thread": self._thread(thread),
                "name": self.code(name),
                "kind": int(classify(name)),
                "correlation": correlation,
            }
        )
        return correlation

    def activity(
        self,
        name: str,
        start: float,
        end: float,
        *,
        kind: ActivityKind = ActivityKind.KERNEL,
        device: int = 0,
        stream: int = 7,
        correlation: int = -1,
        size_bytes: int = -1,
        direction: CopyDirection = CopyDirection.NONE,
        host_memory: MemoryKind = MemoryKind.UNKNOWN,
        grid_blocks: int = -1,
        block_threads: int = -1,
        graph_node: int = -1,
    ) -> None:
        """Add a GPU activity."""
        self._activities.append(
            {
                "start_ns": ns(start),
                "end_ns": ns(end),
                "kind": int(kind),
                "device": device,
                "stream": stream,
                "name": self.code(name),
                "correlation": correlation,
                "size_bytes": size_bytes,
                "direction": int(direction),
                "host_memory": int(host_memory),
                "grid_blocks": grid_blocks,
                "block_threads": block_threads,
                "graph_node": graph_node,
            }
        )

    def kernel(
        self,
        name: str,
        start: float,
        end: float,
        *,
        launch: tuple[float, float] | None = None,
        thread: int = MAIN,
        device: int = 0,
        stream: int = 7,
        call: str = "cudaLaunchKernel",
        grid_blocks: int = -1,
        block_threads: int = -1,
    ) -> int:
        """Add a kernel and, when ``launch`` is given, the call that launched it; returns the correlation id."""
        correlation = self.next_correlation()
        if launch is not None:
            self.call(call, *launch, thread=thread, correlation=correlation)
        self.activity(
            name,
            start,
            end,
            device=device,
            stream=stream,
            correlation=correlation,
            grid_blocks=grid_blocks,
            block_threads=block_threads,
        )
        return correlation

    def copy(
        self,
        start: float,
        end: float,
        *,
        launch: tuple[float, float] | None = None,
        direction: CopyDirection = CopyDirection.H2D,
        host_memory: MemoryKind = MemoryKind.PINNED,
        size_bytes: int = 1_000_000,
        thread: int = MAIN,
        device: int = 0,
        stream: int = 7,
        call: str = "cudaMemcpyAsync",
    ) -> int:
        """Add a copy and, when ``launch`` is given, the call that issued it; returns the correlation id."""
        correlation = self.next_correlation()
        if launch is not None:
            self.call(call, *launch, thread=thread, correlation=correlation)
        host = {MemoryKind.PAGEABLE: "Pageable", MemoryKind.PINNED: "Pinned"}.get(host_memory, "Unknown")
        title = {
            CopyDirection.H2D: f"Memcpy HtoD ({host} -> Device)",
            CopyDirection.D2H: f"Memcpy DtoH (Device -> {host})",
            CopyDirection.D2D: "Memcpy DtoD (Device -> Device)",
        }.get(direction, "Memcpy PtoP (Device -> Device)")
        self.activity(
            title,
            start,
            end,
            kind=ActivityKind.COPY,
            device=device,
            stream=stream,
            correlation=correlation,
            size_bytes=size_bytes,
            direction=direction,
            host_memory=host_memory,
        )
        return correlation

    def memset(self, start: float, end: float, *, launch: tuple[float, float] | None = None, thread: int = MAIN) -> int:
        """Add a memset and, when ``launch`` is given, its call."""
        correlation = self.next_correlation()
        if launch is not None:
            self.call("cudaMemsetAsync", *launch, thread=thread, correlation=correlation)
        self.activity("Memset (Device)", start, end, kind=ActivityKind.MEMSET, correlation=correlation, size_bytes=4)
        return correlation

    def slice(
        self,
        name: str,
        start: float,
        end: float,
        kind: SliceKind,
        *,
        thread: int = MAIN,
        shapes: str | None = None,
        domain: str | None = None,
    ) -> None:
        """Add a host slice of any kind."""
        self._slices.append(
            {
                "start_ns": ns(start),
                "end_ns": ns(end),
                "thread": self._thread(thread),
                "name": self.code(name),
                "kind": int(kind),
                "shapes": self.code(shapes) if shapes is not None else -1,
                "domain": self.code(domain) if domain is not None else -1,
            }
        )

    def operator(self, name: str, start: float, end: float, *, thread: int = MAIN, shapes: str | None = None) -> None:
        """Add a framework operator."""
        self.slice(name, start, end, SliceKind.OPERATOR, thread=thread, shapes=shapes)

    def annotation(self, name: str, start: float, end: float, *, thread: int = MAIN, domain: str | None = None) -> None:
        """Add a user range, or one of a library when an NVTX domain is given."""
        self.slice(name, start, end, SliceKind.ANNOTATION, thread=thread, domain=domain)

    def step(self, number: int, start: float, end: float, *, thread: int = MAIN) -> None:
        """Add a ``ProfilerStep#N`` range."""
        self.annotation(f"ProfilerStep#{number}", start, end, thread=thread)

    def python(self, name: str, start: float, end: float, *, thread: int = MAIN) -> None:
        """Add a Python frame."""
        self.slice(name, start, end, SliceKind.PYTHON, thread=thread)

    def garbage_collection(self, start: float, end: float, *, thread: int = MAIN) -> None:
        """Add a garbage-collection pause."""
        self.slice("gc", start, end, SliceKind.GARBAGE_COLLECTION, thread=thread)

    def overhead(self, name: str, start: float, end: float, *, thread: int = -1, is_module_load: bool = False) -> None:
        """Add a stretch of the profiler's own work; thread -1 holds for every thread."""
        self._overheads.append(
            {
                "start_ns": ns(start),
                "end_ns": ns(end),
                "thread": thread,
                "name": self.code(name),
                "is_module_load": int(is_module_load),
            }
        )

    def wait(
        self,
        start: float,
        end: float,
        *,
        kind: int,
        stream: int = 7,
        device: int = 0,
        correlation: int = -1,
        source_correlation: int = -1,
    ) -> None:
        """Add a synchronisation row (``WaitKind``)."""
        self._waits.append(
            {
                "start_ns": ns(start),
                "end_ns": ns(end),
                "kind": kind,
                "stream": stream,
                "device": device,
                "correlation": correlation,
                "source_correlation": source_correlation,
            }
        )

    def memory(
        self, time: float, delta_bytes: int, *, allocated: int = -1, reserved: int = -1, address: int = 0
    ) -> None:
        """Add an allocator event on device 0."""
        self._memory.append(
            {
                "time_ns": ns(time),
                "thread": MAIN,
                "device": 0,
                "delta_bytes": delta_bytes,
                "allocated_bytes": allocated,
                "reserved_bytes": reserved,
                "address": address,
            }
        )

    def scheduled_out(self, start: float, end: float, *, thread: int = MAIN) -> None:
        """Add a stretch in which a thread was off its core."""
        self._schedules.append({"start_ns": ns(start), "end_ns": ns(end), "thread": self._thread(thread)})

    def build(self) -> Trace:
        """Return the trace."""

        def columns(rows: list[dict[str, int]]) -> dict[str, list[int]]:
            return {key: [row[key] for row in rows] for key in rows[0]} if rows else {}

        return Trace.build(
            names=list(self._names),
            threads=[Thread(1, 1 + i) for i in range(self._threads)],
            devices=self.devices,
            activities=Activities.build(**columns(self._activities)),
            calls=Calls.build(**columns(self._calls)),
            slices=Slices.build(**columns(self._slices)),
            overheads=Overheads.build(**columns(self._overheads)),
            waits=Waits.build(**columns(self._waits)),
            memory=MemoryEvents.build(**columns(self._memory)),
            schedules=Schedules.build(**columns(self._schedules)),
            rank=self.rank,
            world_size=self.world_size,
            metadata=self.metadata,
        )
