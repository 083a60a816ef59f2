"""The primary and advisory metrics: moderated t tests on log run means, with floors."""

from __future__ import annotations

import math

import numpy as np

from traceanalyzer.comparison.distributions import t_quantile, t_survival
from traceanalyzer.comparison.options import EQUIVALENCE, HOST_GUARD, Metric
from traceanalyzer.comparison.samples import FloatArray, Run
from traceanalyzer.comparison.statistics import ALPHA, Fit, holm, moderated_t, runs_needed
from traceanalyzer.results.comparison import Family, Test, Verdict
from traceanalyzer.units import NS_PER_MS, format_ns

_SERIES = {
    "in_step_idle": lambda r: r.in_step_idle_ns,
    "boundary_idle": lambda r: r.boundary_idle_ns,
    "kernel_time": lambda r: r.kernel_ns,
    "exposed_h2d": lambda r: r.exposed_h2d_ns,
    "step": lambda r: r.step_ns,
}


def series_of(run: Run, metric: str) -> FloatArray:
    """Return a metric's per-step series, ns."""
    values: FloatArray = _SERIES[metric](run)
    return values


def compare_metrics(
    base: list[Run],
    candidate: list[Run],
    base_hosts: list[FloatArray],
    candidate_hosts: list[FloatArray],
    metrics: tuple[Metric, ...],
    ranks: int = 1,
) -> list[Test]:
    """Test every metric; deciding ones share one Holm correction, advisory ones another.

    Args:
        base: Base runs.
        candidate: Candidate runs.
        base_hosts: Log host factor per step of each base run.
        candidate_hosts: Likewise for the candidate.
        metrics: Metrics and floors.
        ranks: Ranks compared in the same way, for the correction.

    Returns:
        One test per metric.
    """
    fits = {m.name: _fit(m, base, candidate, base_hosts, candidate_hosts) for m in metrics}
    tests: list[Test] = []
    for decides in (True, False):
        group = [m for m in metrics if m.decides is decides]
        worse = np.array([_p(fits[m.name]) for m in group])
        better = np.array([_p(fits[m.name], better=True) for m in group])
        for metric, p, p_worse, p_better in zip(
            group, worse, holm(worse, total=ranks * len(group)), holm(better, total=ranks * len(group)), strict=True
        ):
            tests.append(_judge(metric, fits[metric.name], base, candidate, float(p), float(p_worse), float(p_better)))
    return tests


def compare_causes(base: list[Run], candidate: list[Run], ranks: int = 1) -> list[Test]:
    """Test idle by cause: causes that host speed does not explain decide, the others only explain.

    A run of a few steps can rarely prove that idle as a whole rose, but a loader that runs dry or an allocation in
    every step shows in its own cause at once. Launching, dispatch and Python follow the host's speed, so they are
    stated and not judged.

    Args:
        base: Base runs.
        candidate: Candidate runs.
        ranks: Ranks compared in the same way, for the correction.

    Returns:
        One test per cause seen on either side.
    """
    causes = sorted({c for run in base + candidate for c in run.idle_by_cause_ns})
    judged = [c for c in causes if c in JUDGED_CAUSES]
    fits = {c: _fit_cause(c, base, candidate) for c in judged}
    total = ranks * len(judged)
    worse = dict(zip(judged, holm(np.array([_p(fits[c]) for c in judged]), total), strict=True))
    better = dict(zip(judged, holm(np.array([_p(fits[c], better=True) for c in judged]), total), strict=True))
    tests = []
    for cause in causes:
        before = float(np.mean([_cause(r, cause).mean() for r in base]))
        after = float(np.mean([_cause(r, cause).mean() for r in candidate]))
        if before == 0 and after == 0:
            continue
        fit = fits.get(cause)
        change = after - before
        verdict = Verdict.INCONCLUSIVE
        if fit is not None:
            large = abs(change) > CAUSE_FLOOR_NS and abs(change) > CAUSE_FLOOR_RELATIVE * before
            verdict = Verdict.NO_CHANGE
            if large and change > 0 and worse[cause] < ALPHA:
                verdict = Verdict.REGRESSION
            elif large and change < 0 and better[cause] < ALPHA:
                verdict = Verdict.IMPROVEMENT
        tests.append(
            Test(
                family=Family.CAUSE if fit is not None else Family.ADVISORY,
                name=cause,
                unit="ns",
                base=before,
                candidate=after,
                change=change / before if before else None,
                statistic=fit.estimate / fit.standard_error if fit is not None else None,
                degrees_of_freedom=fit.degrees_of_freedom if fit is not None else None,
                p=_p(fit) if fit is not None else None,
                p_adjusted=float(worse[cause]) if fit is not None else None,
                floor_relative=CAUSE_FLOOR_RELATIVE if fit is not None else None,
                floor_absolute=CAUSE_FLOOR_NS if fit is not None else None,
                verdict=verdict,
                method="moderated t on run means" if fit is not None else "difference of means; follows host speed",
                detail=f"idle from {cause}: {format_ns(before)} → {format_ns(after)} per step",
                samples_base=sum(r.steps for r in base),
                samples_candidate=sum(r.steps for r in candidate),
            )
        )
    return tests


# causes whose idle does not simply follow the speed of the host's own instructions
JUDGED_CAUSES = (
    "allocator",
    "checkpoint",
    "communication_wait",
    "copy_call",
    "device_wait",
    "garbage_collection",
    "input_wait",
    "logging",
    "module_load",
    "plan_search",
    "preempted",
    "sync_wait",
)
# as for boundary idle, the loader's wait seen by another recorder: 25 % and 0.5 ms, run SD 10 %
CAUSE_FLOOR_RELATIVE = 0.25
CAUSE_FLOOR_NS = 0.5 * NS_PER_MS
CAUSE_PRIOR_SD = 0.10


def _cause(run: Run, cause: str) -> FloatArray:
    return run.idle_by_cause_ns.get(cause, np.zeros(run.steps))


def _fit_cause(cause: str, base: list[Run], candidate: list[Run]) -> Fit:
    """Compare means in ns: a cause may be absent from most steps, where a logarithm would see nothing but noise.

    The prior run-to-run spread is relative to the larger side, so that a cause appearing from nothing has one too.
    """
    level = max(float(np.mean([_cause(r, cause).mean() for r in side])) for side in (base, candidate))

    def values(run: Run) -> tuple[FloatArray, FloatArray]:
        return _cause(run, cause), np.zeros(run.steps)

    return moderated_t(
        [values(r) for r in base],
        [values(r) for r in candidate],
        prior_sd=CAUSE_PRIOR_SD * max(level, CAUSE_FLOOR_NS),
        adjust_host=False,
    )


def _logs(metric: Metric, run: Run) -> FloatArray:
    # a tenth of the absolute floor stands for "nothing", so that noise around zero cannot look like a large ratio
    return np.log(np.maximum(series_of(run, metric.name), metric.floor_absolute_ns / 10))


def _fit(
    metric: Metric,
    base: list[Run],
    candidate: list[Run],
    base_hosts: list[FloatArray],
    candidate_hosts: list[FloatArray],
) -> Fit:
    return moderated_t(
        [(_logs(metric, r), h) for r, h in zip(base, base_hosts, strict=True)],
        [(_logs(metric, r), h) for r, h in zip(candidate, candidate_hosts, strict=True)],
        prior_sd=metric.prior_sd,
        adjust_host=metric.adjusted,
    )


def _p(fit: Fit, *, better: bool = False) -> float:
    if fit.standard_error == 0:
        return 1.0
    statistic = fit.estimate / fit.standard_error
    return t_survival(-statistic if better else statistic, fit.degrees_of_freedom)


def _judge(
    metric: Metric,
    fit: Fit,
    base: list[Run],
    candidate: list[Run],
    p: float,
    p_worse: float,
    p_better: float,
) -> Test:
    before = float(np.mean([series_of(r, metric.name).mean() for r in base]))
    after = float(np.mean([series_of(r, metric.name).mean() for r in candidate]))
    level = math.exp(float(np.mean([_logs(metric, r).mean() for r in base])))
    floor = max(math.log1p(metric.floor_relative), math.log1p(metric.floor_absolute_ns / level))
    half = t_quantile(1 - ALPHA, fit.degrees_of_freedom) * fit.standard_error
    low, high = fit.estimate - half, fit.estimate + half
    other_host = metric.adjusted and abs(fit.host_shift) > math.log(HOST_GUARD)
    raw = math.log(max(after, 1.0) / max(before, 1.0))
    if other_host:
        # across hosts only a change that the host cannot explain counts: raw, adjusted and the interval agree
        clear = raw > 0 and fit.estimate > 0 and low > math.log(HOST_GUARD)
        verdict = Verdict.REGRESSION if clear else Verdict.INCONCLUSIVE
    elif p_worse < ALPHA and fit.estimate > floor:
        verdict = Verdict.REGRESSION
    elif p_better < ALPHA and -fit.estimate > floor:
        verdict = Verdict.IMPROVEMENT
    elif max(abs(low), abs(high)) < max(floor, math.log1p(EQUIVALENCE)):
        verdict = Verdict.NO_CHANGE
    else:
        verdict = Verdict.INCONCLUSIVE
    adjusted = ", adjusted for host speed" if metric.adjusted else ""
    needed = runs_needed(metric.prior_sd, fit.within_error, max(floor, math.log1p(EQUIVALENCE)))
    return Test(
        family=Family.PRIMARY if metric.decides else Family.ADVISORY,
        name=metric.name,
        unit="ns",
        base=before,
        candidate=after,
        change=math.expm1(fit.estimate),
        low=math.expm1(low),
        high=math.expm1(high),
        statistic=fit.estimate / fit.standard_error if fit.standard_error else None,
        degrees_of_freedom=fit.degrees_of_freedom,
        p=p,
        p_adjusted=p_worse,
        floor_relative=metric.floor_relative,
        floor_absolute=metric.floor_absolute_ns,
        samples_base=sum(r.steps for r in base),
        samples_candidate=sum(r.steps for r in candidate),
        runs_needed=needed,
        verdict=verdict,
        method=f"moderated t on log run means{adjusted}; {len(base)} and {len(candidate)} runs",
        detail=(
            f"{metric.title}: {format_ns(before)} → {format_ns(after)} per step "
            f"({math.expm1(fit.estimate) * 100:+.1f} %{adjusted}; 98 % interval "
            f"{math.expm1(low) * 100:+.1f} to {math.expm1(high) * 100:+.1f} %)"
        ),
    )
