"""The job-level part of a document: what the ranks of one run have in common and where one of them differs."""

from __future__ import annotations

import msgspec


class MissingRank(msgspec.Struct, frozen=True, kw_only=True):
    """A recording whose analysis was given up, because the process that worked on it died twice.

    Attributes:
        path: The input.
        problem: What happened.
    """

    path: str
    problem: str


class RankSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The mean step of one rank.

    Attributes:
        rank: The rank.
        steps: Windows averaged.
        step_ns: Mean window.
        own_ns: Mean window without communication that nothing overlaps: there a rank waits for the others.
    """

    rank: int
    steps: int
    step_ns: int
    own_ns: int


class CauseSpread(msgspec.Struct, frozen=True, kw_only=True):
    """Idle time of one cause over the ranks, mean ns per step.

    Attributes:
        cause: The cause.
        low_ns: Least of all ranks.
        median_ns: Median rank (the lower of two).
        high_ns: Most of all ranks.
        high_rank: The rank that has most.
    """

    cause: str
    low_ns: int
    median_ns: int
    high_ns: int
    high_rank: int


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose own work takes longer than the median rank's, so that the others wait for it.

    Attributes:
        rank: The rank.
        behind_ns: Its own time per step beyond the median rank's.
        causes_ns: Where that time is: idle causes and kinds of work of which it has more than the median rank.
    """

    rank: int
    behind_ns: int
    causes_ns: dict[str, int]


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks of one run side by side.

    Attributes:
        ranks: Mean steps, in rank order.
        missing: Recordings that could not be analysed.
        worst_rank: The rank with most own time per step; null without steps.
        median_rank: The median one.
        aligned_steps: Steps that every rank recorded, by the number in their name, else by position.
        start_skew_ns: Greatest difference between the ranks' starts of one aligned step; null where their clocks or
            their step names do not belong together.
        spread: Causes by how far the ranks are apart, the widest first.
        stragglers: Ranks that hold the others up, the slowest first.
        notes: What speaks against setting these recordings side by side.
    """

    ranks: list[RankSteps]
    missing: list[MissingRank] = []
    worst_rank: int | None = None
    median_rank: int | None = None
    aligned_steps: int = 0
    start_skew_ns: int | None = None
    spread: list[CauseSpread] = []
    stragglers: list[Straggler] = []
    notes: list[str] = []
