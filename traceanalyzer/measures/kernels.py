"""Kernel sums by name and family, and which kernels are collectives or tensor-core kernels."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import KernelsReport


@dataclass(frozen=True, slots=True)
class Kernels:
    """One row per kernel, in time order.

    Attributes:
        activity: Row of ``Trace.activities``.
        window: Step window that launched it; -1 none.
        device: Device id.
        duration_ns: Kernel duration.
        family: Code into ``families``.
        families: Family names; vectorised and unrolled variants of one kernel share a family.
        report: The document part.
    """

    activity: IntArray
    window: CodeArray
    device: CodeArray
    duration_ns: IntArray
    family: CodeArray
    families: tuple[str, ...]
    report: KernelsReport


def measure_kernels(trace: Trace, steps: Steps) -> Kernels:
    """Measure the kernels of a trace."""
    raise NotImplementedError


def is_communication(name: str) -> bool:
    """Say whether a kernel name is a NCCL or RCCL collective."""
    raise NotImplementedError
