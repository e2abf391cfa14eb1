"""Networks on bits and counts: where they start, what they read, and that training is stable from the first step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.neural.embedding_and_head import LogCounts
from seqmodels.observations import Bernoulli, Columns, GaussianMixture, Poisson


def counts(scale: float, n: int = 16) -> list[np.ndarray]:
    """Rates that drift about ``scale``."""
    rng = np.random.default_rng(0)
    drift = [np.cumsum(0.1 * rng.normal(size=(20, 2)), axis=0) for _ in range(n)]
    return [rng.poisson(scale * np.exp(z)).astype(float) for z in drift]


def rolls(n: int = 16) -> list[np.ndarray]:
    """Of many keys few sound, and those go on sounding."""
    rng = np.random.default_rng(0)
    return [np.repeat((rng.random((10, 40)) < 0.05).astype(float), 2, axis=0) for _ in range(n)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0, 3e4])
def test_counts_of_any_size_are_learned_from_the_first_step(scale: float) -> None:
    X = counts(scale)
    one = sm.HMM(1, observation=Poisson()).fit(X).score(X)
    model = sm.LSTM(d_model=16, max_steps=40, lr=3e-3, observation=Poisson()).fit(X, validation=None)
    history = model.history_["log_prob"]
    assert history.iloc[0] > one - 0.1 * abs(one)  # as good as independent counts, and then better
    assert model.score(X) > one
    assert (history.diff().dropna() > -0.1 * abs(one)).all()


def test_piano_rolls_are_learned_from_the_first_step() -> None:
    X = rolls()
    one = sm.HMM(1, observation=Bernoulli()).fit(X).score(X)
    model = sm.LSTM(d_model=16, max_steps=60, observation=Bernoulli()).fit(X, validation=None)
    assert model.history_["log_prob"].iloc[0] > one - 0.5
    assert model.score(X) > one + 1.0  # the frame before tells every other one


def test_a_new_network_predicts_the_mean_of_training_frames() -> None:
    X = [np.array([[0.0, 6.0, 1.0], [0.0, 2.0, 0.0]]), np.array([[0.0, 1.0, 1.0]])]
    observation = Columns([(Poisson(mean=2.0), 2), (Bernoulli(), 1)])
    start = observation.starting_point(3, torch.Generator())
    near = observation.starting_near(start, torch.tensor([0.0, 9.0, 2.0]), 3)
    # one more frame, of the prior's mean: nothing is impossible
    np.testing.assert_allclose(near[:2].exp(), [2 / 4, 11 / 4], rtol=1e-6)
    np.testing.assert_allclose(near[2].sigmoid(), 2.5 / 4, rtol=1e-6)
    model = sm.LSTM(d_model=4, max_steps=1, lr=1e-12, observation=observation, length="stop")
    model.fit(X, validation=None, sample_weight=[1.0, 1.0])
    np.testing.assert_allclose(model.module_.head.bias.detach()[:-1], near, rtol=1e-5)
    assert model.module_.head.bias.detach()[-1] == pytest.approx(-3.0)  # the end's is its own
    model.fit(X, validation=None, sample_weight=[1.0, 0.0])
    np.testing.assert_allclose(model.module_.head.bias.detach()[:2].exp(), [2 / 3, 10 / 3], rtol=1e-5)


def test_reals_start_where_they_did() -> None:
    mixture = GaussianMixture(2)
    start = mixture.starting_point(3, torch.Generator().manual_seed(0))
    assert torch.equal(mixture.starting_near(start, torch.ones(3), 5), start)


def test_counts_are_read_by_their_logarithm_and_nothing_else_is() -> None:
    frames = torch.tensor([[-3.0, 0.0, 1.0], [2.0, 99.0, 0.0]])
    found = LogCounts(("reals", "counts", "bits"))(frames)
    np.testing.assert_allclose(found, [[-3.0, 0.0, 1.0], [2.0, np.log(100.0), 0.0]], rtol=1e-6)
