from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.hmm.hidden_chain import HiddenChainModel

RNG = np.random.default_rng(0)
ITEMS = [RNG.normal(size=(n, 1)) + 3 * (np.arange(n)[:, None] // 5 % 2) for n in (30, 20, 7)]
MODELS: dict[str, Callable[[], HiddenChainModel]] = {
    "hmm": lambda: sm.HMM(2, observation=sm.GaussianMixture(1), max_iter=3, n_init=1),
    "semi-markov": lambda: sm.hmm.HSMM(2, observation=sm.GaussianMixture(1), max_iter=3, n_init=1),
    "markov-switching-ar": lambda: sm.hmm.MarkovSwitchingAR(2, order=1, max_iter=3, n_init=1),
    "continuous-time": lambda: sm.hmm.ContinuousTimeHMM(2, observation=sm.GaussianMixture(1), max_iter=3, n_init=1),
}


@cache
def fitted(name: str) -> HiddenChainModel:
    return MODELS[name]().fit(ITEMS)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", MODELS)
def test_paths_are_drawn_from_the_posterior(name: str) -> None:
    model, n = fitted(name), 2_000
    gamma, drawn = model.posterior(ITEMS), model.sample_states(ITEMS, n, random_state=1)
    for x, each, paths, again in zip(ITEMS, gamma, drawn, model.predict_proba(ITEMS), strict=True):
        assert each.shape == (len(x), 2)
        assert paths.shape == (n, len(x))
        assert_allclose(paths.mean(0), each[:, 1], atol=5 * 0.5 / np.sqrt(n))
        assert_allclose(again, each, rtol=1e-9, atol=1e-9)
    by_default = model.sample_states(ITEMS, 3)
    for paths, again in zip(by_default, model.sample_states(ITEMS, 3, random_state=model.random_state), strict=True):
        assert_array_equal(paths, again)
    with pytest.raises(ValueError, match="n is 0; pass at least 1"):
        model.sample_states(ITEMS, 0)


@pytest.mark.parametrize("name", MODELS)
def test_the_filter_knows_the_last_state_as_smoothing_does_and_no_frame_that_follows(name: str) -> None:
    model, (x, *_) = fitted(name), ITEMS
    beliefs = model.filter(ITEMS)
    for filtered, gamma in zip(beliefs, model.posterior(ITEMS), strict=True):
        assert_allclose(filtered[-1], gamma[-1], atol=1e-5)
    assert_allclose(model.filter([x[:9]])[0], beliefs[0][:9], atol=1e-5)
    past = sm.Sequences([x[9:]], past=[x[:9]])
    assert_allclose(model.filter(past)[0], beliefs[0][9:], atol=1e-5)
    assert_allclose(model.posterior(past)[0], model.posterior([x])[0][9:], atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_frame_has_the_path_and_its_probability_at_every_step(name: str) -> None:
    model = fitted(name)
    times = [np.arange(len(x)) * 0.5 for x in ITEMS]
    X = sm.Sequences(ITEMS, names=["a", "b", "c"], times=times, time_name="hour")
    frame = model.decode_frame(X, state_names=["low", "high"])
    assert frame.columns.tolist() == ["sequence", "name", "position", "hour", "state", "probability"]
    assert frame["name"].tolist() == ["a"] * 30 + ["b"] * 20 + ["c"] * 7
    assert frame["hour"].tolist() == np.concatenate(times).tolist()
    paths = np.concatenate(model.decode(X))
    assert frame["state"].tolist() == [("low", "high")[state] for state in paths]
    assert_allclose(frame["probability"], np.concatenate(model.posterior(X))[np.arange(57), paths])
    with pytest.raises(ValueError, match=r"state_names are \['low', 'low'\]; pass 2 different names"):
        model.decode_frame(X, state_names=["low", "low"])


@pytest.mark.parametrize("name", MODELS)
def test_a_summary_has_a_row_a_state_in_raw_units(name: str) -> None:
    model = fitted(name)
    summary = model.state_summary(state_names=["low", "high"])
    assert summary.index.tolist() == ["low", "high"]
    assert_allclose(summary["share"], model.stationary_)
    means, variances = model.means_, getattr(model, "covariances_", None)
    if variances is None:
        variances = np.tile(model.variances_, (2, 1))
    assert_allclose(summary["mean"], means.reshape(2))
    assert_allclose(summary["sd"], np.sqrt(variances.reshape(2)))
    if name != "continuous-time":
        stays = np.diag(model.transition_)
        expected = model.mean_durations_ if name == "semi-markov" else 1 / (1 - stays)
        assert_allclose(summary["mean_duration"], expected)


def test_a_summary_is_of_every_observation() -> None:
    chain = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.3, 0.7]]}
    symbols = sm.HMM.from_parameters(**chain, emission=[[0.9, 0.1], [0.2, 0.8]]).state_summary()
    assert symbols.columns.tolist() == ["share", "mean_duration", "p(0)", "p(1)"]
    assert_allclose(symbols.to_numpy(), [[0.75, 10, 0.9, 0.1], [0.25, 10 / 3, 0.2, 0.8]])
    mixture = {"weights": [[0.5, 0.5], [1, 0]], "means": [[[0], [4]], [[7], [0]]]}
    summary = sm.HMM.from_parameters(**chain, **mixture, covariances=np.ones((2, 2, 1))).state_summary()
    assert_allclose(summary[["mean", "sd"]], [[2, np.sqrt(5)], [7, 1]])
    counts = sm.Sequences([[[1.0, 0.0], [9.0, 1.0]] * 9], features=["n", "open"])
    columns = sm.observations.Columns([(sm.observations.Poisson(), 1), (sm.observations.Bernoulli(), 1)])
    fitted_counts = sm.HMM(2, observation=columns, max_iter=3, n_init=1).fit(counts)
    table = fitted_counts.state_summary()
    assert table.columns.tolist() == ["share", "mean_duration", "rates_n", "probabilities_open"]
    assert_allclose(table["rates_n"], fitted_counts.rates_[:, 0])
    regression = sm.HMM(2, observation=sm.AutoregressiveGaussian(2), max_iter=2, n_init=1).fit(ITEMS)
    table = regression.state_summary()
    assert table.columns.tolist()[2:] == ["intercept", "on_x(t-2)", "on_x(t-1)", "sd"]
    assert_allclose(table[["on_x(t-2)", "on_x(t-1)"]], regression.coefficients_[:, 0])
    assert_allclose(table["sd"], np.sqrt(regression.covariances_[:, 0, 0]))


@pytest.mark.parametrize("name", MODELS)
def test_criteria_are_of_the_log_likelihood_and_the_number_of_parameters(name: str) -> None:
    model = fitted(name)
    log_prob, k = model.log_prob(ITEMS).sum(), model.n_parameters_
    assert_allclose([model.aic(ITEMS), model.bic(ITEMS)], [2 * k - 2 * log_prob, np.log(57) * k - 2 * log_prob])
