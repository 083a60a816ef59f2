"""The data loader as the training loop sees it: every call of its ``next``."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray
from traceanalyzer.model.trace import Trace


@dataclass(frozen=True, slots=True)
class InputSupply:
    """One row per call of a loader's ``next`` (outermost), in time order.

    Attributes:
        start_ns: Start.
        end_ns: End.
        window: Step window it began in; -1 none.
        thread: Thread index.
        slice_row: Row of ``Trace.slices``.
        in_main_process: 1 single-process iterator, 0 worker processes, -1 not known from the name.
        in_validation: 1 inside a validate range.
        worker_processes: Loader worker processes seen in the recording, or None when it cannot show them.
    """

    start_ns: IntArray
    end_ns: IntArray
    window: CodeArray
    thread: CodeArray
    slice_row: IntArray
    in_main_process: ByteArray
    in_validation: ByteArray
    worker_processes: int | None


def measure_input_supply(trace: Trace, steps: Steps) -> InputSupply:
    """Find every call of a loader's ``next``."""
    raise NotImplementedError
