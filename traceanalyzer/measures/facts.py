"""Names, spans and numbers of single rows, for rules: they judge measures and never open the recording's tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from traceanalyzer.model.schema import (
    ActivityKind,
    CallKind,
    CodeArray,
    CopyDirection,
    IntArray,
    MemoryKind,
    SliceKind,
    among,
    distinct_codes,
)
from traceanalyzer.model.trace import Device, Integrity, Trace

# the code lists the measures' columns use, re-exported for readers that see only measures
__all__ = [
    "ActivityKind",
    "BoolArray",
    "CallKind",
    "CodeArray",
    "CopyDirection",
    "Facts",
    "IntArray",
    "MemoryKind",
    "SliceKind",
    "inside",
]

BoolArray = npt.NDArray[np.bool_]


class Facts:
    """Looks up what a row number in a measure stands for. Every ``row`` argument accepts -1, meaning absent.

    Args:
        trace: The recording.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @property
    def integrity(self) -> Integrity:
        """What reading found wrong."""
        return self._trace.integrity

    @property
    def activity_count(self) -> int:
        """Number of GPU activities."""
        return len(self._trace.activities)

    @property
    def has_operators(self) -> bool:
        """Whether the recording holds framework operators."""
        return bool(np.any(self._trace.slices.kind == SliceKind.OPERATOR))

    @property
    def has_shapes(self) -> bool:
        """Whether operators carry their input shapes."""
        return bool(np.any(self._trace.slices.shapes >= 0))

    def has_slices(self, kind: SliceKind) -> bool:
        """Whether the recording holds host slices of a kind."""
        return bool(np.any(self._trace.slices.kind == kind))

    @property
    def has_schedules(self) -> bool:
        """Whether the recording says when threads lost their core."""
        return bool(len(self._trace.schedules))

    def scheduled_out(self) -> tuple[IntArray, IntArray, CodeArray]:
        """Start, end and thread index of the stretches in which a thread was off its core."""
        rows = self._trace.schedules
        return rows.start_ns, rows.end_ns, rows.thread

    def activity_starts(self, rows: IntArray) -> IntArray:
        """Start of each activity, ns."""
        return self._trace.activities.start_ns[rows]

    def activity_ends(self, rows: IntArray) -> IntArray:
        """End of each activity, ns."""
        return self._trace.activities.end_ns[rows]

    def device(self, device_id: int) -> Device | None:
        """Return what is known about a device, or None."""
        return next((d for d in self._trace.devices if d.device_id == device_id), None)

    def tid(self, thread: int) -> int | None:
        """Thread id of a thread index; None for -1."""
        return self._trace.threads[thread].tid if thread >= 0 else None

    def stream(self, activity: int) -> int | None:
        """Stream of an activity; None for -1."""
        return int(self._trace.activities.stream[activity]) if activity >= 0 else None

    def activity_name(self, activity: int) -> str:
        """Name of an activity; empty for -1."""
        return self._text(int(self._trace.activities.name[activity])) if activity >= 0 else ""

    def named_with(self, activities: IntArray, parts: Collection[str]) -> BoolArray:
        """Say which activities have a name that contains any of some texts; each distinct name is looked at once."""
        codes = self._trace.activities.name[activities]
        wanted = [c for c in np.unique(codes).tolist() if any(part in self._text(c) for part in parts)]
        found: BoolArray = among(codes, wanted)
        return found

    def call_name(self, row: int) -> str:
        """Name of a runtime call; empty for -1."""
        return self._text(int(self._trace.calls.name[row])) if row >= 0 else ""

    def call_kinds(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
        """``CallKind`` of runtime calls, ``CallKind.OTHER`` for -1."""
        if not len(self._trace.calls):
            return np.zeros(len(rows), dtype=np.int8)
        return np.where(rows >= 0, self._trace.calls.kind[rows], np.int8(CallKind.OTHER))

    def call_columns(self, rows: IntArray) -> tuple[IntArray, IntArray, CodeArray]:
        """Start, end and thread index of runtime calls (rows must exist)."""
        calls = self._trace.calls
        return calls.start_ns[rows], calls.end_ns[rows], calls.thread[rows]

    def call_thread(self, row: int) -> int:
        """Thread index of a runtime call; -1 for -1."""
        return int(self._trace.calls.thread[row]) if row >= 0 else -1

    def slice_name(self, row: int) -> str:
        """Name of a host slice; empty for -1."""
        return self._text(int(self._trace.slices.name[row])) if row >= 0 else ""

    def time_by_frame(self, rows: IntArray | CodeArray, time_ns: IntArray) -> dict[str, int]:
        """Sum times, ns, by the name of the Python frame they belong to; rows of other slices are left out."""
        slices = self._trace.slices
        is_frame = slices.kind[rows] == SliceKind.PYTHON
        codes, place = np.unique(slices.name[rows[is_frame]], return_inverse=True)
        sums = np.zeros(len(codes), dtype=np.int64)
        np.add.at(sums, place, time_ns[is_frame])
        return {self._text(code): time for code, time in zip(codes.tolist(), sums.tolist(), strict=True)}

    def is_python_frame(self, row: int) -> bool:
        """Whether a host slice is a Python frame; False for -1."""
        return row >= 0 and int(self._trace.slices.kind[row]) == SliceKind.PYTHON

    def slice_span(self, row: int) -> tuple[int, int]:
        """Start and end of a host slice, ns."""
        return int(self._trace.slices.start_ns[row]), int(self._trace.slices.end_ns[row])

    def slice_thread(self, row: int) -> int:
        """Thread index of a host slice; -1 for -1."""
        return int(self._trace.slices.thread[row]) if row >= 0 else -1

    def slice_shapes(self, row: int) -> str:
        """Input shapes of an operator as recorded; empty where they were not."""
        return self._text(int(self._trace.slices.shapes[row])) if row >= 0 else ""

    def slices_named(self, names: Collection[str], prefix: bool = False) -> IntArray:
        """Rows of the host slices with one of some names.

        Args:
            names: Names, or their beginnings.
            prefix: Compare beginnings only.

        Returns:
            Row numbers of ``Trace.slices``, in time order.
        """
        table: Sequence[str] = self._trace.names
        wanted = tuple(names)
        codes = [
            code
            for code in distinct_codes(self._trace.slices.name).tolist()
            if code >= 0 and (table[code].startswith(wanted) if prefix else table[code] in wanted)
        ]
        return np.flatnonzero(among(self._trace.slices.name, codes)).astype(np.int64)

    def slice_columns(self, rows: IntArray) -> tuple[IntArray, IntArray, CodeArray]:
        """Start, end and thread index of host slices."""
        slices = self._trace.slices
        return slices.start_ns[rows], slices.end_ns[rows], slices.thread[rows]

    def launch_calls(self) -> tuple[IntArray, IntArray]:
        """Start and length, ns, of every kernel launch call."""
        calls = self._trace.calls
        rows = calls.kind == CallKind.LAUNCH
        return calls.start_ns[rows], calls.end_ns[rows] - calls.start_ns[rows]

    def _text(self, code: int) -> str:
        return self._trace.names[code] if code >= 0 else ""


def inside(
    points_ns: IntArray, point_thread: CodeArray, start_ns: IntArray, end_ns: IntArray, thread: CodeArray
) -> BoolArray:
    """Say which moments lie inside any of some stretches of the same thread.

    Args:
        points_ns: Moments.
        point_thread: Thread of each moment.
        start_ns: Starts of the stretches.
        end_ns: Ends of the stretches.
        thread: Thread of each stretch.

    Returns:
        Boolean array, one per moment.
    """
    found = np.zeros(len(points_ns), dtype=np.bool_)
    for one in np.unique(thread):
        rows = thread == one
        order = np.argsort(start_ns[rows], kind="stable")
        starts = start_ns[rows][order]
        # nested stretches: the furthest end so far covers everything that began before
        ends = np.maximum.accumulate(end_ns[rows][order])
        here = np.flatnonzero(point_thread == one)
        at = np.searchsorted(starts, points_ns[here], side="right") - 1
        found[here] = (at >= 0) & (points_ns[here] < ends[np.maximum(at, 0)])
    return found
