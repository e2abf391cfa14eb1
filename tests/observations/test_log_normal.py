"""The log-normal density: of logarithms a Gaussian's figures."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.observations import LogNormal

RNG = np.random.default_rng(0)
LOGS = [RNG.normal([[2.0, -1.0]] if i % 2 else [[0.0, 3.0]], 0.5, (50, 2)) for i in range(6)]


def test_it_is_a_gaussian_of_logarithms() -> None:
    X = [np.exp(x) for x in LOGS]
    model = sm.HMM(1, observation=LogNormal(), dtype="float64").fit(X)
    gaussian = sm.HMM(1, observation=sm.GaussianMixture(1), dtype="float64").fit(LOGS)
    frames = np.concatenate(LOGS)
    assert model.score(X) == pytest.approx(gaussian.score(LOGS) - frames.sum(1).mean(), abs=1e-9)
    assert model.locations_[0] == pytest.approx(frames.mean(0))
    assert model.scales_[0] == pytest.approx(frames.std(0))


@pytest.mark.filterwarnings("ignore:feature 0 is 3")
def test_the_m_step_is_exact_at_the_floor() -> None:
    X = [np.concatenate([np.full((40, 1), 3.0), np.exp(RNG.normal(size=(40, 1)))]) for _ in range(3)]
    model = sm.HMM(2, observation=LogNormal(0.05), max_iter=40, tol=0.0, n_init=1, dtype="float64")
    with pytest.warns(UserWarning, match="floor of the scales, min_scale=0.05"):
        model.fit(X)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert model.scales_.min() == pytest.approx(0.05)
