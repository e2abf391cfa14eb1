from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.encodings import AutoSeries, Chain, Differences, Log, Quantize, RunningScale
from seqmodels.encodings.auto_series import (
    adf_statistic,
    autocorrelation,
    candidate_seasons,
    choose,
    kpss_statistic,
    seasonal_share,
)
from seqmodels.encodings.tail_likelihood import tail_log_probs

T = np.arange(240)


def noise(seed: int = 0, n_features: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(T), n_features))


WAVE = np.sin(2 * np.pi * T / 12)[:, None]
KINDS = {  # by what they should be read as: logarithms, order of the difference, season
    "noise": (noise(), (False, 0, None)),
    "walk": (np.cumsum(noise(), axis=0), (False, 1, None)),
    "two walks and noise": (np.concatenate([np.cumsum(noise(1, 2), axis=0), noise()], axis=1), (False, 1, None)),
    "growth": (np.exp(0.05 * np.cumsum(0.3 + noise(2), axis=0)), (True, 1, None)),
    "season": (5 * WAVE + 0.5 * noise(3), (False, 0, 12)),
    "season of growth": (np.exp(0.02 * np.cumsum(1 + noise(4), axis=0) + 0.5 * WAVE), (True, 0, 12)),
    "cycle": (
        np.stack([np.convolve(noise(5)[:, 0], 0.97 ** np.arange(60) * np.cos(np.arange(60)), "same")], 1),
        (False, 0, None),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_series_are_read_as_what_they_are(kind: str) -> None:
    x, expected = KINDS[kind]
    choice = choose([x])
    assert (choice.log, choice.order, choice.season) == expected


def test_a_season_that_is_given_is_taken_if_there_is_one() -> None:
    assert choose([KINDS["season"][0]], season=24).season == 24  # two of the 12
    assert choose([KINDS["season"][0]], season=7).season is None
    assert choose([KINDS["walk"][0]], season=12).season is None


@pytest.mark.parametrize("kind", KINDS)
def test_series_with_gaps_are_read_as_what_they_are(kind: str) -> None:
    x, expected = KINDS[kind]
    holes = np.where(np.random.default_rng(0).random(x.shape) < 0.05, np.nan, x)
    holes[:3], holes[50:56], holes[-2:] = np.nan, np.nan, np.nan
    choice = choose([holes])
    assert (choice.log, choice.order, choice.season) == expected
    encoding = AutoSeries().fit(sm.Sequences([holes]))
    missing = np.isnan(holes)[encoding.n_initial :]
    assert_array_equal(np.isnan(encoding.encode(holes)), missing)
    assert_allclose(np.nanvar(encoding.encode(holes), axis=0), 1.0, rtol=1e-9)


def test_what_is_filled_in_says_nothing_of_what_comes_after() -> None:
    x, n = np.cumsum(noise(6)[:, 0]), len(T)
    is_missing = (T >= 150) & (T < 160)
    options = {"log": False, "order": 1, "season": None, "n_ahead": 12}
    whole = tail_log_probs(x, **options)
    for change in (0.0, 50.0):
        y = x.copy()
        y[160] += change
        y[150:160] = np.interp(T[150:160], [149, 160], [x[149], y[160]])
        skipped = tail_log_probs(y, **options, is_missing=is_missing)
        origins, ahead = np.arange(n // 2, n), np.arange(12)
        targets = origins[:, None] + ahead
        is_skipped = ((origins > 150) & (origins <= 160))[:, None] | ((targets >= 150) & (targets < 160))
        assert_array_equal(np.isnan(skipped), is_skipped | (targets >= n))
        before = (origins <= 150)[:, None] & ~is_skipped & (targets != 160)  # at which nothing is filled in yet
        assert_allclose(skipped[before], whole[before], rtol=1e-12)


def test_what_says_too_little_is_standardised() -> None:
    walk = KINDS["walk"][0]
    holes = walk.copy()
    holes[7::3] = np.nan
    for series, reason in (
        ([holes], "of a series more than 25 % is missing"),
        ([np.where(T[:, None] > 200, np.nan, walk)], "of a series more than 25 % is missing"),
        ([walk[:29]], "the longest series has 29 frames"),
        ([walk + 0.01 * noise(seed) for seed in range(21)], "there are 21 series"),
    ):
        encoding = AutoSeries().fit(sm.Sequences(series))
        assert encoding.note == f"Standardize(): {reason}"
        standard = sm.Standardize().fit(sm.Sequences(series))
        assert_array_equal(encoding.encode(series[0]), standard.encode(series[0]))
    assert choose([np.exp(walk), -np.exp(walk[:20])]).log is False


def test_tests_of_roots_agree_with_statsmodels() -> None:
    rng = np.random.default_rng(0)
    walk, level = np.cumsum(rng.normal(size=200)), rng.normal(size=200) + 0.5 * np.sin(np.arange(200) / 5)
    # kpss(x, "c", nlags=3) and adfuller(x, maxlag=5, autolag="BIC") of statsmodels 0.14, which after choosing the lags
    # fits to the frames that these leave.
    assert_allclose([kpss_statistic(walk), kpss_statistic(level)], [2.2079650572587677, 0.06547456058223321], rtol=1e-9)
    assert_allclose([adf_statistic(walk), adf_statistic(level)], [-1.6697, -13.0951], rtol=0.05)


def test_shares_of_a_season() -> None:
    assert seasonal_share(WAVE[:, 0], 12) > 0.999
    shares = [seasonal_share(noise(seed)[:, 0], 12) for seed in range(20)]
    assert abs(np.mean(shares)) < 0.03  # adjusted: of noise none in the mean
    correlations = autocorrelation(WAVE[:, 0] + 0.1 * noise()[:, 0])
    x = (WAVE + 0.1 * noise())[:, 0] - (WAVE + 0.1 * noise()).mean()
    assert_allclose(correlations[12], x[12:] @ x[:-12] / (x @ x), rtol=1e-9)
    assert candidate_seasons(correlations)[0] == 12


def test_a_model_says_and_keeps_the_choice(tmp_path: Path) -> None:
    x = KINDS["season of growth"][0]
    model = sm.HMM(1, observation=sm.AutoregressiveGaussian(1), encoding=AutoSeries(), dtype="float64").fit([x])
    by_hand = Chain([Log(), Differences(0, 12), sm.Standardize()])
    same = sm.HMM(1, observation=sm.AutoregressiveGaussian(1), encoding=by_hand, dtype="float64").fit([x])
    assert_allclose(model.log_prob_steps([x])[0], same.log_prob_steps([x])[0], rtol=1e-6, atol=1e-6)
    assert_allclose(
        model.forecast([x], 3, n=20).frame["mean"], same.forecast([x], 3, n=20).frame["mean"], rtol=1e-6, atol=1e-6
    )
    assert "Log(), Differences(order=0, season=12), Standardize(): a season of 12 explains" in model.describe()
    model.save(tmp_path / "model")
    again = sm.load(tmp_path / "model")
    assert again.encoding_.note == model.encoding_.note
    assert_allclose(again.log_prob_steps([x])[0], model.log_prob_steps([x])[0], rtol=1e-12, atol=1e-12)
    state = model.encoding_.state()
    with pytest.raises(ValueError, match="should say what series are read as"):
        AutoSeries().restore({**state, "order": 3})
    with pytest.raises(ValueError, match="should say what series are read as"):
        AutoSeries().restore({**state, "season": 1})


STATISTICS = {
    "adf": adf_statistic,
    "kpss": kpss_statistic,
    "seasonal share": lambda x: seasonal_share(x, 12),
    "autocorrelation": autocorrelation,
    "tail": lambda x: (
        tail_log_probs(x, log=False, order=0, season=12, n_ahead=2, largest_order=2)[:-2] + np.log(np.ptp(x))
    ),
    "differences": lambda x: Differences(1).fit(sm.Sequences([x[:, None]])).encode(x[:, None]) / np.ptp(x),
    "running scale": lambda x: RunningScale().fit(sm.Sequences([x[:, None]])).encode(x[:, None]),
    "cells": lambda x: (
        Quantize(6, placement="lloyd-max").fit(sm.Sequences([x[:, None]])).of_each_value(x[:, None]) + np.log(np.ptp(x))
    ),
    "choice": lambda x: [choose([x[:, None]]).order, choose([x[:, None]]).season or 0],
}


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("kind", ["walk", "season"])
def test_statistics_depend_neither_on_the_level_nor_on_the_unit(name: str, kind: str) -> None:
    x, statistic = KINDS[kind][0][:, 0], STATISTICS[name]
    expected = statistic(x)
    for level in (1e3, -1e3, 1e6, -1e6, 1e9, -1e9):
        assert_allclose(statistic(x + level), expected, rtol=1e-5, atol=1e-5, err_msg=f"{level:g}")
    for scale in (1e-9, 1e-3, 1e6, 1e9):
        assert_allclose(statistic(x * scale), expected, rtol=1e-7, atol=1e-7, err_msg=f"{scale:g}")


def test_rounding_errors_are_no_changes() -> None:
    """The changes of a line of decimals differ in the last digit, which is no season, and no walk."""
    for line in (0.1 * T, 1e6 + 0.1 * T):
        assert np.diff(line).std() > 0
        assert [seasonal_share(line, season) for season in (2, 5, 12)] == [0, 0, 0]
        assert adf_statistic(line) == -np.inf
        with pytest.raises(ValueError, match="changes by a constant amount"):
            Differences(1).fit(sm.Sequences([line[:, None]]))
