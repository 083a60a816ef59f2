"""Which step windows can be compared with each other: warm-up, steady, episodic, cut."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures import phases
from traceanalyzer.measures.step_markers import Markers
from traceanalyzer.model.schema import (
    ActivityKind,
    ByteArray,
    CallKind,
    CopyDirection,
    IntArray,
    SliceKind,
    among,
    distinct_codes,
)
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import PHASE_CODE, Phase, StepClass, StepSource

WARM_UP, STEADY, EPISODIC, CUT = (
    list(StepClass).index(c) for c in (StepClass.WARM_UP, StepClass.STEADY, StepClass.EPISODIC, StepClass.CUT)
)

WARM_UP_WINDOWS = 3
WARM_UP_NEEDS_WINDOWS = 10
MIN_COMPLETE_SHARE = 0.5  # a window with less than half of the usual launches or activities is incomplete

BoolArray = npt.NDArray[np.bool_]
_WARM_UP_NAME = re.compile(r"warm[\s_-]*up", re.IGNORECASE)
_EPOCH_NAME = re.compile(r"(?:^|[^a-z])epoch", re.IGNORECASE)
_LAUNCHES = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)


def classify_windows(trace: Trace, markers: Markers, source: StepSource) -> ByteArray:
    """Classify step windows; the kind of work they hold decides, never how long they took.

    Args:
        trace: The recording.
        markers: Its windows.
        source: Where they come from; a single window over the whole span is steady.

    Returns:
        int8 array of class codes.
    """
    classes = np.full(len(markers.start_ns), STEADY, dtype=np.int8)
    if source is StepSource.NONE or not len(classes):
        return classes
    episodic = _holds_episode(trace, markers) | _epoch_edges(trace, markers) | _smaller_batches(trace, markers)
    classes[episodic | _memory_cleared(trace, markers)] = EPISODIC
    classes[_warm_up(trace, markers)] = WARM_UP
    classes[_cut(trace, markers, classes)] = CUT
    return classes


def window_of(markers: Markers, times: IntArray) -> IntArray:
    """Return the window each moment lies in; -1 outside all."""
    window = np.searchsorted(markers.start_ns, times, side="right") - 1
    inside = (window >= 0) & (times < markers.end_ns[window])
    return np.asarray(np.where(inside, window, -1), dtype=np.int64)


def _touched(markers: Markers, start: IntArray, end: IntArray) -> BoolArray:
    """Say which windows share time with any of some intervals."""
    first = np.searchsorted(markers.end_ns, start, side="right")
    after = np.searchsorted(markers.start_ns, end, side="left")
    change = np.zeros(len(markers.start_ns) + 1, dtype=np.int64)
    some = after > first
    np.add.at(change, first[some], 1)
    np.add.at(change, after[some], -1)
    return np.asarray(np.cumsum(change[:-1]) > 0)


def _annotations(trace: Trace, wanted: re.Pattern[str]) -> IntArray:
    slices = trace.slices
    rows = np.flatnonzero(slices.kind == SliceKind.ANNOTATION)
    codes = [code for code in distinct_codes(slices.name[rows]) if code >= 0 and wanted.search(trace.names[code])]
    return rows[np.isin(slices.name[rows], codes)]


def _warm_up(trace: Trace, markers: Markers) -> BoolArray:
    """The recorder's mark (a named range or a count in the metadata), else the first three of ten or more."""
    marked = np.array([_WARM_UP_NAME.search(name) is not None for name in markers.names], dtype=np.bool_)
    rows = _annotations(trace, _WARM_UP_NAME)
    marked |= _touched(markers, trace.slices.start_ns[rows], trace.slices.end_ns[rows])
    stated = trace.metadata.get("warm_up_steps", "")
    if stated.isdecimal():
        marked[: int(stated)] = True
    elif not marked.any() and len(marked) >= WARM_UP_NEEDS_WINDOWS:
        marked[:WARM_UP_WINDOWS] = True
    return marked


def _holds_episode(trace: Trace, markers: Markers) -> BoolArray:
    """Validation or a checkpoint inside the window, boundary included."""
    phase = (phases.slice_traits(trace) & phases.PHASE_BITS) - 1
    rows = np.flatnonzero(np.isin(phase, (PHASE_CODE[Phase.VALIDATE], PHASE_CODE[Phase.CHECKPOINT])))
    return _touched(markers, trace.slices.start_ns[rows], trace.slices.end_ns[rows])


def _epoch_edges(trace: Trace, markers: Markers) -> BoolArray:
    """An epoch's range begins or ends inside the window, or the loader is asked oftener than usual.

    A loader that has run out is asked once more in vain, and the next epoch's loader at once again.
    """
    edge = np.zeros(len(markers.start_ns), dtype=np.bool_)
    rows = _annotations(trace, _EPOCH_NAME)
    for times in (trace.slices.start_ns[rows], trace.slices.end_ns[rows]):
        window = window_of(markers, times)
        inside = (window >= 0) & (times > markers.start_ns[window])
        edge[window[inside]] = True
    asked = _loader_calls(trace, markers)
    usual = _mode(asked)
    if usual > 0:
        edge |= asked > usual
    return edge


def _loader_calls(trace: Trace, markers: Markers) -> IntArray:
    """Count the calls of a loader's ``next`` on the markers' thread per window, nested ones once."""
    slices = trace.slices
    traits = phases.slice_traits(trace)
    rows = np.flatnonzero(((traits & phases.LOADER) != 0) & (slices.thread == markers.thread))
    if len(rows):
        ends = np.maximum.accumulate(slices.end_ns[rows])
        outer = np.ones(len(rows), dtype=np.bool_)
        outer[1:] = slices.start_ns[rows[1:]] >= ends[:-1]
        rows = rows[outer]
    window = window_of(markers, slices.start_ns[rows])
    return np.bincount(window[window >= 0], minlength=len(markers.start_ns))


def _smaller_batches(trace: Trace, markers: Markers) -> BoolArray:
    """The largest copy to the device is smaller than the one size most windows share: an epoch's last batch."""
    acts = trace.activities
    rows = np.flatnonzero(
        (acts.kind == ActivityKind.COPY)
        & (acts.direction == CopyDirection.H2D)
        & (acts.size_bytes > 0)
        & (trace.activity_call >= 0)
    )
    none = np.zeros(len(markers.start_ns), dtype=np.bool_)
    if not len(rows):
        return none
    window = window_of(markers, trace.calls.start_ns[trace.activity_call[rows]])
    largest = np.zeros(len(markers.start_ns), dtype=np.int64)
    np.maximum.at(largest, window[window >= 0], acts.size_bytes[rows[window >= 0]])
    usual = _mode(largest)
    if 2 * int((largest == usual).sum()) <= len(largest):
        return none  # sizes vary from step to step: no batch is the odd one out
    return (largest > 0) & (largest < usual)


def _memory_cleared(trace: Trace, markers: Markers) -> BoolArray:
    """A garbage collection whose thread next gives device memory back: trainers do both at an epoch's edge.

    A collection that Python starts by itself frees no device memory, for the caching allocator keeps it. Where most
    windows hold the pair it is no edge but part of the step.
    """
    slices, calls = trace.slices, trace.calls
    rows = np.flatnonzero(slices.kind == SliceKind.GARBAGE_COLLECTION)
    kinds = (*_LAUNCHES, CallKind.DEVICE_MALLOC, CallKind.DEVICE_FREE)
    cleared: list[int] = []
    for thread in np.unique(slices.thread[rows]).tolist():
        acting = np.flatnonzero((calls.thread == thread) & np.isin(calls.kind, kinds))
        ends = slices.end_ns[rows[slices.thread[rows] == thread]]
        following = np.searchsorted(calls.start_ns[acting], ends)
        frees = following < len(acting)
        frees[frees] = calls.kind[acting[following[frees]]] == CallKind.DEVICE_FREE
        cleared += ends[frees].tolist()
    found = np.zeros(len(markers.start_ns), dtype=np.bool_)
    window = window_of(markers, np.array(cleared, dtype=np.int64))
    found[window[window >= 0]] = True
    return found if 2 * int(found.sum()) < len(found) else np.zeros_like(found)


def _cut(trace: Trace, markers: Markers, classes: ByteArray) -> BoolArray:
    """Windows whose events are known to be incomplete, or that hold far fewer launches or activities than the rest."""
    cut = np.zeros(len(markers.start_ns), dtype=np.bool_)
    integrity = trace.integrity
    if integrity.cut_ns:
        spans = np.array(integrity.cut_ns, dtype=np.int64)
        # an instant counts as touching, too
        cut |= _touched(markers, spans[:, 0], np.maximum(spans[:, 1], spans[:, 0] + 1))
    if integrity.is_truncated:
        cut[-1] = True
    if integrity.truncated_at_ns is not None:
        cut |= markers.end_ns >= integrity.truncated_at_ns
    calls = trace.calls
    launches = np.flatnonzero(among(calls.kind, _LAUNCHES))
    window = window_of(markers, calls.start_ns[launches])
    inside = window >= 0
    launched = np.bincount(window[inside], minlength=len(cut))
    has_activity = np.zeros(len(calls), dtype=np.bool_)
    has_activity[trace.activity_call[trace.activity_call >= 0]] = True
    followed = np.bincount(window[inside & has_activity[launches]], minlength=len(cut))
    some = launched > 0
    if followed.any():
        # the device's side of this window is missing; some launches never show an activity (graph capture, driver
        # calls under runtime calls), so the share is measured against the usual one
        share = followed / np.maximum(launched, 1)
        cut |= some & (share < MIN_COMPLETE_SHARE * np.median(share[some]))
    if len(cut) >= 3 and classes[-1] == STEADY:
        # the recording stopped inside the last step
        cut[-1] |= bool(launched[-1] < MIN_COMPLETE_SHARE * np.median(launched[:-1]))
    return cut


def _mode(values: IntArray) -> int:
    """Return the most frequent value; the largest of several."""
    found, counts = np.unique(values, return_counts=True)
    return int(found[len(found) - 1 - int(np.argmax(counts[::-1]))]) if len(found) else 0
