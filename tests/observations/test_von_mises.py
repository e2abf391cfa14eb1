"""The von Mises density: narrow and broad ones, the period, and which angles are taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import special, stats

import seqmodels as sm
from seqmodels.observations import VonMises
from seqmodels.observations.special_functions import concentration_of_von_mises

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kappa", [1e-6, 0.3, 50.0, 9_999.0])
def test_broad_and_narrow_densities(kappa: float) -> None:
    row = torch.tensor([kappa * np.cos(3.0), kappa * np.sin(3.0)], dtype=torch.float64)
    x = torch.tensor([[3.0], [-3.1], [np.pi], [-np.pi], [0.4]], dtype=torch.float64)
    found = VonMises().log_prob(row, x)
    assert_allclose(found, stats.vonmises(kappa, 3.0).logpdf(x[:, 0]), rtol=1e-10)
    assert found[2] == pytest.approx(float(found[3]), rel=1e-12)
    drawn = VonMises().sample(row.expand(20_000, 2), None, torch.Generator().manual_seed(0))
    assert float(drawn.abs().max()) <= np.pi
    length = special.i1e(kappa) / special.i0e(kappa)  # of the mean resultant
    assert float((drawn - 3.0).cos().mean()) == pytest.approx(length, abs=3 * (1 - length) / 100 + 2e-2 * (kappa < 1))


def test_the_ratio_of_bessel_functions_is_inverted() -> None:
    kappa = torch.tensor([1e-8, 1e-3, 0.5, 3.0, 100.0, 5_000.0], dtype=torch.float64)
    ratio = torch.as_tensor(special.ive(1, kappa.numpy()) / special.ive(0, kappa.numpy()))
    assert_allclose(concentration_of_von_mises(ratio, 1e4), kappa, rtol=1e-7)
    assert concentration_of_von_mises(torch.ones(1, dtype=torch.float64), 1e4).item() == 1e4


def test_states_across_the_seam_and_angles_that_are_refused() -> None:
    """The first state's angles lie on both sides of ±π, where a Gaussian would have two."""
    states = [np.repeat(RNG.integers(0, 2, 10), 8) for _ in range(5)]
    X = [stats.vonmises.rvs(8.0, np.where(z == 0, np.pi, 0.5), random_state=RNG)[:, None] for z in states]
    model = sm.HMM(2, observation=VonMises(), n_init=2).fit(X)
    order = np.argsort(np.cos(model.locations_[:, 0]))
    assert np.cos(model.locations_[order[0], 0]) < -0.98
    assert model.locations_[order[1], 0] == pytest.approx(0.5, abs=0.1)
    assert_allclose(model.concentrations_, 8.0, rtol=0.3)
    with pytest.raises(ValueError, match="at frame 1, feature 0, which must be an angle in radians, from -π to π"):
        model.score([np.array([[0.1], [6.0]])])
    assert np.isfinite(model.score([np.array([[np.pi], [-np.pi]], dtype=np.float32)]))


@pytest.mark.filterwarnings("ignore:feature 0 is 1")
def test_the_m_step_is_exact_at_the_floor() -> None:
    X = [np.concatenate([np.full((40, 1), 1.0), RNG.uniform(-3, 3, (40, 1))]) for _ in range(3)]
    model = sm.HMM(2, observation=VonMises(0.05), max_iter=40, tol=0.0, n_init=1, dtype="float64")
    with pytest.warns(UserWarning, match="floor of the scales, min_scale=0.05"):
        model.fit(X)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert model.concentrations_.max() == pytest.approx(400.0)
