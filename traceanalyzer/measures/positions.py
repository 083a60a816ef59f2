"""The launch sequence of a step, aligned by name to the most frequent one."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import Positions


@dataclass(frozen=True, slots=True)
class StepPositions:
    """Aligned launch sequences of the steady steps.

    Attributes:
        report: The document part.
    """

    report: Positions


def measure_positions(trace: Trace, steps: Steps) -> StepPositions:
    """Align every steady step's launches to the modal sequence."""
    raise NotImplementedError
