"""What every host thread was doing at every moment: the innermost open slice, its cause class and its phase."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.model.schema import ByteArray, IntArray
from traceanalyzer.model.trace import Trace


@dataclass(frozen=True, slots=True)
class HostTimeline:
    """Flattened threads: consecutive, non-overlapping stretches, sorted by thread, then start.

    A stretch exists only while at least one slice or call is open on the thread. ``offsets[t]`` to
    ``offsets[t + 1]`` are the rows of thread ``t``.

    Attributes:
        offsets: Row offsets per thread, length threads + 1.
        start_ns: Stretch start.
        end_ns: Stretch end.
        cause: Cause code by rule 3 of the definitions (``vocabulary.CAUSES`` order), were the device idle here.
        phase: Phase code (``vocabulary.PHASES`` order).
        slice_row: Innermost open row of ``Trace.slices``; -1 when only a call is open.
        call_row: Innermost open row of ``Trace.calls``; -1 when no call is open.
    """

    offsets: IntArray
    start_ns: IntArray
    end_ns: IntArray
    cause: ByteArray
    phase: ByteArray
    slice_row: IntArray
    call_row: IntArray


def flatten_host(trace: Trace) -> HostTimeline:
    """Flatten every thread's nested slices and calls."""
    raise NotImplementedError
