"""Profile likelihood intervals against closed forms, and against a likelihood maximised over the other parameters."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq, minimize
from scipy.stats import chi2, norm

import seqmodels as sm
from tests.hmm.test_standard_errors import (
    COUNTS,
    TWO_LEVELS,
    VECTORS,
    driven_counts,
    driven_log_likelihood,
    driven_model,
    fitted,
    log_likelihood,
    rows_of,
)


def test_of_one_poisson_it_is_that_of_its_likelihood() -> None:
    model, total, n = fitted(1, COUNTS, observation=sm.Poisson()), np.concatenate(COUNTS)[:, 1].sum(), 160

    def below(rate: float) -> float:
        return float(total * np.log(rate * n / total) - n * rate + total + chi2.ppf(0.9, 1) / 2)

    expected = brentq(below, 1e-3, total / n), brentq(below, total / n, 9.0)
    assert_allclose(model.profile_interval(COUNTS, "rates", 0, 1, level=0.9), expected, rtol=1e-6)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_of_the_mean_of_one_gaussian_the_variance_is_maximised_over(covariance_type: str) -> None:
    model = fitted(1, VECTORS, observation=sm.GaussianMixture(1, covariance_type))
    values = np.concatenate(VECTORS)[:, 1]
    half = np.sqrt(values.var() * np.expm1(chi2.ppf(0.95, 1) / len(values)))
    assert_allclose(model.profile_interval(VECTORS, "means", 0, 1), values.mean() + np.array([-half, half]), rtol=1e-6)


def test_of_a_transition_all_other_parameters_are_maximised_over() -> None:
    x = TWO_LEVELS[:1]
    model = fitted(2, x, observation=sm.GaussianMixture(1), start="uniform")
    a, others = model.transition_, np.concatenate([model.means_.ravel(), np.log(model.covariances_.ravel())])

    def negative(rest: np.ndarray, leaving: float) -> float:
        leave, deviations = np.array([leaving, 1 / (1 + np.exp(-rest[0]))]), np.exp(rest[3:5] / 2)
        return -log_likelihood(
            x, np.full(2, 0.5), rows_of(leave), lambda item: norm.logpdf(item, rest[1:3], deviations)
        )

    rest = np.array([np.log(a[1, 0] / a[1, 1]), *others])
    best = negative(rest, a[0, 1])
    interval = model.profile_interval(x, "transition", 0, 1)
    assert interval[0] < a[0, 1] < interval[1]
    for leaving in interval:
        profile = minimize(negative, rest, args=(leaving,), method="BFGS", options={"gtol": 1e-4}).fun
        assert_allclose(profile - best, chi2.ppf(0.95, 1) / 2, atol=2e-3)


@pytest.mark.slow
def test_of_a_slope_all_other_parameters_are_maximised_over() -> None:
    x = driven_counts()
    model, theta = driven_model(x)
    best = driven_log_likelihood(model, x, theta)
    for name, place, feature in (("transition_slopes", 4, (1, "heat")), ("emission_slopes", 7, (0, "noise"))):
        interval = model.profile_interval(x, name, int(name == "emission_slopes"), feature)
        assert interval[0] < theta[place] < interval[1]
        for value in interval:

            def negative(rest: np.ndarray, place: int = place, value: float = value) -> float:
                every = np.insert(rest, place, value)
                every[:2], every[2:4] = 1 / (1 + np.exp(-every[:2])), np.exp(every[2:4])
                return -driven_log_likelihood(model, x, every)

            start = theta.copy()
            start[:2], start[2:4] = np.log(theta[:2] / (1 - theta[:2])), np.log(theta[2:4])
            profile = minimize(negative, np.delete(start, place), method="BFGS", options={"gtol": 1e-3}).fun
            assert_allclose(profile + best, chi2.ppf(0.95, 1) / 2, atol=2e-3)


def test_what_has_no_interval_is_refused() -> None:
    model = fitted(2, TWO_LEVELS, observation=sm.GaussianMixture(1), training__tied=[0, 0], max_iter=3, start="uniform")
    with pytest.raises(ValueError, match="transition of state 0 and feature 1 has no interval: not identified"):
        model.profile_interval(TWO_LEVELS, "transition", 0, 1)
    with pytest.raises(
        ValueError, match=re.escape("rates of state 0 is no estimated parameter; standard_errors lists")
    ):
        model.profile_interval(TWO_LEVELS, "rates", 0)
    with pytest.raises(ValueError, match=re.escape("means of state 5 and feature 0 is no estimated parameter")):
        model.profile_interval(TWO_LEVELS, "means", 5, 0)
    with pytest.raises(ValueError, match="level is 0; pass a probability between 0 and 1"):
        model.profile_interval(TWO_LEVELS, "means", 0, 0, level=0)
    certain = [np.column_stack([item[:, 0], np.zeros(len(item))]) for item in COUNTS]
    with pytest.raises(ValueError, match="rates of state 0 and feature 1 has no interval: on the boundary"):
        fitted(1, certain, observation=sm.Poisson()).profile_interval(certain, "rates", 0, 1)
