from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.hmm.hidden_states import HiddenStateModel

RNG = np.random.default_rng(0)
ITEMS = [RNG.normal(size=(n, 1)) + 3 * (np.arange(n)[:, None] // 5 % 2) for n in (30, 20, 7)]
MODELS: dict[str, Callable[[], HiddenStateModel]] = {
    "hmm": lambda: sm.HMM(2, observation=sm.GaussianMixture(1), max_iter=3, n_init=1),
    "semi-markov": lambda: sm.hmm.HSMM(2, observation=sm.GaussianMixture(1), max_iter=3, n_init=1),
    "markov-switching-ar": lambda: sm.hmm.MarkovSwitchingAR(2, order=1, max_iter=3, n_init=1),
    "continuous-time": lambda: sm.hmm.ContinuousTimeHMM(2, observation=sm.GaussianMixture(1), max_iter=3, n_init=1),
}


@cache
def fitted(name: str) -> HiddenStateModel:
    return MODELS[name]().fit(ITEMS)


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
def test_criteria_are_of_the_log_likelihood_and_the_number_of_parameters(name: str) -> None:
    model = fitted(name)
    log_prob, k = model.log_prob(ITEMS).sum(), model.n_parameters_
    assert_allclose([model.aic(ITEMS), model.bic(ITEMS)], [2 * k - 2 * log_prob, np.log(57) * k - 2 * log_prob])
