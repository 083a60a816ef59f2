"""Closed-form statistics of the gate: no resampling, no seed, so equal input gives equal answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.comparison.distributions import log_factorial, normal_survival

FloatArray = npt.NDArray[np.float64]

ALPHA = 0.01  # false alarms per family that a gate may raise (DEFINITIONS, Comparison)
POWER_Z = 1.645  # 95 % power
PRIOR_DF = 4.0  # weight of the prior run-to-run spread, in degrees of freedom
MIN_AUTOCORRELATION_STEPS = 3.0  # per-step idle is never taken as better than every third step independent


@dataclass(frozen=True, slots=True)
class Fit:
    """Result of the moderated t test on log run means.

    Attributes:
        estimate: Log ratio candidate / base after host adjustment.
        standard_error: Of the estimate.
        degrees_of_freedom: Prior plus runs.
        host_shift: Log ratio of the host factors.
        slope: Slope used for the host adjustment; 0 without.
        within_error: Standard error of the estimate from the steps within runs alone.
    """

    estimate: float
    standard_error: float
    degrees_of_freedom: float
    host_shift: float
    slope: float
    within_error: float


def autocorrelation_time(values: FloatArray) -> float:
    """Steps per independent sample, with a self-consistent window of five times itself.

    Args:
        values: Series, any level.

    Returns:
        At least 1, at most a third of the length; 1 for a constant series or fewer than 8 values.
    """
    n = len(values)
    centred = values - values.mean()
    power = float(centred @ centred)
    if n < 8 or power <= 0:
        return 1.0
    spectrum = np.fft.rfft(centred, 2 * n)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[:n] / power
    running = 1.0 + 2.0 * np.cumsum(correlation[1:])
    lags = np.arange(1, n)
    settled = np.flatnonzero(lags >= 5.0 * running)
    limit = min(n - 1, max(8, n // 2))
    index = int(min(settled[0] if len(settled) else limit - 1, limit - 1))
    return float(min(max(running[index], 1.0), n / 3.0))


def moderated_t(
    base: list[tuple[FloatArray, FloatArray]],
    candidate: list[tuple[FloatArray, FloatArray]],
    *,
    prior_sd: float,
    adjust_host: bool,
    slope_prior: float = 1.5,
    slope_prior_sd: float = 0.15,
) -> Fit:
    """Compare log run means; the unit is the run, and a prior stands in for runs that were not made.

    Args:
        base: Per run, log metric and log host factor of its steps (equal lengths).
        candidate: Likewise.
        prior_sd: Run-to-run standard deviation on the log scale, known from earlier recordings.
        adjust_host: Remove the part explained by host speed. The slope is fitted within runs, shrunk to the prior.
        slope_prior: Slope of log idle on log host factor measured on 300 real steps.
        slope_prior_sd: Its uncertainty.

    Returns:
        The fitted log ratio and its error.
    """
    runs = base + candidate
    x = np.concatenate([h - h.mean() for _, h in runs])
    y = np.concatenate([m - m.mean() for m, _ in runs])
    total = len(y)
    spread_x = float(x @ x)
    floor = MIN_AUTOCORRELATION_STEPS if adjust_host else 1.5
    slope = 0.0
    slope_variance = 0.0
    if adjust_host:
        slope, slope_variance = slope_prior, slope_prior_sd**2
        if spread_x > 0:
            own = float(x @ y) / spread_x
            residual = y - own * x
            own_variance = float(residual @ residual) / max(1, total - 2) * floor / spread_x
            if own_variance > 0:
                weight, prior_weight = 1.0 / own_variance, 1.0 / slope_prior_sd**2
                slope = (weight * own + prior_weight * slope_prior) / (weight + prior_weight)
                slope_variance = 1.0 / (weight + prior_weight)
    residuals = [(m - m.mean()) - slope * (h - h.mean()) for m, h in runs]
    step_variance = sum(float(r @ r) for r in residuals) / max(1, total - len(residuals))
    tau = max(floor, float(np.mean([autocorrelation_time(r) for r in residuals])))
    base_means = np.array([m.mean() - slope * h.mean() for m, h in base])
    candidate_means = np.array([m.mean() - slope * h.mean() for m, h in candidate])
    estimate = float(candidate_means.mean() - base_means.mean())
    host_shift = float(np.mean([h.mean() for _, h in candidate]) - np.mean([h.mean() for _, h in base]))
    steps_base = float(np.mean([len(m) for m, _ in base]))
    steps_candidate = float(np.mean([len(m) for m, _ in candidate]))
    runs_base, runs_candidate = len(base), len(candidate)
    within = step_variance * tau * (1 / steps_base + 1 / steps_candidate) / 2
    seen = runs_base + runs_candidate - 2
    between = float(
        ((base_means - base_means.mean()) ** 2).sum() + ((candidate_means - candidate_means.mean()) ** 2).sum()
    )
    variance = max((PRIOR_DF * (prior_sd**2 + within) + between) / (PRIOR_DF + seen), within)
    pairs = 1 / runs_base + 1 / runs_candidate
    drift = host_shift**2 * slope_variance
    return Fit(
        estimate=estimate,
        standard_error=math.sqrt(variance * pairs + drift),
        degrees_of_freedom=PRIOR_DF + seen,
        host_shift=host_shift,
        slope=slope,
        within_error=math.sqrt(within * pairs + drift),
    )


def runs_needed(prior_sd: float, within_error: float, effect: float) -> int:
    """Runs a side for 1 % false alarms and 95 % power at a log effect."""
    spread = math.hypot(prior_sd, within_error / math.sqrt(2))
    z = 2.326 + POWER_Z
    return max(2, math.ceil(2 * (z * spread / effect) ** 2))


def holm(p_values: FloatArray, total: int | None = None) -> FloatArray:
    """Holm's step-down correction; the result keeps the input's order.

    Args:
        p_values: One-sided p of each hypothesis.
        total: Number of hypotheses when these are only some of them; the result is then no smaller than it would be
            with the others at hand.
    """
    n = len(p_values)
    if n == 0:
        return p_values.copy()
    order = np.argsort(p_values, kind="stable")
    stepped = np.minimum(1.0, np.maximum.accumulate(((total or n) - np.arange(n)) * p_values[order]))
    adjusted = np.empty(n)
    adjusted[order] = stepped
    return adjusted


def mann_whitney(
    base: FloatArray, candidate: FloatArray, autocorrelation_steps: float = 1.0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Both one-sided Mann–Whitney tests per column, normal approximation with ties and continuity correction.

    Args:
        base: steps × columns, NaN where absent.
        candidate: steps × columns.
        autocorrelation_steps: Steps per independent sample; neighbouring steps of one run resemble each other, and
            counting each as independent evidence raises false alarms.

    Returns:
        U statistics of the candidate, p of "candidate is larger" and p of "candidate is smaller", one per column; both
        are 1 where a side is empty.
    """
    stacked = np.concatenate([base, candidate])
    ranks, tie_sum = _average_ranks(stacked)
    present = ~np.isnan(stacked)
    n_base = present[: len(base)].sum(axis=0).astype(np.float64)
    n_candidate = present[len(base) :].sum(axis=0).astype(np.float64)
    rank_sum = np.where(present[len(base) :], ranks[len(base) :], 0.0).sum(axis=0)
    u = rank_sum - n_candidate * (n_candidate + 1) / 2
    mean = n_base * n_candidate / 2
    n = n_base + n_candidate
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = n_base * n_candidate / 12 * ((n + 1) - tie_sum / (n * (n - 1)))
        spread = np.sqrt(variance) * math.sqrt(autocorrelation_steps)
        larger, smaller = (normal_survival((sign * (u - mean) - 0.5) / spread) for sign in (1, -1))
    usable = (n_base > 0) & (n_candidate > 0) & (variance > 0)
    return u, np.where(usable, larger, 1.0), np.where(usable, smaller, 1.0)


def _average_ranks(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Average ranks per column (NaN last) and the tie term Σ(t³ − t) of each column."""
    rows, columns = values.shape
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    new_group = np.ones((rows, columns), dtype=np.bool_)
    new_group[1:] = ordered[1:] != ordered[:-1]
    index = np.arange(rows)[:, None]
    first = np.maximum.accumulate(np.where(new_group, index, 0), axis=0)
    last_flag = np.ones((rows, columns), dtype=np.bool_)
    last_flag[:-1] = new_group[1:]
    last = np.minimum.accumulate(np.where(last_flag, index, rows)[::-1], axis=0)[::-1]
    average = (first + last) / 2 + 1.0
    ranks = np.empty_like(values)
    np.put_along_axis(ranks, order, average, axis=0)
    size = (last - first + 1).astype(np.float64)
    counted = np.where(np.isnan(ordered), 0.0, size**2 - 1.0)
    return ranks, counted.sum(axis=0)


def fisher_greater(hits_base: int, n_base: int, hits_candidate: int, n_candidate: int) -> float:
    """Fisher's exact one-sided p that the candidate's share of hits is larger."""
    hits = hits_base + hits_candidate
    total = n_base + n_candidate
    if hits == 0 or n_base == 0 or n_candidate == 0:
        return 1.0
    k = np.arange(hits_candidate, min(hits, n_candidate) + 1)
    log_p = _log_choose(n_candidate, k) + _log_choose(n_base, hits - k) - _log_choose(total, np.asarray(hits))
    return float(min(1.0, np.exp(log_p).sum()))


def _log_choose(n: int, k: npt.NDArray[np.int64]) -> FloatArray:
    good = (k >= 0) & (k <= n)
    safe = np.where(good, k, 0)
    value = (
        log_factorial(np.asarray(float(n)))
        - log_factorial(safe.astype(np.float64))
        - log_factorial((n - safe).astype(np.float64))
    )
    return np.where(good, value, -np.inf)
