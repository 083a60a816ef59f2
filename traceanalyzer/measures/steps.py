"""Step windows: where one training iteration ends and the next begins, and which windows are comparable."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.model.schema import ByteArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import StepClass, StepSource

STEP_CLASSES: tuple[StepClass, ...] = tuple(StepClass)  # codes of ``Steps.step_class``
WARM_UP, STEADY, EPISODIC, CUT = range(4)


@dataclass(frozen=True, slots=True)
class Steps:
    """Step windows in time order; arrays have one entry per window.

    Attributes:
        source: Where the borders come from; with ``none`` the whole span is one window.
        start_ns: Window start (the marker's start).
        end_ns: Window end (the next marker's start; the last window: its marker's end).
        marker_end_ns: End of the marker itself; ``[marker_end_ns, end_ns)`` is the boundary.
        step_class: Code into ``STEP_CLASSES``.
        names: Marker name of each window.
        thread: Thread index of the markers; -1 without markers.
    """

    source: StepSource
    start_ns: IntArray
    end_ns: IntArray
    marker_end_ns: IntArray
    step_class: ByteArray
    names: tuple[str, ...]
    thread: int

    def __len__(self) -> int:
        return len(self.start_ns)


def find_steps(trace: Trace, marker: str | None, selection: tuple[int | None, int | None] | None) -> Steps:
    """Find the step windows of a trace, by the order of preference of the definitions."""
    raise NotImplementedError
