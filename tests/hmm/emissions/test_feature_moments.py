"""EM for densities of independent features: against a search of the maximum that knows nothing of EM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import optimize

import seqmodels as sm
from seqmodels.hmm.emissions import emission_of
from tests.inference.chains.enumeration import enumerate_paths
from tests.made import made
from tests.observations.independent_densities import DENSITIES, Density

every = pytest.mark.parametrize("density", DENSITIES, ids=str)


def hmm(density: Density, n_states: int, **options: Any) -> sm.HMM:
    return made(sm.HMM, n_states, observation=density.observation, **({"dtype": "float64", "n_init": 1} | options))


def best_log_prob(density: Density, x: np.ndarray, start: np.ndarray) -> float:
    """The highest mean log-probability of values ``(n,)`` of one feature, by Nelder and Mead's search over θ."""

    def loss(theta: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            twin = density.twin(theta)
            each = (twin.logpmf if density.is_discrete else twin.logpdf)(x)
            return float(-np.mean(each)) if np.isfinite(each).all() else np.inf

    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4000, "maxfev": 4000}
    return float(-optimize.minimize(loss, start, method="Nelder-Mead", options=options).fun)


@pytest.mark.quick_cases(1)
@every
def test_one_state_is_the_estimate_of_maximum_likelihood(density: Density) -> None:
    X = [density.draws(150, seed, 0) for seed in range(3)]
    model = hmm(density, 1, max_iter=300, tol=1e-10).fit(X)
    frames = np.concatenate(X) / [1.0, density.unit]
    theta = density.theta[0].numpy()
    expected = sum(best_log_prob(density, frames[:, d], theta[:, d]) for d in range(2)) - np.log(density.unit)
    assert model.score(X) == pytest.approx(expected, abs=1e-6)
    assert model.converged_


@pytest.mark.quick_cases(3)
@every
def test_em_never_goes_down_and_finds_the_states(density: Density) -> None:
    X = density.sequences(0)
    model = hmm(density, 2, max_iter=15, tol=0.0).fit(X)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    each = [np.concatenate(density.sequences(s)) for s in range(2)]
    assert len(each[0]) == 480
    held_out = density.sequences(1)
    one_state = hmm(density, 1, max_iter=15).fit(X)
    assert model.score(held_out) > one_state.score(held_out) + 0.1
    single = hmm(density, 2, max_iter=8, dtype="float32").fit(X)
    assert (np.diff(single.history_["objective"]) > -1e-6).all()
    assert single.score(X) == pytest.approx(hmm(density, 2, max_iter=8).fit(X).score(X), abs=1e-3)


@every
def test_missing_values_are_left_out_of_the_sums(density: Density) -> None:
    emission = emission_of(density.observation, 2)
    x = torch.as_tensor(density.sequences(0, n=1)[0] / [1.0, density.unit])
    gamma = torch.rand(len(x), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with_holes = x.clone()
    with_holes[::3, 0] = torch.nan
    whole = emission.maximise(emission.statistics(density.table, with_holes, None, gamma), density.table)
    for d, rows in ((0, ~torch.isnan(with_holes[:, 0])), (1, torch.ones(len(x), dtype=torch.bool))):
        alone = emission_of(density.observation, 1)
        table = density.theta[..., d]
        (sums,) = alone.statistics(table, x[rows][:, d : d + 1], None, gamma[rows])
        assert_allclose(alone.maximise((sums,), table), whole.unflatten(1, (-1, 2))[..., d], rtol=1e-9, atol=1e-12)
    # Sums of parts add up, and states without frames stay.
    parts = zip(with_holes.split(30), gamma.split(30), strict=True)
    summed = sum(emission.statistics(density.table, part, None, weights)[0] for part, weights in parts)
    assert_allclose(summed, emission.statistics(density.table, with_holes, None, gamma)[0], rtol=1e-12)
    gamma[:, 1] = 0
    still = emission.maximise(emission.statistics(density.table, with_holes, None, gamma), density.table)
    assert torch.equal(still[1], density.table[1])


@every
def test_log_probs_are_summed_over_paths_and_saved(density: Density, tmp_path: Path) -> None:
    model = hmm(density, 2, max_iter=3).fit(density.sequences(0))
    x = density.sequences(1, n=1)[0][:6]
    table = model.parameters_.table
    b = model.observation_.log_prob(table, torch.as_tensor(model.encoding_.encode(x)).unsqueeze(1)).exp().numpy()
    expected = enumerate_paths(model.initial_, model.transition_, b, None).log_prob
    assert_allclose(model.log_prob([x])[0], expected + model.encoding_.log_det(x).sum(), rtol=1e-10)
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert_allclose(loaded.log_prob([x]), model.log_prob([x]), rtol=1e-12)
    names = emission_of(density.observation, 2).raw_parameters(table, *model.encoding_.affine())
    for name, value in names.items():
        assert_allclose(getattr(loaded, name), value)


@pytest.mark.quick_cases(2)
@every
def test_it_is_tied_trained_by_gradient_and_stands_beside_others(density: Density) -> None:
    X = density.sequences(0, n=3)
    tied = hmm(density, 4, training__tied=[0, 0, 1, 1], max_iter=3).fit(X)
    assert torch.equal(tied.parameters_.table[0], tied.parameters_.table[1])
    by_gradient = hmm(density, 2, algorithm="gradient", max_iter=3).fit(X)
    assert np.isfinite(by_gradient.score(X))
    beside = sm.Columns([(density.observation, 1), (sm.GaussianMixture(1), 1)])
    noise = np.random.default_rng(0)
    both = [np.stack([x[:, 0], noise.normal(size=len(x))], 1) for x in X]
    assert np.isfinite(sm.HMM(2, observation=beside, max_iter=3).fit(both).score(both))
