"""Every idle nanosecond gets exactly one cause; the pieces tile the gaps, so the causes sum to idle exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_links import link_gaps
from traceanalyzer.measures.gap_walk import (
    ACTIVITY,
    CALL,
    CAUSE,
    DEVICE,
    END,
    GAP,
    PHASE,
    SLICE,
    START,
    THE_LAUNCH,
    THREAD,
    WIDTH,
    ThreadTables,
    thread_tables,
    walk_gaps,
)
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
    """Attribute the idle time of every device to its cause, by rules 1 to 4 of the definitions.

    Args:
        trace: The recording.
        steps: Its step windows.
        host: Its flattened host threads.
        devices: Its device timelines.

    Returns:
        The ledger; empty without devices.
    """
    context = thread_tables(trace, steps, host)
    parts = [_attribute_device(trace, steps, host, device, context) for device in devices]
    pieces = np.concatenate(parts) if parts else np.empty((0, WIDTH), dtype=np.int64)
    return _split(pieces, steps)


def _attribute_device(
    trace: Trace, steps: Steps, host: HostTimeline, device: DeviceTimeline, context: ThreadTables
) -> IntArray:
    """Return one device's pieces, before they are split at window borders."""
    start, end = device.gap_start_ns, device.gap_end_ns
    gap = np.arange(len(start), dtype=np.int64)
    if len(steps):
        # idle of the windows before the device's first activity and after its last
        if steps.start_ns[0] < device.span_start_ns:
            start = np.concatenate((steps.start_ns[:1], start))
            end = np.concatenate((np.array([device.span_start_ns], dtype=np.int64), end))
            gap = np.concatenate((np.array([-1], dtype=np.int64), gap))
        tail = max(device.span_end_ns, int(steps.start_ns[0]))
        if steps.end_ns[-1] > tail:
            start = np.concatenate((start, np.array([tail], dtype=np.int64)))
            end = np.concatenate((end, steps.end_ns[-1:]))
            gap = np.concatenate((gap, np.array([-1], dtype=np.int64)))
    links = link_gaps(trace, device, start, end, steps.thread)
    gaps = np.column_stack((
        start, end, links.thread, links.call_start, links.call_end, links.inside_cause, links.after_cause,
        links.wait_until,
    ))  # fmt: skip
    pieces = walk_gaps(
        gaps, host.offsets, host.start_ns, host.end_ns, host.cause, host.phase, host.slice_row, host.call_row, *context
    ).reshape(-1, WIDTH)
    ids = pieces[:, GAP]
    pieces[:, ACTIVITY] = links.activity[ids]
    call = links.call[ids]
    pieces[:, CALL] = np.where(pieces[:, CALL] == THE_LAUNCH, call, pieces[:, CALL])
    pieces[:, GAP] = gap[ids]
    pieces[:, DEVICE] = device.device_id
    return pieces  # type: ignore[no-any-return]


def _split(pieces: IntArray, steps: Steps) -> IdleLedger:
    """Split pieces at the borders of windows and markers, and say in which window each lies."""
    cuts = np.unique(np.concatenate((steps.start_ns, steps.marker_end_ns, steps.end_ns)))
    start, end = pieces[:, START], pieces[:, END]
    first = np.searchsorted(cuts, start, side="right")
    count = np.searchsorted(cuts, end, side="left") - first + 1
    rows = np.repeat(np.arange(len(pieces)), count)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    padded = np.concatenate((cuts, np.zeros(1, dtype=np.int64)))
    low = np.where(number == 0, start[rows], padded[first[rows] + number - 1])
    high = np.where(number == count[rows] - 1, end[rows], padded[np.minimum(first[rows] + number, len(cuts))])
    if len(steps):
        window = np.searchsorted(steps.start_ns, low, side="right") - 1
        window = np.where((window >= 0) & (low < steps.end_ns[window]), window, -1)
        inside = window >= 0
        step_class = np.where(inside, steps.step_class[window], -1)
        boundary = inside & (low >= steps.marker_end_ns[window])
    else:
        window = np.full(len(rows), -1, dtype=np.int64)
        step_class = window
        boundary = np.zeros(len(rows), dtype=np.bool_)
    gap = pieces[rows, GAP]
    return IdleLedger(
        start_ns=low,
        end_ns=high,
        device=pieces[rows, DEVICE].astype(np.int32),
        cause=pieces[rows, CAUSE].astype(np.int8),
        phase=pieces[rows, PHASE].astype(np.int8),
        window=window.astype(np.int32),
        step_class=step_class.astype(np.int8),
        boundary=boundary.astype(np.int8),
        in_span=(gap >= 0).astype(np.int8),
        gap=gap.astype(np.int32),
        activity=pieces[rows, ACTIVITY],
        thread=pieces[rows, THREAD].astype(np.int32),
        slice_row=pieces[rows, SLICE],
        call_row=pieces[rows, CALL],
    )
