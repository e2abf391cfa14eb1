"""An emission of one's own: a gamma density fitted by EM, in one file, named once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from torch import Tensor

import seqmodels as sm
from seqmodels.hmm.emissions import Emission, Statistics, emission_of
from tests.inference.chains.enumeration import enumerate_paths
from tests.made import made
from tests.observations.test_own_observation import Gamma

# -- the recipe: the emission by which EM fits an observation of one's own -------------------------------------------


@emission_of.register(Gamma)
class GammaEmission(Emission):
    """Statistics: ``Σ γ x``, ``Σ γ log x`` and ``Σ γ`` (Minka 2002, *Estimating a gamma distribution*)."""

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        features = torch.cat([x, x.log(), torch.ones_like(x[:, :1])], 1)
        return (gamma.T.double() @ features.double(),)

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        sums, count = statistics[0][:, :-1], statistics[0][:, -1:]
        mean, mean_log = (sums / count.clamp(min=1e-300)).chunk(2, dim=1)
        s = mean.log() - mean_log  # = log k - ψ(k)
        shape = (3 - s + ((s - 3) ** 2 + 24 * s).sqrt()) / (12 * s)
        for _ in range(20):  # Newton's method
            slope = 1 / shape - torch.polygamma(1, shape)
            shape = shape - (shape.log() - torch.digamma(shape) - s) / slope
        visited = count > 1e-10  # a state that no frame belongs to stays where it is
        return torch.where(visited, torch.cat([shape.log(), (shape / mean).log()], 1), table)

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        shape, rate = table.exp().cpu().numpy().reshape(len(table), 2, -1).swapaxes(0, 1)
        return {"shapes_": shape, "rates_": rate / scale}


# -- what it is held to ----------------------------------------------------------------------------------------

SHAPES, RATES = np.array([[2.0, 9.0], [20.0, 1.5]]), np.array([[0.1, 3.0], [4.0, 0.05]])


def sequences(seed: int, n: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    states = [np.repeat(rng.integers(2, size=20), 6) for _ in range(n)]
    return [rng.gamma(SHAPES[z], 1 / RATES[z]) for z in states]


@pytest.fixture(scope="module")
def model() -> sm.HMM:
    reader = sm.Standardize(with_mean=False)
    options: dict[str, Any] = {"observation": Gamma(), "encoding": reader, "dtype": "float64", "tol": 0.0}
    return made(sm.HMM, 2, max_iter=30, **options).fit(sequences(0))


def test_em_never_goes_down_and_finds_the_parameters(model: sm.HMM) -> None:
    objective = model.history_["objective"].to_numpy()
    assert (np.diff(objective) > -1e-12).all()
    order = np.argsort(model.shapes_[:, 0])
    assert_allclose(model.shapes_[order], SHAPES, rtol=0.35)
    assert_allclose((model.shapes_ / model.rates_)[order], SHAPES / RATES, rtol=0.15)


def test_log_probs_are_scipys_summed_over_paths(model: sm.HMM) -> None:
    x = sequences(1, n=1)[0][:6]
    b = np.stack(
        [stats.gamma.pdf(x, k, scale=1 / r).prod(1) for k, r in zip(model.shapes_, model.rates_, strict=True)], axis=1
    )
    expected = enumerate_paths(model.initial_, model.transition_, b, None)
    assert_allclose(model.log_prob([x])[0], expected.log_prob, rtol=1e-10)
    assert model.decode([x])[0].tolist() == list(expected.best_path)


def test_it_is_tied_mixed_with_others_trained_by_gradient_and_saved(model: sm.HMM, tmp_path: Path) -> None:
    x = sequences(2, n=3)
    reader = sm.Standardize(with_mean=False)
    tied = sm.HMM(
        4, observation=Gamma(), encoding=reader, training=sm.hmm.ChainTraining(tied=[0, 0, 1, 1]), max_iter=3
    ).fit(x)
    assert_allclose(tied.shapes_[0], tied.shapes_[1])
    beside = sm.Columns([(Gamma(), 1), (sm.GaussianMixture(1), 1)])
    assert np.isfinite(sm.HMM(2, observation=beside, encoding=reader, max_iter=3).fit(x).score(x))
    by_gradient = sm.HMM(2, observation=Gamma(), encoding=reader, algorithm="gradient", max_iter=3).fit(x)
    assert np.isfinite(by_gradient.score(x))
    with pytest.warns(UserWarning, match="Gamma"):
        model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model", classes=[Gamma])
    assert_allclose(loaded.log_prob(x), model.log_prob(x), rtol=1e-11)
