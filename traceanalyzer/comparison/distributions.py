"""Normal and Student distributions in closed form.

SciPy's import alone takes longer than a whole comparison, and these few functions are all that is needed of it; the
tests hold them against SciPy's.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_FRACTION_TERMS = 300
_TINY = 1e-300
_RELATIVE_ERROR = 1e-15

_erfc = np.frompyfunc(math.erfc, 1, 1)
_lgamma = np.frompyfunc(math.lgamma, 1, 1)


def normal_survival(z: FloatArray) -> FloatArray:
    """Chance of a larger value under the standard normal distribution, element by element; NaN stays NaN."""
    return 0.5 * np.asarray(_erfc(z / math.sqrt(2.0)), dtype=np.float64)


def log_factorial(n: FloatArray) -> FloatArray:
    """Natural logarithm of n!, element by element."""
    return np.asarray(_lgamma(n + 1.0), dtype=np.float64)


def t_survival(statistic: float, degrees: float) -> float:
    """One-sided p of a t statistic: the chance of a larger one.

    Args:
        statistic: The statistic; infinities are allowed.
        degrees: Degrees of freedom, above 0.
    """
    if math.isinf(statistic):
        return 0.0 if statistic > 0 else 1.0
    square = statistic * statistic
    tail = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square), square / (degrees + square))
    return tail if statistic >= 0 else 1.0 - tail


def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t, by bisection on the survival function.

    Args:
        probability: Between 0 and 1, both excluded.
        degrees: Degrees of freedom, above 0.
    """
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while t_survival(high, degrees) > 1.0 - probability:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2
        if t_survival(middle, degrees) > 1.0 - probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float, complement: float) -> float:
    """Regularised incomplete beta function; ``complement`` is 1 − x, given apart because it may be tiny."""
    if x <= 0.0:
        return 0.0
    if complement <= 0.0:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(complement))
    # the fraction converges fast on one side of the mean only; the other side follows by symmetry
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, complement) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function, evaluated forwards (modified Lentz)."""
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _FRACTION_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d = 1.0 / _away(1.0 + term * d)
            c = _away(1.0 + term / c)
            step = d * c
            value *= step
        if abs(step - 1.0) < _RELATIVE_ERROR:
            break
    return value


def _away(value: float) -> float:
    """Keep a denominator off zero."""
    return value if abs(value) > _TINY else _TINY
