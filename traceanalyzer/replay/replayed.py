"""One replay: a graph, an edit, a model of what the profiler cost the host, and the steps that come out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from traceanalyzer.model.schema import IntArray
from traceanalyzer.replay.graph import Graph
from traceanalyzer.replay.sweeps import execute


@dataclass(frozen=True, slots=True)
class Edit:
    """What one fix changes.

    Attributes:
        thread: Thread (of the recording) of each removed stretch of host time.
        start_ns: Their starts. Calls inside are removed with their activities.
        end_ns: Their ends.
        nodes: Nodes removed with their activities.
        no_wait: Nodes that no longer wait.
        removed: Positions of activities that no longer run.
        retimed: Positions of activities with another duration.
        duration_ns: Their durations.
        floor_ns: Step time below which this fix cannot bring the step (input supply), ns.
        has_hidden_cost: Part of the cause's cost is spread where no replay sees it: the saving is open upwards.
        contention_share: Share of the remaining step the fix may cost elsewhere (loader workers' load on the host).
        left: What was not removable, one clause for the reader; may be empty.
    """

    thread: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    start_ns: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    end_ns: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    nodes: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    no_wait: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    removed: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    retimed: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    duration_ns: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    floor_ns: int = 0
    has_hidden_cost: bool = False
    contention_share: float = 0.0
    left: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is changed."""
        return not (
            len(self.start_ns) or len(self.nodes) or len(self.no_wait) or len(self.removed) or len(self.retimed)
        )


def together(edits: list[Edit]) -> Edit:
    """Join edits into one; what two of them remove is removed once."""

    def joined(name: str) -> IntArray:
        return np.concatenate([np.empty(0, dtype=np.int64), *(getattr(edit, name) for edit in edits)])

    return Edit(
        thread=joined("thread"),
        start_ns=joined("start_ns"),
        end_ns=joined("end_ns"),
        nodes=joined("nodes"),
        no_wait=joined("no_wait"),
        removed=joined("removed"),
        retimed=joined("retimed"),
        duration_ns=joined("duration_ns"),
        floor_ns=max((edit.floor_ns for edit in edits), default=0),
        has_hidden_cost=any(edit.has_hidden_cost for edit in edits),
        contention_share=max((edit.contention_share for edit in edits), default=0.0),
    )


@dataclass(frozen=True, slots=True)
class HostModel:
    """How host time would be without the profiler.

    Attributes:
        factor: Host time is multiplied by this; one value, or one per node.
        event_ns: Taken from host time per recorded operator and call, ns; one value, or one per node.
    """

    factor: npt.NDArray[np.float64] = field(default_factory=lambda: np.ones(1))
    event_ns: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))


def replay(graph: Graph, edit: Edit | None = None, model: HostModel | None = None) -> IntArray:
    """Re-execute the steps.

    Args:
        graph: The recording.
        edit: What to change; None for nothing.
        model: Host time without the profiler; None as recorded.

    Returns:
        Moments of the step borders, ns, one more than there are windows.
    """
    return timeline(graph, edit, model)[0][graph.marks]


def timeline(
    graph: Graph, edit: Edit | None = None, model: HostModel | None = None
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Re-execute and return every node's start and end and every activity's start (-1 removed) and end, ns."""
    edit, model = edit or Edit(), model or HostModel()
    count, activities = len(graph.nodes), len(graph.activity)
    start, end, before, offsets = _cuts(graph, edit)
    changes = np.zeros(count, dtype=np.int8)
    changes[edit.no_wait] = 2
    changes[edit.nodes] = 1
    removed = np.zeros(activities, dtype=np.int8)
    removed[edit.removed] = 1
    duration = graph.duration
    if len(edit.retimed):
        duration = duration.copy()
        duration[edit.retimed] = edit.duration_ns
    ts, te = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    gs, ge = np.empty(activities, dtype=np.int64), np.empty(activities, dtype=np.int64)
    execute(
        graph.nodes,
        graph.length,
        graph.waits,
        graph.wait_for,
        graph.wait_stream,
        graph.wake,
        model.factor,
        model.event_ns,
        graph.offsets,
        graph.stream,
        graph.base,
        graph.delay,
        graph.gap,
        duration,
        graph.streams,
        graph.threads,
        start,
        end,
        before,
        offsets,
        changes,
        removed,
        ts,
        te,
        gs,
        ge,
    )
    return ts, te, gs, ge


def _cuts(graph: Graph, edit: Edit) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Merge the removed stretches per launching thread; with the time removed before each on its thread."""
    thread = graph.thread_of[edit.thread] if len(edit.thread) else edit.thread
    keep = (thread >= 0) & (edit.end_ns > edit.start_ns)
    thread, start, end = thread[keep], edit.start_ns[keep], edit.end_ns[keep]
    order = np.lexsort((start, thread))
    thread, start, end = thread[order], start[order], end[order]
    parts = []
    offsets = np.zeros(graph.threads + 1, dtype=np.int64)
    for one in range(graph.threads):
        mine = thread == one
        first, reach = start[mine], np.maximum.accumulate(end[mine])
        if len(first):
            new = np.concatenate(([True], first[1:] > reach[:-1]))
            last = np.concatenate((np.flatnonzero(new)[1:] - 1, [len(first) - 1]))
            first, reach = first[new], reach[last]
        sums = np.concatenate(([0], np.cumsum(reach - first)))[:-1]
        parts.append((first, reach, sums))
        offsets[one + 1] = offsets[one] + len(first)
    columns = [np.concatenate([p[k] for p in parts]).astype(np.int64) for k in range(3)]
    return columns[0], columns[1], columns[2], offsets
