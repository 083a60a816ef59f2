"""The gate's closed-form statistics against SciPy's own tests and hand-computed values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from traceanalyzer.comparison.distributions import normal_survival, t_quantile, t_survival
from traceanalyzer.comparison.statistics import (
    autocorrelation_time,
    fisher_greater,
    holm,
    mann_whitney,
    moderated_t,
)


def test_mann_whitney_with_ties_and_missing_values_agrees_with_scipy() -> None:
    random = np.random.default_rng(1)
    base = np.round(random.normal(size=(20, 4)) * 3) / 2
    candidate = np.round(random.normal(size=(27, 4)) * 3) / 2 + 0.4
    base[3, 1] = np.nan
    candidate[[0, 5], 2] = np.nan
    u, larger, smaller = mann_whitney(base, candidate)
    for column in range(4):
        for p, alternative in ((larger, "greater"), (smaller, "less")):
            reference = stats.mannwhitneyu(
                candidate[:, column][~np.isnan(candidate[:, column])],
                base[:, column][~np.isnan(base[:, column])],
                alternative=alternative,
                method="asymptotic",
            )
            assert u[column] == reference.statistic
            assert p[column] == pytest.approx(reference.pvalue, rel=1e-12)


def test_mann_whitney_of_an_absent_column_finds_nothing() -> None:
    base = np.full((5, 1), np.nan)
    candidate = np.ones((5, 1))
    assert [p[0] for p in mann_whitney(base, candidate)[1:]] == [1.0, 1.0]


def test_mann_whitney_of_identical_constants_finds_nothing() -> None:
    assert [p[0] for p in mann_whitney(np.ones((5, 1)), np.ones((6, 1)))[1:]] == [1.0, 1.0]


@pytest.mark.parametrize(("a", "n", "b", "m"), [(1, 20, 6, 22), (0, 149, 4, 149), (3, 10, 0, 10), (0, 5, 0, 5)])
def test_fisher_agrees_with_scipy(a: int, n: int, b: int, m: int) -> None:
    reference = stats.fisher_exact([[b, m - b], [a, n - a]], alternative="greater").pvalue
    assert fisher_greater(a, n, b, m) == pytest.approx(reference, rel=1e-9)


@pytest.mark.parametrize("degrees", [1.0, 4.0, 5.5, 6.0, 12.0, 40.0, 302.0])
def test_student_t_agrees_with_scipy(degrees: float) -> None:
    for statistic in (-80.0, -3.2, -0.5, 0.0, 1e-6, 0.7, 1.0, 2.5, 6.0, 30.0, 400.0):
        assert t_survival(statistic, degrees) == pytest.approx(stats.t.sf(statistic, degrees), rel=1e-9)
    for probability in (0.01, 0.4, 0.5, 0.95, 0.99, 0.9999):
        assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), abs=1e-9)


def test_the_normal_tail_agrees_with_scipy_far_out_too() -> None:
    z = np.array([-9.0, -1.0, 0.0, 0.3, 2.326, 8.0, 30.0])
    assert normal_survival(z) == pytest.approx(stats.norm.sf(z), rel=1e-12)


def test_holm_of_a_worked_example() -> None:
    # 0.01×3, then max(0.03, 0.02×2), then max(0.04, 0.04×1)
    assert holm(np.array([0.02, 0.01, 0.04])).tolist() == [0.04, 0.03, 0.04]


def test_white_noise_has_an_autocorrelation_time_near_one() -> None:
    assert autocorrelation_time(np.random.default_rng(2).normal(size=4000)) < 1.3


def test_first_order_autocorrelation_of_a_half_triples_the_time() -> None:
    # AR(1) with coefficient 0.5: (1 + 0.5) / (1 − 0.5) = 3
    random = np.random.default_rng(3)
    noise = random.normal(size=20_000)
    series = np.empty_like(noise)
    series[0] = noise[0]
    for i in range(1, len(noise)):
        series[i] = 0.5 * series[i - 1] + noise[i]
    assert autocorrelation_time(series) == pytest.approx(3.0, abs=0.4)


def test_an_exact_shift_is_estimated_exactly() -> None:
    random = np.random.default_rng(4)
    y = random.normal(scale=0.02, size=120)
    h = np.zeros(120)
    fit = moderated_t([(y, h)], [(y + np.log(1.05), h)], prior_sd=0.002, adjust_host=False)
    assert fit.estimate == pytest.approx(np.log(1.05), abs=1e-12)
    assert t_survival(fit.estimate / fit.standard_error, fit.degrees_of_freedom) < 0.01


def test_idle_that_follows_the_host_is_not_called_a_change() -> None:
    random = np.random.default_rng(5)
    host = random.normal(scale=0.05, size=150)
    idle = 1.5 * host + random.normal(scale=0.01, size=150)
    slower = host + np.log(1.05)
    fit = moderated_t([(idle, host)], [(idle + 1.5 * np.log(1.05), slower)], prior_sd=0.03, adjust_host=True)
    assert fit.host_shift == pytest.approx(np.log(1.05), abs=1e-12)
    assert abs(fit.estimate) < 0.01


def test_two_runs_a_side_have_six_degrees_of_freedom() -> None:
    y = np.linspace(0, 0.1, 50)
    runs = [(y, np.zeros(50)), (y + 0.001, np.zeros(50))]
    assert moderated_t(runs, runs, prior_sd=0.03, adjust_host=False).degrees_of_freedom == 4 + 2 * 2 - 2
