"""The same stretch of the step on both sides, one strip above the other, aligned at a launch or at the start."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from traceanalyzer.renderers.text import cause_title, visible
from traceanalyzer.results.analysis import Analysis, RankReport
from traceanalyzer.results.comparison import Comparison, Family
from traceanalyzer.results.timeline import Detail
from traceanalyzer.results.vocabulary import StepClass
from traceanalyzer.units import format_ns

WIDTH = 1080.0
ROW = 22.0
LABEL_ROOM = 96.0
MEDIAN_STEP = "median step"
STREAM_COLOURS = {"copy": "t-copy", "memset": "t-memset"}
SHORTEST_PX = 1.0  # nothing is drawn narrower, and what would lie under such a pixel is left out
LEAST_AROUND_NS = 300_000
TIMES_AROUND = 2.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One rectangle, in px.

    Attributes:
        x: Left edge.
        y: Upper edge.
        width: Width.
        colour: CSS variable.
        title: What it is.
    """

    x: float
    y: float
    width: float
    colour: str
    title: str


@dataclass(frozen=True, slots=True)
class Strip:
    """One side.

    Attributes:
        label: ``base`` or ``candidate``.
        marks: Its rectangles.
    """

    label: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Strips:
    """Both sides over one scale.

    Attributes:
        caption: What is shown.
        strips: Base above candidate.
        aligned_px: Where both are aligned.
        rows: Row labels, top to bottom.
    """

    caption: str
    strips: tuple[Strip, ...]
    aligned_px: float
    rows: tuple[str, ...] = ("GPU idle", "GPU work", "launches")


def draw_strips(comparison: Comparison, base: Analysis | None, candidate: Analysis | None) -> Strips | None:
    """Choose the stretch that shows the change, and lay it out.

    With a position that got worse (or better) it is the surroundings of that launch, aligned there; otherwise the
    whole median step, aligned at its start.

    Args:
        comparison: The document.
        base: The first base run with its timeline; None where only a baseline is at hand.
        candidate: The first candidate run likewise.

    Returns:
        The strips, or None where a side has no exact step to draw.
    """
    places = [t for t in comparison.tests if t.family is Family.POSITION and t.position is not None]
    rank = places[0].rank if places else None
    sides = [_median_step(a, rank) for a in (base, candidate) if a is not None]
    if len(sides) < 2 or sides[0] is None or sides[1] is None:
        return None
    (base_rank, base_step), (candidate_rank, candidate_step) = sides[0], sides[1]
    if places and (test := places[0]).position is not None:
        starts = _launch_starts((base_rank, base_step), (candidate_rank, candidate_step), test.position)
        if starts is not None:
            before, after = starts
            largest = max(test.base or 0.0, test.candidate or 0.0)
            around = round(max(LEAST_AROUND_NS, TIMES_AROUND * largest))
            caption = f"around {visible(test.name)}, aligned at that launch; {format_ns(2 * around)} of the median step"
            return _lay_out(
                caption,
                (base_rank, base_step, before - around),
                (candidate_rank, candidate_step, after - around),
                around,
            )
    length = max(base_step.end_ns - base_step.start_ns, candidate_step.end_ns - candidate_step.start_ns)
    caption = f"the median step of each side, aligned at its start; {format_ns(length)} across"
    return _lay_out(
        caption,
        (base_rank, base_step, base_step.start_ns),
        (candidate_rank, candidate_step, candidate_step.start_ns),
        0,
        length,
    )


Side = tuple[RankReport, Detail, int]


def _lay_out(caption: str, base: Side, candidate: Side, aligned_ns: int, length: int = 0) -> Strips:
    length = length or 2 * aligned_ns
    scale = (WIDTH - LABEL_ROOM) / max(length, 1)
    strips = (
        Strip("base", _marks(*base, length, scale)),
        Strip("candidate", _marks(*candidate, length, scale)),
    )
    return Strips(caption, strips, LABEL_ROOM + aligned_ns * scale)


def _median_step(analysis: Analysis, number: int | None) -> tuple[RankReport, Detail] | None:
    for rank in sorted(analysis.ranks, key=lambda r: r.rank != number):
        for detail in rank.timeline.details:
            if detail.why == MEDIAN_STEP:
                return rank, detail
        series = rank.per_step
        steady = [i for i, c in enumerate(rank.steps.step_class) if c is StepClass.STEADY and i < len(series.window_ns)]
        if steady and not rank.timeline.merged_slices:
            # a short recording is exact throughout, so its timeline holds no step apart
            middle = sorted(steady, key=lambda i: (series.window_ns[i], i))[len(steady) // 2]
            start = series.start_ns[middle]
            end = start + series.window_ns[middle]
            return rank, Detail(start_ns=start, end_ns=end, why=MEDIAN_STEP, tracks=rank.timeline.tracks)
    return None


def _launches(rank: RankReport, detail: Detail) -> list[tuple[int, str]]:
    """Start and name (of what it started) of every launch, in order."""
    strings = rank.timeline.strings
    started = {
        link: strings[name]
        for track in detail.tracks
        if track.kind == "stream" and track.slices is not None and track.slices.link
        for name, link in zip(track.slices.name, track.slices.link, strict=True)
    }
    found = [
        (start, link)
        for track in detail.tracks
        if track.kind == "thread" and track.slices is not None and track.slices.link
        for start, link in zip(track.slices.start_ns, track.slices.link, strict=True)
        if link >= 0 and detail.start_ns <= start < detail.end_ns
    ]
    return [(start, started.get(link, "")) for start, link in sorted(found)]


def _launch_starts(
    base: tuple[RankReport, Detail], candidate: tuple[RankReport, Detail], position: int
) -> tuple[int, int] | None:
    """Return when a position's launch began on both sides.

    A step that is not the usual sequence (a few targets more, for example) has no positions of its own; its launch is
    found by the order of names in the other side's step. None where neither step is usual.
    """
    there = _same_position(base[0], candidate[0], position)
    before, after = _launches(*base), _launches(*candidate)
    first = position if len(before) == len(base[0].positions.name) else None
    second = there if len(after) == len(candidate[0].positions.name) else None
    if first is None and second is not None:
        first = _place(after, second, before)
    elif second is None and first is not None:
        second = _place(before, first, after)
    if first is None or second is None:
        return None
    return before[first][0], after[second][0]


def _place(known: list[tuple[int, str]], index: int, other: list[tuple[int, str]]) -> int | None:
    """Find the launch of one step in another step, by the order of names."""
    names, others = [name for _, name in known], [name for _, name in other]
    shorter = min(len(names), len(others))
    # equal ends first: what lies between is short, and matching is quadratic
    if names[: index + 1] == others[: index + 1]:
        return index
    tail = len(names) - index
    if tail <= shorter and names[-tail:] == others[-tail:]:
        return len(others) - tail
    for block in difflib.SequenceMatcher(None, names, others, autojunk=False).get_matching_blocks():
        if block.a <= index < block.a + block.size:
            return block.b + index - block.a
    return None


def _same_position(base: RankReport, candidate: RankReport, position: int) -> int | None:
    """Find a base position in the candidate: the same occurrence of the same name."""
    name = base.positions.name[position]
    turn = base.positions.name[:position].count(name)
    places = [i for i, other in enumerate(candidate.positions.name) if other == name]
    return places[turn] if turn < len(places) else None


def _marks(rank: RankReport, detail: Detail, origin: int, length: int, scale: float) -> tuple[Mark, ...]:
    strings = rank.timeline.strings
    marks: list[Mark] = []
    for track in detail.tracks:
        row = {"idle": 0, "stream": 1, "thread": 2}.get(track.kind)
        if row is None or track.slices is None:
            continue
        slices = track.slices
        links = slices.link or [-1] * len(slices.start_ns)
        for start, duration, name, category, link in zip(
            slices.start_ns, slices.duration_ns, slices.name, slices.category, links, strict=True
        ):
            if start + duration <= origin or start >= origin + length or (row == 2 and link < 0):
                continue
            kind = strings[category]
            if row == 0:
                colour, what = f"c-{kind}", f"idle: {cause_title(kind)}"
            elif row == 1:
                colour, what = STREAM_COLOURS.get(kind, "t-kernel-0"), strings[name]
            else:
                colour, what = "t-launch", strings[name]
            left = max(start, origin)
            width = (min(start + duration, origin + length) - left) * scale
            x = LABEL_ROOM + (left - origin) * scale
            last = marks[-1] if marks and marks[-1].y == row * ROW else None
            if last is not None and last.x <= x and x + width < last.x + max(last.width, SHORTEST_PX):
                continue  # under a pixel that is drawn already
            marks.append(Mark(x, row * ROW, max(width, SHORTEST_PX), colour, f"{visible(what)}, {format_ns(duration)}"))
    return tuple(marks)
