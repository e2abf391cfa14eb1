"""``forecast``: from a table to quantiles with names and dates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm


def sales(n: int = 60) -> pd.Series:
    rng = np.random.default_rng(0)
    t = np.arange(n)
    y = 100 + t + 20 * np.sin(2 * np.pi * t / 12) + 3 * rng.normal(size=n)
    return pd.Series(y, pd.date_range("2018-01-01", periods=n, freq="MS"), name="sales")


def test_dates_and_names_go_out() -> None:
    found = sm.forecast(sales(), 6)
    frame = found.frame
    assert frame.columns.tolist() == ["sequence", "step", "time", "feature", "mean", "5%", "25%", "50%", "75%", "95%"]
    assert frame["time"].tolist() == pd.date_range("2023-01-01", periods=6, freq="MS").tolist()
    assert frame["feature"].unique().tolist() == ["sales"]
    assert frame["step"].tolist() == [1, 2, 3, 4, 5, 6]
    levels = frame[["5%", "25%", "50%", "75%", "95%"]].to_numpy()
    assert (np.diff(levels, axis=1) > 0).all()
    expected = 100 + np.arange(60, 66) + 20 * np.sin(2 * np.pi * np.arange(60, 66) / 12)
    assert np.abs(frame["50%"] - expected).max() < 6


def test_the_table_says_what_was_tried() -> None:
    found = sm.forecast(sales(), 6)
    table = found.table
    assert table["weight"].is_monotonic_decreasing
    assert table.loc[~table["chosen"], "crps_scaled"].is_monotonic_increasing
    assert set(table.loc[table["chosen"], "model"]) == {str(model) for model in found.model[0, "sales"]}
    assert f"above all {table['model'][0]} (" in repr(found)
    assert table["weight"].sum() == pytest.approx(1.0)
    assert (table["chosen"] == (table["weight"] > 0)).all()
    assert found.series[0, "sales"].season == 12
    assert len(found.model[0, "sales"]) == table["chosen"].sum()
    assert "The season of 12 months is strong" in repr(found)
    assert "95%" in repr(found)


def test_missing_rows_and_values() -> None:
    y = sales().copy()
    y.iloc[[20, 40]] = np.nan
    found = sm.forecast(y.drop(y.index[[30, 31]]), 3)
    assert np.isnan(np.asarray(found.history[0])).sum() == 4
    whole = sm.forecast(sales(), 3).frame
    assert np.abs(found.frame["50%"] - whole["50%"]).max() < 6


def test_each_feature_is_forecast_by_itself() -> None:
    both = pd.DataFrame({"sales": sales(), "doubled": 2 * sales().to_numpy()})
    frame = sm.forecast(both, 3).frame
    assert frame["feature"].tolist() == ["sales", "doubled"] * 3
    halves = frame.loc[frame["feature"] == "doubled", "50%"].to_numpy() / 2
    np.testing.assert_allclose(halves, frame.loc[frame["feature"] == "sales", "50%"], rtol=1e-3)


def test_several_series_of_a_long_frame() -> None:
    frame = pd.concat([sales().to_frame().assign(shop=shop) for shop in ("b", "a")])
    found = sm.forecast(frame, 2, by="shop", max_seconds=1e-9)
    assert found.frame["sequence"].tolist() == ["b", "b", "a", "a"]
    assert set(found.series) == {("b", "sales"), ("a", "sales")}


def test_a_season_may_be_given_or_refused() -> None:
    y = sales().to_numpy()
    seasons = {given: sm.forecast(y, 3, season=given, max_seconds=1e-9).series[0, 0].season for given in (None, 1, 6)}
    assert seasons == {None: 12, 1: None, 6: 6}


def test_irregular_times_are_warned_of() -> None:
    dates = pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(30) ** 2, "D")
    with pytest.warns(UserWarning, match="have no one step"):
        found = sm.forecast(pd.Series(np.random.default_rng(0).normal(size=30), dates), 2)
    assert "time" not in found.frame


def test_it_is_drawn() -> None:
    pytest.importorskip("matplotlib")
    found = sm.forecast(sales(), 6, max_seconds=1e-9)
    assert found.plot().get_ylabel() == "sales"
    with pytest.raises(ValueError, match="draws no paths"):
        found.plot(paths=3)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.arange(8.0), {}, "has 8 values; 18 are the fewest"),
        (np.ones(40), {}, "is always 1; leave it out"),
        (np.full(40, np.nan), {}, "has 0 values"),
        (np.arange(40.0), {"quantiles": (0.9, 0.1)}, "pass increasing numbers between 0 and 1"),
        (np.arange(40.0), {"horizon": 0}, "horizon is 0"),
    ],
)
def test_what_cannot_be_forecast_is_refused(data: np.ndarray, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.forecast(data, **options)
