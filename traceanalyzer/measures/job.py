"""Sets the ranks of one run side by side: whose step is longest, and what that rank has more of than the others."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceanalyzer.results.analysis import RankReport
from traceanalyzer.results.answer import StepMean, mean_step
from traceanalyzer.results.job import CauseSpread, JobReport, MissingRank, RankSteps, Straggler

# ranks of one job differ by a percent or two from step to step; below this nobody can be told to be late
STRAGGLES_ABOVE = 0.05
_WAITING_FOR_OTHERS = "exposed_communication"
_NUMBER = re.compile(r"(\d+)\s*$")
# ranks of one run start within minutes of each other; a clock that counts from boot is decades from one of the epoch
ONE_RUN_NS = 86_400 * 1_000_000_000


def measure_job(
    ranks: Sequence[RankReport], missing: Sequence[MissingRank] = (), notes: Sequence[str] = ()
) -> JobReport:
    """Compare the ranks of one run.

    Args:
        ranks: Their reports, in rank order.
        missing: Recordings that could not be analysed.
        notes: What speaks against comparing them.
    """
    means = {rank.rank: mean for rank in ranks if (mean := mean_step(rank)) is not None}
    steps = [
        RankSteps(rank=rank, steps=mean.windows, step_ns=round(mean.window_ns), own_ns=round(_own(mean)))
        for rank, mean in means.items()
    ]
    report = JobReport(ranks=steps, missing=list(missing), notes=list(notes))
    if not steps:
        return report
    by_own = sorted(steps, key=lambda each: (each.own_ns, each.rank))
    median = by_own[(len(by_own) - 1) // 2]
    worst = max(by_own, key=lambda each: (each.own_ns, -each.rank))
    aligned, skew = _alignment(ranks)
    return JobReport(
        ranks=steps,
        missing=report.missing,
        worst_rank=worst.rank,
        median_rank=median.rank,
        aligned_steps=aligned,
        start_skew_ns=skew,
        spread=_spread(means),
        stragglers=[
            Straggler(
                rank=each.rank,
                behind_ns=each.own_ns - median.own_ns,
                causes_ns=_more_than(means[each.rank], means[median.rank]),
            )
            for each in reversed(by_own)
            if each.own_ns > median.own_ns * (1 + STRAGGLES_ABOVE)
        ],
        notes=report.notes,
    )


def _own(mean: StepMean) -> float:
    return mean.window_ns - mean.busy_ns.get(_WAITING_FOR_OTHERS, 0.0)


def _parts(mean: StepMean) -> dict[str, float]:
    return mean.idle_ns | {kind: ns for kind, ns in mean.busy_ns.items() if kind != _WAITING_FOR_OTHERS}


def _more_than(mean: StepMean, median: StepMean) -> dict[str, int]:
    usual = _parts(median)
    more = {name: round(ns - usual.get(name, 0.0)) for name, ns in _parts(mean).items()}
    return dict(sorted(((name, ns) for name, ns in more.items() if ns > 0), key=lambda item: (-item[1], item[0])))


def _spread(means: dict[int, StepMean]) -> list[CauseSpread]:
    found = []
    for cause in sorted({cause for mean in means.values() for cause in mean.idle_ns}):
        values = sorted((round(mean.idle_ns.get(cause, 0.0)), -rank) for rank, mean in means.items())
        found.append(
            CauseSpread(
                cause=cause,
                low_ns=values[0][0],
                median_ns=values[(len(values) - 1) // 2][0],
                high_ns=values[-1][0],
                high_rank=-values[-1][1],
            )
        )
    return sorted(found, key=lambda each: (each.low_ns - each.high_ns, each.cause))


def _alignment(ranks: Sequence[RankReport]) -> tuple[int, int | None]:
    """Count the steps all ranks recorded and how far apart one of them began at most."""
    numbered = [_numbers(rank) for rank in ranks]
    if any(numbers is None for numbers in numbered):
        return min(rank.steps.count for rank in ranks), None
    starts = [
        dict(zip(numbers or (), rank.per_step.start_ns, strict=False))
        for numbers, rank in zip(numbered, ranks, strict=True)
    ]
    common = set(starts[0]).intersection(*starts[1:])
    origins = [int(rank.origin_ns) for rank in ranks]
    if not common or max(origins) - min(origins) > ONE_RUN_NS:
        return len(common), None
    spans = [[begun[step] + origin for begun, origin in zip(starts, origins, strict=True)] for step in common]
    return len(common), max(max(moments) - min(moments) for moments in spans)


def _numbers(rank: RankReport) -> list[int] | None:
    """Numbers in the names of a rank's steps; None where they are not told apart by one."""
    found = [_NUMBER.search(name) for name in rank.steps.name]
    numbers = [int(match.group(1)) for match in found if match]
    return numbers if len(numbers) == rank.steps.count and len(set(numbers)) == len(numbers) else None
