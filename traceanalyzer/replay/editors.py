"""One editor per cause: the host time, calls and waits a fix removes, what replaces them, and what it cannot see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import windows_of
from traceanalyzer.measures.steps import EPISODIC
from traceanalyzer.model.schema import CallKind, CopyDirection, IntArray, MemoryKind, SliceKind
from traceanalyzer.replay.graph import STAGED_BYTES, Graph
from traceanalyzer.replay.replayed import Edit
from traceanalyzer.replay.timed import READY_BATCH_NS, WORKER_CONTENTION, supply_floor_ns
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, Phase

# pinned memory over a link of PCIe 4 or later, where the recording shows no pinned copy to learn it from
PINNED_BYTES_PER_NS = 25.0
# copies from which a bandwidth can be read
BANDWIDTH_BYTES = 1 << 20
# a synchronisation this soon before frees belongs to emptying the cache
BEFORE_FREES_NS = 200_000
# a captured stack takes as long as dozens of operators' own beginnings, in all but a few of an operator's calls
CAPTURE_TIMES = 10
NEARLY_NEVER = 10  # percent
UNSCALE = "non_finite_check_and_unscale"

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Scene:
    """What an editor may look at.

    Attributes:
        measures: One rank.
        graph: Its dependency graph.
        firing: Codes of the findings that fire.
    """

    measures: Measures
    graph: Graph
    firing: frozenset[str] = frozenset()

    @cached_property
    def stretch_thread(self) -> npt.NDArray[np.int32]:
        """Thread of every stretch of the host timeline."""
        offsets = self.measures.host.offsets
        return np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))

    @cached_property
    def position_of(self) -> IntArray:
        """Position in the graph of every activity; -1 where it has none."""
        found = np.full(self.measures.facts.activity_count, -1, dtype=np.int64)
        found[self.graph.activity] = np.arange(len(self.graph.activity))
        return found

    def stretches(self, mask: BoolArray, kept_ns: int = 0) -> Edit:
        """Remove stretches of the host timeline; ``kept_ns`` of each run of adjacent ones stays."""
        host = self.measures.host
        rows = np.flatnonzero(mask)
        start, end, thread = host.start_ns[rows], host.end_ns[rows], self.stretch_thread[rows]
        if len(rows) and kept_ns:
            new = np.concatenate(([True], (start[1:] > end[:-1]) | (thread[1:] != thread[:-1])))
            last = np.concatenate((np.flatnonzero(new)[1:] - 1, [len(rows) - 1]))
            start, end, thread = np.minimum(start[new] + kept_ns, end[last]), end[last], thread[new]
        return Edit(thread=thread.astype(np.int64), start_ns=start, end_ns=end)

    def of_cause(self, *causes: Cause) -> BoolArray:
        """Stretches that would be idle time of some causes."""
        return np.isin(self.measures.host.cause, [CAUSE_CODE[c] for c in causes])

    def call_spans(self, calls: IntArray) -> Edit:
        """Remove calls."""
        start, end, thread = self.measures.facts.call_columns(calls)
        return Edit(thread=thread.astype(np.int64), start_ns=start, end_ns=end, nodes=self.nodes(calls))

    def nodes(self, calls: IntArray) -> IntArray:
        """Nodes of calls."""
        found = self.graph.node_of_call[calls[calls >= 0]]
        return np.unique(found[found >= 0])


Editor = Callable[[Scene], Edit]


def _input(scene: Scene) -> Edit:
    """Batches are ready when asked for; the supply of the workers that fit on the machine stays a limit."""
    edit = scene.stretches(scene.of_cause(Cause.INPUT_WAIT) & ~_in_phase(scene, Phase.VALIDATE), READY_BATCH_NS)
    floor = round(supply_floor_ns(scene.measures, without_storage=True))
    left = "taking a ready batch from the queue" + (", and what the workers can supply" if floor else "")
    return replace(edit, floor_ns=floor, left=left)


def _loader_in_main(scene: Scene) -> Edit:
    return replace(_input(scene), contention_share=WORKER_CONTENTION)


def _loader_restart(scene: Scene) -> Edit:
    """Only the waits of windows at an epoch's edge."""
    edit, steps = _input(scene), scene.measures.steps
    window = windows_of(edit.start_ns, steps)
    keep = (window >= 0) & (np.append(steps.step_class, 0)[window] == EPISODIC)
    return replace(edit, thread=edit.thread[keep], start_ns=edit.start_ns[keep], end_ns=edit.end_ns[keep])


def _in_phase(scene: Scene, *phases: Phase) -> BoolArray:
    return np.isin(scene.measures.host.phase, [PHASE_CODE[p] for p in phases])


def _cause_editor(*causes: Cause) -> Editor:
    return lambda scene: scene.stretches(scene.of_cause(*causes))


def _phase_editor(phase: Phase) -> Editor:
    return lambda scene: scene.stretches(_in_phase(scene, phase))


def _anomaly(scene: Scene) -> Edit:
    """Remove the NaN check after every backward node and the stack captured in operators that make such a node."""
    facts = scene.measures.facts
    begins, ends = facts.slices_named(["aten::isnan"]), facts.slices_named(["aten::item"])
    start, _, thread = facts.slice_columns(begins)
    _, item_end, item_thread = facts.slice_columns(ends)
    item_start = facts.slice_columns(ends)[0]
    parts: list[tuple[IntArray, IntArray, IntArray]] = []
    for one in np.unique(thread).tolist():
        checks, reads = np.flatnonzero(thread == one), np.flatnonzero(item_thread == one)
        following = np.searchsorted(item_start[reads], start[checks])
        nearer = np.append(start[checks][1:], np.iinfo(np.int64).max)
        safe = np.minimum(following, max(len(reads) - 1, 0))
        ok = following < len(reads)
        if len(reads):
            ok &= item_start[reads][safe] < nearer
            parts.append((np.full(int(ok.sum()), one), start[checks][ok], item_end[reads][safe][ok]))
    parts.append(_captures(scene))
    columns = [np.concatenate([p[k] for p in parts]).astype(np.int64) for k in range(3)]
    return Edit(
        thread=columns[0],
        start_ns=columns[1],
        end_ns=columns[2],
        has_hidden_cost=True,
        left="the operators themselves, and what capturing stacks slows beside it, which leaves no event",
    )


def _captures(scene: Scene) -> tuple[IntArray, IntArray, IntArray]:
    """Thread, start and end of the stacks that anomaly mode captures when an operator makes its backward node.

    An operator's first own stretch, before it calls anything, is short. Where that of one operator is nearly always
    many times as long as operators' usual one, it captures a stack there; the usual stretch stays.
    """
    host, slices = scene.measures.host, scene.measures.trace.slices
    rows = np.flatnonzero((host.slice_row >= 0) & (host.autograd[scene.stretch_thread] == 0))
    owner = host.slice_row[rows]
    first = (slices.kind[owner] == SliceKind.OPERATOR) & (slices.start_ns[owner] == host.start_ns[rows])
    rows, name = rows[first], slices.name[owner[first]]
    if not len(rows):
        return rows, rows, rows
    length = host.end_ns[rows] - host.start_ns[rows]
    usual = round(float(np.median(length)))
    always = [
        code
        for code in np.unique(name).tolist()
        if np.percentile(length[name == code], NEARLY_NEVER) > CAPTURE_TIMES * usual
    ]
    sure = np.isin(name, always)
    if not np.any(sure):
        return rows[:0], rows[:0], rows[:0]
    # operators that make a node only now and then capture only then: those calls take about as long as a sure capture
    mine = rows[sure | (length > np.median(length[sure]) / 2)]
    return scene.stretch_thread[mine].astype(np.int64), host.start_ns[mine] + usual, host.end_ns[mine]


def _pageable(scene: Scene) -> Edit:
    """Input copies come from pinned memory: the call returns at once and the copy runs at the link's speed."""
    copies = scene.measures.copies
    down = copies.direction == CopyDirection.H2D
    mine = down & (copies.host_memory == MemoryKind.PAGEABLE) & (copies.size_bytes > STAGED_BYTES)
    length = copies.end_ns - copies.start_ns
    like = down & (copies.host_memory == MemoryKind.PINNED) & (copies.size_bytes >= BANDWIDTH_BYTES) & (length > 0)
    speed = float(np.median(copies.size_bytes[like] / length[like])) if np.any(like) else PINNED_BYTES_PER_NS
    rows = np.flatnonzero(mine & (scene.position_of[copies.activity] >= 0))
    faster = np.minimum(np.rint(copies.size_bytes[rows] / speed).astype(np.int64), length[rows])
    return replace(
        scene.call_spans(copies.sync_call[mine & (copies.sync_call >= 0)]),
        no_wait=scene.nodes(copies.call[mine]),
        retimed=scene.position_of[copies.activity[rows]],
        duration_ns=faster,
        left="the copies themselves, which then run at the speed of pinned memory, and the pinning thread's work",
    )


def _blocking(scene: Scene) -> Edit:
    """Copies to the device no longer make the host wait."""
    copies = scene.measures.copies
    down = copies.direction == CopyDirection.H2D
    return replace(
        scene.call_spans(copies.sync_call[down & (copies.sync_call >= 0)]), no_wait=scene.nodes(copies.call[down])
    )


def _exposed_copies(scene: Scene) -> Edit:
    """Copies to the device run on a stream of their own, one batch ahead."""
    copies = scene.measures.copies
    positions = scene.position_of[copies.activity[copies.direction == CopyDirection.H2D]]
    return replace(_blocking(scene), removed=positions[positions >= 0], left="the calls that issue the copies")


def _allocator(scene: Scene) -> Edit:
    kinds = (CallKind.DEVICE_MALLOC, CallKind.DEVICE_FREE, CallKind.HOST_ALLOC, CallKind.HOST_FREE)
    return scene.call_spans(_calls(scene, *kinds))


def _emptied(scene: Scene) -> Edit:
    """Remove the frees, the allocations that follow, the wait before them and the allocator's slow path around."""
    host = scene.measures.host
    around = np.unique(host.slice_row[scene.of_cause(Cause.ALLOCATOR)])
    around = around[around >= 0]
    empty = scene.measures.facts.slices_named(["aten::empty"], prefix=True)
    slow = np.isin(host.slice_row, np.intersect1d(around, empty))
    edit = scene.stretches(slow | scene.of_cause(Cause.ALLOCATOR))
    frees = scene.measures.facts.call_columns(_calls(scene, CallKind.DEVICE_FREE))[0]
    waits = scene.measures.synchronisations
    following = np.searchsorted(frees, waits.end_ns)
    near = following < len(frees)
    if len(frees):
        near &= frees[np.minimum(following, len(frees) - 1)] - waits.end_ns < BEFORE_FREES_NS
    return replace(edit, no_wait=scene.nodes(waits.call[near]), left="the host's work to look the cache over")


def _calls(scene: Scene, *kinds: CallKind) -> IntArray:
    calls = scene.measures.trace.calls
    return np.flatnonzero(np.isin(calls.kind, kinds))


def _sync(scene: Scene) -> Edit:
    """The host no longer waits where a value is read; the scaler's own read and copies to the device keep theirs."""
    waits, copies = scene.measures.synchronisations, scene.measures.copies
    input_waits = copies.sync_call[(copies.direction == CopyDirection.H2D) & (copies.sync_call >= 0)]
    mine = (waits.is_device_wide == 0) & ~np.isin(waits.call, input_waits) & ~_scalers(scene)
    if "TA207" in scene.firing:
        mine &= scene.measures.host.autograd[waits.thread] == 0
    back = copies.call[(copies.direction == CopyDirection.D2H) & (copies.sync_call < 0) & (copies.call >= 0)]
    return Edit(
        no_wait=np.union1d(scene.nodes(waits.call[mine]), scene.nodes(back)),
        left="the operators and copies around the wait, and the gradient scaler's own read",
    )


def _scalers(scene: Scene) -> BoolArray:
    """The first wait after the gradient scaler's check of all gradients: it reads whether they overflowed."""
    waits, launches = scene.measures.synchronisations, scene.measures.launches
    flags = np.zeros(len(waits.call), dtype=np.bool_)
    unscaling = scene.measures.facts.named_with(launches.activity, (UNSCALE,))
    for one in np.unique(launches.thread[unscaling]).tolist():
        rows = np.flatnonzero((waits.thread == one) & (waits.is_device_wide == 0))
        after = np.searchsorted(waits.start_ns[rows], launches.call_start_ns[unscaling & (launches.thread == one)])
        flags[rows[np.unique(after[after < len(rows)])]] = True
    return flags


def _device_sync(scene: Scene) -> Edit:
    waits = scene.measures.synchronisations
    return Edit(no_wait=scene.nodes(waits.call[waits.is_device_wide == 1]), left="the synchronising calls' own time")


def captured_graph(scene: Scene) -> Edit:
    """Forward, backward and optimizer become one graph: no host time there, the device's work back to back."""
    edit = scene.stretches(_in_phase(scene, Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.OPTIMIZER))
    return replace(edit, left="whatever lies outside forward, loss, backward and optimizer")


# code → how its fix changes the graph; rules that are not here keep their bound
EDITORS: dict[str, Editor] = {
    "TA101": _loader_in_main,
    "TA102": _input,
    "TA103": _input,
    "TA104": _loader_restart,
    "TA202": _cause_editor(Cause.PLAN_SEARCH),
    "TA203": _cause_editor(Cause.MODULE_LOAD),
    "TA205": _cause_editor(Cause.GARBAGE_COLLECTION),
    "TA207": _anomaly,
    "TA301": _pageable,
    "TA302": _blocking,
    "TA303": _exposed_copies,
    "TA401": _allocator,
    "TA402": _emptied,
    "TA501": _sync,
    "TA502": _device_sync,
    "TA802": _phase_editor(Phase.CHECKPOINT),
    "TA803": _phase_editor(Phase.LOG),
}
# causes that live in windows at an epoch's edge or between steps
WITH_EPISODES = frozenset({"TA104", "TA202", "TA802", "TA803"})
