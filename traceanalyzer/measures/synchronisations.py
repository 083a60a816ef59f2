"""Calls in which the host waited for the device."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray
from traceanalyzer.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Synchronisations:
    """One row per waiting call, in time order.

    Attributes:
        call: Row of ``Trace.calls``.
        window: Step window it began in; -1 none.
        start_ns: Start.
        end_ns: End.
        is_device_wide: 1 for a device-wide synchronisation.
        operator: Outermost enclosing operator's name code (``aten::item`` …); -1 none.
        in_copy: 1 where it completes a blocking copy (see ``Copies.sync_call``).
    """

    call: IntArray
    window: CodeArray
    start_ns: IntArray
    end_ns: IntArray
    is_device_wide: ByteArray
    operator: CodeArray
    in_copy: ByteArray


def measure_synchronisations(trace: Trace, steps: Steps) -> Synchronisations:
    """Find every call that waits for the device."""
    raise NotImplementedError
