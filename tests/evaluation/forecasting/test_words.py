"""What is said of a forecast."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seqmodels.evaluation.forecasting.words import (
    DescribedSeries,
    decomposition,
    names_of_series,
    number,
    words_of,
)

MONTHS = np.arange("2018-01", "2026-01", dtype="datetime64[M]").astype("datetime64[s]")  # 96
AHEAD = np.arange("2026-01", "2027-01", dtype="datetime64[M]").astype("datetime64[s]")
LEVELS = np.array([0.05, 0.5, 0.95])


def seasonal(*, slope: float = 1.0, size: float = 20.0, noise: float = 1.0) -> np.ndarray:
    """Highest in April, lowest in October."""
    t = np.arange(96)
    wave = size * np.sin(2 * np.pi * t / 12)
    return 100 + slope * t + wave + noise * np.random.default_rng(0).normal(size=96)


def result_of(season: int | None = 12, **changes: Any) -> Any:
    """What is known of a forecast whose naive error is 1."""
    ahead = SimpleNamespace(mean=np.full(12, 200.0), quantiles=np.tile([180.0, 200.0, 225.5], (12, 1)))
    naive = SimpleNamespace(name="seasonal naive" if season else "naive", crps=1.0, weight=0.0, is_chosen=False)
    best = [SimpleNamespace(name=name, crps=0.5, weight=w, is_chosen=True) for name, w in (("a", 0.7), ("b", 0.3))]
    facts: dict[str, Any] = {
        **{"season": season, "ahead": ahead, "trials": [naive, *best]},
        **{"chosen": ["level", "ARIMA(1,1,1)"], "errors": {}, "origins": np.arange(50, 61), "crps": 0.48},
        **{"coverage": 0.874, "factors": np.ones(12), "possible_season": None, "n_scored": 132},
        **{"n_left_out": 0, "gap": 0, "n_changes": 95, "unseen": (), "unseen_days": (), "inputs": None},
    }
    return SimpleNamespace(**facts | changes)


@pytest.fixture
def series() -> DescribedSeries:
    return DescribedSeries("", seasonal(), MONTHS, AHEAD)


def test_sentences_in_units_of_the_data_with_dates(series):
    data, trend, season, choice, certainty, outcome = words_of(series, result_of(), LEVELS)
    assert data == "The series has 96 steps, 2018-01 to 2025-12, a value a month; none is missing."
    assert trend.startswith("Over the last 36 months the line through it without its season rises from 1")
    assert float(trend.split(" by ")[1].split(" a month")[0]) == pytest.approx(1.0, abs=0.1)
    assert "The season of 12 months is strong: it explains 100 %" in season
    assert "highest in April (" in season
    assert "lowest in October (" in season
    assert "of 2 models are averaged, weighted by their scores: level (70 %), ARIMA(1,1,1) (30 %)." in choice
    assert "(CRPS) was 0.48 of the mean change over a season, 52 % less than that of the seasonal naive" in choice
    assert certainty == (
        "In that backtest, of 11 origins, 90 % bands held 87 % of 132 values; they are as the models have them."
    )
    expected = (
        "12 months ahead (2026-12) it is 200 in the median, and with a probability of 90 % between 180 and 225.5."
    )
    assert outcome == expected


def test_missing_values_are_counted_and_bands_that_were_rescaled_are_said(series):
    y = series.y.copy()
    y[[40, 41, 55]] = np.nan
    factors = np.linspace(1.1, 1.3, 12)
    result = result_of(factors=factors, errors={"x": "no"}, n_scored=126)
    words = words_of(replace(series, y=y), result, LEVELS)
    assert "; 3 of them (3.1 %) missing." in words[0]
    assert words[3].endswith("1 could not be fitted.")
    assert "of 126 values after they were widened by 1.10 (first step) to 1.30 (last)" in words[4]
    assert words_of(series, result_of(origins=[60]), LEVELS)[4].startswith("In that backtest, of 1 origin, 90 % bands")


def test_of_many_models_those_of_the_largest_weights_are_named(series):
    weights = [0.1, 0.1, 0.3, 0.1, 0.4]
    trials = [SimpleNamespace(name=str(i), crps=1.0 + i, weight=w, is_chosen=True) for i, w in enumerate(weights)]
    choice = words_of(series, result_of(trials=trials, chosen=list("abcde")), LEVELS)[3]
    assert "of 5 models are averaged, weighted by their scores, above all e (40 %), c (30 %), a (10 %). Their" in choice
    choice = words_of(series, result_of(trials=trials[:1], chosen=["level"]), LEVELS)[3]
    assert "Of 1 kind of models tried on forecasts of its last part one was chosen: level. Their" in choice


def test_neither_trend_nor_season_is_said_where_there_is_none(series):
    flat = replace(series, y=seasonal(slope=0.0, size=0.0))
    assert "has no clear trend without its season; its mean is 100" in words_of(flat, result_of(), LEVELS)[1]
    assert "is weak" in words_of(flat, result_of(), LEVELS)[2]
    assert words_of(flat, result_of(None), LEVELS)[2] == "No season was found."
    tried = words_of(flat, result_of(None, possible_season=12), LEVELS)[2]
    assert tried == "No season was found; models with one of 12 months were tried all the same."
    falling = replace(series, y=seasonal(slope=-0.5))
    assert " falls from " in words_of(falling, result_of(), LEVELS)[1]
    assert "too long" in words_of(series, result_of(60), LEVELS)[2]


def test_steps_are_called_by_their_dates(series):
    assert replace(series, times=None).step == "step"
    assert "12 steps ahead it is" in words_of(replace(series, times=None, times_ahead=None), result_of(), LEVELS)[5]
    starts = {"day": "D", "hour": "h", "week": "W", "minute": "m", "second": "s", "year": "Y"}
    for name, code in starts.items():
        times = np.arange(10).astype(f"datetime64[{code}]").astype("datetime64[s]")
        assert replace(series, times=times).step == name
    days = np.arange("2026-01-05", "2026-01-19", dtype="datetime64[D]").astype("datetime64[s]")  # from a Monday
    assert replace(series, times=days).phase(2, 7) == "on Wednesdays"
    assert replace(series, times=days).phase(2, 5) == "at step 3 of 5"
    quarters = MONTHS[6::3]
    assert replace(series, times=quarters).phase(1, 4) == "in quarter 4"


def test_the_strength_of_a_season_is_near_zero_of_noise_and_one_of_a_season():
    strengths = [
        decomposition(np.random.default_rng(seed).normal(size=60), 12).strength for seed in range(40)
    ]  # of 5 seasons, which their means fit by chance
    assert np.mean(strengths) < 0.12
    assert decomposition(seasonal(noise=0.0), 12).strength > 0.999
    parts = decomposition(seasonal(noise=0.0), 12)
    np.testing.assert_allclose(parts.level, 100 + np.arange(96), atol=0.5)
    np.testing.assert_allclose(parts.effects, 20 * np.sin(2 * np.pi * np.arange(12) / 12), atol=0.5)
    assert decomposition(seasonal(), 90).strength == 0.0


def test_numbers_have_four_digits():
    assert [number(x) for x in (0.0, 1234567.0, -0.00012345, 1e-20, 12.0, 999.96)] == [
        *("0", "1,235,000", "-0.0001234", "1.000e-20", "12", "1,000"),
    ]


def test_sentences_are_named_where_there_are_several_series():
    assert names_of_series([0], ["sales"]) == [""]
    assert names_of_series([0], ["sales", "cost"]) == ["sales", "cost"]
    assert names_of_series(["a", "b"], [0]) == ["a", "b"]
    assert names_of_series(["a", "b"], [0, 1]) == ["a, feature 0", "a, feature 1", "b, feature 0", "b, feature 1"]


def test_a_band_needs_levels_symmetric_about_a_half(series):
    ahead = SimpleNamespace(mean=np.full(3, 7.0), quantiles=np.tile([5.0], (3, 1)))
    words = words_of(series, result_of(ahead=ahead, factors=np.ones(3)), np.array([0.1]))
    assert words[-1] == "3 months ahead (2026-03) it is 7 in the mean."
