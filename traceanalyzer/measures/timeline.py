"""The timeline a report draws: every track of a rank, small enough to travel inside one HTML file.

Short neighbours of one row are merged until the whole overview fits a fixed number of slices; chosen windows keep
every slice, so that a reader who zooms in sees exact intervals where it matters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.host_timeline import HostTimeline
from traceanalyzer.measures.steps import STEADY, STEP_CLASSES, Steps
from traceanalyzer.measures.timeline_counters import busy_counters, memory_counters, run_ahead_counter, sampled_counters
from traceanalyzer.measures.timeline_rows import NameTable, Row, choose_bin, make_row, nest
from traceanalyzer.model.schema import ActivityKind, ByteArray, CallKind, IntArray, SliceKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.timeline import Detail, Timeline, Track
from traceanalyzer.results.vocabulary import CAUSES, PHASE_CODE, PHASES, Phase

# some 17 bytes a slice inside the report, which should stay below 2 MB; an overview of more slices than this holds
# more than a screen has pixels, and a step of a detection model has 20,000 to 40,000
OVERVIEW_SLICES = 30_000
DETAIL_SLICES = 46_000
MEDIAN_STEP_SHARE = 0.8
HIGHLIGHT_SHARE = 0.08
MAX_THREADS = 24

_ACTIVITY_CATEGORY = {
    ActivityKind.KERNEL: "kernel",
    ActivityKind.COPY: "copy",
    ActivityKind.MEMSET: "memset",
    ActivityKind.GRAPH: "graph",
}
_SLICE_CATEGORY = {
    SliceKind.OPERATOR: "operator",
    SliceKind.ANNOTATION: "annotation",
    SliceKind.PYTHON: "python",
    SliceKind.GARBAGE_COLLECTION: "garbage collection",
    SliceKind.OS_CALL: "os call",
}
_CALL_CATEGORY = {
    CallKind.LAUNCH: "launch",
    CallKind.GRAPH_LAUNCH: "launch",
    CallKind.COPY: "copy call",
    CallKind.BLOCKING_COPY: "copy call",
    CallKind.MEMSET: "copy call",
    CallKind.SYNCHRONIZE: "synchronize",
    CallKind.DEVICE_MALLOC: "allocation",
    CallKind.DEVICE_FREE: "allocation",
    CallKind.HOST_ALLOC: "allocation",
    CallKind.HOST_FREE: "allocation",
    CallKind.MODULE_LOAD: "module load",
}


@dataclass(frozen=True, slots=True)
class TimelineDraft:
    """A timeline laid out and binned, before it is known which windows deserve to be kept exact.

    Attributes:
        table: Names in use.
        rows: Every track, exact; empty for a trace without any interval.
        overview: The same tracks, binned.
        counters: Counter tracks.
        notes: What the layout left out.
        steps: The recording's steps, of which some are kept exact.
        bin_ns: Width below which slices were merged; 0 when nothing was.
    """

    table: NameTable
    rows: list[Row]
    overview: list[Row]
    counters: list[Track]
    notes: list[str]
    steps: Steps
    bin_ns: int

    def finish(
        self, highlights: Sequence[tuple[int, int, str]] = (), max_detail_slices: int = DETAIL_SLICES
    ) -> Timeline:
        """Keep some windows exact and encode everything.

        Args:
            highlights: Windows to keep exact where the overview is binned: ``(start_ns, end_ns, why)``, most
                important first, relative to the trace's origin.
            max_detail_slices: Size of all exact windows together.

        Returns:
            The timeline; empty (no tracks) for a trace without any interval.
        """
        rows, table = self.rows, self.table
        if not rows:
            return Timeline(start_ns=0, end_ns=0, strings=[], tracks=[])
        start, end = _extent(rows)
        merged = sum(len(row.start) for row in rows) - sum(len(row.start) for row in self.overview)
        windows: list[tuple[int, int, str, list[Row]]] = []
        if merged:
            windows = _detail_windows(rows, _wanted_windows(self.steps, highlights, (start, end)), max_detail_slices)
        strings, codes = table.compress([*self.overview, *(row for window in windows for row in window[3])])
        return Timeline(
            start_ns=start,
            end_ns=end,
            strings=strings,
            tracks=_ordered([row.track(codes) for row in self.overview], self.counters),
            details=[
                Detail(start_ns=s, end_ns=e, why=why, tracks=[row.track(codes) for row in exact if len(row.start)])
                for s, e, why, exact in windows
            ],
            binned_below_ns=self.bin_ns if merged else 0,
            merged_slices=merged,
            notes=self.notes,
        )


def draft_timeline(
    trace: Trace,
    steps: Steps,
    ledger: IdleLedger,
    devices: Sequence[DeviceTimeline],
    host: HostTimeline,
    *,
    max_slices: int = OVERVIEW_SLICES,
    max_detail_slices: int = DETAIL_SLICES,
) -> TimelineDraft:
    """Lay out every track of one rank and bin it to a bounded size.

    Args:
        trace: The recording of one process.
        steps: Its step windows.
        ledger: Every idle piece with its cause.
        devices: Busy and idle time per device.
        host: Flattened host threads (gives the phases of the training thread).
        max_slices: Overview size; merging starts above it.
        max_detail_slices: Size of all exact windows together.
    """
    table = NameTable(trace.names)
    rows = [
        _steps_row(steps, table),
        _phases_row(steps, host, trace, table),
        *_idle_rows(ledger, devices, table),
        *_stream_rows(trace, devices, table),
    ]
    counters = [*busy_counters(devices)]
    thread_rows, notes = _thread_rows(trace, steps, host, table)
    rows = [row for row in [*rows, *thread_rows] if len(row.start)]
    if not rows:
        return TimelineDraft(table, [], [], [], [], steps, 0)
    start, end = _extent(rows)
    total = sum(len(row.start) for row in rows)
    bin_ns = choose_bin(rows, end - start, max_slices) if total > max_slices + max_detail_slices else 0
    # busy time belongs under the device rows, host counters below the threads
    counters = [*counters, *run_ahead_counter(trace), *memory_counters(trace), *sampled_counters(trace, start, end)]
    return TimelineDraft(table, rows, [row.binned(bin_ns) for row in rows], counters, notes, steps, bin_ns)


def build_timeline(
    trace: Trace,
    steps: Steps,
    ledger: IdleLedger,
    devices: Sequence[DeviceTimeline],
    host: HostTimeline,
    highlights: Sequence[tuple[int, int, str]] = (),
    *,
    max_slices: int = OVERVIEW_SLICES,
    max_detail_slices: int = DETAIL_SLICES,
) -> Timeline:
    """Draft a timeline and finish it, for who knows the windows to keep exact beforehand; arguments as of both."""
    draft = draft_timeline(
        trace, steps, ledger, devices, host, max_slices=max_slices, max_detail_slices=max_detail_slices
    )
    return draft.finish(highlights, max_detail_slices)


def _extent(rows: Sequence[Row]) -> tuple[int, int]:
    return min(int(row.start.min()) for row in rows), max(int(row.end.max()) for row in rows)


def _steps_row(steps: Steps, table: NameTable) -> Row:
    names = table.codes(steps.names) if steps.names else np.full(len(steps), table.code("recording"))
    classes = table.codes(str(c) for c in STEP_CLASSES)
    return make_row("steps", "steps", "Steps", steps.start_ns, steps.end_ns, names, classes[steps.step_class])


def _phases_row(steps: Steps, host: HostTimeline, trace: Trace, table: NameTable) -> Row:
    thread = _training_thread(steps, trace)
    empty = np.zeros(0, dtype=np.int64)
    if thread < 0:
        return make_row("phases", "phases", "Phases", empty, empty, empty, empty)
    rows = slice(int(host.offsets[thread]), int(host.offsets[thread + 1]))
    start, end, phase = host.start_ns[rows], host.end_ns[rows], host.phase[rows]
    if not len(start):
        return make_row("phases", "phases", "Phases", empty, empty, empty, empty)
    first, last = _runs(start, end, phase)
    named = phase[first] != PHASE_CODE[Phase.OTHER]
    start, end, phase = start[first][named], end[last][named], phase[first][named]
    start, end, phase = _with_backward(start, end, phase, host)
    codes = table.codes(str(p) for p in PHASES)[phase]
    return make_row("phases", "phases", "Phases", start, end, codes, codes)


def _with_backward(
    start: IntArray, end: IntArray, phase: ByteArray, host: HostTimeline
) -> tuple[IntArray, IntArray, ByteArray]:
    """Fill holes of the training thread's phases with the backward pass, which runs on the engine's own threads."""
    backward = PHASE_CODE[Phase.BACKWARD]
    engine = np.concatenate(
        [np.arange(host.offsets[t], host.offsets[t + 1]) for t in np.flatnonzero(host.autograd)] or [np.zeros(0, int)]
    )
    engine = engine[host.phase[engine] == backward]
    engine = engine[np.argsort(host.start_ns[engine], kind="stable")]
    if not len(engine) or not len(start):
        return start, end, phase
    # the hole after phase i ends where phase i + 1 begins; the one after the last never
    hole = np.searchsorted(start, host.start_ns[engine], side="right") - 1
    inside = (hole >= 0) & (host.start_ns[engine] >= end[np.maximum(hole, 0)])
    engine, hole = engine[inside], hole[inside]
    holes, first = np.unique(hole, return_index=True)
    if not len(holes):
        return start, end, phase
    latest = np.maximum.reduceat(host.end_ns[engine], first)
    following = np.append(start[1:], np.iinfo(np.int64).max)[holes]
    start = np.concatenate([start, host.start_ns[engine[first]]])
    end = np.concatenate([end, np.minimum(latest, following)])
    phase = np.concatenate([phase, np.full(len(holes), backward, dtype=phase.dtype)])
    order = np.argsort(start, kind="stable")
    return start[order], end[order], phase[order]


def _runs(start: IntArray, end: IntArray, *same: ByteArray) -> tuple[IntArray, IntArray]:
    """Join neighbours that touch and agree: row of the first and the last of each run."""
    head = np.ones(len(start), dtype=np.bool_)
    if len(start):
        head[1:] = start[1:] != end[:-1]
        for column in same:
            head[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(head)
    return first, np.append(first[1:], len(start)) - 1 if len(first) else first


def _training_thread(steps: Steps, trace: Trace) -> int:
    """Thread of the step markers, else the one that made most calls; -1 without host rows."""
    if steps.thread >= 0:
        return steps.thread
    threads = trace.calls.thread if len(trace.calls) else trace.slices.thread
    return int(np.bincount(threads).argmax()) if len(threads) else -1


def _idle_rows(ledger: IdleLedger, devices: Sequence[DeviceTimeline], table: NameTable) -> list[Row]:
    phases = table.codes(str(p) for p in PHASES)
    causes = table.codes(str(c) for c in CAUSES)
    made = []
    for device in devices:
        rows = np.flatnonzero(ledger.device == device.device_id)
        rows = rows[np.argsort(ledger.start_ns[rows], kind="stable")]
        phase, cause = ledger.phase[rows], ledger.cause[rows]
        first, last = _runs(ledger.start_ns[rows], ledger.end_ns[rows], phase, cause)
        made.append(
            make_row(
                f"idle:{device.device_id}",
                "idle",
                f"GPU {device.device_id} idle, by cause",
                ledger.start_ns[rows][first],
                ledger.end_ns[rows][last],
                phases[phase[first]],
                causes[cause[first]],
            )
        )
    return made


def _stream_rows(trace: Trace, devices: Sequence[DeviceTimeline], table: NameTable) -> list[Row]:
    activities = trace.activities
    categories = table.codes(_ACTIVITY_CATEGORY[kind] for kind in ActivityKind)
    made = []
    for device in devices:
        streams = activities.stream[device.rows]
        for stream in np.unique(streams):
            rows = device.rows[streams == stream]
            start, end = activities.start_ns[rows], activities.end_ns[rows]
            made.append(
                make_row(
                    f"stream:{device.device_id}:{stream}",
                    "stream",
                    f"GPU {device.device_id} stream {stream}",
                    start,
                    end,
                    activities.name[rows],
                    categories[activities.kind[rows]],
                    nest(start, end),
                    trace.activity_call[rows],
                )
            )
    return made


def _thread_rows(trace: Trace, steps: Steps, host: HostTimeline, table: NameTable) -> tuple[list[Row], list[str]]:
    """Return host threads, the training thread first; Python frames get a track of their own below."""
    slice_categories = table.codes(_SLICE_CATEGORY[kind] for kind in SliceKind)
    call_categories = table.codes(_CALL_CATEGORY.get(kind, "call") for kind in CallKind)
    launched = np.zeros(len(trace.calls), dtype=np.bool_)
    launched[trace.activity_call[trace.activity_call >= 0]] = True
    call_link = np.where(launched, np.arange(len(trace.calls), dtype=np.int64), -1)
    python = trace.slices.kind == SliceKind.PYTHON
    per_thread = np.bincount(trace.calls.thread, minlength=len(trace.threads)) + np.bincount(
        trace.slices.thread, minlength=len(trace.threads)
    )
    training = _training_thread(steps, trace)
    busy = [int(t) for t in np.argsort(-per_thread, kind="stable") if per_thread[t] and t != training]
    chosen = ([training] if training >= 0 else []) + busy
    notes = []
    if len(chosen) > MAX_THREADS:
        notes.append(f"{len(chosen) - MAX_THREADS} of {len(chosen)} host threads with the fewest events are not drawn.")
        chosen = chosen[:MAX_THREADS]
    made = []
    for thread in chosen:
        role = "training loop" if thread == training else "autograd engine" if host.autograd[thread] else ""
        label = _thread_title(trace, thread, role)
        of_thread = trace.slices.thread == thread
        rows = np.flatnonzero(of_thread & ~python)
        calls = np.flatnonzero(trace.calls.thread == thread)
        start = np.concatenate([trace.slices.start_ns[rows], trace.calls.start_ns[calls]])
        end = np.concatenate([trace.slices.end_ns[rows], trace.calls.end_ns[calls]])
        order = np.lexsort((-end, start))
        start, end = start[order], end[order]
        made.append(
            make_row(
                f"thread:{trace.threads[thread].tid}",
                "thread",
                label,
                start,
                end,
                np.concatenate([trace.slices.name[rows], trace.calls.name[calls]])[order],
                np.concatenate([slice_categories[trace.slices.kind[rows]], call_categories[trace.calls.kind[calls]]])[
                    order
                ],
                nest(start, end),
                np.concatenate([np.full(len(rows), -1, dtype=np.int64), call_link[calls]])[order],
            )
        )
        frames = np.flatnonzero(of_thread & python)
        if len(frames):
            start, end = trace.slices.start_ns[frames], trace.slices.end_ns[frames]
            made.append(
                make_row(
                    f"python:{trace.threads[thread].tid}",
                    "thread",
                    f"Python frames of {label[0].lower()}{label[1:]}",
                    start,
                    end,
                    trace.slices.name[frames],
                    slice_categories[trace.slices.kind[frames]],
                    nest(start, end),
                )
            )
    return made, notes


def _thread_title(trace: Trace, thread: int, role: str) -> str:
    known = trace.threads[thread]
    # recordings often name a thread by its number again: "thread 850 (python3)"
    name = re.sub(rf"^\s*thread {known.tid}\b\s*\(?|\)\s*$", "", known.name) if known.name else ""
    about = ", ".join(part for part in (role, name) if part)
    return f"Thread {known.tid}" + (f" ({about})" if about else "")


@dataclass(frozen=True, slots=True)
class _Window:
    """A window to keep exact, and the share of the budget it may take."""

    start: int
    end: int
    why: str
    share: float


def _wanted_windows(steps: Steps, highlights: Sequence[tuple[int, int, str]], limits: tuple[int, int]) -> list[_Window]:
    """Windows by importance: the steady step of median length, the highlights with some room, the longest step."""
    length = steps.end_ns - steps.start_ns
    wanted = []
    steady = np.flatnonzero(steps.step_class == STEADY)
    if len(steps) > 1 and len(steady):
        median = int(steady[np.argsort(length[steady], kind="stable")[(len(steady) - 1) // 2]])
        wanted.append(_Window(int(steps.start_ns[median]), int(steps.end_ns[median]), "median step", MEDIAN_STEP_SHARE))
    for start, end, why in highlights:
        room = end - start  # a reader sees what came before and after, too
        wanted.append(_Window(max(start - room, limits[0]), min(end + room, limits[1]), why, HIGHLIGHT_SHARE))
    if len(steps) > 1:
        longest = int(length.argmax())
        wanted.append(_Window(int(steps.start_ns[longest]), int(steps.end_ns[longest]), "longest step", 1.0))
    return wanted


def _detail_windows(
    rows: Sequence[Row], wanted: Sequence[_Window], max_slices: int
) -> list[tuple[int, int, str, list[Row]]]:
    """Keep every slice of the wanted windows, in order, while they fit; one that does not is cut at its end."""
    made: list[tuple[int, int, str, list[Row]]] = []
    left = max_slices
    for window in wanted:
        start, end, why = window.start, window.end, window.why
        if end <= start or any(s <= start and end <= e for s, e, _, _ in made):
            continue
        budget = min(left, int(window.share * max_slices))
        exact = [row.take((row.start < end) & (row.end > start)) for row in rows]
        starts = np.sort(np.concatenate([row.start for row in exact]))
        if len(starts) > budget:
            cut = int(starts[budget])
            if cut <= start:
                continue
            end, why = cut, f"{why}, first part"
            exact = [row.take(row.start < end) for row in exact]
        left -= sum(len(row.start) for row in exact)
        made.append((start, end, why, exact))
        if left <= 0:
            break
    return made


def _ordered(tracks: list[Track], counters: list[Track]) -> list[Track]:
    """Order from the question to its reasons: steps, idle, device, its counters, host, host counters."""
    device_counters = [c for c in counters if c.id.startswith("counter:busy:")]
    others = [c for c in counters if not c.id.startswith("counter:busy:")]
    device = [t for t in tracks if t.kind != "thread"]
    return [*device, *device_counters, *(t for t in tracks if t.kind == "thread"), *others]
