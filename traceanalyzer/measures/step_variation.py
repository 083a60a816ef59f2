"""One value per step window of everything a comparison or a step plot needs."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.copies import Copies
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.kernels import Kernels
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import PerStep


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Per-window series.

    Attributes:
        report: The document part.
    """

    report: PerStep


def measure_step_series(
    trace: Trace,
    steps: Steps,
    devices: tuple[DeviceTimeline, ...],
    idle: IdleLedger,
    copies: Copies,
    kernels: Kernels,
) -> StepSeries:
    """Compute the per-window series of the busiest device."""
    raise NotImplementedError
