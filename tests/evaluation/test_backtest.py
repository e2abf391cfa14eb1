from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import seqmodels as sm
from seqmodels.evaluation.backtest import best_var, energy_score, pinball_loss
from seqmodels.evaluation.baselines import SeasonalNaive
from seqmodels.generation.feature_distributions import GaussianFeatures

mpl.use("agg")
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def walk(n: int = 400, size: int = 1, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(size=(n, size)), axis=0)


def autoregression(n: int, seed: int = 0) -> np.ndarray:
    rng, x = np.random.default_rng(seed), np.zeros(n)
    for t in range(2, n):
        x[t] = 1.2 * x[t - 1] - 0.5 * x[t - 2] + rng.normal()
    return x[:, None]


# -- scores ------------------------------------------------------------------------------------------------------


def test_the_energy_score_of_one_feature_is_the_crps_and_of_two_that_of_the_pairs() -> None:
    rng, y = np.random.default_rng(0), np.array([0.4])
    expected = GaussianFeatures(np.ones(1), np.zeros((1, 1)), np.ones((1, 1))).crps(y)[0]
    found = np.array([energy_score(rng.normal(size=(20, 1)), y) for _ in range(4000)])
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(len(found))
    draws, y = rng.normal(size=(6, 3)), rng.normal(size=3)
    pairs = sum(np.linalg.norm(a - b) for a in draws for b in draws) / (6 * 5)
    assert_allclose(energy_score(draws, y), np.linalg.norm(draws - y, axis=1).mean() - 0.5 * pairs, rtol=1e-12)
    assert np.isnan(energy_score(draws, np.array([0.0, np.nan, 0.0])))


def test_the_mean_pinball_loss_over_many_levels_is_the_crps() -> None:
    features, y = GaussianFeatures(np.ones(1), np.zeros((1, 1)), np.ones((1, 1))), np.array([0.8])
    levels = (np.arange(2000) + 0.5) / 2000
    assert_allclose(pinball_loss(features.quantiles(levels), y, levels).mean(), features.crps(y)[0], rtol=1e-3)


# -- figures of benchmarks ---------------------------------------------------------------------------------------

# Two series of quarters, and a forecast whose mean is not its median.
A = [22.0, 21.9, 21.4, 16.9, 21.5, 26.3, 21.0, 19.3, 23.1, 31.8, 25.2, 21.1, 25.7, 29.8, 25.9, 23.1, 28.5, 32.3, 30.0]
B = [337.0, 305.0, 283.0, 287.0, 324.0, 300.0, 229.0, 275.0, 329.0, 282.0, 231.0, 277.0, 262.0, 276.0, 204.0, 230.0]
TWO = [np.array([*A, 25.3])[:, None], np.array([*B, 296.0, 260.0, 199.0, 227.0])[:, None]]
NAN = np.nan


def of_two(x: list[np.ndarray] = TWO, **options: Any) -> sm.evaluation.Backtest:
    means, covariances = [[30.0], [250.0]], [[25.0], [900.0]]
    model = sm.HMM.from_parameters([0.3, 0.7], [[0.3, 0.7]] * 2, means=means, covariances=covariances, dtype="float64")
    options = {"horizon": 4, "first": 16, "n_origins": 1, "season": 4} | options
    return sm.backtest({"mixture": model}, sm.Sequences(x), **options)


def test_figures_of_benchmarks_are_those_of_other_libraries() -> None:
    """Utilsforecast 0.2.17: mase, rmsse, mqloss of each series; GluonTS 0.17: MeanWeightedSumQuantileLoss."""
    found = of_two().benchmark().set_index("model").drop(columns="n_series")
    columns = ["mase", "rmsse", "wql", "relative_mase", "relative_rmsse", "relative_wql"]
    assert list(found) == columns
    naive = 2.0209385086485137, 1.7982092099214575, 0.14411048252086328
    mixture = 44.313793030075004, 28.7958848514969, 0.5416358856029729
    expected = {
        "seasonal naive": (0.9564263841761151, 0.8456143618982408, 0.06375681443230707, 1.0, 1.0, 1.0),
        "naive": (*naive, 2.1399462137772742, 2.1154948981476642, 2.225160568648195),
        "mixture": (*mixture, 12.55654265090539, 13.954680552443447, 8.333348603291896),
    }
    for name, figures in expected.items():
        assert_allclose(found.loc[name], figures, rtol=1e-7)
    ordered = found["relative_wql"].tolist()
    assert ordered == sorted(ordered)
    to_naive = of_two().benchmark("naive").set_index("model")
    assert_allclose(to_naive["relative_rmsse"] * 2.1154948981476642, found["relative_rmsse"][to_naive.index])


def test_the_table_has_errors_relative_to_the_seasonal_naive_whatever_the_quantiles_are() -> None:
    table = of_two(quantiles=(0.25, 0.5)).table().set_index("model")
    assert_allclose(table.loc["mixture", ["relative_mase", "relative_wql"]].tolist(), [12.55654265, 8.33334860])
    assert_allclose(table.loc["seasonal naive", ["relative_mase", "relative_wql"]].tolist(), [1.0, 1.0])
    without_season = of_two(season=None).table().set_index("model")
    assert without_season.loc["naive", "relative_wql"] == 1.0
    assert "relative_wql" not in of_two(baselines=False).table()


def test_relative_errors_compare_values_that_both_forecast_and_that_are_known() -> None:
    x = [each.copy() for each in TWO]
    x[0][[3, 17]], x[1][18] = NAN, NAN
    result = of_two(x)
    scores = result.scores
    lost = (scores["model"] == "mixture") & (scores["step"] == 4)
    scores.loc[lost, ["mae", "mse", "quantile_loss"]] = NAN
    of_naive = (scores["model"] == "seasonal naive") & (scores["sequence"] == scores["sequence"].unique()[0])
    scores.loc[of_naive & (scores["step"] == 1), ["mae", "mse", "quantile_loss"]] = NAN
    found = result.benchmark().set_index("model").loc["mixture"]
    steps = {0: (3,), 1: (1, 2)}  # those that are left
    ratios, scaled, losses, sizes = [], [], 0.0, 0.0
    for i, kept in steps.items():
        y, change = x[i][:, 0], np.abs(x[i][4:16, 0] - x[i][:12, 0])
        values = scores[(scores["sequence"] == scores["sequence"].unique()[i]) & scores["step"].isin(kept)]
        own, naive = (values[values["model"] == name] for name in ("mixture", "seasonal naive"))
        assert_allclose(naive["mae"], [abs(y[15 + k] - y[11 + k]) for k in kept])
        ratios.append(own["mae"].sum() / naive["mae"].sum())
        scaled.append(own["mae"].mean() / np.nanmean(change))
        losses, sizes = losses + own["quantile_loss"].sum(), sizes + sum(abs(y[15 + k]) for k in kept)
    assert_allclose(found["relative_mase"], np.sqrt(ratios[0] * ratios[1]))
    assert_allclose(found["mase"], np.mean(scaled))
    assert_allclose(found["wql"], losses / sizes)


def test_series_without_a_scale_are_left_out_and_a_forecast_without_error_is_zero() -> None:
    flat, scores = np.full((20, 1), 5.0), ["relative_mase", "relative_rmsse", "mase", "rmsse"]
    by_model = of_two(TWO[:1]).benchmark().set_index("model")
    with pytest.warns(UserWarning, match="exact copies"):
        with_flat = of_two([TWO[0], flat]).benchmark().set_index("model")
    assert_allclose(with_flat.loc["mixture", scores].tolist(), by_model.loc["mixture", scores].tolist())
    assert (with_flat.loc["mixture", "n_series"], by_model.loc["mixture", "n_series"]) == (2, 1)
    result = of_two()
    result.scores.loc[result.scores["model"] == "mixture", ["mae", "mse", "quantile_loss"]] = 0.0
    assert result.benchmark().set_index("model").loc["mixture", "relative_wql"] == 0.0
    with pytest.raises(ValueError, match="the models with forecasts are mixture, naive, VAR, seasonal naive"):
        result.benchmark("ets")


def test_figures_of_benchmarks_do_not_depend_on_the_unit_of_a_series() -> None:
    scaled = of_two([1e9 * each for each in TWO], baselines=True).benchmark("naive").set_index("model")
    found = of_two().benchmark("naive").set_index("model")
    rows, columns = ["seasonal naive", "VAR"], [c for c in found if c != "n_series"]
    assert_allclose(scaled.loc[rows, columns], found.loc[rows, columns], rtol=1e-6)


# -- what models are fitted to ------------------------------------------------------------------------------------


def observed_at_times(n: int = 60) -> sm.Sequences:
    """A walk at irregular times, with an input that drives it and clusters."""
    rng = np.random.default_rng(5)
    each = [(rng.normal(size=(n, 1)), np.cumsum(rng.exponential(size=n))) for _ in range(3)]
    items = [0.8 * np.cumsum(u, axis=0) + rng.normal(size=(n, 1)) for u, _ in each]
    inputs, times = [u for u, _ in each], [t for _, t in each]
    return sm.Sequences(items, inputs=inputs, times=times, clusters=["a", "b", "b"], names=["x", "y", "z"])


def of_times() -> sm.LinearGaussian:
    return sm.LinearGaussian.ornstein_uhlenbeck(time_step=1.0, max_iter=20)


def of_inputs() -> sm.LinearGaussian:
    return sm.LinearGaussian(1, observation_inputs=True, max_iter=5)


@pytest.mark.parametrize("make", [of_times, of_inputs])
def test_models_are_fitted_to_the_times_and_inputs_of_what_they_are_given(make: Callable[[], Any]) -> None:
    x, model = observed_at_times(), make()
    result = sm.backtest({"model": model}, x, horizon=3, first=40, n_origins=2, baselines=False)
    by_hand = make().fit(x.segments((i, 0, 40) for i in range(3)))
    assert_array_equal(model.log_prob(x), by_hand.log_prob(x))
    assert not result.errors
    # of a series that goes on, its past too
    _train, test = x[:1].split(0.5)
    goes_on = make()
    sm.backtest({"model": goes_on}, test, horizon=3, first=10, n_origins=2, baselines=False)
    by_hand = make().fit(x.segments([(0, 0, 40)]))
    assert_array_equal(goes_on.log_prob(x), by_hand.log_prob(x))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("make", [of_times, of_inputs])
def test_models_that_are_fitted_anew_get_the_times_and_inputs_of_training_and_history(make: Callable[[], Any]) -> None:
    x = observed_at_times()
    train, test = x[:2], x[2:]
    anew = sm.backtest({"m": make()}, test, horizon=2, train=train, first=30, n_origins=2, refit=True, baselines=False)
    frames = []
    for origin in (30, 58):
        by_hand = make().fit(sm.Sequences.joined([train, test.segments([(0, 0, origin)])]))
        once = sm.backtest({"m": by_hand}, test, horizon=2, train=train, first=origin, n_origins=1, baselines=False)
        frames.append(once.scores)
    assert_allclose(anew.scores["crps"], pd.concat(frames)["crps"], rtol=1e-12)


# -- baselines ---------------------------------------------------------------------------------------------------


def test_naive_forecasts_by_hand() -> None:
    x = np.array([[1.0], [3.0], [2.0], [6.0]])
    (ahead,) = SeasonalNaive().fit([x]).ahead([x], [[4]], 3, 10, 0)
    for h, step in enumerate(ahead.steps, 1):
        deviation = np.sqrt(h * (4 + 1 + 16) / 3)  # mean square of 2, -1 and 4
        assert_allclose(step.quantiles(np.array([0.5, 0.95]))[:, 0], [6.0, 6.0 + stats.norm.ppf(0.95) * deviation])
    seasonal = SeasonalNaive(2).fit([x])
    (ahead,) = seasonal.ahead([x], [[4]], 5, 10, 0)
    assert [float(step.mean[0]) for step in ahead.steps] == [2.0, 6.0, 2.0, 6.0, 2.0]
    variance = (1 + 9) / 2
    spread = [(step.quantiles(np.array([0.95])) - step.mean).item() for step in ahead.steps]
    assert_allclose(spread, stats.norm.ppf(0.95) * np.sqrt(variance * np.array([1, 1, 2, 2, 3])))


def test_paths_of_naive_forecasts_have_their_distribution() -> None:
    x = walk(60, size=2) @ np.array([[1.0, 0.8], [0.0, 5.0]])
    for season in (1, 3):
        model = SeasonalNaive(season).fit([x])
        (ahead,) = model.ahead([x], [[50]], 7, 20_000, 0)
        paths = ahead.draw_paths().x
        for h, step in enumerate(ahead.steps):
            assert_allclose(paths[:, h].mean(0), step.mean, atol=5 * (paths[:, h].std(0) / np.sqrt(20_000)).max())
            assert_allclose((paths[:, h] <= step.quantiles(np.array([0.9]))[0]).mean(0), 0.9, atol=0.01)
        last = np.cov((paths[:, 0] - ahead.steps[0].mean).T)
        assert_allclose(last, model.covariance_, rtol=0.1)


def test_missing_values_are_taken_from_a_season_before() -> None:
    x = np.array([[1.0], [2.0], [np.nan], [4.0], [5.0], [np.nan]])
    for season, expected in ((1, 5.0), (2, 4.0)):
        (ahead,) = SeasonalNaive(season).fit([x]).ahead([x], [[6]], 1 if season == 1 else 2, 5, 0)
        assert ahead.steps[-1].mean == [expected]
    with pytest.raises(ValueError, match="longer than the season of 9"):
        SeasonalNaive(9).fit([x])


def test_bic_finds_the_order_of_an_autoregression() -> None:
    assert best_var([autoregression(2000)]).observation.order == 2  # type: ignore[union-attr]
    assert best_var([walk(2000)], (1, 5)).observation.order == 1  # type: ignore[union-attr]


# -- the whole ---------------------------------------------------------------------------------------------------


def test_scores_are_those_of_the_forecasts() -> None:
    """Every figure of one origin anew, from ``SequenceModel.forecast``."""
    x = autoregression(200)
    observation = sm.AutoregressiveGaussian(2, background=0.0, predictive="plug-in")
    model = sm.HMM(1, observation=observation, max_iter=5, dtype="float64").fit([x[:100]])
    result = sm.backtest({"ar": model}, [x], horizon=4, first=150, every=20, baselines=False)
    assert sorted(set(result.scores["origin"])) == [150, 170, 190]
    scale = np.abs(np.diff(x[:150, 0])).mean()
    for origin in (150, 170, 190):
        rows = result.scores[result.scores["origin"] == origin]
        frame = model.forecast([x[:origin]], 4, quantiles=LEVELS).frame
        actual = x[origin : origin + 4, 0]
        assert_allclose(rows["actual"], actual)
        for name in ("mean", "5%", "25%", "50%", "75%", "95%"):
            assert_allclose(rows[name], frame[name], rtol=1e-9)
        deviation = (frame["95%"] - frame["50%"]).to_numpy() / stats.norm.ppf(0.95)
        z = (actual - frame["50%"].to_numpy()) / deviation
        crps = deviation * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
        assert_allclose(rows["crps"], crps, rtol=1e-6)  # the closed form of one Gaussian (Gneiting & Raftery 2007)
        assert_allclose(rows["crps_scaled"], crps / scale, rtol=1e-6)
        assert_allclose(rows["mae"], np.abs(actual - frame["50%"]), rtol=1e-9)
        assert_allclose(rows["mase"], np.abs(actual - frame["50%"]) / scale, rtol=1e-9)
        assert (
            rows["covered 90%"].tolist() == ((frame["5%"] <= actual) & (actual <= frame["95%"])).astype(float).tolist()
        )
        assert rows["covered 50%"].tolist() == ((frame["25%"] <= actual) & (actual <= frame["75%"])).tolist()
    table = result.table()
    assert_allclose(table["crps"], result.scores["crps"].mean())
    assert_allclose(result.frame["crps"], result.scores.groupby("step")["crps"].mean())
    assert table["n"].tolist() == [12]
    assert "energy" not in table
    assert "ar" in repr(result)


@pytest.mark.slow
def test_the_true_model_covers_and_beats_the_naive_one() -> None:
    x = autoregression(3000)
    model = sm.HMM(1, observation=sm.AutoregressiveGaussian(2, background=0.0), encoding=sm.Standardize(), max_iter=5)
    result = sm.backtest({"true": model}, [x], horizon=5, first=1000, every=10)
    table = result.table().set_index("model")
    assert_allclose(table.loc["true", "covered 90%"], 0.9, atol=0.02)
    assert_allclose(table.loc["true", "crps"], table.loc["VAR", "crps"], rtol=0.01)
    assert table.loc["true", "crps"] < 0.8 * table.loc["naive", "crps"]


@pytest.mark.slow
def test_sampled_and_exact_scores_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    x = [walk(120, 2, seed) @ np.array([[1.0, 0.5], [0.0, 30.0]]) for seed in range(3)]
    model = sm.HMM(2, observation=sm.GaussianMixture(1, "full"), encoding=sm.Standardize(), max_iter=5).fit(x)
    options = {"horizon": 3, "every": 10, "n": 2000, "baselines": False}
    exact = sm.backtest({"hmm": model}, x, **options).table()  # type: ignore[arg-type]
    monkeypatch.setattr("seqmodels.hmm.cursor.HMMCursor.predictions_ahead", lambda *_: None)
    sampled = sm.backtest({"hmm": model}, x, **options).table()  # type: ignore[arg-type]
    for column in ("crps", "crps_scaled", "energy", "pinball", "mae", "mase"):
        assert_allclose(sampled[column], exact[column], rtol=0.02)


def test_unfitted_models_see_only_what_is_before_the_first_origin() -> None:
    x, changed = walk(90), walk(90)
    changed[60:] += 1000
    first, second, trained = (sm.HMM(2, max_iter=2, n_init=1) for _ in range(3))
    sm.backtest({"hmm": first}, [x], horizon=2, first=60, baselines=False)
    sm.backtest({"hmm": second}, [changed], horizon=2, first=60, baselines=False)
    assert_allclose(first.means_, second.means_)
    sm.backtest({"hmm": trained}, [x], horizon=2, first=60, train=[x[:60]], baselines=False)
    assert_allclose(trained.means_, first.means_)


def test_a_fitted_model_stays_and_refitting_takes_a_copy() -> None:
    x = autoregression(300)
    model = sm.HMM(
        1, observation=sm.AutoregressiveGaussian(1, background=0.0), encoding=sm.Standardize(), max_iter=5
    ).fit([x[:50]])
    before = model.coefficients_.copy()
    options = {"horizon": 3, "first": 50, "every": 100, "baselines": False}
    fixed = sm.backtest({"ar": model}, [x], **options)  # type: ignore[arg-type]
    anew = sm.backtest({"ar": model}, [x], refit=True, **options)  # type: ignore[arg-type]
    assert_allclose(model.coefficients_, before)
    for origin, at_once in anew.scores.groupby("origin"):
        again = model.clone().fit([x[:origin]]).forecast([x[:origin]], 3).frame
        assert_allclose(at_once["mean"], again["mean"], rtol=1e-6)
    assert not np.allclose(anew.scores["mean"][3:], fixed.scores["mean"][3:])


def test_missing_values_are_not_scored() -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    x[61, 1] = np.nan
    result = sm.backtest(
        {"hmm": sm.HMM(2, encoding=sm.Standardize(), max_iter=3)}, [x], horizon=4, first=60, every=40, season=5
    )
    rows = result.scores[(result.scores["model"] == "hmm") & (result.scores["step"] == 2)]
    assert rows["crps"].isna().tolist() == [False, True]
    assert rows["covered 90%"].isna().tolist() == [False, True]
    assert "VAR" not in result.table()["model"].tolist() or "VAR" not in result.errors
    assert set(result.table()["model"]) >= {"hmm", "naive", "seasonal naive"}


def test_one_that_fails_does_not_lose_the_others() -> None:
    x = [walk(60), walk(60, seed=1)]
    result = sm.backtest(
        {"counts": sm.HMM(2, observation=sm.Poisson()), "hmm": sm.HMM(2, encoding=sm.Standardize(), max_iter=3)},
        x,
        horizon=2,
        n_origins=3,
    )
    assert list(result.errors) == ["counts"]
    assert "counts failed: " in repr(result)
    shuffled = replace(result, scores=result.scores.sample(frac=1.0, random_state=0))  # models may have other orders
    pd.testing.assert_frame_equal(shuffled.benchmark(), result.benchmark())
    with pytest.raises(ValueError, match="no model could forecast: counts"):
        sm.backtest({"counts": sm.HMM(2, observation=sm.Poisson())}, x, horizon=2)


def test_short_sequences_are_left_out_and_origins_spread() -> None:
    x = sm.Sequences([walk(100), walk(9, seed=1), walk(80, seed=2)], names=["long", "short", "other"])
    result = sm.backtest(
        {"hmm": sm.HMM(2, encoding=sm.Standardize(), max_iter=2)}, x, horizon=10, first=40, n_origins=4, baselines=False
    )
    origins = result.scores.groupby("sequence")["origin"].unique()
    assert origins["long"].tolist() == [40, 57, 73, 90]
    assert origins["other"].tolist() == [40, 50, 60, 70]
    assert "short" not in origins


def test_more_origins_than_there_are_steps_are_all_of_them() -> None:
    options = {"horizon": 3, "baselines": False, "n": 5}
    model = sm.HMM(1, max_iter=1).fit([walk(20)])
    result = sm.backtest({"hmm": model}, [walk(20)], n_origins=10**9, **options)
    assert result.scores["origin"].unique().tolist() == list(range(10, 18))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"horizon": 0}, "horizon is 0"),
        ({"horizon": 90}, "no sequence is long enough: the longest has 100 steps"),
        ({"every": 2, "n_origins": 3}, "pass one of them"),
        ({"every": 0}, "every is 0"),
        ({"season": -1}, "season is -1"),
        ({"quantiles": (0.1, 0.9)}, "0.5 must be among them"),
        ({"first": 0}, "first is 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sm.backtest({"hmm": sm.HMM(2)}, [walk(100)], **({"horizon": 3} | options))  # type: ignore[arg-type]


def test_no_models_and_symbols_are_refused() -> None:
    with pytest.raises(ValueError, match="there are no models"):
        sm.backtest({}, [walk(100)], horizon=2)
    with pytest.raises(ValueError, match="these are symbols"):
        sm.backtest({"hmm": sm.HMM(2)}, [np.array([0, 1])], horizon=2)


def test_pictures_of_scores() -> None:
    result = sm.backtest({"hmm": sm.HMM(2, max_iter=2)}, [walk(100)], horizon=3, first=60, season=4)
    ax = result.plot()
    assert ax.figure.number in pyplot.get_fignums()
    for form, start in (("pdf", b"%PDF"), ("svg", b"<?xml")):
        buffer = io.BytesIO()
        ax.figure.savefig(buffer, format=form)
        assert buffer.getvalue().startswith(start)
    lines = {line.get_label(): line for line in ax.lines}
    assert set(lines) == {"hmm", "naive", "seasonal naive", "VAR"}
    of_model = result.frame[result.frame["model"] == "hmm"]
    assert_allclose(lines["hmm"].get_ydata(), of_model["crps_scaled"])
    covered = result.plot(score="covered 90%")
    assert covered.lines[-1].get_ydata()[0] == 0.9
    assert covered.get_ylabel() == "share inside 90% intervals"
    with pytest.raises(ValueError, match="no score 'speed'"):
        result.plot(score="speed")


def test_forecast_values_have_the_times_of_their_steps() -> None:
    dates = pd.date_range("2024-01-01", periods=40, freq="h")
    frame = pd.DataFrame(walk(40), index=dates)
    result = sm.backtest({"hmm": sm.HMM(1, max_iter=2)}, [frame], horizon=2, first=30, every=5)
    scores = result.scores
    assert scores["time"].tolist() == [
        dates[origin + step - 1] for origin, step in scores[["origin", "step"]].to_numpy()
    ]
    assert "time" not in sm.backtest({"hmm": sm.HMM(1, max_iter=2)}, [walk(40)], horizon=2, first=30).scores
