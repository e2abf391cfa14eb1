"""``forecast``: from a table to quantiles with names and dates."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm


def sales(n: int = 60) -> pd.Series:
    rng = np.random.default_rng(0)
    t = np.arange(n)
    y = 100 + t + 20 * np.sin(2 * np.pi * t / 12) + 3 * rng.normal(size=n)
    return pd.Series(y, pd.date_range("2018-01-01", periods=n, freq="MS"), name="sales")


@cache
def half_a_year() -> sm.evaluation.forecasting.AutomaticForecast:
    return sm.forecast(sales(), 6)


def test_dates_and_names_go_out() -> None:
    found = half_a_year()
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
    found = half_a_year()
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


def test_paths_have_the_quantiles_of_the_frame() -> None:
    frame = pd.DataFrame({"shop": np.repeat(["a", "b"], 60), "x": np.tile(sales(), 2), "y": np.ones(120)})
    frame.loc[:59, "y"] = sales().to_numpy()[::-1]
    with pytest.warns(UserWarning, match="is not forecast"):
        found = sm.forecast(frame, 4, by="shop", max_seconds=1e-9, n=4000, random_state=1)
    paths = found.paths
    assert [each.shape for each in paths] == [(4000, 4, 2)] * 2
    assert np.isnan(paths[1][..., 1]).all()
    of_x = found.frame[(found.frame["sequence"] == "b") & (found.frame["feature"] == "x")]
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    expected = of_x[["5%", "25%", "50%", "75%", "95%"]]
    np.testing.assert_allclose(np.quantile(paths[1][..., 0], levels, axis=0).T, expected, rtol=0.02)
    again = sm.forecast(frame[["shop", "x"]], 4, by="shop", max_seconds=1e-9, n=4000, random_state=1)
    assert not np.array_equal(again.paths[0], again.paths[1])
    np.testing.assert_array_equal(again.paths[0][..., 0], paths[0][..., 0])


@pytest.mark.slow
def test_missing_rows_and_values() -> None:
    y = sales().copy()
    y.iloc[[20, 40]] = np.nan
    found = sm.forecast(y.drop(y.index[[30, 31]]), 3)
    assert np.isnan(np.asarray(found.history[0])).sum() == 4
    whole = half_a_year().frame[:3]
    assert np.abs(found.frame["50%"] - whole["50%"]).max() < 6


@pytest.mark.slow
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
    with pytest.warns(UserWarning, match="are not regular"):
        found = sm.forecast(pd.Series(np.random.default_rng(0).normal(size=30), dates), 2)
    assert "time" not in found.frame


def test_it_is_drawn() -> None:
    pytest.importorskip("matplotlib")
    found = sm.forecast(sales(), 6, max_seconds=1e-9)
    assert found.plot().get_ylabel() == "sales"
    assert len(found.plot(paths=3).lines) == len(found.plot().lines) + 3


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.arange(8.0), {}, "has 8 values, but to forecast 12 steps ahead at least 18 are needed"),
        (np.ones(40), {}, "is always 1; leave it out"),
        (1e155 * (1 + np.arange(40) % 7), {}, "magnitude 7e.155 .* pass it in other units"),
        (1e-170 * np.arange(40), {}, "pass it in other units"),
        (np.arange(60.0), {"season": 1000}, "season is 1000, but .* pass a season of 30 steps at most"),
        (np.append(np.arange(20.0), np.full(10**6, np.nan)), {}, "1,000,000 steps at its end are missing"),
        (np.arange(40.0), {"future": pd.DataFrame({"x": [1.0]})}, "but inputs names no column"),
        (np.full(40, np.nan), {}, "has 0 values"),
        (np.arange(40.0), {"quantiles": (0.9, 0.1)}, "pass increasing numbers between 0 and 1"),
        (np.arange(40.0), {"horizon": 0}, "horizon is 0"),
    ],
)
def test_what_cannot_be_forecast_is_refused(data: np.ndarray, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.forecast(data, **options)


def test_a_day_that_was_never_seen_is_at_the_level() -> None:
    days = pd.date_range("2024-01-01", periods=83, freq="D")
    y = pd.Series(90 + 5 * np.sin(2 * np.pi * np.arange(83) / 7) + np.random.default_rng(0).normal(size=83), days)
    found = sm.forecast(y[days.day_of_week < 6], 7, max_seconds=1e-9)
    sunday = found.frame[found.frame["time"].dt.day_of_week == 6].iloc[0]
    assert 60 < sunday["5%"] < sunday["50%"] < sunday["95%"] < 120
    assert found.series[0, "value"].unseen == (6,)
    assert any(sentence.startswith("No value was ever seen on Sundays: models are of ") for sentence in found.words)


def test_hours_of_a_day_that_was_never_seen_are_at_the_level() -> None:
    hours = pd.date_range("2024-01-01", periods=24 * 27, freq="h")  # to a Saturday
    wave = 100 + 30 * np.sin(2 * np.pi * np.arange(len(hours)) / 24) + np.random.default_rng(0).normal(size=len(hours))
    found = sm.forecast(pd.Series(wave, hours)[hours.day_of_week < 6], 36, max_seconds=1e-9)
    days = found.frame.groupby(found.frame["time"].dt.day_of_week)
    sunday, monday = days.get_group(6), days.get_group(0)
    assert (sunday["5%"] < 80).all()
    assert (sunday["95%"] > 120).all()
    assert (monday["95%"] - monday["5%"] < 20).all()
    assert any(sentence.startswith("No value was ever seen on Sundays: models are of ") for sentence in found.words)


def test_one_constant_or_short_series_does_not_end_the_others() -> None:
    frame = pd.DataFrame({"shop": ["a"] * 30 + ["b"] * 30 + ["c"] * 5, "sales": [*range(30), *[0] * 30, *range(5)]})
    with pytest.warns(UserWarning, match="is not forecast") as caught:
        found = sm.forecast(frame, 2, by="shop", max_seconds=1e-9)
    assert found.frame["sequence"].unique().tolist() == ["a"]
    says = ["b is not forecast: feature 'sales' of sequence 'b' is always 0", "c is not forecast: .* has 5 values"]
    for warning, expected, sentence in zip(caught, says, found.words[-2:], strict=True):
        assert re.match(expected, str(warning.message))
        assert "It is not forecast: " in sentence
    assert tuple(found.history.names) == ("a",)
    with pytest.raises(ValueError, match="is always 0"):
        sm.forecast(frame[30:60], 2, by="shop")
    other = frame[:60].assign(cost=[0, 1, 2] * 20)
    with pytest.warns(UserWarning, match="b, sales is not forecast"):
        rows = sm.forecast(other, 2, by="shop", max_seconds=1e-9).frame
    assert rows["feature"].tolist() == ["sales", "cost"] * 4
    assert rows["50%"].isna().tolist() == [False] * 4 + [True, False] * 2


def test_zeros_and_ones_are_said_to_be_no_reals() -> None:
    found = sm.forecast((np.random.default_rng(0).random(40) > 0.5).astype(float), 2, max_seconds=1e-9)
    assert any(each.startswith("All values are 0 or 1: the mean says about how probable") for each in found.words)
    numbers = found.frame.loc[:, "mean":"95%"].to_numpy()
    assert (numbers.min() >= 0, numbers.max() <= 1) == (True, True)


def with_holidays(n: int = 60, k: int = 4) -> pd.DataFrame:
    """Of a walk, and 25 more on holidays."""
    rng = np.random.default_rng(1)
    holiday = rng.random(n + k) < 0.2
    holiday[[n + 1, n + 3]] = True
    y = 100 + 0.3 * rng.normal(size=n + k).cumsum() + rng.normal(size=n + k) + 25 * holiday
    days = pd.date_range("2024-01-01", periods=n + k, freq="D")
    return pd.DataFrame({"day": days, "sales": y, "holiday": holiday})


@pytest.mark.slow
def test_inputs_that_are_known_ahead_are_regressed_on() -> None:
    frame = with_holidays(40)
    truth, known = frame["sales"][40:].to_numpy(), frame.assign(sales=frame["sales"].where(frame.index < 40))
    found = sm.forecast(known, 4, inputs=["holiday"], season=1)
    assert found.frame["feature"].unique().tolist() == ["sales"]
    assert found.frame["time"].tolist() == frame["day"][40:].tolist()
    assert np.abs(found.frame["50%"] - truth).max() < 4  # of which two are holidays, and two not
    crps = found.table.set_index("model")["crps_scaled"]
    assert found.series[0, "sales"].crps < 0.3 * crps["naive"]  # which does not read them
    (said,) = [sentence for sentence in found.words if "holiday" in sentence]
    effect, deviation = (float(x) for x in re.findall(r"adds ([\d.]+) \(standard error ([\d.]+)\), by ", said)[0])
    assert abs(effect - 25) < 3 * deviation < 2


@pytest.mark.slow
def test_an_input_that_multiplies_is_said_in_percent() -> None:
    frame = with_holidays(60)
    rng = np.random.default_rng(0)
    level = 50 * np.exp(0.02 * np.arange(64) + 0.05 * rng.normal(size=64))
    frame = frame.assign(sales=(level * (1 + 0.4 * frame["holiday"])).where(frame.index < 60))
    found = sm.forecast(frame, 4, inputs=["holiday"], season=1)
    (said,) = [sentence for sentence in found.words if "holiday" in sentence]
    ((percentage, error),) = re.findall(
        r"adds ([\d.]+) % \(standard error ([\d.]+) points\), by .* of logarithms", said
    )
    assert abs(float(percentage) - 40) < 3 * float(error) < 10


def test_inputs_may_be_in_a_frame_of_their_own() -> None:
    frame, quick = with_holidays(), {"max_seconds": 1e-9}
    future = frame[["day", "holiday"]][60:]
    found = sm.forecast(frame[:60], 4, inputs=["holiday"], future=future, **quick)
    known = frame.assign(sales=frame["sales"].where(frame.index < 60))
    pd.testing.assert_frame_equal(found.frame, sm.forecast(known, 4, inputs=["holiday"], **quick).frame)
    assert len(found.history[0]) == 60
    two = pd.concat([frame.assign(shop=shop) for shop in "ab"])
    ahead = two[two["day"] >= future["day"].min()].drop(columns="sales")
    past = two[two["day"] < future["day"].min()]
    of_shops = sm.forecast(past, 4, by="shop", inputs=["holiday"], future=ahead, **quick)
    assert of_shops.frame["time"].tolist() == 2 * future["day"].tolist()


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (with_holidays()[:60], {}, "known for 0 steps after the last value of sequence 0, but horizon is 4"),
        (with_holidays()[:60], {"future": with_holidays()[60:62].drop(columns="sales")}, "or pass horizon=2"),
        (with_holidays()[:60], {"future": with_holidays()[["day"]][60:]}, "future has no column 'holiday'"),
        (with_holidays()[:60], {"inputs": ["holidy"]}, "the frame has no column 'holidy', .* has day, sales, holiday"),
        (with_holidays(), {"inputs": ["sales", "holiday"]}, "leave out the columns that are to be forecast"),
        (with_holidays().assign(holiday="no"), {}, "'holiday' holds no numbers; make columns of 0 and 1"),
        (with_holidays().drop([20]).assign(sales=lambda f: f["sales"].where(f.index < 60)), {}, "at 2024-01-21"),
        (
            with_holidays().assign(holiday=0, sales=lambda f: f["sales"].where(f.index < 60)),
            {},
            "input .holiday. is 0 in all 60 steps",
        ),
        (np.arange(40.0), {}, "the frame should be a pandas DataFrame with the columns of inputs, holiday"),
        (with_holidays()[:60].set_index("day"), {"future": with_holidays()[60:]}, "the index of the frame holds dates"),
        (with_holidays()[:60], {"future": with_holidays()[["holiday"]][60:]}, "future has no column 'day', which says"),
        (with_holidays()[:60], {"future": with_holidays()[["day", "holiday"]]}, "steps that the frame has, such as"),
        (with_holidays()[:60], {"inputs": "holiday"}, r"pass a list of words, such as \['holiday'\]"),
    ],
)
def test_inputs_that_are_not_known_are_refused(frame: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.forecast(frame, 4, **{"inputs": ["holiday"], **options})
