"""The pre-binned timeline a report draws; renderers never see the recording itself.

Columns are integers; ``name`` holds indices into ``Timeline.strings``. A slice with ``merged`` > 1 stands for
that many slices too short to draw at the overview's resolution.
"""

from __future__ import annotations

import msgspec


class TrackSlices(msgspec.Struct, frozen=True, kw_only=True):
    """Slices of one track, sorted by start.

    Attributes:
        start_ns: Start of each slice.
        duration_ns: Length of each slice.
        name: Index into ``Timeline.strings``.
        depth: Row inside the track, 0 outermost.
        category: Index into ``Timeline.strings``: activity kind, slice kind, cause, phase or step class (an idle
            piece is named by its phase and categorised by its cause).
        merged: Number of original slices it stands for; 1 where exact. Empty when all are exact.
        link: Identifier shared by a launch and its activities; -1 none. Empty when the track has none.
    """

    start_ns: list[int]
    duration_ns: list[int]
    name: list[int]
    depth: list[int]
    category: list[int]
    merged: list[int] = []
    link: list[int] = []


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """One row group of the timeline.

    Attributes:
        id: Stable identifier, for example ``stream:0:7`` or ``thread:656``.
        kind: ``steps``, ``phases``, ``idle``, ``stream``, ``thread`` or ``counter``.
        title: What the reader sees.
        slices: Slices over the whole range at the overview's resolution.
        counter_time_ns: Times of a counter track.
        counter_value: Values of a counter track.
        unit: Unit of a counter track.
    """

    id: str
    kind: str
    title: str
    slices: TrackSlices | None = None
    counter_time_ns: list[int] = []
    counter_value: list[float] = []
    unit: str = ""


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """A chosen window in which every slice is kept: exact tracks to draw instead of the overview when zoomed in.

    Attributes:
        start_ns: Window start.
        end_ns: Window end.
        why: For example ``median step`` or ``evidence of TA301``.
        tracks: Same ids as the overview's.
    """

    start_ns: int
    end_ns: int
    why: str
    tracks: list[Track]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the canvas draws for one rank.

    Attributes:
        start_ns: First time drawn.
        end_ns: Last time drawn.
        strings: String table.
        tracks: Overview tracks, top to bottom.
        details: Exact windows.
        binned_below_ns: Slices shorter than this were merged in the overview; 0 when nothing was merged.
        merged_slices: How many slices were merged away.
        notes: Sentences about what is not drawn.
    """

    start_ns: int
    end_ns: int
    strings: list[str]
    tracks: list[Track]
    details: list[Detail] = []
    binned_below_ns: int = 0
    merged_slices: int = 0
    notes: list[str] = []
