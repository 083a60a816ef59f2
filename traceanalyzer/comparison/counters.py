"""Per-step counts: exact where they never vary, a run test where they do."""

from __future__ import annotations

from collections import Counter

import numpy as np

from traceanalyzer.comparison.distributions import t_survival
from traceanalyzer.comparison.samples import FloatArray, Run
from traceanalyzer.comparison.statistics import ALPHA, moderated_t
from traceanalyzer.results.comparison import Family, Test, Verdict

# the totals whose rise is a regression; kernels per family may be exchanged by a library and only inform
DECIDING_COUNTERS = (
    "launches",
    "h2d",
    "d2h",
    "d2d",
    "p2p",
    "memsets",
    "synchronisations",
    "device_mallocs",
    "device_frees",
    "host_allocs",
    "graph_launches",
)
# run-to-run spread of counts that vary with the data (targets per image, for example)
VARYING_PRIOR_SD = 0.05

# a count that a step in five may miss (a target-free image, a cache miss) still has a usual value; noise has none
USUAL_SHARE = 0.8

TITLES = {
    "launches": "launch calls",
    "kernels": "kernels",
    "h2d": "H2D copies",
    "d2h": "D2H copies",
    "d2d": "D2D copies",
    "p2p": "peer-to-peer copies",
    "memsets": "memsets",
    "synchronisations": "synchronising calls",
    "device_mallocs": "device allocations",
    "device_frees": "device frees",
    "host_allocs": "pinned host allocations",
    "graph_launches": "graph launches",
}


def compare_counters(base: list[Run], candidate: list[Run], ranks: int = 1) -> list[Test]:
    """Compare per-step counts.

    A counter that is the same in every steady step of both sides, or in all but a few, needs no statistics: any
    change of its usual value is real. One that varies gets the run test on its logarithm, with at least one count per
    step as floor.

    Args:
        base: Base runs.
        candidate: Candidate runs.
        ranks: Ranks compared in the same way, for the correction.

    Returns:
        One test per counter that both sides know. One that a whole side lacks was not counted then (an older baseline),
        which is not the same as zero.
    """
    names = sorted({n for run in base for n in run.counters} & {n for run in candidate for n in run.counters})
    tests = []
    for name in names:
        before = np.concatenate([r.counters.get(name, np.zeros(r.steps)) for r in base])
        after = np.concatenate([r.counters.get(name, np.zeros(r.steps)) for r in candidate])
        low, high = float(before.mean()), float(after.mean())
        usual_before, usual_after = _usual(before), _usual(after)
        verdict = Verdict.NO_CHANGE
        p: float | None = None
        statistic: float | None = None
        degrees: float | None = None
        if usual_before is not None and usual_after is not None:
            method = f"the same in at least {USUAL_SHARE:.0%} of the steps of each side: exact"
            # both must move: a rarer exception may move the mean alone, and says nothing about every step
            if usual_after > usual_before and high > low:
                verdict = Verdict.REGRESSION
            elif usual_after < usual_before and high < low:
                verdict = Verdict.IMPROVEMENT
        else:
            method = "varies from step to step: moderated t on log run means"
            fit = moderated_t(
                [_log_counts(r, name) for r in base],
                [_log_counts(r, name) for r in candidate],
                prior_sd=VARYING_PRIOR_SD,
                adjust_host=False,
            )
            statistic, degrees = fit.estimate / fit.standard_error, fit.degrees_of_freedom
            p = t_survival(statistic, degrees)
            if ranks * p < ALPHA and high - low >= 1.0:
                verdict = Verdict.REGRESSION
            elif ranks * t_survival(-statistic, degrees) < ALPHA and low - high >= 1.0:
                verdict = Verdict.IMPROVEMENT
        decides = name in DECIDING_COUNTERS
        title = TITLES.get(name, name)
        delta = high - low
        tests.append(
            Test(
                family=Family.COUNTER if decides else Family.ADVISORY,
                name=name,
                unit="count",
                base=low,
                candidate=high,
                change=(delta / low) if low else None,
                verdict=verdict,
                method=method,
                p=p,
                statistic=statistic,
                degrees_of_freedom=degrees,
                detail=f"{title} per step: {low:g} → {high:g} ({delta:+g})",
                samples_base=len(before),
                samples_candidate=len(after),
            )
        )
    return tests


def _usual(counts: FloatArray) -> float | None:
    """Return the value that most steps share, or None where too few share one."""
    # not np.unique, which imports masked arrays, a tenth as long as reading a document
    tally = Counter(counts.tolist())
    value, times = min(tally.items(), key=lambda item: (-item[1], item[0]))
    return float(value) if times >= USUAL_SHARE * len(counts) else None


def _log_counts(run: Run, name: str) -> tuple[FloatArray, FloatArray]:
    counts = run.counters.get(name, np.zeros(run.steps))
    # one half stands for zero, so that a count appearing from nothing has a finite ratio
    return np.log(np.maximum(counts, 0.5)), np.zeros(run.steps)
