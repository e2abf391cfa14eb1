"""``LinearGaussian``: what it finds, says and refuses, beside what ``test_contract.py`` asks of all models."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.linear_gaussian import ARIMA, LocalLevel, Seasonal
from tests.linear_gaussian.dense import dense, random_parameters


def model_of(seed: int, n_states: int = 2, n_features: int = 2, **options: Any) -> tuple[sm.LinearGaussian, Any]:
    p = random_parameters(seed, n_states, n_features)
    arguments = (p.transition, p.state_covariance, p.observation, p.observation_covariance, p.initial_mean)
    model = sm.LinearGaussian.from_parameters(*arguments, p.initial_covariance, intercept=p.intercept, **options)
    return model, p


def walks(n: int = 6, length: int = 60, n_features: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        300 + rng.normal(size=(length + i, n_features)).cumsum(0) + rng.normal(size=(length + i, n_features))
        for i in range(n)
    ]


def seasonal_series(n: int = 120) -> np.ndarray:
    rng = np.random.default_rng(1)
    season = np.tile([5.0, -3.0, 0.0, -2.0], n // 4)
    return (100 + rng.normal(size=n).cumsum() + season + 0.5 * rng.normal(size=n))[:, None]


# -- scoring and states ----------------------------------------------------------------------------------------------


def test_scores_and_states_are_those_of_the_joint_gaussian() -> None:
    model, p = model_of(0, 3, 2)
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(n, 2)) for n in (4, 7, 1, 7)]
    x[1][2, 0] = x[3][0] = np.nan
    smoothed, filtered = model.smooth(x), model.filter(x)
    for i, each in enumerate(x):
        whole = dense(p, each)
        assert model.log_prob([each])[0] == pytest.approx(whole.log_prob, rel=1e-10)
        np.testing.assert_allclose(smoothed[i].means, whole.means, atol=1e-10)
        for t in range(len(each)):
            np.testing.assert_allclose(smoothed[i].covariances[t], whole.covariances[t, :, t], atol=1e-10)
            so_far = dense(p, each[: t + 1])
            np.testing.assert_allclose(filtered[i].means[t], so_far.means[t], atol=1e-10)
            np.testing.assert_allclose(filtered[i].covariances[t], so_far.covariances[t, :, t], atol=1e-10)


def test_states_after_a_past_are_those_of_the_whole() -> None:
    model, _ = model_of(0)
    x = np.random.default_rng(0).normal(size=(9, 2))
    (part,) = model.smooth(sm.Sequences([x[4:]], past=[x[:4]]))
    (whole,) = model.smooth([x])
    np.testing.assert_allclose(part.means, whole.means[4:])
    np.testing.assert_allclose(part.covariances, whole.covariances[4:])


def test_a_long_series_streams_as_it_is_scored() -> None:
    model, _ = model_of(1)
    x = np.random.default_rng(0).normal(size=(20_000, 2))
    (steps,) = model.log_prob_steps([x])
    stream = model.stream()
    np.testing.assert_allclose([stream.update(each) for each in x[:300]], steps[:300], rtol=1e-9, atol=1e-9)
    tail = sm.Sequences([x[19_900:]], past=[x[:19_900]])
    np.testing.assert_allclose(model.log_prob_steps(tail)[0], steps[19_900:], rtol=1e-12)


# -- fitting ---------------------------------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("start", ["learned", "stationary", "diffuse"])
def test_a_fit_rises_and_says_so(start: Any) -> None:
    x = walks()
    model = sm.LinearGaussian(2, start=start, max_iter=60, n_init=2).fit(x, validation=x[:2])
    history = model.history_
    assert (np.diff(history["objective"]) >= -1e-10).all()
    assert set(history.columns) == {"step", "seconds", "log_prob", "objective", "floor_hits", "validation"}
    assert history["validation"].iloc[-1] == pytest.approx(model.score(x[:2]))
    if start != "diffuse":
        assert history["log_prob"].iloc[-1] == pytest.approx(model.score(x), abs=1e-9)
    else:
        n_units = sum(map(len, x))
        assert history["log_prob"].iloc[-1] == pytest.approx(model.diffuse_log_prob(x).sum() / n_units, abs=1e-9)
        assert np.isfinite(model.score(x))


def test_more_starts_are_no_worse_and_the_best_is_kept() -> None:
    x = walks()
    one, five = (sm.LinearGaussian(3, max_iter=20, n_init=n).fit(x) for n in (1, 5))
    assert five.score(x) >= one.score(x) - 1e-12


def test_weights_are_repetitions() -> None:
    x = walks(3)
    encoding = sm.LinearGaussian(1).learned_encoding(x)
    options = {"max_iter": 5, "tol": 0.0, "encoding": encoding, "warm_start": True}
    start = sm.LinearGaussian(2, max_iter=0, encoding=encoding).fit(x)
    weighted, repeated = (copy.deepcopy(start).set_params(**options) for _ in range(2))
    weighted.fit(x, sample_weight=[1.0, 3.0, 0.0])
    repeated.fit([x[0], x[1], x[1], x[1]])
    np.testing.assert_allclose(weighted.transition_, repeated.transition_, rtol=1e-9)
    np.testing.assert_allclose(weighted.observation_covariance_, repeated.observation_covariance_, rtol=1e-9)


def test_a_warm_start_goes_on() -> None:
    x = walks()
    model = sm.LinearGaussian(2, max_iter=5, tol=0.0).fit(x)
    before = model.score(x)
    model.set_params(warm_start=True).fit(x)
    assert model.history_["log_prob"].iloc[0] == pytest.approx(before, abs=1e-10)
    assert model.score(x) > before


def test_raw_parameters_give_the_same_scores() -> None:
    x = walks()
    model = sm.LinearGaussian(2, max_iter=10, observation_noise="full").fit(x)
    again = sm.LinearGaussian.from_parameters(
        *(model.transition_, model.state_covariance_, model.observation_matrix_, model.observation_covariance_),
        *(model.initial_mean_, model.initial_covariance_),
        intercept=model.intercept_,
    )
    np.testing.assert_allclose(again.log_prob(x), model.log_prob(x), rtol=1e-9)


def test_without_missing_values_it_is_as_near_as_a_few_missing_ones() -> None:
    x = walks()
    gaps = [each.copy() for each in x]
    for each in gaps:
        each[5, 0] = np.nan
    options = {"max_iter": 30, "tol": 0.0}
    whole, missing = (sm.LinearGaussian(2, **options).fit(each) for each in (x, gaps))
    assert missing.score(x) == pytest.approx(whole.score(x), abs=0.01)


def test_a_budget_of_parameters_sets_the_states() -> None:
    x = walks()
    models: dict[str, sm.SequenceModel] = {"system": sm.LinearGaussian(1, max_iter=50)}
    sm.compare(models, x[:4], test=x[4:], budget=sm.Budget(parameters=30, steps=3))
    system = models["system"]
    assert isinstance(system, sm.LinearGaussian)
    assert system.n_states > 1
    assert system.n_parameters_ <= 30
    assert len(system.history_) == 4


def test_floors_are_counted() -> None:
    x = [np.column_stack([each[:, 0], each[:, 0] + 5]) for each in walks()]
    model = sm.LinearGaussian(1, max_iter=40, min_covariance=1e-3).fit(x)
    assert model.history_["floor_hits"].iloc[-1] == 2
    lower = model._with_floor(0.1)
    assert lower.score(x) != model.score(x)
    np.testing.assert_allclose(
        np.diagonal(lower.observation_covariance_) / np.diagonal(model.observation_covariance_), 0.1
    )


def test_inputs_are_read_and_ahead_they_are_asked_for() -> None:
    rng = np.random.default_rng(0)
    inputs = [5 + rng.normal(size=(80, 1)) for _ in range(3)]
    items = [3.0 * u + 0.3 * rng.normal(size=(80, 1)) for u in inputs]
    X = sm.Sequences(items, inputs=inputs, input_names=["heat"])
    model = sm.LinearGaussian(1, observation_inputs=True, max_iter=20).fit(X)
    assert model.score(X) > sm.LinearGaussian(1, max_iter=20).fit(items).score(items) + 0.5
    ahead = model.forecast(X, 2, inputs=[np.array([[5.0], [7.0]])] * 3).frame
    means = ahead["mean"].to_numpy().reshape(3, 2)
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 6.0, atol=0.5)


# -- structures ------------------------------------------------------------------------------------------------------


def test_a_structure_finds_seasons_and_adds_up() -> None:
    x = seasonal_series()
    model = (sm.LinearGaussian.local_level() + sm.LinearGaussian.seasonal(4)).fit([x])
    (frame,) = model.components([x], level=0.8)
    level, season = (frame[frame["component"] == name] for name in ("level", "seasonal"))
    np.testing.assert_allclose(season["mean"].to_numpy()[:4], [5.0, -3.0, 0.0, -2.0], atol=0.5)
    np.testing.assert_allclose(level["mean"].mean(), x.mean(), rtol=0.01)
    rest = x[:, 0] - level["mean"].to_numpy() - season["mean"].to_numpy()
    assert 0.1 < rest.std() < 1.0
    np.testing.assert_allclose(frame["high"] - frame["mean"], 1.2815515655 * frame["deviation"])
    assert set(model.components_) == {"level_variance", "seasonal_variance", "noise_variance"}
    assert model.components_["level_variance"] == pytest.approx(1.0, rel=0.6)
    assert model.n_parameters_ == 3 + 4
    again = sm.LinearGaussian.from_parameters(
        *(model.transition_, model.state_covariance_, model.observation_matrix_, model.observation_covariance_),
        *(model.initial_mean_, model.initial_covariance_),
        intercept=model.intercept_,
    )
    np.testing.assert_allclose(again.log_prob([x]), model.log_prob([x]), rtol=1e-9)
    (ours,), (raw,) = model.smooth([x]), again.smooth([x])
    np.testing.assert_allclose(ours.means, raw.means, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(ours.covariances, raw.covariances, rtol=1e-6, atol=1e-9)
    # Ahead the seasons go on.
    means = model.forecast([x], 4).frame["mean"].to_numpy()
    np.testing.assert_allclose(means - means.mean(), [5.0, -3.0, 0.0, -2.0], atol=0.7)


def test_the_unit_of_a_series_moves_its_diffuse_likelihood_as_its_density() -> None:
    x = seasonal_series()
    one, other = (sm.LinearGaussian.trend().fit([a * x]) for a in (1.0, 8.0))
    n_densities = len(x) - 2  # the first two have none
    assert other.diffuse_log_prob([8.0 * x])[0] == pytest.approx(
        one.diffuse_log_prob([x])[0] - n_densities * np.log(8.0), abs=1e-6
    )
    assert other.score([8.0 * x]) == pytest.approx(one.score([x]) - np.log(8.0), abs=1e-6)


def test_an_arima_streams_as_it_is_scored_and_comes_back_from_a_file(tmp_path: Path) -> None:
    x = seasonal_series()
    x[7] = np.nan
    model = sm.LinearGaussian.arima(2, 1, 1, n_init=1).fit([x])
    stream = model.stream()
    np.testing.assert_allclose([stream.update(each) for each in x], model.log_prob_steps([x])[0], rtol=1e-8, atol=1e-8)
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.log_prob([x]), model.log_prob([x]), rtol=1e-12)
    assert loaded.components_ == model.components_
    (frame,) = loaded.components([x])
    assert set(frame["component"]) == {"arima"}
    np.testing.assert_allclose(np.delete(frame["mean"].to_numpy(), 7), np.delete(x[:, 0], 7), rtol=1e-6)


def test_components_and_what_inputs_add_are_the_series_but_for_its_noise() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(80, 2)) * [1.0, 30.0] + [5.0, 100.0]
    x = 140 + 0.1 * rng.normal(size=80).cumsum() + u @ [4.0, -0.2] + 0.1 * rng.normal(size=80)
    data = sm.Sequences([x[:, None]], inputs=[u], input_names=["price", "rain"])
    for make, has_level in ((sm.LinearGaussian.local_level, True), (sm.LinearGaussian.ornstein_uhlenbeck, False)):
        model = make(observation_inputs=True, max_iter=50).fit(data)
        parts = model.components(data)[0].pivot(index="step", columns="component", values="mean")
        expected = {"price", "rain", "level"} if has_level else {"price", "rain", "ornstein_uhlenbeck", "intercept"}
        assert set(parts) == expected
        np.testing.assert_allclose(parts["price"], 4.0 * (u[:, 0] - u[:, 0].mean()), atol=0.5)
        np.testing.assert_allclose(parts["rain"], -0.2 * (u[:, 1] - u[:, 1].mean()), atol=0.5)
        np.testing.assert_allclose(parts.sum(axis=1), x, atol=0.5)
        if has_level:  # where inputs are at their means
            assert parts["level"].mean() == pytest.approx(x.mean(), abs=0.2)
        else:
            assert (parts["intercept"] == model.intercept_[0]).all()


def test_models_of_a_structure_add_and_others_do_not() -> None:
    added = sm.LinearGaussian.arima(1, 0, 0) + sm.LinearGaussian.local_level()
    assert [type(each) for each in added.structure or ()] == [ARIMA, LocalLevel]
    assert (added.observation_noise, added.intercept) == ("diag", False)
    with pytest.raises(ValueError, match="only models of a structure add"):
        sm.LinearGaussian(2) + sm.LinearGaussian.local_level()


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_states": 0}, "n_states is 0; pass at least 1"),
        ({"start": "free"}, "start is 'free'; pass one of 'learned', 'stationary', 'diffuse'"),
        ({"transition": "diag"}, "transition is 'diag' and state_noise 'full'"),
        ({"min_covariance": 0.0}, "min_covariance is 0.0"),
        ({"max_seconds": 0.0}, "max_seconds is 0.0"),
        ({"length": "stop"}, "says nothing of ends"),
        ({"observation": sm.GaussianMixture(1)}, "has Gaussian noise"),
        ({"observation_noise": "none"}, "only an ARIMA has no other noise"),
        ({"start": "stationary", "state_inputs": True}, "state_inputs drive the states"),
        ({"structure": []}, "pass components"),
        ({"structure": [LocalLevel()]}, "start is 'learned', but a structure says"),
    ],
)
def test_arguments_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        sm.LinearGaussian(**options).fit(walks(2))


def test_a_structure_refuses_what_it_cannot_be_of() -> None:
    with pytest.raises(ValueError, match="a structure is of one feature, but the sequences have 2"):
        sm.LinearGaussian.local_level().fit(walks(2))
    with pytest.raises(ValueError, match="has 3 steps, which do not determine"):
        sm.LinearGaussian.seasonal(12).fit([seasonal_series()[:3]])
    with pytest.raises(ValueError, match="pass the orders P, D and Q and the steps of a season"):
        sm.LinearGaussian.arima(0, 1, 1, seasonal=(0, 1, 1))
    with pytest.raises(ValueError, match="a Seasonal has period 1"):
        sm.LinearGaussian(structure=[Seasonal(1)], start="diffuse", state_noise="diag").fit([seasonal_series()])
    plain = sm.LinearGaussian(1, max_iter=1).fit(walks(2))
    with pytest.raises(ValueError, match="the model has no structure"):
        plain.components(walks(2))
    with pytest.raises(ValueError, match="the model has no structure"):
        _ = plain.components_


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transition": [[1.0, 0.0]]}, "transition has shape (1, 2)"),
        ({"state_covariance": [[-1.0]]}, "state_covariance is no covariance"),
        ({"observation_covariance": [[0.0]]}, "observation_covariance is singular"),
        ({"initial_covariance": None}, "no distribution is stationary"),
        ({"initial_mean": [0.0, 1.0]}, "initial_mean has shape (2,)"),
    ],
)
def test_parameters_that_are_no_system_are_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        **{"transition": [[1.0]], "state_covariance": [[0.5]], "observation_matrix": [[1.0]]},
        **{"observation_covariance": [[0.1]], "initial_mean": [0.0], "initial_covariance": [[1.0]]},
    }
    assert sm.LinearGaussian.from_parameters(**arguments).score([[[0.1]]]) < 0
    with pytest.raises(ValueError, match=re.escape(message)):
        sm.LinearGaussian.from_parameters(**{**arguments, **changes})


def test_rows_missing_from_regular_dates_are_warned_of_and_made() -> None:
    t = np.arange(60)
    season = (3 * np.sin(2 * np.pi * t / 12) + 0.3 * np.random.default_rng(0).normal(size=60))[:, None]
    dates = (np.datetime64("2010-01") + t.astype("timedelta64[M]")).astype("datetime64[D]")
    left = np.setdiff1d(t, [20, 21, 47])
    X = sm.Sequences([season[left]], times=[dates[left]], names=["sales"])

    def fitted(X: Any) -> sm.LinearGaussian:
        return (sm.LinearGaussian.local_level(max_iter=20) + sm.LinearGaussian.seasonal(12)).fit(X)

    said = r"times of sequence 'sales' leave out 3 steps, the first at 2011-09-01, .* fit to X\.regular\(\)"
    with pytest.warns(UserWarning, match=said) as caught:
        shifted = fitted(X)
    assert caught[0].filename == __file__
    by_hand = fitted([np.where(np.isin(t, left)[:, None], season, np.nan)])
    regular = fitted(X.regular())
    np.testing.assert_allclose(regular.log_prob(X.regular()), by_hand.log_prob(X.regular()), rtol=1e-9)
    assert regular.log_prob(X.regular())[0] > shifted.log_prob(X)[0] + 20
    fitted(sm.Sequences(list(X)))  # without times a row is a step
    irregular = sm.Sequences([season[:4]], times=[[0.0, 0.3, 7.0, 7.1]])
    sm.LinearGaussian(1, max_iter=1).fit(irregular)  # no step is left out
