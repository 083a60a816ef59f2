"""Every idle nanosecond gets exactly one cause; the pieces tile the gaps, so the causes sum to idle exactly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures.arithmetic import sum_per_window
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_links import link_gaps
from traceanalyzer.measures.gap_walk import GAP_COLUMNS, ThreadTables, thread_tables, walk_gaps
from traceanalyzer.measures.host_timeline import HostTimeline
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, Phase

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
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
    activity: CodeArray
    thread: CodeArray
    slice_row: CodeArray
    call_row: CodeArray

    @cached_property
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
            keep &= _table([CAUSE_CODE[c] for c in causes])[self.cause]
        if device is not None:
            keep &= self.device == device
        if phases is not None:
            keep &= _table([PHASE_CODE[p] for p in phases])[self.phase]
        if step_classes is not None:
            keep &= _table(step_classes)[self.step_class]
        return keep

    def per_window(self, mask: BoolArray, windows: int) -> IntArray:
        """Sum the selected pieces by step window.

        Args:
            mask: Selection, as ``mask`` returns it.
            windows: Number of step windows.

        Returns:
            int64 array of length ``windows``, ns.
        """
        return sum_per_window(self.window[mask], self.duration_ns[mask], windows)


def _table(codes: Iterable[int]) -> BoolArray:
    """Return a lookup table of the codes to keep; indexing by an int8 column is several times faster than isin.

    The last entry answers for -1 ("outside every window"), which is never kept.
    """
    table = np.zeros(128, dtype=np.bool_)
    table[list(codes)] = True
    return table


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
    tables = thread_tables(trace, steps, host)
    parts = [_attribute_device(trace, steps, host, device, tables) for device in devices]
    if not parts:
        empty = np.empty(0, dtype=np.int32)
        parts = [(_columns(steps, host, tables, np.empty((0, GAP_COLUMNS), dtype=np.int64)), empty)]
    # of millions of pieces: those of a lone device are not copied
    start, end, cause, phase, window, boundary, gap, activity, thread, slice_row, call_row = (
        columns[0] if len(columns) == 1 else np.concatenate(columns)
        for columns in zip(*(part[0] for part in parts), strict=True)
    )
    step_class = np.append(steps.step_class, np.int8(-1))  # the last entry stands for window -1
    return IdleLedger(
        start_ns=start,
        end_ns=end,
        device=np.concatenate([part[1] for part in parts]),
        cause=cause,
        phase=phase,
        window=window,
        step_class=step_class[window],
        boundary=boundary,
        in_span=(gap >= 0).astype(np.int8),
        gap=gap,
        activity=activity,
        thread=thread,
        slice_row=slice_row,
        call_row=call_row,
    )


def _attribute_device(
    trace: Trace, steps: Steps, host: HostTimeline, device: DeviceTimeline, tables: ThreadTables
) -> tuple[tuple[npt.NDArray[Any], ...], CodeArray]:
    """Return the columns of one device's pieces, and the device beside each."""
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
    gaps: IntArray = np.column_stack(
        (
            start,
            end,
            links.thread,
            links.call_start,
            links.call_end,
            links.inside_cause,
            links.after_cause,
            links.wait_until,
            links.activity,
            links.call,
            gap,
        )
    ).astype(np.int64, copy=False)
    columns = _columns(steps, host, tables, gaps)
    return columns, np.full(len(columns[0]), device.device_id, dtype=np.int32)


def _columns(steps: Steps, host: HostTimeline, tables: ThreadTables, gaps: IntArray) -> tuple[npt.NDArray[Any], ...]:
    windows = np.column_stack((steps.start_ns, steps.end_ns, steps.marker_end_ns))
    return walk_gaps(  # type: ignore[no-any-return]
        gaps,
        windows,
        host.offsets,
        host.start_ns,
        host.end_ns,
        host.cause,
        host.phase,
        host.slice_row,
        host.call_row,
        *tables,
    )
