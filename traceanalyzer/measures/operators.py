"""Host time of framework operators: calls, own time, and stretches without a launch."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.model.schema import IntArray
from traceanalyzer.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Operators:
    """One row per operator name, by falling own time.

    Attributes:
        name: Operator name.
        count: Calls.
        own_ns: Host time in the operator itself: not in nested operators or calls.
        median_own_ns: Median own time of one call.
        max_own_ns: Longest own time of one call.
    """

    name: tuple[str, ...]
    count: IntArray
    own_ns: IntArray
    median_own_ns: IntArray
    max_own_ns: IntArray


def measure_operators(trace: Trace) -> Operators:
    """Measure the operators of a trace."""
    raise NotImplementedError
