"""Medians and means of paired differences with intervals that assume no distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the narrowest pair of order statistics that hold the median with at least this confidence (sign test).

    Args:
        values: The differences. Below six values no pair holds it with 95 %; the extremes are returned then.
        confidence: Probability that the interval holds the median.
    """
    ordered, count = sorted(values), len(values)
    outside, rank = 0.0, 0  # probability that the median lies outside, values left out at either end
    while rank < count // 2:
        # float division of the binomial would overflow beyond a thousand values
        outside += 2 * math.exp(
            math.lgamma(count + 1) - math.lgamma(rank + 1) - math.lgamma(count - rank + 1) - count * math.log(2)
        )
        if outside > 1 - confidence:
            break
        rank += 1
    first = max(rank - 1, 0)
    return ordered[first], ordered[count - 1 - first]


def mean_interval(
    values: Sequence[float], confidence: float = CONFIDENCE, resamples: int = 4000, seed: int = 0
) -> tuple[float, float]:
    """Return the bootstrap interval of the mean (percentiles of resampled means).

    Args:
        values: The differences.
        confidence: Probability that the interval holds the mean.
        resamples: How often to draw.
        seed: Of the draws.
    """
    random = np.random.default_rng(seed)
    array = np.asarray(values, dtype=np.float64)
    means = [float(random.choice(array, len(array)).mean()) for _ in range(resamples)]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def describe(values: Sequence[float]) -> str:
    """Write the median and its interval, in percent."""
    low, high = median_interval(values)
    return f"{statistics.median(values):+.2f} % ({low:+.2f} … {high:+.2f})"


def describe_mean(values: Sequence[float]) -> str:
    """Write the mean and its interval, in percent."""
    low, high = mean_interval(values)
    return f"{statistics.fmean(values):+.2f} % ({low:+.2f} … {high:+.2f})"
