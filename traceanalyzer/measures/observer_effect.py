"""How much the profiler slowed the step, where the recorder measured steps without it."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.steps import Steps
from traceanalyzer.results.analysis import ObserverReport


@dataclass(frozen=True, slots=True)
class ObserverEffect:
    """Profiled against unprofiled step time.

    Attributes:
        report: The document part.
    """

    report: ObserverReport


def measure_observer_effect(steps: Steps, recorder: dict[str, object]) -> ObserverEffect:
    """Compare the recorded steps with the recorder's unprofiled ones."""
    raise NotImplementedError
