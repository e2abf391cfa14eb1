"""Questions about states of an HSMM, on whole models: against an HMM where it is one, and against closed forms."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import seqmodels as sm

Array = NDArray[np.float64]
RNG = np.random.default_rng(0)
X = [
    np.repeat(RNG.permutation(3), RNG.integers(2, 6, 3)).astype(float)[:, None] + 0.7 * RNG.normal(size=(1, 1))
    for _ in range(4)
]
X = [each + 0.5 * RNG.normal(size=each.shape) for each in X]
SYMBOLS = [np.array([0, 0, 1, 1, 1, 0, 2]), np.array([1, 0, 0, 2])]
CHAIN: dict[str, Any] = {
    "initial": [0.5, 0.3, 0.2],
    "transition": [[0.0, 0.6, 0.4], [0.7, 0.0, 0.3], [0.5, 0.5, 0.0]],
    "means": [[0.0], [1.0], [2.0]],
    "covariances": [[0.3], [0.5], [0.4]],
}
GEOMETRIC = {**CHAIN, "transition": [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]]}
DURATIONS = np.array([[0.1, 0.2, 0.4, 0.3], [0.5, 0.0, 0.5, 0.0], [0.25, 0.25, 0.25, 0.25]])
ENDS: dict[str, Any] = {
    "transition": [[0.0, 0.6, 0.2], [0.7, 0.0, 0.1], [0.5, 0.3, 0.0]],
    "final": [0.2, 0.2, 0.2],
}


def pair() -> tuple[sm.hmm.HSMM, sm.HMM]:
    """The same distribution twice."""
    return sm.hmm.HSMM.from_parameters(**GEOMETRIC), sm.HMM.from_parameters(**GEOMETRIC, dtype="float64")


def test_paths_of_geometric_durations_are_those_of_an_hmm() -> None:
    found, expected = pair()
    for ours, theirs in zip(found.decode(X, k=6), expected.decode(X, k=6), strict=True):
        assert_allclose([p.log_prob for p in ours], [p.log_prob for p in theirs], rtol=0, atol=1e-10)
        assert_array_equal([p.states for p in ours], [p.states for p in theirs])
    paths = expected.decode(X)
    assert_allclose(found.path_log_prob(X, paths), expected.path_log_prob(X, paths), rtol=0, atol=1e-10)
    labels: list[Any] = [[0, (1, 2)], [2, 0], [1, (0, 2)], [0, 1, 2]]
    for ours, theirs in zip(found.align(X, labels), expected.align(X, labels), strict=True):
        assert_array_equal(ours.starts, theirs.starts)
        assert_array_equal(ours.states, theirs.states)
        assert_allclose(ours.log_prob, theirs.log_prob, rtol=0, atol=1e-10)


@pytest.mark.parametrize("final", [None, [0.1, 0.2, 0.1]])
def test_forecasts_of_geometric_durations_are_those_of_an_hmm(final: Any) -> None:
    chain = dict(GEOMETRIC)
    if final is not None:
        chain["transition"] = np.array(chain["transition"]) * (1 - np.array(final))[:, None]
    found = sm.hmm.HSMM.from_parameters(**chain, final=final).forecast_states(X, 4)
    expected = sm.HMM.from_parameters(**chain, final=final, dtype="float64").forecast_states(X, 4)
    for ours, theirs in zip(found, expected, strict=True):
        assert_allclose(ours.states, theirs.states, rtol=0, atol=1e-12)
        assert_allclose(ours.survival, theirs.survival, rtol=0, atol=1e-12)
        assert_allclose(ours.mean, theirs.mean, rtol=0, atol=1e-12)
        assert_allclose(ours.distribution(3).mean, theirs.distribution(3).mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("left_censored", [False, True])
@pytest.mark.parametrize("options", [{}, ENDS])
def test_forecasts_are_the_posterior_of_longer_sequences(options: dict[str, Any], left_censored: bool) -> None:
    """Of two missing steps at the end ``filter`` says what the forecast does; where ends are events, given none yet."""
    model = sm.hmm.HSMM.from_parameters(**{**CHAIN, **options}, durations=DURATIONS, left_censored=left_censored)
    longer = [np.concatenate([each, np.full((3, 1), np.nan)]) for each in X]
    for forecast, belief, each in zip(model.forecast_states(X, 3), model.filter(longer), X, strict=True):
        assert_allclose(forecast.states, belief[len(each) :], rtol=0, atol=1e-12)
        if options:
            stream = model.stream()
            for step in each:
                stream.update(step)
            assert_allclose(forecast.survival[0], 1 - np.exp(model.log_prob_steps([each])[0][-1]), rtol=0, atol=1e-12)
            assert (np.diff(forecast.survival) < 0).all()
        else:
            assert_array_equal(forecast.survival, 1.0)


def test_means_of_an_autoregression_ahead_are_those_of_draws() -> None:
    rng = np.random.default_rng(1)
    x = [np.cumsum(rng.normal(size=(60, 1)), 0) * 0.3 + np.repeat([0, 4.0, 0], 20)[:, None] for _ in range(4)]
    observation = sm.AutoregressiveGaussian(2)
    model = sm.hmm.HSMM(2, durations="poisson", max_duration=9, max_iter=3, n_init=1, observation=observation).fit(x)
    (forecast,) = model.forecast_states(x[:1], 4)
    draws = np.stack([each[60:] for each in model.sample(3000, length=4, prefix=x[0], random_state=0)])
    assert_allclose(forecast.mean, draws.mean(0), rtol=0, atol=4.5 * draws.std(0).max() / np.sqrt(3000))
    like = sm.hmm.HSMM(2, durations="geometric", max_iter=3, n_init=1, observation=observation).fit(x)
    hmm = sm.HMM(2, max_iter=1, n_init=1, observation=observation, encoding=sm.Standardize(), dtype="float64").fit(x)
    hmm.parameters_ = like.parameters_
    for ours, theirs in zip(like.forecast_states(x, 5), hmm.forecast_states(x, 5), strict=True):
        assert_allclose(ours.mean, theirs.mean, rtol=1e-10)


def test_a_path_of_given_durations_has_its_probability_in_raw_units() -> None:
    model = sm.hmm.HSMM.from_parameters(**CHAIN, durations=DURATIONS)
    x = np.array([[0.1], [0.2], [0.9], [1.8]])
    densities = [
        sm.HMM.from_parameters([1.0], [[1.0]], means=[m], covariances=[v]).log_prob([x[at]])[0]
        for m, v, at in (([0.0], [0.3], [0, 1]), ([1.0], [0.5], [2]), ([2.0], [0.4], [3]))
    ]
    expected = np.log(0.5 * 0.2 * 0.6 * 0.5 * 0.3 * 1.0) + sum(densities)
    assert_allclose(model.path_log_prob([x], [[0, 0, 1, 2]]), expected, rtol=1e-7)
    assert np.isneginf(model.path_log_prob([x], [[1, 1, 0, 2]])[0])  # state 1 lasts one step or three
    assert_allclose(model.path_log_prob([x, x], model.decode([x, x])), model.decode([x], k=1)[0][0].log_prob)


def test_shares_of_steps_are_those_of_the_chain_of_states_with_the_steps_that_are_left() -> None:
    model = sm.hmm.HSMM.from_parameters(**CHAIN, durations=DURATIONS)
    k, longest = DURATIONS.shape
    moves = np.zeros((k, longest, k, longest))  # to each state with 0 .. longest - 1 steps left
    for i, left in itertools.product(range(k), range(1, longest)):
        moves[i, left, i, left - 1] = 1.0
    moves[:, 0] = np.array(CHAIN["transition"])[:, :, None] * DURATIONS
    flow = moves.reshape(k * longest, -1).T - np.eye(k * longest)
    shares = np.linalg.lstsq(np.vstack([flow, np.ones(k * longest)]), np.append(np.zeros(k * longest), 1.0))[0]
    assert_allclose(model.stationary_, shares.reshape(k, longest).sum(1), rtol=1e-10)


def test_all_paths_together_are_the_sequence() -> None:
    model = sm.hmm.HSMM.from_parameters(
        **{name: CHAIN[name] for name in ("initial", "transition")},
        durations=DURATIONS,
        emission=[[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]],
    )
    for paths, log_prob in zip(model.decode(SYMBOLS, k=5000), model.log_prob(SYMBOLS), strict=True):
        assert len(paths) < 5000
        assert_allclose(np.logaddexp.reduce([path.log_prob for path in paths]), log_prob, rtol=0, atol=1e-12)


def test_what_cannot_be_aligned_or_decoded_is_refused() -> None:
    model = sm.hmm.HSMM.from_parameters(**CHAIN, durations=DURATIONS)
    with pytest.raises(ValueError, match="no path of sequence 1 goes through its labels"):
        model.align([X[0], np.zeros((5, 1))], [[0, 1, 2], [0]])  # a state lasts four steps at most
    with pytest.raises(ValueError, match="k is 0"):
        model.decode(X, k=0)
    with pytest.raises(ValueError, match="k is 0; pass at least 1"):
        model.forecast_states(X, 0)
    with pytest.raises(ValueError, match="states from 0 to 3"):
        model.path_log_prob([np.zeros((2, 1))], [[0, 3]])


def test_targets_count_too() -> None:
    """Of pairs the states are of x and then y."""
    pairs = [each[:3] for each in X], [each[3:] for each in X]
    model = sm.hmm.HSMM(2, max_duration=5, max_iter=2, n_init=1, observation=sm.GaussianMixture(1)).fit(*pairs)
    best = model.decode(*pairs, k=1)
    paths = model.decode(*pairs)
    assert [len(path) for path in paths] == [len(each) for each in X]
    assert_allclose(model.path_log_prob(pairs[0], paths, pairs[1]), [each[0].log_prob for each in best])
    assert model.forecast_states(pairs[0], 2, y=pairs[1])[0].states.shape == (2, 2)
