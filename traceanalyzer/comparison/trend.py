"""Many releases in a row: levels per release, and the releases at which something changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceanalyzer.comparison.compare import compare_runs
from traceanalyzer.comparison.options import CompareOptions
from traceanalyzer.comparison.ranks import first_rank
from traceanalyzer.comparison.samples import Run
from traceanalyzer.results.comparison import Comparison, Verdict


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One release.

    Attributes:
        release: Its name.
        runs: Number of runs.
        step_ns: Mean step, ns.
        idle_ns: Mean idle per step, ns.
        kernel_ns: Mean kernel time per step, ns.
        idle_by_cause_ns: Cause → mean ns per step.
        counters: Counter → mean per step.
        against: Release with which the current level began; None for the first.
        comparison: This release against every run of that level; None for the first.
        changed: Whether a new level begins here.
    """

    release: str
    runs: int
    step_ns: float
    idle_ns: float
    kernel_ns: float
    idle_by_cause_ns: dict[str, float]
    counters: dict[str, float]
    against: str | None
    comparison: Comparison | None
    changed: bool


def measure_trend(releases: Sequence[tuple[str, list[Run]]]) -> list[TrendPoint]:
    """Find the releases at which gaps changed.

    Every release is compared with all runs since the last change, not only with its neighbour: a creep too small to
    show from one release to the next adds up against the level that it left.

    Args:
        releases: Name and runs of each release, oldest first.

    Raises:
        UsageError: Runs of two releases cannot be compared.
    """
    points: list[TrendPoint] = []
    level: list[Run] = []
    began = ""
    options = CompareOptions(allow_different=True)
    for name, runs in releases:
        comparison = compare_runs(level, runs, options) if level else None
        changed = comparison is not None and comparison.verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT)
        points.append(_point(name, runs, began if level else None, comparison, changed))
        if changed or not level:
            level, began = list(runs), name
        else:
            level = level + list(runs)
    return points


def _point(name: str, runs: list[Run], against: str | None, comparison: Comparison | None, changed: bool) -> TrendPoint:
    causes = sorted({c for r in runs for c in r.idle_by_cause_ns})
    counters = sorted({c for r in runs for c in r.counters})
    return TrendPoint(
        release=name,
        runs=len(first_rank(runs)),
        step_ns=_mean([r.step_ns.mean() for r in runs]),
        idle_ns=_mean([(r.in_step_idle_ns + r.boundary_idle_ns).mean() for r in runs]),
        kernel_ns=_mean([r.kernel_ns.mean() for r in runs]),
        idle_by_cause_ns={c: _mean([_level(r.idle_by_cause_ns, c) for r in runs]) for c in causes},
        counters={c: _mean([_level(r.counters, c) for r in runs]) for c in counters},
        against=against,
        comparison=comparison,
        changed=changed,
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _level(series: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]], name: str) -> float:
    values = series.get(name)
    return 0.0 if values is None else float(values.mean())
