"""The beta density: its M-step at and within the floor, and values near the edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

import seqmodels as sm
from seqmodels.observations import Beta
from seqmodels.observations.special_functions import log_beta, shapes_of_beta

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shapes", [(0.02, 0.03), (0.5, 200.0), (3.0, 5.0), (4_000.0, 1_500.0), (9_000.0, 0.5)])
def test_the_most_likely_shapes_are_found(shapes: tuple[float, float]) -> None:
    s = torch.tensor(shapes, dtype=torch.float64)
    averages = (torch.digamma(s) - torch.digamma(s.sum())).view(2, 1)
    assert_allclose(shapes_of_beta(averages, 1e-2, 1e4)[:, 0], s, rtol=1e-6)
    x = np.array([0.01, 0.3, 0.9])
    expected = stats.beta(*shapes).logpdf(x)
    assert_allclose(Beta().log_prob(s.log(), torch.as_tensor(x)[:, None]), expected, rtol=1e-9)
    # On the edge of a smaller floor, no other pair of the same sum is more likely.
    edge = shapes_of_beta(averages, 1e-2, 0.9 * sum(shapes))[:, 0]
    assert float(edge.sum()) == pytest.approx(0.9 * sum(shapes))

    def likelihood(move: float) -> float:
        a, b = edge + torch.tensor([1.0, -1.0], dtype=torch.float64) * move * edge.min()
        return float(a * averages[0, 0] + b * averages[1, 0] - log_beta(a, b))

    assert likelihood(0.0) >= max(likelihood(1e-3), likelihood(-1e-3))


def test_shapes_are_found_to_all_digits() -> None:
    """Among likelihoods that rounding makes equal, too."""
    shapes = torch.tensor(np.exp(np.random.default_rng(0).uniform(-4.0, 4.0, (40, 2, 3))))
    averages = torch.digamma(shapes) - torch.digamma(shapes.sum(1, keepdim=True))
    assert_allclose(shapes_of_beta(averages, 1e-2, 1e4), shapes, rtol=1e-11)


def test_values_at_the_edges_are_refused_and_near_them_finite() -> None:
    X = [RNG.beta(2.0, 5.0, (60, 1)) for _ in range(3)]
    model = sm.HMM(1, observation=Beta(), dtype="float64").fit(X)
    assert model.encoding_.scale.tolist() == [1.0]
    with pytest.raises(ValueError, match="which must be above 0 and below 1"):
        model.score([np.array([[0.5], [1.0]])])
    near = [np.array([[1e-300], [1 - 1e-16], [1e-9]])]
    assert np.isfinite(model.score(near))
    assert np.isfinite(sm.HMM(1, observation=Beta()).fit(X).score(near))
    a, b = stats.beta.fit(np.concatenate(X), floc=0, fscale=1)[:2]
    assert_allclose([model.a_[0, 0], model.b_[0, 0]], [a, b], rtol=1e-4)


@pytest.mark.filterwarnings("ignore:feature 0 is 0.3")
def test_the_m_step_is_exact_at_the_floor() -> None:
    X = [np.concatenate([np.full((40, 1), 0.3), RNG.uniform(size=(40, 1))]) for _ in range(3)]
    model = sm.HMM(2, observation=Beta(0.05), max_iter=10, tol=0.0, n_init=1, dtype="float64")
    with pytest.warns(UserWarning, match="floor of the scales, min_scale=0.05"):
        model.fit(X)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert (model.a_ + model.b_).max() == pytest.approx(400.0)
