"""Pooled variances: the mean of those of all states, by frames; which models may have them."""

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.encodings import Standardize
from seqmodels.wrappers.classification.pooled_variances import can_pool, pooled_variances, pooling_model


def two_labels() -> tuple[sm.Sequences, np.ndarray]:
    rng, index = np.random.default_rng(0), np.array([0, 1] * 6)
    return sm.Sequences([rng.normal(3 * i, 1 + i, size=(10 + 10 * i, 2)) for i in index]), index


def test_of_one_state_they_are_the_variances_within_labels() -> None:
    x, index = two_labels()
    groups = [x.take(index == label) for label in (0, 1)]
    one = sm.HMM(1, observation=sm.GaussianMixture(1))
    frames = [np.concatenate(list(group)) for group in groups]
    expected = sum(len(each) * each.var(axis=0) for each in frames) / sum(map(len, frames))
    pooled = pooled_variances([one.clone().fit(group) for group in groups], groups)
    np.testing.assert_allclose(pooled, expected, rtol=1e-6)


def test_states_have_hardly_variances_of_their_own() -> None:
    x, index = two_labels()
    model = sm.HMM(2)
    encoding = model.clone().learned_encoding(x)
    assert isinstance(encoding, Standardize)
    pooling = pooling_model(model, encoding, x, index)
    assert model.observation == "auto"
    fits = [pooling.clone().fit_encoded(encoding, x.take(index == label)) for label in (0, 1)]
    variances = np.concatenate([each.covariances_[:, 0] for each in fits])
    pooled = pooling.observation.prior.covariance * np.asarray(encoding.scale) ** 2
    np.testing.assert_allclose(variances, np.broadcast_to(pooled, variances.shape), rtol=0.3)


@pytest.mark.parametrize(
    "model",
    [sm.HMM(2, observation=sm.GaussianMixture(1)), sm.HMM(2, algorithm="gradient"), sm.LSTM()],
    ids=["observation", "gradient", "lstm"],
)
def test_what_is_named_or_fitted_otherwise_is_left_alone(model: sm.SequenceModel) -> None:
    assert not can_pool(model)
    assert can_pool(sm.HMM(2, topology="left-to-right"))
