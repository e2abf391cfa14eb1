"""What is tried on a series."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seqmodels.evaluation.forecasting.candidates import (
    LOGARITHMS,
    SQUARE_ROOTS,
    VALUES,
    EarlierFits,
    Naive,
    PowerScale,
    ScaledProcess,
    arima_family,
    autoregressive_families,
    near_arima,
    scales_of,
)
from seqmodels.evaluation.forecasting.linear_process import SeasonalARIMA, fit_process

LEVELS = np.array([0.1, 0.5, 0.9])


def autoregressive_series(n: int) -> np.ndarray:
    rng, y = np.random.default_rng(0), np.zeros(n)
    for t in range(2, n):
        y[t] = 1.2 * y[t - 1] - 0.6 * y[t - 2] + rng.normal()
    return y


@pytest.mark.parametrize("scale", [VALUES, SQUARE_ROOTS, LOGARITHMS], ids=str)
def test_scales_return_and_have_the_mean_of_draws(scale: PowerScale) -> None:
    y = np.array([0.5, 2.0, 9.0])
    np.testing.assert_allclose(scale.to_values(scale.of_values(y)), y)
    draws = scale.to_values(np.random.default_rng(0).normal(2.0, 0.4, 100_000))
    assert scale.mean_value(np.array([2.0]), np.array([0.4]))[0] == pytest.approx(draws.mean(), rel=0.01)


def test_scales_are_those_that_the_values_admit() -> None:
    assert scales_of(np.array([-1.0, 5.0])) == [VALUES]
    assert scales_of(np.array([0.0, 5.0])) == [VALUES, SQUARE_ROOTS]
    assert scales_of(np.array([100.0, 101.0])) == [VALUES]
    assert scales_of(np.array([1.0, 9.0])) == [VALUES, LOGARITHMS, SQUARE_ROOTS]


def test_the_order_is_found() -> None:
    fitted = autoregressive_families(None, VALUES, 400)[0].fit(autoregressive_series(400))
    assert isinstance(fitted, ScaledProcess)
    assert fitted.fitted.process.name.startswith("AR(2)")


def test_the_search_goes_beyond_its_starts() -> None:
    e = np.random.default_rng(1).normal(size=403)
    y = (e[3:] + 0.5 * e[2:-1] + 0.4 * e[1:-2] + 0.7 * e[:-3]).cumsum()  # ARIMA(0,1,3)
    family = arima_family(None, VALUES)
    fitted = family.fit(y)
    assert isinstance(fitted, ScaledProcess)
    assert fitted.fitted.process not in family.processes
    assert isinstance(fitted.fitted.process, SeasonalARIMA)
    assert fitted.fitted.process.order[1] == 1


def test_neighbours_differ_by_one_order() -> None:
    near = set(near_arima(SeasonalARIMA((0, 1, 3), (0, 1, 1), 12)))
    assert SeasonalARIMA((1, 1, 3), (0, 1, 1), 12) in near
    assert SeasonalARIMA((0, 1, 3), (1, 1, 1), 12) in near
    assert not any(max(each.order) > 3 or min(each.order) < 0 or each.has_constant for each in near)


def test_the_naive_repeats_the_last_season() -> None:
    y = np.tile([1.0, 5.0, 3.0], 8) + np.random.default_rng(0).normal(size=24)
    ahead = Naive(3).fit(y).ahead(y, 4)
    quantiles = ahead.quantiles(LEVELS)
    np.testing.assert_allclose(quantiles[:, 1], [*y[-3:], y[-3]])
    widths = quantiles[:, 2] - quantiles[:, 0]
    assert widths[3] == pytest.approx(np.sqrt(2) * widths[0])


def test_the_errors_of_the_naive_add_up_over_the_steps_of_a_phase() -> None:
    y = np.random.default_rng(0).normal(size=24)
    ahead = Naive(3).fit(y).ahead(y, 7)
    changes = np.cov(ahead.draw(20_000, np.random.default_rng(1)) * ahead.gaussian.deviation, rowvar=False)
    step = ahead.gaussian.deviation[0] ** 2
    expected = [[step * (1 + min(i, j) // 3) if i % 3 == j % 3 else 0.0 for j in range(7)] for i in range(7)]
    np.testing.assert_allclose(changes, expected, atol=0.06 * step)


@pytest.mark.parametrize("scale", [VALUES, SQUARE_ROOTS, LOGARITHMS], ids=str)
def test_draws_have_the_quantiles_of_each_step(scale: PowerScale) -> None:
    y = np.exp(0.2 * autoregressive_series(80))
    fitted = autoregressive_families(None, scale, 80)[0].fit(y)
    ahead = fitted.ahead(y, 5)
    draws = ahead.at(ahead.draw(40_000, np.random.default_rng(0)))
    np.testing.assert_allclose(np.quantile(draws, LEVELS, axis=0).T, ahead.quantiles(LEVELS), rtol=0.03)
    np.testing.assert_allclose(ahead.after(2).mean, ahead.mean[2:])


def test_a_fit_begins_where_the_last_one_ended() -> None:
    y, earlier = autoregressive_series(120), EarlierFits()
    family = arima_family(None, VALUES)
    best = family.fit(y[:100], earlier=earlier)
    assert isinstance(best, ScaledProcess)
    assert earlier.best[family] == best.fitted.process
    np.testing.assert_array_equal(earlier.numbers[best.fitted.process], best.fitted.numbers)
    again = family.fit(y, earlier=earlier)
    assert isinstance(again, ScaledProcess)
    afresh = fit_process(again.fitted.process, y)
    np.testing.assert_allclose(again.fitted.numbers, afresh.numbers, atol=0.02)


def test_the_best_process_of_a_shorter_part_is_tried_again() -> None:
    y = autoregressive_series(120)
    family = replace(arima_family(None, VALUES), processes=(SeasonalARIMA((0, 1, 1)),), near=lambda process: ())
    earlier = EarlierFits(best={family: SeasonalARIMA((2, 0, 0), has_constant=True)})
    assert str(family.fit(y)) == "ARIMA(0,1,1)"
    assert str(family.fit(y, earlier=earlier)) == "ARIMA(2,0,0)"


def test_a_family_that_fits_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        arima_family(4, VALUES).fit(np.arange(6.0))
