"""The timeline a report draws: every track of a rank, small enough to travel inside one HTML file.

Short neighbours of one row are merged until the whole overview fits a fixed number of slices; chosen windows keep
every slice, so that a reader who zooms in sees exact intervals where it matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.host_timeline import HostTimeline
from traceanalyzer.measures.steps import STEADY, STEP_CLASSES, Steps
from traceanalyzer.measures.timeline_counters import busy_counters, memory_counters, run_ahead_counter, sampled_counters
from traceanalyzer.measures.timeline_rows import NameTable, Row, choose_bin, make_row, nest
from traceanalyzer.model.schema import ActivityKind, CallKind, SliceKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.timeline import Detail, Timeline, Track
from traceanalyzer.results.vocabulary import CAUSES, PHASE_CODE, PHASES, Phase

OVERVIEW_SLICES = 60_000  # about 1.1 MB inside the report
DETAIL_SLICES = 20_000
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
    """Lay out every track of one rank and bin it to a bounded size.

    Args:
        trace: The recording of one process.
        steps: Its step windows.
        ledger: Every idle piece with its cause.
        devices: Busy and idle time per device.
        host: Flattened host threads (gives the phases of the training thread).
        highlights: Windows to keep exact where the overview is binned: ``(start_ns, end_ns, why)``, most
            important first, relative to the trace's origin.
        max_slices: Overview size; merging starts above it.
        max_detail_slices: Size of all exact windows together.

    Returns:
        The timeline; empty (no tracks) for a trace without any interval.
    """
    table = NameTable(trace.names)
    rows = [
        _steps_row(steps, table),
        _phases_row(steps, host, trace, table),
        *_idle_rows(ledger, devices, table),
        *_stream_rows(trace, devices, table),
    ]
    counters = [*busy_counters(devices)]
    thread_rows, notes = _thread_rows(trace, steps, table)
    rows = [row for row in [*rows, *thread_rows] if len(row.start)]
    if not rows:
        return Timeline(start_ns=0, end_ns=0, strings=[], tracks=[])
    start = min(int(row.start.min()) for row in rows)
    end = max(int(row.end.max()) for row in rows)
    bin_ns = choose_bin(rows, end - start, max_slices)
    overview = [row.binned(bin_ns) for row in rows]
    merged = sum(len(row.start) for row in rows) - sum(len(row.start) for row in overview)
    windows: list[tuple[int, int, str, list[Row]]] = []
    if merged:
        windows = _detail_windows(rows, [*_step_windows(steps), *highlights], max_detail_slices)
    strings, codes = table.compress([*overview, *(row for window in windows for row in window[3])])
    # busy time belongs under the device rows, host counters below the threads
    counters = [*counters, *run_ahead_counter(trace), *memory_counters(trace), *sampled_counters(trace, start, end)]
    tracks = [row.track(codes) for row in overview]
    return Timeline(
        start_ns=start,
        end_ns=end,
        strings=strings,
        tracks=_ordered(tracks, counters),
        details=[
            Detail(start_ns=s, end_ns=e, why=why, tracks=[row.track(codes) for row in exact if len(row.start)])
            for s, e, why, exact in windows
        ],
        binned_below_ns=bin_ns if merged else 0,
        merged_slices=merged,
        notes=notes,
    )


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
    # stretches that touch and share a phase are one phase
    head = np.ones(len(start), dtype=np.bool_)
    head[1:] = (start[1:] != end[:-1]) | (phase[1:] != phase[:-1])
    first = np.flatnonzero(head)
    last = np.append(first[1:], len(start)) - 1
    named = phase[first] != PHASE_CODE[Phase.OTHER]
    codes = table.codes(str(p) for p in PHASES)[phase[first][named]]
    return make_row("phases", "phases", "Phases", start[first][named], end[last][named], codes, codes)


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
        made.append(
            make_row(
                f"idle:{device.device_id}",
                "idle",
                f"GPU {device.device_id} idle, by cause",
                ledger.start_ns[rows],
                ledger.end_ns[rows],
                phases[ledger.phase[rows]],
                causes[ledger.cause[rows]],
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


def _thread_rows(trace: Trace, steps: Steps, table: NameTable) -> tuple[list[Row], list[str]]:
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
        label = _thread_title(trace, thread, thread == training)
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


def _thread_title(trace: Trace, thread: int, is_training: bool) -> str:
    known = trace.threads[thread]
    name = known.name or ("training" if is_training else "")
    return f"Thread {known.tid}" + (f" ({name})" if name else "")


def _step_windows(steps: Steps) -> list[tuple[int, int, str]]:
    """Windows of the steady step of median length and of the longest step of all."""
    length = steps.end_ns - steps.start_ns
    if len(length) < 2:
        return []
    steady = np.flatnonzero(steps.step_class == STEADY)
    chosen = []
    if len(steady):
        median = int(steady[np.argsort(length[steady], kind="stable")[(len(steady) - 1) // 2]])
        chosen.append((median, "median step"))
    worst = int(length.argmax())
    if not chosen or chosen[0][0] != worst:
        chosen.append((worst, "longest step"))
    return [(int(steps.start_ns[i]), int(steps.end_ns[i]), why) for i, why in chosen]


def _detail_windows(
    rows: Sequence[Row], wanted: Sequence[tuple[int, int, str]], max_slices: int
) -> list[tuple[int, int, str, list[Row]]]:
    """Keep every slice of the wanted windows, in order, while they fit; one that does not is cut at its end."""
    made: list[tuple[int, int, str, list[Row]]] = []
    left = max_slices
    for position, (start, end, why) in enumerate(wanted):
        if end <= start or any(s <= start and end <= e for s, e, _, _ in made):
            continue
        # the first window may take half, so that a huge median step leaves room for the others
        budget = left if position else max(left // 2, 1)
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
