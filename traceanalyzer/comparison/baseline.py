"""Runs to baselines and back."""

from __future__ import annotations

import numpy as np

from traceanalyzer.comparison.configuration import find_differences
from traceanalyzer.comparison.host import log_host_factors
from traceanalyzer.comparison.matrices import row_medians
from traceanalyzer.comparison.ranks import first_rank
from traceanalyzer.comparison.samples import FloatArray, Run
from traceanalyzer.errors import UsageError
from traceanalyzer.results.baseline import Baseline, BaselineRun, Release

# a + 50 µs gap is found in 96 % of cases at 50 steps; more only make the file larger, and several runs share them
MAX_POSITION_STEPS = 50
MIN_POSITION_STEPS = 10

MAX_LOG_HOST_FACTOR = 1.0  # they are means of values clipped to ±1

_SERIES = {
    "start": "start_ns",
    "step": "step_ns",
    "in_step_idle": "in_step_idle_ns",
    "boundary_idle": "boundary_idle_ns",
    "kernel_time": "kernel_ns",
    "exposed_h2d": "exposed_h2d_ns",
    "max_gap": "max_gap_ns",
}


def baseline_run(run: Run, position_steps: int = MAX_POSITION_STEPS) -> BaselineRun:
    """Reduce a run to what a later comparison needs.

    Args:
        run: The run.
        position_steps: Steps whose positions are kept, evenly chosen.
    """
    calls = run.launch_call_ns
    medians = row_medians(calls.T) if calls.size else np.empty(0)
    hosts, _, _ = log_host_factors([run], [])
    host = hosts[0]
    chosen = np.unique(np.linspace(0, run.steps - 1, min(run.steps, position_steps)).round().astype(np.int64))
    intervals = run.interval_ns[chosen].T if run.interval_ns.size else np.empty((0, 0))
    return BaselineRun(
        label=run.label,
        configuration=run.configuration,
        recorded_with=run.recorded_with,
        format=run.format,
        ranks=run.ranks,
        dropped=run.dropped,
        series_ns={name: _ints(getattr(run, attribute)) for name, attribute in _SERIES.items()},
        idle_by_cause_ns={k: _ints(v) for k, v in run.idle_by_cause_ns.items()},
        kernel_family_ns={k: _ints(v) for k, v in run.kernel_family_ns.items()},
        counters={k: _ints(v) for k, v in run.counters.items()},
        position_names=list(run.position_names),
        launch_call_median_ns=[None if np.isnan(m) else round(float(m)) for m in medians],
        log_host_factor=[round(float(h), 5) for h in host],
        interval_ns=[[None if np.isnan(v) else round(float(v)) for v in row] for row in intervals],
        h2d_time_ns=run.h2d_time_ns,
        h2d_overlapped_ns=run.h2d_overlapped_ns,
        peak_reserved_bytes=run.peak_reserved_bytes,
        steps_are_marked=run.steps_are_marked,
        kernel_totals=run.kernel_totals,
        rank=run.rank,
    )


def run_of(stored: BaselineRun, release: str) -> Run:
    """Rebuild a run from a baseline.

    Launch calls are rebuilt as position median × the step's host factor, which preserves both numbers that a
    comparison takes from them.

    Args:
        stored: The stored run.
        release: Name of its release, for the label.

    Raises:
        UsageError: Its parts contradict each other, as after an edit or a merge of the file.
    """
    _check(stored, f"{release}: {stored.label}")
    medians = np.array(stored.launch_call_median_ns, dtype=np.float64)
    host = np.array(stored.log_host_factor, dtype=np.float64)
    intervals = np.array(stored.interval_ns, dtype=np.float64).T if stored.interval_ns else np.empty((0, 0))
    series = {attribute: np.array(stored.series_ns[name], np.float64) for name, attribute in _SERIES.items()}
    return Run(
        label=f"{release}: {stored.label}",
        rank=stored.rank,
        steps=len(host),
        dropped=stored.dropped,
        **series,
        idle_by_cause_ns=_arrays(stored.idle_by_cause_ns),
        kernel_family_ns=_arrays(stored.kernel_family_ns),
        counters=_arrays(stored.counters),
        position_names=tuple(stored.position_names),
        interval_ns=intervals,
        launch_call_ns=np.exp(host)[:, None] * medians[None, :] if len(medians) else np.empty((0, 0)),
        h2d_time_ns=stored.h2d_time_ns,
        h2d_overlapped_ns=stored.h2d_overlapped_ns,
        peak_reserved_bytes=stored.peak_reserved_bytes,
        configuration=stored.configuration,
        recorded_with=stored.recorded_with,
        format=stored.format,
        ranks=stored.ranks,
        steps_are_marked=stored.steps_are_marked,
        kernel_totals=stored.kernel_totals,
    )


def _check(stored: BaselineRun, label: str) -> None:
    steps, positions = len(stored.log_host_factor), len(stored.position_names)
    series = {**stored.idle_by_cause_ns, **stored.kernel_family_ns, **stored.counters, **stored.series_ns}
    columns = {len(row) for row in stored.interval_ns}
    problem = None
    if missing := sorted(set(_SERIES) - set(stored.series_ns)):
        problem = f"lacks {', '.join(missing)}"
    elif not steps:
        problem = "holds no step"
    elif other := sorted(name for name, values in series.items() if len(values) != steps):
        problem = f"{other[0]} has {len(series[other[0]])} steps and the run {steps}"
    elif len(stored.launch_call_median_ns) != positions or len(stored.interval_ns) not in (0, positions):
        problem = "its positions differ in number"
    elif len(columns) > 1:
        problem = "its intervals differ in length"
    elif not all(abs(h) <= MAX_LOG_HOST_FACTOR for h in stored.log_host_factor):
        problem = "a host factor is out of range"
    if problem:
        raise UsageError(
            f"{label}: not a whole baseline: {problem}; make it again with 'traceanalyzer baseline update'"
        )


def _ints(values: FloatArray) -> list[int]:
    return [round(float(v)) for v in values]


def _arrays(series: dict[str, list[int]]) -> dict[str, FloatArray]:
    return {k: np.array(v, dtype=np.float64) for k, v in series.items()}


def update_baseline(baseline: Baseline, runs: list[Run], release: str | None) -> tuple[Baseline, str]:
    """Put the runs of a release into a baseline.

    Args:
        baseline: What there was.
        runs: All runs of the release; they must have been recorded alike.
        release: Its name; an existing release of that name is replaced in its place, another is added at the end.
            None numbers it.

    Returns:
        The baseline, and the release's name.

    Raises:
        UsageError: Runs of the release differ in hardware or configuration, so they are not runs of one thing, or its
            name is empty.
    """
    for other in runs[1:]:
        stopping = [d for d in find_differences(runs[:1], [other])[0] if d.stops]
        if stopping:
            listed = "; ".join(f"{d.setting}: {d.base} → {d.candidate}" for d in stopping)
            raise UsageError(f"{other.label}: not recorded like {runs[0].label} ({listed}); one release, one setting")
    if release is not None and not release.strip():
        raise UsageError("a release needs a name")
    names = [r.name for r in baseline.releases]
    if release is None:
        number = len(names) + 1
        while str(number) in names:
            number += 1
        release = str(number)
    kept = max(MAX_POSITION_STEPS // len(first_rank(runs)), MIN_POSITION_STEPS)
    new = Release(name=release, runs=[baseline_run(r, kept) for r in runs])
    if release in names:
        return Baseline(releases=[new if r.name == release else r for r in baseline.releases]), release
    return Baseline(releases=[*baseline.releases, new]), release
