"""One series forecast: origins, scores, weights, bands and the season."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from seqmodels.evaluation.forecasting.candidates import (
    LOGARITHMS,
    SQUARE_ROOTS,
    VALUES,
    Naive,
    PowerScale,
    ScaledSteps,
    autoregressive_families,
)
from seqmodels.evaluation.forecasting.linear_process import GaussianSteps
from seqmodels.evaluation.forecasting.series import (
    INNER_LEVELS,
    MOST_AVERAGED,
    MOST_BY_LIKELIHOOD,
    SCORED_LEVELS,
    AveragedForecast,
    BacktestTrial,
    band_factors,
    forecast_series,
    has_season,
    mean_change,
    origins_of,
    rescaled,
    scores,
    weighted,
)
from seqmodels.generation.feature_distributions import GaussianFeatures

LEVELS = np.array([0.05, 0.5, 0.95])
EVERY = np.append(SCORED_LEVELS, INNER_LEVELS)


def gaussian_quantiles(n_origins: int, k: int, deviation: float = 1.0) -> np.ndarray:
    one = GaussianFeatures(np.ones(1), np.zeros((1, 1)), np.full((1, 1), deviation)).quantiles(EVERY)[:, 0]
    return np.broadcast_to(one, (n_origins, k, len(EVERY)))


def seasonal_walk(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 50 + 0.1 * rng.normal(size=n).cumsum() + 4 * np.sin(2 * np.pi * np.arange(n) / 12) + rng.normal(size=n)


def test_scores_are_those_of_a_gaussian() -> None:
    actual = np.random.default_rng(0).normal(size=(400, 5))
    crps, coverage = scores(gaussian_quantiles(400, 5), actual, 2.0)
    exact = GaussianFeatures(np.ones(1), np.zeros((1, 1)), np.ones((1, 1)))
    expected = np.mean([exact.crps(np.array([y]))[0] for y in actual.ravel()])
    assert crps == pytest.approx(expected / 2.0, rel=0.01)
    assert coverage == pytest.approx(0.9, abs=0.02)


def test_missing_values_are_not_scored() -> None:
    actual = np.random.default_rng(0).normal(size=(20, 3))
    without = actual.copy()
    without[3:5] = np.nan
    expected = scores(gaussian_quantiles(18, 3), np.delete(actual, [3, 4], axis=0), 1.0)
    np.testing.assert_allclose(scores(gaussian_quantiles(20, 3), without, 1.0), expected)


@pytest.mark.parametrize("deviation", [0.7, 1.4])
def test_bands_that_are_too_narrow_are_widened_and_those_too_wide_narrowed(deviation: float) -> None:
    actual = np.random.default_rng(1).normal(size=(240, 4))
    wrong = gaussian_quantiles(240, 4, deviation)
    factors = band_factors(wrong, actual)
    after = scores(rescaled(wrong, factors, np.zeros((240, 4))), actual, 1.0)[1]
    before = scores(wrong, actual, 1.0)[1]
    assert abs(after - 0.9) < 0.6 * abs(before - 0.9)
    np.testing.assert_allclose(band_factors(gaussian_quantiles(240, 4), actual), np.ones(4), atol=0.1)


def test_few_origins_widen_bands_less() -> None:
    actual = np.random.default_rng(1).normal(size=(6, 4))
    few = band_factors(gaussian_quantiles(6, 4, 0.5), actual)
    many = band_factors(gaussian_quantiles(60, 4, 0.5), np.tile(actual, (10, 1)))
    assert 1 < few[0] < many[0]


def test_late_origins_say_more_of_bands_and_missing_values_nothing() -> None:
    actual = np.random.default_rng(1).normal(size=(60, 4))
    late, early = actual.copy(), actual.copy()
    late[40:] *= 3
    early[:20] *= 3
    bands = gaussian_quantiles(60, 4)
    assert band_factors(bands, late)[0] > band_factors(bands, early)[0] + 0.1
    late[40:] = np.nan
    assert band_factors(bands, late)[0] < band_factors(bands, early)[0]
    np.testing.assert_array_equal(band_factors(bands, np.full((60, 4), np.nan)), np.ones(4))


def test_weights_fall_with_the_score_and_rise_with_the_likelihood() -> None:
    y = np.random.default_rng(0).normal(size=60).cumsum()
    naive, seasonal = Naive().fit(y), Naive(6).fit(y)
    apart = [np.full((3, 2, len(EVERY)), 10.0 * i) for i in range(MOST_AVERAGED + 2)]
    trials = [BacktestTrial(str(i), naive, each, 1.0 + i, 0.9, 0.0) for i, each in enumerate(apart)]
    weights = np.array([trial.weight for trial in weighted(trials, y, 1.0)])
    assert weights.sum() == pytest.approx(1.0)
    assert weights[1] == pytest.approx(weights[0] / 16)
    assert (weights[MOST_AVERAGED:] == 0).all()
    assert (weights[:MOST_AVERAGED] > 0).all()
    likely = weighted([replace(trials[0], fitted=seasonal), replace(trials[0], fitted=naive)], y, 1.0)
    nats = naive.log_probs(y)[6:].mean() - seasonal.log_probs(y)[6:].mean()
    assert likely[1].weight / likely[0].weight == pytest.approx(np.exp(4 * min(nats, MOST_BY_LIKELIHOOD)))


def test_weights_begin_with_those_before_a_trial() -> None:
    y = np.random.default_rng(0).normal(size=60).cumsum()
    trial = BacktestTrial("a", Naive().fit(y), np.zeros((3, 2, len(EVERY))), 1.0, 0.9, 0.0)
    first, second = weighted([trial, replace(trial, log_prior=-0.7)], y, 1.0)
    assert second.weight / first.weight == pytest.approx(np.exp(-0.7))


def test_models_that_forecast_alike_share_a_weight() -> None:
    y, scale = np.random.default_rng(0).normal(size=60).cumsum(), 3.0
    trial = BacktestTrial("a", Naive().fit(y), np.zeros((3, 2, len(EVERY))), 1.0, 0.9, 0.0)
    other = replace(trial, quantiles=trial.quantiles + 2 * scale)  # twice the error away
    weights = [each.weight for each in weighted([trial, trial, trial, other], y, scale)]
    np.testing.assert_allclose(weights, [1 / 6, 1 / 6, 1 / 6, 1 / 2], rtol=1e-9)
    nearly = replace(trial, quantiles=trial.quantiles + 0.2 * scale)
    first, second, third = (each.weight for each in weighted([trial, nearly, other], y, scale))
    assert first == pytest.approx(second)
    assert third / first == pytest.approx(1 + np.exp(-1))


@pytest.mark.parametrize("scale", [VALUES, SQUARE_ROOTS, LOGARITHMS], ids=str)
def test_likelihoods_are_in_units_of_the_series(scale: PowerScale) -> None:
    """``log p(y)`` of an autoregression of transformed values is the density of the transformed, and the slope."""
    y = np.exp(0.3 * np.random.default_rng(0).normal(size=50))
    fitted = autoregressive_families(None, scale, 50)[0].fit(y)
    of_scaled = autoregressive_families(None, VALUES, 50)[0].fit(scale.of_values(y))
    step = 1e-6
    slope = np.log((scale.of_values(y + step) - scale.of_values(y)) / step)
    np.testing.assert_allclose(fitted.log_probs(y), of_scaled.log_probs(scale.of_values(y)) + slope, atol=1e-4)


def test_origins_leave_the_horizon_and_two_seasons() -> None:
    origins = origins_of(100, 12, 12)
    assert origins[-1] == 88
    assert origins[0] == 50
    assert origins_of(40, 6, 12)[0] == 32


@pytest.mark.parametrize("seed", range(3))
def test_a_season_is_told_from_none(seed: int) -> None:
    assert has_season(seasonal_walk(120, seed), 12)
    assert not has_season(np.random.default_rng(seed).normal(size=120).cumsum(), 12)


def test_paths_have_the_quantiles_of_the_average_of_models() -> None:
    """Of models on several scales whose bands are rescaled and cut at zero."""
    rng, levels = np.random.default_rng(0), np.array([0.02, 0.1, 0.3, 0.5, 0.8, 0.97])
    root = np.array([[1.0, 0.0], [0.6, 0.9]])
    steps = [
        ScaledSteps(GaussianSteps(np.array([1.0, 2.0]), np.sqrt((root**2).sum(1)), root), VALUES),
        ScaledSteps(GaussianSteps(np.array([0.5, 1.0]), 0.3 * np.sqrt((root**2).sum(1)), 0.3 * root), LOGARITHMS),
    ]
    average = AveragedForecast(steps, np.array([0.3, 0.7]), np.array([1.5, 0.8]), low=0.0)
    paths, expected = average.paths(40_000, rng), average.quantiles(levels)
    assert paths.min() == expected.min() == 0.0
    np.testing.assert_allclose(np.quantile(paths, levels, axis=0).T, expected, atol=0.03)
    correlation = np.corrcoef(stats.rankdata(paths[:, 0]), stats.rankdata(paths[:, 1]))[0, 1]
    assert 0.4 < correlation < 0.7


def test_paths_of_a_walk_keep_their_distance() -> None:
    y = 50 + np.random.default_rng(0).normal(size=80).cumsum()
    found = forecast_series(y, 6, LEVELS, None, None)
    paths = found.draw_paths(20_000, np.random.default_rng(1))
    np.testing.assert_allclose(np.quantile(paths, LEVELS, axis=0).T, found.ahead.quantiles, atol=0.15)
    apart = (paths[:, 5] - paths[:, 4]).std()
    assert apart < 0.6 * (paths[:, 5] - paths[::-1, 4]).std()  # where steps were drawn apart


@pytest.mark.slow
def test_a_seasonal_series_is_forecast_better_than_by_the_naive() -> None:
    errors = []
    for seed in range(3):
        y = seasonal_walk(96, seed)
        found = forecast_series(y[:84], 12, LEVELS, 12, None)
        naive = Naive(12).fit(y[:84]).ahead(y[:84], 12).quantiles(LEVELS)
        errors.append([np.abs(each[:, 1] - y[84:]).mean() for each in (found.ahead.quantiles, naive)])
        assert found.crps < next(trial.crps for trial in found.trials if trial.name == "seasonal naive")
    ours, of_naive = np.mean(errors, axis=0)
    assert ours < 0.85 * of_naive


@pytest.mark.slow
def test_bands_cover_what_comes() -> None:
    """Of 12 series that end differently, of 6 steps each, the 90 % band has about nine in ten."""
    covered = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        y = rng.normal(size=66).cumsum() + rng.normal(size=66)
        ahead = forecast_series(y[:60], 6, LEVELS, None, None).ahead
        covered.append((ahead.quantiles[:, 0] <= y[60:]) & (y[60:] <= ahead.quantiles[:, 2]))
    assert 0.8 < np.mean(covered) < 0.97


def test_a_possible_season_is_tried_without_a_search() -> None:
    y = np.random.default_rng(0).normal(size=60).cumsum()
    found = forecast_series(y, 4, LEVELS, None, None, possible_season=12)
    seasonal = [trial.name for trial in found.trials if "season(12)" in trial.name]
    assert len(seasonal) == 3
    assert not any(name.startswith("ARIMA") for name in seasonal)
    assert (found.season, found.possible_season) == (None, 12)


def test_quantiles_of_counts_are_not_below_zero() -> None:
    y = np.random.default_rng(0).poisson(0.7, 60).astype(float)
    assert forecast_series(y, 4, LEVELS, None, None).ahead.quantiles.min() == 0


def test_no_time_is_left_for_more_than_one_model() -> None:
    found = forecast_series(seasonal_walk(60, 0), 4, LEVELS, None, 1e-9)
    assert [trial.name for trial in found.trials] == ["naive"]


@pytest.mark.parametrize("seed", range(2))
def test_a_season_depends_neither_on_the_level_nor_on_the_unit(seed: int) -> None:
    y, walk = seasonal_walk(120, seed), np.random.default_rng(seed).normal(size=120).cumsum()
    for level, scale in ((1e3, 1.0), (-1e6, 1.0), (1e9, 1.0), (0.0, 1e-9), (0.0, 1e9)):
        assert [has_season(level + scale * each, 12) for each in (y, walk)] == [True, False]
        assert mean_change(level + scale * y, 12) / scale == pytest.approx(mean_change(y, 12), rel=1e-6)


def test_a_line_of_decimals_has_no_season() -> None:
    assert not any(has_season(level + 0.1 * np.arange(60), season) for level in (0.0, 1e6) for season in (2, 5, 12))


def test_steps_that_are_missing_at_the_end_are_steps_ahead() -> None:
    y = seasonal_walk(60, 0)
    found = forecast_series(np.append(y, np.full(5, np.nan)), 2, LEVELS, None, 1e-9)
    whole = forecast_series(y, 7, LEVELS, None, 1e-9)
    np.testing.assert_allclose(found.ahead.mean, whole.ahead.mean[5:])
    assert found.gap == 5
    assert found.origins.max() <= 58
    with pytest.raises(ValueError, match="70 steps at its end are missing"):
        forecast_series(np.append(y, np.full(70, np.nan)), 2, LEVELS, None, 1e-9)


def test_what_comes_before_a_long_gap_is_left_out() -> None:
    y = np.concatenate([seasonal_walk(60, 0), np.full(10**6, np.nan), seasonal_walk(60, 1)])
    found = forecast_series(y, 2, LEVELS, None, 1e-9)
    assert found.n_left_out == 10**6 + 60
    np.testing.assert_allclose(found.ahead.mean, forecast_series(y[-60:], 2, LEVELS, None, 1e-9).ahead.mean)
    assert found.origins.min() > 10**6


def test_values_of_the_backtest_are_counted_without_those_missing() -> None:
    y = seasonal_walk(60, 0)
    whole = forecast_series(y, 4, LEVELS, None, 1e-9)
    assert whole.n_scored == 4 * len(whole.origins)
    y[55] = np.nan
    n_before = sum(t <= 55 < t + 4 for t in whole.origins.tolist())
    assert n_before > 1
    assert forecast_series(y, 4, LEVELS, None, 1e-9).n_scored == whole.n_scored - n_before


def test_a_horizon_longer_than_half_of_the_series() -> None:
    found = forecast_series(seasonal_walk(18, 0), 12, LEVELS, None, 1e-9)
    assert found.ahead.mean.shape == found.factors.shape == (12,)


@pytest.mark.parametrize(
    ("y", "highest"),
    [(np.append(np.full(59, 5.0), 6.0), 7.0), (np.append(np.zeros(50), np.ones(10)), 1.0)],
    ids=["of two values", "of 0 and 1"],
)
def test_a_series_that_changed_once_is_not_extrapolated(y: np.ndarray, highest: float) -> None:
    ahead = forecast_series(y, 3, LEVELS, None, None).ahead
    np.testing.assert_allclose(ahead.mean, y[-1])
    np.testing.assert_allclose(ahead.quantiles[0], [y.min(), y[-1], highest], atol=1e-3)
