"""One rank comes late to the collectives, and all others wait for it there.

## Detects
A rank that is the last to enter most collectives, while the other ranks' collective kernels wait for it.

## Why it matters
A collective ends for everybody when the last rank has come. The slowest rank's own fault is paid by all of them, and on
the others it looks like slow communication.

## How it is measured
The recordings of several ranks are set side by side: the n-th collective of one rank belongs to the n-th of the others.
Each rank waits from its own start until the last rank's. Stated for the rank that is last most often; the saving is the
mean wait of the others per step. What differs most between it and the others (idle time by cause, or the device's own
work) is named as why.

## Does not apply when
Only one rank was read, the ranks hold different numbers of collectives, or their clocks do not agree (collectives that
belong together must overlap).

## How to fix
Repair what is named as the reason on that rank: its loader, its device's clocks, uneven batches, a validation or
logging task that only rank 0 has.

## Limits and false positives
Point-to-point exchanges of a pipeline wait by design. With the recording of one rank only, nobody can tell who was
late.

## References
Dean and Barroso, "The Tail at Scale", Communications of the ACM, 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import IntArray
from traceanalyzer.replay.bounds import bound, judged_idle, judged_steps
from traceanalyzer.results.finding import Evidence, Finding, Scalar
from traceanalyzer.results.vocabulary import CAUSES, FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.collectives import Collectives, collectives
from traceanalyzer.rules.evidence import longest
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA702",
    slug="straggler-rank",
    kind=FindingKind.FAULT,
    category="communication",
    fail_title="This rank makes the others wait",
    pass_title="This rank does not make others wait",
    remedy=Remedy(
        settings=("DistributedSampler",),
        before="""
        if rank == 0:
            validate(model, DataLoader(validation_set))  # the others wait in their next collective
        """,
        after="""
        share = DistributedSampler(validation_set, shuffle=False)
        validate(model, DataLoader(validation_set, sampler=share))  # every rank takes its part
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # of two equal ranks each is last half of the time; two thirds of 30 collectives are beyond chance (p < 0.05)
    min_last_share: float = 0.66
    # collectives that belong together overlap; a few may be cut by the recording's ends
    min_overlapping_share: float = 0.9
    # fewer say nothing about who is usually late
    min_collectives: int = 8


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    if judged_steps(measures) is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.peers:
        return not_applicable(META, measures, thresholds, "the recordings of the other ranks, read together with this")
    ranks = (measures, *measures.peers)
    found = [_collectives_of(rank) for rank in ranks]
    count = min(len(one.row) for one in found)
    if count < thresholds.min_collectives or count != max(len(one.row) for one in found):
        missing = f"the same collectives on every rank, at least {thresholds.min_collectives} (it has {count})"
        return not_applicable(META, measures, thresholds, missing)
    # one row per rank, one column per collective, on one clock
    start = np.stack([one.start_ns + rank.origin_ns for rank, one in zip(ranks, found, strict=True)])
    end = np.stack([one.end_ns + rank.origin_ns for rank, one in zip(ranks, found, strict=True)])
    together = start.max(axis=0) < end.min(axis=0)
    if float(together.mean()) < thresholds.min_overlapping_share:
        return not_applicable(META, measures, thresholds, "ranks whose clocks agree (their collectives do not overlap)")
    waits = np.where(together, start.max(axis=0) - start, 0)
    last = np.where(together, start.argmax(axis=0), -1)
    mine = last == 0
    return _judge(measures, thresholds, ranks, found[0], waits, mine)


def _judge(
    measures: Measures,
    thresholds: Thresholds,
    ranks: tuple[Measures, ...],
    found: Collectives,
    waits: IntArray,
    mine: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> Finding:
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    others = waits[1:]
    # what all others lose while this rank is last, as a mean of one of them
    lost = float(others[:, mine].sum()) / len(others)
    share = float(mine.mean())
    why, by = _difference(ranks)
    observed: dict[str, Scalar] = {
        "last_in_collectives": int(mine.sum()),
        "collectives": len(mine),
        "others_wait_per_step_ns": judged.per_step(lost),
        "own_wait_per_step_ns": judged.per_step(float(waits[0].sum())),
        "ranks": len(ranks),
        "differs_most_in": why,
        "difference_per_step_ns": by,
        "steps": judged.count,
    }
    if share < thresholds.min_last_share:
        message = f"Rank {measures.rank} is the last to come to {mine.sum()} of {len(mine)} collectives."
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    late = np.flatnonzero(mine)
    worst = others[:, late].max(axis=0)
    evidence = [
        Evidence(
            start_ns=int(found.start_ns[late[at]]),
            end_ns=int(found.end_ns[late[at]]),
            stream=measures.facts.stream(int(found.activity[late[at]])),
            what=f"last to come to {found.name[late[at]].split('(')[0]}, {format_ns(int(worst[at]))} after the first",
        )
        for at in longest(worst)
    ]
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            f"Rank {measures.rank} is the last to come to {mine.sum()} of {len(mine)} collectives; meanwhile each "
            f"other rank waits {format_ns(judged.per_step(lost))} per step "
            f"({format_share(judged.per_step(lost), judged.mean_step_ns)}). What sets it apart most: "
            f"{why.replace('_', ' ')}, {format_ns(by)} more per step than the others."
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=len(late),
        fix=[
            f"Find out why rank {measures.rank} has more {why.replace('_', ' ')} than the others: same data, same "
            "device clocks, same host load?",
            "Give every rank equal batches (DistributedSampler, drop_last) and keep work of rank 0 alone off the step.",
        ],
        confidence=0.7,
    )
    quiet = f"The others wait only {format_ns(judged.per_step(lost))} per step for this rank."
    return decide(META, measures, thresholds, judged, case, quiet)


def _collectives_of(measures: Measures) -> Collectives:
    judged = judged_steps(measures)
    nothing = np.zeros(0, dtype=np.int64)
    if judged is None:
        return Collectives(nothing, nothing, nothing, nothing, nothing, (), 0)
    return collectives(measures, judged)


def _difference(ranks: tuple[Measures, ...]) -> tuple[str, int]:
    """What the first rank has most more of than the mean of the others: idle by cause or device work, ns per step."""
    profiles = [_profile(rank) for rank in ranks]
    best, most = "device_work", 0.0
    for name in profiles[0]:
        usual = sum(profile.get(name, 0.0) for profile in profiles[1:]) / len(profiles[1:])
        if profiles[0][name] - usual > most:
            best, most = name, profiles[0][name] - usual
    return best, round(most)


def _profile(measures: Measures) -> dict[str, float]:
    judged, idle, kernels = judged_steps(measures), measures.idle, measures.kernels
    if judged is None:
        return {}
    base = judged_idle(measures, judged, with_episode_phases=True)
    computing = judged.holds(kernels.window) & (kernels.device == judged.device_id) & (kernels.is_communication == 0)
    found = {"device_work": float(kernels.duration_ns[computing].sum()) / judged.count}
    for code in np.unique(idle.cause[base]).tolist():
        found[CAUSES[code].value] = float(idle.duration_ns[base & (idle.cause == code)].sum()) / judged.count
    return found
