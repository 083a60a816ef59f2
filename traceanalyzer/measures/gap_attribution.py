"""Every idle nanosecond gets exactly one cause; the pieces tile the gaps, so the causes sum to idle exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.host_timeline import HostTimeline
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, Phase

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class IdleLedger:
    """Idle pieces of all devices, sorted by device, then start; one row per piece, split at window borders.

    The pieces with ``in_span`` tile each device's gaps exactly. The pieces with ``window >= 0`` tile the idle time
    of every step window exactly (idle before a window's first activity and after its last included), whether or
    not it lies inside the device's span.

    Attributes:
        start_ns: Piece start.
        end_ns: Piece end.
        device: Device id.
        cause: Code into ``vocabulary.CAUSES``.
        phase: Code into ``vocabulary.PHASES``.
        window: Step window index; -1 outside every window.
        step_class: Class code of that window; -1 outside.
        boundary: 1 where the piece lies in a window but outside its marker.
        in_span: 1 where the piece lies inside the device's span.
        gap: Index into the device's gaps; -1 outside the span.
        activity: Row of the activity that ends the gap; -1 when none does.
        thread: Thread whose state decided the cause; -1 unknown.
        slice_row: Innermost slice open there (row of ``Trace.slices``); -1 none.
        call_row: Innermost call open there (row of ``Trace.calls``), or the launch call; -1 none.
    """

    start_ns: IntArray
    end_ns: IntArray
    device: CodeArray
    cause: ByteArray
    phase: ByteArray
    window: CodeArray
    step_class: ByteArray
    boundary: ByteArray
    in_span: ByteArray
    gap: CodeArray
    activity: IntArray
    thread: CodeArray
    slice_row: IntArray
    call_row: IntArray

    @property
    def duration_ns(self) -> IntArray:
        """Length of each piece."""
        return self.end_ns - self.start_ns

    def mask(
        self,
        *causes: Cause,
        device: int | None = None,
        phases: tuple[Phase, ...] | None = None,
        step_classes: tuple[int, ...] | None = None,
    ) -> BoolArray:
        """Select pieces.

        Args:
            *causes: Keep these causes; none given keeps all.
            device: Keep this device.
            phases: Keep these phases.
            step_classes: Keep pieces of windows of these classes (codes of ``steps.STEP_CLASSES``).
        """
        keep = np.ones(len(self.start_ns), dtype=np.bool_)
        if causes:
            keep &= np.isin(self.cause, [CAUSE_CODE[c] for c in causes])
        if device is not None:
            keep &= self.device == device
        if phases is not None:
            keep &= np.isin(self.phase, [PHASE_CODE[p] for p in phases])
        if step_classes is not None:
            keep &= np.isin(self.step_class, step_classes)
        return keep

    def per_window(self, mask: BoolArray, windows: int) -> IntArray:
        """Sum the selected pieces by step window.

        Args:
            mask: Selection, as ``mask`` returns it.
            windows: Number of step windows.

        Returns:
            int64 array of length ``windows``, ns.
        """
        rows = mask & (self.window >= 0)
        sums = np.zeros(windows, dtype=np.int64)
        np.add.at(sums, self.window[rows], self.duration_ns[rows])
        return sums


def attribute_idle(trace: Trace, steps: Steps, host: HostTimeline, devices: tuple[DeviceTimeline, ...]) -> IdleLedger:
    """Attribute the idle time of every device to its cause, by rules 1 to 4 of the definitions."""
    raise NotImplementedError
