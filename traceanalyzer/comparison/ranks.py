"""Runs of several ranks: each rank is compared with its own number, and the worst one speaks for a test."""

from __future__ import annotations

import math

import msgspec

from traceanalyzer.comparison.samples import Run
from traceanalyzer.errors import UsageError
from traceanalyzer.results.comparison import HostFactor, Test, Verdict

ORDER = {Verdict.REGRESSION: 0, Verdict.IMPROVEMENT: 1, Verdict.INCONCLUSIVE: 2, Verdict.NO_CHANGE: 3}


def pair_ranks(base: list[Run], candidate: list[Run]) -> tuple[dict[int, tuple[list[Run], list[Run]]], list[str]]:
    """Sort runs by rank.

    Args:
        base: Base runs, every rank of each.
        candidate: Candidate runs likewise.

    Returns:
        Rank → its runs on both sides, and notes about ranks that are on one side only.

    Raises:
        UsageError: The sides have no rank in common.
    """
    sides = [{run.rank for run in side} for side in (base, candidate)]
    common = sorted(sides[0] & sides[1])
    if not common:
        listed = " and ".join(", ".join(map(str, sorted(side))) for side in sides)
        raise UsageError(f"compare: the sides have no rank in common (ranks {listed})")
    pairs = {rank: ([r for r in base if r.rank == rank], [r for r in candidate if r.rank == rank]) for rank in common}
    alone = sorted(sides[0] ^ sides[1])
    notes = [f"On one side only, so not compared: rank {', '.join(map(str, alone))}."] if alone else []
    return pairs, notes


def first_rank(runs: list[Run]) -> list[Run]:
    """Return one entry per recording: that of its lowest rank."""
    lowest = min(run.rank for run in runs)
    return [run for run in runs if run.rank == lowest]


def merge_tests(by_rank: dict[int, list[Test]]) -> tuple[list[Test], list[Test]]:
    """Let the worst rank speak for each test.

    Args:
        by_rank: Rank → its tests.

    Returns:
        One test per family and name, marked with the rank it is of, and those of the other ranks.
    """
    if len(by_rank) == 1:
        return next(iter(by_rank.values())), []
    groups: dict[tuple[str, str], list[Test]] = {}
    for rank, tests in by_rank.items():
        for test in tests:
            groups.setdefault((test.family, test.name), []).append(msgspec.structs.replace(test, rank=rank))
    worst, others = [], []
    for group in groups.values():
        ordered = sorted(group, key=_badness)
        same = sum(t.verdict is ordered[0].verdict for t in group)
        detail = f"{ordered[0].detail} (rank {ordered[0].rank}"
        if ordered[0].verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT):
            detail += f", and {same - 1} more of {len(by_rank)} ranks" if same > 1 else f" of {len(by_rank)} only"
        worst.append(msgspec.structs.replace(ordered[0], detail=f"{detail})"))
        others += ordered[1:]
    return worst, others


def slowest_host(by_rank: dict[int, HostFactor]) -> HostFactor:
    """Return the host factor that is furthest from equal, naming its rank."""
    if len(by_rank) == 1:
        return next(iter(by_rank.values()))
    rank = min(by_rank, key=lambda r: (-abs(math.log(by_rank[r].ratio or 1.0)), r))
    host = by_rank[rank]
    return msgspec.structs.replace(host, note=f"{host.note} (Rank {rank}, which differs most.)")


def _badness(test: Test) -> tuple[int, float, int]:
    rise = (test.candidate or 0.0) - (test.base or 0.0)
    return (ORDER[test.verdict], rise if test.verdict is Verdict.IMPROVEMENT else -rise, test.rank or 0)
