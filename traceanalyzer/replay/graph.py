"""The dependency graph of a recording: host calls in time order, the activities they enqueue, and typical delays.

A node is a runtime call of a launching thread, or the border of a step window. It depends on the node before it on
its thread, on the thread that handed it work, and on what it waits for; an activity depends on its call, on the
activity before it on its stream, and on the events its stream waits for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures import Measures
from traceanalyzer.model.schema import CallKind, CopyDirection, IntArray, MemoryKind, SliceKind, WaitKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.sweeps import (
    ACTIVITY,
    EVERYTHING,
    NOTHING,
    STREAM,
    STREAM_FOR_ACTIVITY,
    link_host,
)

# a stream gap up to this long means that the activity was queued behind its predecessor
QUEUED_NS = 3_000
# pageable copies to the device of at most this size return before they have run
STAGED_BYTES = 65_536
# a launch this much earlier than its start, with the stream free, waited on the device (an event, another stream)
DEVICE_WAIT_NS = 50_000

_LONG_AGO = -(1 << 60)


@dataclass(frozen=True, slots=True)
class Graph:
    """Flat arrays of the graph; see ``sweeps.execute`` for what each column does.

    Attributes:
        nodes: int64 (nodes, 9), as ``sweeps.link_host`` fills them.
        call: Row of ``Trace.calls`` per node; -1 for step borders.
        node_of_call: Node per row of ``Trace.calls``; -1 where it is none.
        marks: Nodes of the step borders, one more than there are windows.
        thread_of: Index of each of the recording's threads among the launching ones; -1 others.
        threads: Number of launching threads.
        length: Host time of each call by itself, ns.
        waits: What the call waits for.
        wait_for: Position of the awaited activity; -1 none.
        wait_stream: Stream that is awaited, or that waits.
        wake: Typical time from the awaited end to the call's return, ns.
        offsets: Positions of each node's activities, length nodes + 1.
        activity: Row of ``Trace.activities`` per position.
        stream: Stream per position.
        streams: Number of streams.
        base: 1 where the delay counts from the first activity of the call.
        delay: Typical delay, ns.
        gap: Typical gap to the stream's previous activity, ns (negative where kernels overlap).
        duration: Recorded duration, ns.
        unplaced: Activities that are not in the graph because no launch was recorded for them.
    """

    nodes: IntArray
    call: IntArray
    node_of_call: IntArray
    marks: IntArray
    thread_of: IntArray
    threads: int
    length: IntArray
    waits: npt.NDArray[np.int8]
    wait_for: IntArray
    wait_stream: IntArray
    wake: IntArray
    offsets: IntArray
    activity: IntArray
    stream: IntArray
    streams: int
    base: npt.NDArray[np.int8]
    delay: IntArray
    gap: IntArray
    duration: IntArray
    unplaced: int


def build_graph(measures: Measures) -> Graph | None:
    """Build the graph of one rank.

    Args:
        measures: One rank.

    Returns:
        The graph; None without linked launches or without step windows.
    """
    trace, steps = measures.trace, measures.steps
    calls, activities = trace.calls, trace.activities
    linked = np.flatnonzero(trace.activity_call >= 0)
    if not len(linked) or not len(steps):
        return None
    launching = np.bincount(calls.thread[trace.activity_call[linked]], minlength=len(trace.threads))
    main = steps.thread if steps.thread >= 0 else int(launching.argmax())
    launching[main] += 1
    own_threads = np.flatnonzero(launching)
    thread_of = np.full(len(trace.threads), -1, dtype=np.int64)
    thread_of[own_threads] = np.arange(len(own_threads))
    is_node = calls.kind != CallKind.OTHER
    is_node[trace.activity_call[linked]] = True
    operators = np.flatnonzero(trace.slices.kind == SliceKind.OPERATOR)
    marks_ns = np.append(steps.start_ns, steps.end_ns[-1])
    most = int(np.count_nonzero(is_node)) + len(marks_ns)
    nodes = np.empty((most, 9), dtype=np.int64)
    node_of_call = np.full(len(calls), -1, dtype=np.int64)
    call = np.empty(most, dtype=np.int64)
    count = link_host(
        calls.start_ns,
        calls.end_ns,
        thread_of[calls.thread],
        is_node,
        trace.slices.start_ns[operators],
        trace.slices.end_ns[operators],
        thread_of[trace.slices.thread[operators]],
        marks_ns,
        thread_of[main],
        len(own_threads),
        nodes,
        node_of_call,
        call,
    )
    nodes, call = nodes[:count], call[:count]
    marks = np.flatnonzero(call < 0)
    node = node_of_call[trace.activity_call[linked]]
    stream, streams = _streams(trace)
    early = _early(trace, stream, streams, linked) if marks[0] == 0 else np.empty(0, dtype=np.int64)
    order = np.argsort(node, kind="stable")
    activity = np.concatenate((early, linked[order]))
    owner = np.concatenate((np.zeros(len(early), dtype=np.int64), node[order]))
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=offsets[1:])
    stream = stream[activity]
    start, end = activities.start_ns[activity], activities.end_ns[activity]
    name = np.where(call >= 0, calls.name[call], -1) + 1
    waits, wait_for, wait_stream, until = _waits(trace, call, offsets, activity, stream, end, nodes, streams)
    previous, before = _previous_end(stream, end, streams)
    _hold(previous, stream, end, offsets, waits, wait_for, wait_stream)
    base, delay, gap = _delays(
        nodes, name, offsets, owner, previous, before, start, trace.activities.name[activity], len(early)
    )
    length, wake, waits = _lengths(nodes, name, waits, until)
    return Graph(
        nodes=nodes,
        call=call,
        node_of_call=node_of_call,
        marks=marks,
        thread_of=thread_of,
        threads=len(own_threads),
        length=length,
        waits=waits,
        wait_for=wait_for,
        wait_stream=wait_stream,
        wake=wake,
        offsets=offsets,
        activity=activity,
        stream=stream,
        streams=streams,
        base=base,
        delay=delay,
        gap=gap,
        duration=end - start,
        unplaced=len(activities) - len(activity),
    )


def _streams(trace: Trace) -> tuple[IntArray, int]:
    """Number the streams; one id may occur on several devices and contexts."""
    acts = trace.activities
    constant = all(len(c) == 0 or bool((c == c[0]).all()) for c in (acts.stream, acts.device, acts.context))
    if constant:
        return np.zeros(len(acts), dtype=np.int64), 1
    _, stream = np.unique(acts.stream, return_inverse=True)
    for column in (acts.device, acts.context):
        _, other = np.unique(column, return_inverse=True)
        _, stream = np.unique(stream * (int(other.max()) + 1) + other, return_inverse=True)
    return stream.astype(np.int64), int(stream.max()) + 1


def _early(trace: Trace, stream: IntArray, streams: int, linked: IntArray) -> IntArray:
    """Activities launched before the recording began: those before their stream's first linked one."""
    first = np.full(streams, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, stream[linked], trace.activities.start_ns[linked])
    unlinked = np.flatnonzero(trace.activity_call < 0)
    return unlinked[trace.activities.start_ns[unlinked] < first[stream[unlinked]]]


def _previous_end(stream: IntArray, end: IntArray, streams: int) -> tuple[IntArray, IntArray]:
    """For each activity in launch order the latest end before it on its stream, and that stream's last position."""
    previous = np.full(len(end), _LONG_AGO, dtype=np.int64)
    before = np.full(len(end), -1, dtype=np.int64)
    for one in range(streams):
        rows = np.flatnonzero(stream == one) if streams > 1 else np.arange(len(end))
        if len(rows) > 1:
            previous[rows[1:]] = np.maximum.accumulate(end[rows])[:-1]
            before[rows[1:]] = rows[:-1]
    return previous, before


def _mean_by(key: IntArray, value: IntArray, keys: int) -> npt.NDArray[np.float64]:
    """Mean value per key, the mean over all where a key has none."""
    count = np.bincount(key, minlength=keys)
    total = np.bincount(key, weights=value, minlength=keys)
    overall = float(value.mean()) if len(value) else 0.0
    return np.where(count > 0, total / np.maximum(count, 1), overall)


def _hold(
    previous: IntArray,
    stream: IntArray,
    end: IntArray,
    offsets: IntArray,
    waits: npt.NDArray[np.int8],
    wait_for: IntArray,
    wait_stream: IntArray,
) -> None:
    """Let what a stream awaited of another one count as its previous work, in place."""
    for node in np.flatnonzero((waits == STREAM_FOR_ACTIVITY) & (wait_for >= 0)).tolist():
        later = np.flatnonzero(stream[offsets[node] :] == wait_stream[node]) + offsets[node]
        # the awaited end falls behind as the stream's own work goes on
        still = later[: np.searchsorted(previous[later], end[wait_for[node]])]
        previous[still] = end[wait_for[node]]


def _delays(
    nodes: IntArray,
    name: IntArray,
    offsets: IntArray,
    owner: IntArray,
    previous: IntArray,
    before: IntArray,
    start: IntArray,
    code: npt.NDArray[np.int32],
    early: int,
) -> tuple[npt.NDArray[np.int8], IntArray, IntArray]:
    """Typical delays and gaps: one value per call name and per activity name instead of one per event."""
    follows = previous > _LONG_AGO
    raw_gap = np.where(follows, start - previous, 0)
    raw_delay = start - nodes[owner, 0]
    first = offsets[owner] == np.arange(len(owner))
    base = (~first).astype(np.int8)
    base[:early] = 0
    queued = follows & (raw_gap <= QUEUED_NS)
    called = name[owner]
    names = int(called.max()) + 1
    # launches that began when the stream was free show the true delay; of those the usual ones
    free = first & ~queued & (nodes[owner, 0] >= previous)
    free[:early] = False
    usual = _usual(called, raw_delay, free, names)
    typical_delay = np.rint(_mean_by(called[usual], raw_delay[usual], names)).astype(np.int64)
    behind = queued & first
    kernel = code.astype(np.int64) + 1
    typical_gap = np.rint(_mean_by(kernel[behind], raw_gap[behind], int(kernel.max()) + 1)).astype(np.int64)
    delay = np.where(queued, np.minimum(raw_delay, typical_delay[called]), typical_delay[called])
    gap = np.where(behind, typical_gap[kernel], np.minimum(typical_gap[kernel], np.maximum(raw_gap, 0)))
    gap[~follows] = 0
    # launched long before it began on a stream that was free: the device waited for something of its own
    waited = first & ~queued & (raw_delay > typical_delay[called] + DEVICE_WAIT_NS) & (previous > nodes[owner, 0])
    gap[waited] = raw_gap[waited]
    # spikes of the delay belong to the driver, and the step pays for them
    spike = free & ~usual
    delay[spike] = raw_delay[spike]
    # inside one call (a graph): in order on a stream, else as far from the first one as recorded
    inside = base == 1
    same = inside & (before >= 0) & (owner[np.maximum(before, 0)] == owner)
    gap[same] = raw_gap[same]
    lead = start - start[offsets[owner]]
    delay[inside] = np.where(same, 0, lead)[inside]
    delay[:early] = raw_delay[:early]
    gap[:early] = np.minimum(raw_gap[:early], 0)
    return base, delay, gap


def _usual(key: IntArray, value: IntArray, among: npt.NDArray[np.bool_], keys: int) -> npt.NDArray[np.bool_]:
    """Of the rows ``among``, those within ten times the key's mean of small values: not the spikes."""
    mean = _mean_by(key[among], np.minimum(value[among], DEVICE_WAIT_NS), keys)
    return among & (value <= 10 * np.maximum(mean[key], 1_000))


def _waits(
    trace: Trace,
    call: IntArray,
    offsets: IntArray,
    activity: IntArray,
    stream: IntArray,
    end: IntArray,
    nodes: IntArray,
    streams: int,
) -> tuple[npt.NDArray[np.int8], IntArray, IntArray, IntArray]:
    """What every call waits for, and when that ended in the recording (long ago where it waits for nothing)."""
    calls, acts = trace.calls, trace.activities
    count = len(call)
    kind = np.where(call >= 0, calls.kind[call], CallKind.OTHER)
    waits = np.full(count, NOTHING, dtype=np.int8)
    wait_for = np.full(count, -1, dtype=np.int64)
    wait_stream = np.zeros(count, dtype=np.int64)
    until = np.full(count, _LONG_AGO, dtype=np.int64)
    waits[np.isin(kind, (CallKind.SYNCHRONIZE, CallKind.DEVICE_FREE, CallKind.HOST_FREE))] = EVERYTHING
    has = np.flatnonzero(offsets[1:] > offsets[:-1])
    last = offsets[has + 1] - 1
    row = activity[last]
    direction, memory = acts.direction[row], acts.host_memory[row]
    large = (direction == CopyDirection.D2H) | (acts.size_bytes[row] > STAGED_BYTES)
    blocks = np.isin(kind[has], (CallKind.COPY, CallKind.BLOCKING_COPY)) & np.isin(
        direction, (CopyDirection.H2D, CopyDirection.D2H)
    )
    blocks &= ((memory == MemoryKind.PAGEABLE) & large) | (kind[has] == CallKind.BLOCKING_COPY)
    waits[has[blocks]] = ACTIVITY
    wait_for[has[blocks]] = last[blocks]
    _awaited_events(trace, call, offsets, activity, stream, nodes, waits, wait_for, wait_stream)
    # ends as recorded, in launch order
    so_far = np.concatenate(([_LONG_AGO], np.maximum.accumulate(end))) if len(end) else np.array([_LONG_AGO])
    everything = waits == EVERYTHING
    until[everything] = so_far[offsets[:-1][everything]]
    for one in range(streams):
        mine = np.flatnonzero((waits == STREAM) & (wait_stream == one))
        if len(mine):
            ends = np.concatenate(([_LONG_AGO], np.maximum.accumulate(np.where(stream == one, end, _LONG_AGO))))
            until[mine] = ends[offsets[:-1][mine]]
    single = (waits == ACTIVITY) & (wait_for >= 0)
    until[single] = end[wait_for[single]]
    return waits, wait_for, wait_stream, until


def _awaited_events(
    trace: Trace,
    call: IntArray,
    offsets: IntArray,
    activity: IntArray,
    stream: IntArray,
    nodes: IntArray,
    waits: npt.NDArray[np.int8],
    wait_for: IntArray,
    wait_stream: IntArray,
) -> None:
    """Narrow waits by the profiler's synchronisation rows: one stream, or the work before one event."""
    rows = trace.waits
    if len(rows) and not stream.any():
        rows = rows.take(rows.kind == WaitKind.EVENT)  # with a single stream the others say nothing new
    if not len(rows):
        return
    calls, acts = trace.calls, trace.activities
    asked = np.flatnonzero(
        np.isin(calls.correlation, np.unique(np.concatenate((rows.correlation, rows.source_correlation))))
    )
    of_call = np.full(len(calls), -1, dtype=np.int64)
    of_call[call[call >= 0]] = np.flatnonzero(call >= 0)
    node_at = {int(calls.correlation[c]): int(of_call[c]) for c in asked.tolist() if of_call[c] >= 0}
    record_start = {int(calls.correlation[c]): int(calls.start_ns[c]) for c in asked.tolist()}
    _, first = np.unique(stream, return_index=True)
    number = {(int(acts.device[activity[p]]), int(acts.stream[activity[p]])): int(stream[p]) for p in first.tolist()}
    only_stream = {s: k for (_, s), k in number.items()}
    launched = np.repeat(nodes[:, 0], np.diff(offsets))

    def last_before(correlation: int, without: int) -> int:
        """The last activity launched before an event was recorded, on another stream than the one that waits."""
        at = record_start.get(correlation)
        position = int(np.searchsorted(launched, at)) - 1 if at is not None else -1
        while position >= 0 and stream[position] == without:
            position -= 1
        return position

    for i in range(len(rows)):
        kind, correlation, source = int(rows.kind[i]), int(rows.correlation[i]), int(rows.source_correlation[i])
        node = node_at.get(correlation)
        if node is None:
            continue
        key = (int(rows.device[i]), int(rows.stream[i]))
        mine = number.get(key, only_stream.get(int(rows.stream[i])))
        if kind == WaitKind.STREAM and mine is not None:
            waits[node], wait_stream[node] = STREAM, mine
        elif kind == WaitKind.EVENT and (found := last_before(source, -1)) >= 0:
            waits[node], wait_for[node] = ACTIVITY, found
        elif kind == WaitKind.STREAM_WAIT_EVENT and mine is not None and (found := last_before(source, mine)) >= 0:
            waits[node], wait_for[node], wait_stream[node] = STREAM_FOR_ACTIVITY, found, mine


def _lengths(
    nodes: IntArray, name: IntArray, waits: npt.NDArray[np.int8], until: IntArray
) -> tuple[IntArray, IntArray, npt.NDArray[np.int8]]:
    """Split calls that wait into their own length and the typical time to wake up."""
    length = nodes[:, 1] - nodes[:, 0]
    wake = np.zeros(len(length), dtype=np.int64)
    blocking = np.isin(waits, (EVERYTHING, STREAM, ACTIVITY))
    waited = blocking & (until > nodes[:, 0]) & (nodes[:, 1] >= until)
    # a wait that returned while the device still worked waited for something else: it keeps its length
    other = blocking & (until > nodes[:, 1]) & (waits != ACTIVITY)
    waits = waits.copy()
    waits[other] = NOTHING
    names = int(name.max()) + 1 if len(name) else 1
    raw = nodes[:, 1] - until
    usual = _usual(name, raw, waited, names)
    typical = np.rint(_mean_by(name[usual], raw[usual], names)).astype(np.int64)
    wake[blocking] = typical[name[blocking]]
    spike = waited & ~usual
    wake[spike] = raw[spike]
    staged = (waits == ACTIVITY) & (until > nodes[:, 1])
    wake[staged] = raw[staged]
    idle = blocking & ~waited & ~other & ~staged
    alone = _mean_by(name[idle], length[idle], names)
    # what a call that had to wait costs by itself: as much as one that had not, at most its own length
    known = np.bincount(name[idle], minlength=names) > 0
    by_itself = np.where(known, alone, 5_000.0)
    short = waited | staged
    length[short] = np.minimum(length[short], np.rint(by_itself[name[short]]).astype(np.int64))
    return length, wake, waits
