"""The timeline as compact columns for the page's script: differences instead of times, one table of name pairs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from traceanalyzer.renderers.messages import translated
from traceanalyzer.renderers.text import visible
from traceanalyzer.results.analysis import RankReport
from traceanalyzer.results.timeline import Timeline, Track, TrackSlices


def timeline_payload(rank: RankReport) -> dict[str, Any]:
    """Encode one rank's timeline.

    Times become differences to the one before, a slice's name and category one index, and columns that say nothing
    (all on depth 0, nothing merged, nothing linked) are left out; that halves the page.

    Args:
        rank: The rank.

    Returns:
        What ``assets/model.js`` decodes: ``s`` start differences, ``d`` durations, ``n`` pair indices, ``p`` depths,
        ``m`` ``[index, count]`` of merged slices, ``l`` links as ``_links`` writes them, ``t`` and ``v`` of counters.
    """
    timeline = rank.timeline
    pairs: dict[tuple[int, int], int] = {}
    return {
        "rank": rank.rank,
        "start": timeline.start_ns,
        "end": timeline.end_ns,
        # the script shows names as text, which hidden and bidirectional controls would still reorder
        "strings": [visible(string) for string in timeline.strings],
        "binned": timeline.binned_below_ns,
        "merged": timeline.merged_slices,
        "tracks": [_track(track, pairs) for track in timeline.tracks],
        "details": [
            {
                "start": detail.start_ns,
                "end": detail.end_ns,
                "why": translated(detail.why),
                "tracks": [_track(track, pairs) for track in detail.tracks],
            }
            for detail in timeline.details
            if detail.tracks
        ],
        # filled while the tracks above were encoded
        "pairs": [code for pair in pairs for code in pair],
    }


def slice_count(timeline: Timeline) -> int:
    """Number of slices in the overview."""
    return sum(len(track.slices.start_ns) for track in timeline.tracks if track.slices is not None)


def _track(track: Track, pairs: dict[tuple[int, int], int]) -> dict[str, Any]:
    made: dict[str, Any] = {"id": track.id, "kind": track.kind, "title": translated(track.title)}
    if track.slices is None:
        return made | {
            "unit": track.unit,
            "t": _differences(track.counter_time_ns),
            "v": [int(value) if value == int(value) else value for value in track.counter_value],
        }
    return made | _slices(track.slices, pairs)


def _slices(slices: TrackSlices, pairs: dict[tuple[int, int], int]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "s": _differences(slices.start_ns),
        "d": slices.duration_ns,
        "n": [pairs.setdefault(pair, len(pairs)) for pair in zip(slices.name, slices.category, strict=True)],
    }
    if any(slices.depth):
        made["p"] = slices.depth
    if slices.merged:
        made["m"] = [[i, count] for i, count in enumerate(slices.merged) if count > 1]
    if slices.link:
        made["l"] = _links(slices.link)
    return made


def _links(links: list[int]) -> list[int]:
    """Differences to the last link given, made room for 0 as "none": most slices of a thread have no link."""
    made = []
    last = 0
    for link in links:
        if link < 0:
            made.append(0)
        else:
            made.append(link - last + (link >= last))
            last = link
    return made


def _differences(times: list[int]) -> list[int]:
    return [*times[:1], *(after - before for before, after in pairwise(times))]
