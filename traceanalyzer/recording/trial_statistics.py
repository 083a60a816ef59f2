"""What a trial's blocks say: the paired difference, its interval, and the smallest effect they could have shown."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 4000
_TRIM = 0.2
_Z_TWO_SIDED = 1.959964  # normal quantile of a 95 % interval
_Z_POWER = 0.841621  # normal quantile of 80 % power
# Student's t, 97.5 %, by degrees of freedom; a resampled interval of few blocks is too narrow by this ratio to z
_T = (
    math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip


@dataclass(frozen=True)
class PairedDifference:
    """A difference of step times with its 95 % interval, all in ns.

    Attributes:
        low: Lower end of the interval.
        likely: Estimate; positive where the change saves time.
        high: Upper end.
        smallest_effect: The smallest true difference that blocks this noisy would show four times in five.
    """

    low: int
    likely: int
    high: int
    smallest_effect: int


def paired_difference(differences_ns: list[float], *, seed: int, trim: bool = True) -> PairedDifference:
    """Estimate a difference from one value per round of blocks.

    The estimate is a mean without the outer fifths (a hiccup of the machine in one block is not the change's doing);
    its interval is resampled and widened by what Student's t demands of so few rounds.

    Args:
        differences_ns: Baseline minus changed step time of each round; at least two.
        seed: Seed of the resampling.
        trim: Leave the outer fifths out; a cost that comes rarely needs every round.

    Raises:
        ValueError: There are fewer than two rounds.
    """
    values = np.sort(np.asarray(differences_ns, dtype=np.float64))
    count = len(values)
    if count < 2:
        raise ValueError("a paired difference needs at least two rounds")
    cut = int(count * _TRIM) if trim else 0
    kept = count - 2 * cut
    likely = float(values[cut : count - cut].mean())
    draws = np.sort(np.random.default_rng(seed).choice(values, (RESAMPLES, count)), axis=1)
    means: npt.NDArray[np.float64] = draws[:, cut : count - cut].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    freedom = kept - 1
    student = _T[freedom] if freedom < len(_T) else _Z_TWO_SIDED
    widen = max(student / _Z_TWO_SIDED, 1.0) * math.sqrt(count / (count - 1))
    below, above = (likely - float(low)) * widen, (float(high) - likely) * widen
    half = (below + above) / 2
    return PairedDifference(
        low=round(likely - below),
        likely=round(likely),
        high=round(likely + above),
        smallest_effect=round(half * (1 + _Z_POWER / _Z_TWO_SIDED)),
    )
