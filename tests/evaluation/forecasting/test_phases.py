"""Phases of a season that were never observed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from seqmodels.evaluation.forecasting import phases
from seqmodels.evaluation.forecasting.phases import forecast_seen_steps, seen_steps
from seqmodels.evaluation.forecasting.series import SeriesForecast, StepQuantiles, forecast_series

LEVELS = np.array([0.05, 0.5, 0.95])
DAYS = np.array([100.0, 104.0, 96.0, 90.0, 85.0, 80.0])  # means, of a week whose seventh is never seen


def without(unseen: list[int], n: int = 84) -> np.ndarray:
    t = np.arange(n)
    y = np.append(DAYS, 0.0)[t % 7] + np.random.default_rng(0).normal(size=n)
    return np.where(np.isin(t % 7, unseen), np.nan, y)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is asked of ``forecast_series``, which knows the means of the days, and that deviations are 1."""
    calls: list[dict[str, Any]] = []

    def of_seen(y: np.ndarray, k: int, levels: np.ndarray, *rest: Any, **options: Any) -> SeriesForecast:
        calls.append({"y": y, **options})
        mean = DAYS[(len(y) + np.arange(k)) % 6]
        ahead = StepQuantiles(mean, mean[:, None] + stats.norm.ppf(levels))
        return replace(forecast_series(y, k, levels, None, 1e-9), ahead=ahead)

    monkeypatch.setattr(phases, "forecast_series", of_seen)
    return calls


def test_phases_without_a_value_are_found() -> None:
    steps = seen_steps(without([2, 6]), 1, 7)
    assert steps is not None
    assert (steps.unseen, steps.season) == ((2, 6), 5)
    assert not np.isnan(steps.of(without([2, 6]))).any()
    assert seen_steps(without([]), 1, 7) is None
    assert seen_steps(without([6])[:13], 1, 7) is None  # one step of the phase is missing, as any may be
    assert seen_steps(without([6]), 1, None) is None


def test_hours_of_days_of_the_week_without_a_value_are_found() -> None:
    hours = np.arange("2024-01-03T05", "2024-01-31T05", dtype="datetime64[h]")  # 4 weeks from a Wednesday on
    clock, is_sunday = np.arange(5, 5 + len(hours)) % 24, (hours.astype("datetime64[D]").astype(int) + 3) % 7 == 6
    y = np.where(is_sunday | (clock < 8), np.nan, 10.0 + clock)
    steps = seen_steps(y[:-48], 48, 24, hours)
    assert steps is not None
    assert (steps.days, steps.season, steps.n_around) == ((6,), 16, 6 * 16)
    np.testing.assert_array_equal(steps.is_seen, ~is_sunday & (clock >= 8))
    first = seen_steps(y[: 24 * 7], 0, 24, hours[: 24 * 7])
    assert first is not None
    assert first.days == ()  # one Sunday may be missing, as any day may
    assert seen_steps(10.0 + clock[:-48], 48, 24, hours) is None


def test_what_was_never_seen_is_the_mixture_of_all_that_was(calls: list[dict[str, Any]]) -> None:
    y = without([6])
    steps = seen_steps(y, 9, 7)
    assert steps is not None
    ahead = forecast_seen_steps(y, 9, LEVELS, steps, 6, None).ahead
    kept = [0, 1, 2, 3, 4, 5, 7, 8]
    np.testing.assert_allclose(ahead.mean[kept], np.resize(DAYS, 8))
    np.testing.assert_allclose(ahead.quantiles[kept], np.resize(DAYS, 8)[:, None] + stats.norm.ppf(LEVELS))
    assert ahead.mean[6] == pytest.approx(DAYS.mean())
    np.testing.assert_allclose(stats.norm.cdf(ahead.quantiles[6][:, None] - DAYS).mean(1), LEVELS, atol=0.01)
    np.testing.assert_array_equal(calls[0]["y"], y[~np.isnan(y)])


def test_paths_have_the_quantiles_of_seen_and_of_unseen_steps() -> None:
    y = without([6])
    steps = seen_steps(y, 9, 7)
    assert steps is not None
    found = forecast_seen_steps(y, 9, LEVELS, steps, 6, None)
    paths = found.draw_paths(20_000, np.random.default_rng(0))
    below = (paths[:, :, None] <= found.ahead.quantiles).mean(0)  # (9, Q)
    np.testing.assert_allclose(below, np.broadcast_to(LEVELS, below.shape), atol=0.015)
    assert paths[:, 6].std() > 3 * paths[:, 5].std()


def test_a_horizon_of_nothing_but_what_was_never_seen(calls: list[dict[str, Any]]) -> None:
    y = without([0, 6])[1:6]
    y = np.tile(np.append(y, [np.nan, np.nan]), 12)[:-2]  # to its last value
    steps = seen_steps(y, 2, 7)
    assert steps is not None
    found = forecast_seen_steps(y, 2, LEVELS, steps, 5, None)
    assert found.unseen == (5, 6)
    assert (found.season, found.factors.shape, found.ahead.mean.shape) == (7, (2,), (2,))
    assert not np.isnan(y[found.origins]).any()
    assert (found.ahead.mean > 80).all()


def test_inputs_are_those_of_the_steps_that_were_seen(calls: list[dict[str, Any]]) -> None:
    y, z = without([6]), np.arange(91.0)[:, None]
    steps = seen_steps(y, 7, 7)
    assert steps is not None
    forecast_seen_steps(y, 7, LEVELS, steps, 6, None, inputs=z)
    inputs = calls[0]["inputs"]
    np.testing.assert_array_equal(inputs[:78], z[np.arange(91) % 7 != 6])
    assert len(inputs) == 78 + 6  # a week more, of which nothing is known
    np.testing.assert_array_equal(inputs[78:], np.full((6, 1), z[:84].mean()))
