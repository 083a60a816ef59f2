"""Driver allocation calls, and the framework allocator as its events show it."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import AllocatorReport, MemoryCurve


@dataclass(frozen=True, slots=True)
class Allocator:
    """Allocation calls (one row per call, in time order) and allocator totals.

    Attributes:
        call: Row of ``Trace.calls``: device malloc, device free, host alloc or host free.
        kind: ``CallKind`` code of it.
        window: Step window the call began in; -1 none.
        start_ns: Call start.
        end_ns: Call end.
        curve: Allocated and reserved bytes over time, or None without allocator events.
        largest_steady_growth_bytes: Growth of allocated bytes between the same point of consecutive steady steps,
            or None when unknown.
        report: The document part.
    """

    call: IntArray
    kind: ByteArray
    window: CodeArray
    start_ns: IntArray
    end_ns: IntArray
    curve: MemoryCurve | None
    largest_steady_growth_bytes: int | None
    report: AllocatorReport


def measure_allocator(trace: Trace, steps: Steps) -> Allocator:
    """Measure allocation calls and allocator events."""
    raise NotImplementedError
