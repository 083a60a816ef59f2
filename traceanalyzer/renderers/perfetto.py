"""An annotated trace for ui.perfetto.dev and chrome://tracing: steps, idle time by cause, findings and the timeline.

Chrome's JSON format, since both viewers open it. What the document's overview merged stays merged, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from traceanalyzer.renderers.text import cause_title, visible
from traceanalyzer.results.analysis import Analysis, RankReport
from traceanalyzer.results.answer import firing
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.timeline import Track, TrackSlices
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.units import format_ns

_Slice = tuple[int, int, str, dict[str, Any]]  # start, end, name, arguments


def render_perfetto(analysis: Analysis) -> str:
    """Render an Analysis as a trace: one process per rank, one named track per row of the report's timeline.

    Args:
        analysis: The document; equal documents give equal text.

    Returns:
        JSON of Chrome's trace event format; times are microseconds since the rank's origin, exact to the nanosecond.
    """
    events: list[dict[str, Any]] = []
    for rank in analysis.ranks:
        events.extend(_rank_events(rank, _fired(analysis, rank)))
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "producer": f"{analysis.tool.name} {analysis.tool.version}",
            "notes": [note for rank in analysis.ranks for note in _notes(rank)],
        },
    }
    return msgspec.json.encode(document).decode("utf-8") + "\n"


def _fired(analysis: Analysis, rank: RankReport) -> list[Finding]:
    kinds = (FindingKind.FAULT, FindingKind.LIMITER, FindingKind.NOTE)
    return [f for kind in kinds for f in firing(analysis, kind) if f.rank == rank.rank]


def _notes(rank: RankReport) -> list[str]:
    timeline = rank.timeline
    notes = [f"rank {rank.rank}: {visible(note)}" for note in timeline.notes]
    if timeline.merged_slices:
        limit = format_ns(timeline.binned_below_ns)
        notes.append(
            f"rank {rank.rank}: events shorter than {limit} are merged with their neighbours; "
            "'stands for' in a slice's arguments says how many it holds"
        )
    return notes


class _Threads:
    """Numbers the tracks of one process in the order they should appear."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._count = 0

    def add(self, name: str) -> tuple[int, list[dict[str, Any]]]:
        self._count += 1
        tid = self._count
        return tid, [
            {"ph": "M", "name": "thread_name", "pid": self._pid, "tid": tid, "args": {"name": name}},
            {"ph": "M", "name": "thread_sort_index", "pid": self._pid, "tid": tid, "args": {"sort_index": tid}},
        ]


def _rank_events(rank: RankReport, findings: list[Finding]) -> Iterator[dict[str, Any]]:
    pid = rank.rank + 1  # process 0 is the idle task in both viewers
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"rank {rank.rank}"}}
    threads = _Threads(pid)
    for finding in findings:
        yield from _finding_events(finding, pid, threads)
    for track in rank.timeline.tracks:
        if track.slices is None:
            yield from _counter_events(track, pid)
        else:
            yield from _track_events(track, track.slices, rank.timeline.strings, pid, threads)


def _finding_events(finding: Finding, pid: int, threads: _Threads) -> Iterator[dict[str, Any]]:
    title = f"{finding.code}: {visible(finding.title)}"
    slices: list[_Slice] = [
        (place.start_ns, place.end_ns, visible(place.what), {"where": visible(place.where)} if place.where else {})
        for place in sorted(finding.evidence, key=lambda place: (place.start_ns, -place.end_ns))
    ]
    for lane in _lanes(slices):
        tid, named = threads.add(title)
        yield from named
        yield from (_complete(piece, pid, tid, "finding") for piece in lane)


def _lanes(slices: list[_Slice]) -> list[list[_Slice]]:
    """Spread slices, sorted by start, over as few rows as keep them from overlapping."""
    lanes: list[list[_Slice]] = []
    for piece in slices:
        lane = next((lane for lane in lanes if lane[-1][1] <= piece[0]), None)
        if lane is None:
            lane = []
            lanes.append(lane)
        lane.append(piece)
    return lanes


def _track_events(
    track: Track, slices: TrackSlices, strings: list[str], pid: int, threads: _Threads
) -> Iterator[dict[str, Any]]:
    kind = track.kind
    nested = _nests(slices)
    depths = [0] if nested else sorted(set(slices.depth))
    tids: dict[int, int] = {}
    for depth in depths:
        tid, named = threads.add(track.title if depth == depths[0] else f"{track.title}, row {depth + 1}")
        tids[depth] = tid
        yield from named
    # an outer slice before the inner one that starts with it, as the viewers nest them
    order = sorted(range(len(slices.start_ns)), key=lambda i: (slices.start_ns[i], slices.depth[i]))
    for i in order:
        start, end = slices.start_ns[i], slices.start_ns[i] + slices.duration_ns[i]
        name, category = visible(strings[slices.name[i]]), strings[slices.category[i]]
        arguments: dict[str, Any] = {}
        if kind == "idle":
            arguments = {"cause": category, "phase": name}
            name = cause_title(category)
        if slices.merged and slices.merged[i] > 1:
            arguments["stands for"] = slices.merged[i]
        tid = tids[0 if nested else slices.depth[i]]
        yield _complete((start, end, name, arguments), pid, tid, visible(category))
        if slices.link and slices.link[i] >= 0:
            yield _flow(start, slices.link[i], pid, tid, begins=kind != "stream")


def _nests(slices: TrackSlices) -> bool:
    """Whether every slice lies inside the ones above it, so that one row of a viewer can hold them all."""
    open_ends: list[int] = []
    order = sorted(range(len(slices.start_ns)), key=lambda i: (slices.start_ns[i], slices.depth[i]))
    for i in order:
        start, end = slices.start_ns[i], slices.start_ns[i] + slices.duration_ns[i]
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            return False
        if len(open_ends) != slices.depth[i]:
            return False
        open_ends.append(end)
    return True


def _counter_events(track: Track, pid: int) -> Iterator[dict[str, Any]]:
    unit = track.unit or "value"
    for time, value in zip(track.counter_time_ns, track.counter_value, strict=True):
        yield {"ph": "C", "name": visible(track.title), "pid": pid, "tid": 0, "ts": time / 1000, "args": {unit: value}}


def _complete(piece: _Slice, pid: int, tid: int, category: str) -> dict[str, Any]:
    start, end, name, arguments = piece
    event: dict[str, Any] = {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
    }
    return event | ({"args": arguments} if arguments else {})


def _flow(start: int, link: int, pid: int, tid: int, *, begins: bool) -> dict[str, Any]:
    event = {"ph": "s" if begins else "f", "name": "launch", "cat": "launch", "id": link, "pid": pid, "tid": tid}
    return event | {"ts": start / 1000} | ({} if begins else {"bp": "e"})
