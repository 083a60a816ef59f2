"""Calls in which the host waited for the device."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.arithmetic import windows_of
from traceanalyzer.measures.copies import Copies
from traceanalyzer.measures.host_nesting import HostNesting
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import (
    ByteArray,
    CallKind,
    CodeArray,
    IntArray,
    among,
)
from traceanalyzer.model.trace import Trace

_DEVICE_WIDE = re.compile(r"(Device|Ctx|Thread)Synchronize")


@dataclass(frozen=True, slots=True)
class Synchronisations:
    """One row per ``*Synchronize`` call, in time order; copies that block by themselves are rows of ``Copies``.

    Attributes:
        call: Row of ``Trace.calls``.
        window: Step window it began in; -1 none.
        thread: Thread index.
        start_ns: Start.
        end_ns: End.
        is_device_wide: 1 for a device-wide synchronisation.
        operator: Outermost enclosing operator's name code (``aten::item`` …); -1 none.
        operator_row: Row of ``Trace.slices`` of that operator; -1 none.
        in_copy: 1 where it completes a blocking copy (see ``Copies.sync_call``).
        copy: Row of ``Copies`` it completes; -1 none.
    """

    call: IntArray
    window: CodeArray
    thread: CodeArray
    start_ns: IntArray
    end_ns: IntArray
    is_device_wide: ByteArray
    operator: CodeArray
    operator_row: CodeArray
    in_copy: ByteArray
    copy: IntArray


def measure_synchronisations(trace: Trace, steps: Steps, copies: Copies, nesting: HostNesting) -> Synchronisations:
    """Find every ``*Synchronize`` call.

    Args:
        trace: The recording.
        steps: Its step windows.
        copies: Its copies, which know the synchronisations that complete them.
        nesting: Its operators and calls nested.
    """
    calls = trace.calls
    rows = np.flatnonzero(calls.kind == CallKind.SYNCHRONIZE)
    device_wide = [c for c in np.unique(calls.name[rows]).tolist() if c >= 0 and _DEVICE_WIDE.search(trace.names[c])]
    outermost = nesting.call_outermost[rows]
    operator = np.full(len(rows), -1, dtype=np.int32)
    enclosed = outermost >= 0
    operator[enclosed] = trace.slices.name[outermost[enclosed]]
    completed = np.full(len(calls), -1, dtype=np.int64)
    blocking = np.flatnonzero(copies.sync_call >= 0)
    completed[copies.sync_call[blocking]] = blocking
    return Synchronisations(
        call=rows,
        window=windows_of(calls.start_ns[rows], steps),
        thread=calls.thread[rows],
        start_ns=calls.start_ns[rows],
        end_ns=calls.end_ns[rows],
        is_device_wide=among(calls.name[rows], device_wide).astype(np.int8),
        operator=operator,
        operator_row=outermost,
        in_copy=(completed[rows] >= 0).astype(np.int8),
        copy=completed[rows],
    )
