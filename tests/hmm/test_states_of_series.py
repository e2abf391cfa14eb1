"""Under differences each frame has a state: the first ones, which have no difference, that of the first step."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

import seqmodels as sm
from seqmodels.encodings import Differences
from seqmodels.hmm import HSMM

N_INITIAL = 3
ITEMS = [np.cumsum(np.random.default_rng(i).normal(size=(n, 1)), axis=0) for i, n in enumerate((40, 8))]
SHORT = ITEMS[1:]  # of five steps
PATHS = [np.repeat(path, [1 + N_INITIAL, 1, 1, 1, 1]) for path in product((0, 1), repeat=5)]


def fitted(kind: str) -> sm.HMM | HSMM:
    options = {"encoding": Differences(1, 2), "observation": sm.GaussianMixture(1), "dtype": "float64", "max_iter": 5}
    model = sm.HMM(2, **options) if kind == "hmm" else HSMM(2, max_duration=4, **options)
    return model.fit(ITEMS)


@pytest.fixture(params=["hmm", "hsmm"])
def model(request: pytest.FixtureRequest) -> sm.HMM | HSMM:
    return fitted(request.param)


def test_paths_of_all_frames_add_up_to_the_probability_of_the_sequence(model: sm.HMM | HSMM) -> None:
    log_probs = [model.path_log_prob(SHORT, [path])[0] for path in PATHS]
    assert_allclose(logsumexp(log_probs), model.log_prob(SHORT)[0], atol=1e-9)
    (best,) = model.decode(SHORT)
    assert_array_equal(best, PATHS[int(np.argmax(log_probs))])
    ranked = model.decode(SHORT, k=3)[0]
    assert_allclose([path.log_prob for path in ranked], np.sort(log_probs)[::-1][:3], atol=1e-9)
    assert_allclose(model.path_log_prob(SHORT, [ranked[1].states])[0], ranked[1].log_prob, atol=1e-9)


def test_a_path_that_changes_among_the_first_frames_is_impossible(model: sm.HMM | HSMM) -> None:
    path = np.array([0, 1, *[1] * 6])
    assert model.path_log_prob(SHORT, [path])[0] == -np.inf
    with pytest.raises(ValueError, match="pass 8 integers"):
        model.path_log_prob(SHORT, [path[N_INITIAL:]])


def test_posteriors_and_draws_are_of_the_frames(model: sm.HMM | HSMM) -> None:
    log_probs = np.array([model.path_log_prob(SHORT, [path])[0] for path in PATHS])
    weights = np.exp(log_probs - logsumexp(log_probs))
    (posterior,) = model.posterior(SHORT)
    assert_allclose(posterior[:, 1], weights @ np.array(PATHS), atol=1e-9)
    assert_allclose(model.predict_proba(SHORT)[0], posterior, rtol=1e-12, atol=1e-12)
    (draws,) = model.sample_states(SHORT, 20)
    assert draws.shape == (20, 8)
    assert (draws[:, :N_INITIAL] == draws[:, [N_INITIAL]]).all()


def test_the_filter_knows_no_more_than_the_start_of_the_first_frames(model: sm.HMM | HSMM) -> None:
    (beliefs,) = model.filter(SHORT)
    stream = model.stream()
    for frame, belief in zip(SHORT[0], beliefs, strict=True):
        stream.update(frame)
        assert_allclose(stream.filtered, belief, atol=1e-9)
    assert_array_equal(beliefs[:N_INITIAL], [model.initial_] * N_INITIAL)
    assert_allclose(beliefs[-1], model.posterior(SHORT)[0][-1], atol=1e-9)
    after = sm.Sequences([ITEMS[0][2:]], past=[ITEMS[0][:2]])
    assert_allclose(model.posterior(after)[0], model.posterior(ITEMS)[0][2:], atol=1e-9)


def test_an_alignment_is_of_the_frames(model: sm.HMM | HSMM) -> None:
    labels = [0, 1] * 8
    (aligned,) = model.align(ITEMS[:1], [labels])
    assert aligned.starts[0] == 0
    assert aligned.ends[-1] == len(aligned.states) == 40
    assert_array_equal(aligned.states, np.repeat(labels, aligned.ends - aligned.starts))
    assert aligned.ends[0] > N_INITIAL
    assert_allclose(model.path_log_prob(ITEMS[:1], [aligned.states])[0], aligned.log_prob, atol=1e-9)


def test_states_ahead_are_forecast_and_their_changes_refused(model: sm.HMM | HSMM) -> None:
    (ahead,) = model.forecast_states(SHORT, 2)
    assert_allclose(ahead.states.sum(1), 1)
    with pytest.raises(ValueError, match="call forecast"):
        _ = ahead.mean
    with pytest.raises(ValueError, match="call forecast"):
        ahead.distribution()
