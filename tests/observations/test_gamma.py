"""The gamma density: its floor, its limits, and how values above 0 are encoded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

import seqmodels as sm
from seqmodels.observations import Gamma, ZeroInflated

RNG = np.random.default_rng(0)
X = [RNG.gamma(3.0, 20.0, (40, 2)) for _ in range(6)]


def test_values_are_scaled_and_not_shifted_and_compared_with_other_densities() -> None:
    model = sm.HMM(2, observation=Gamma(), max_iter=5).fit(X)
    assert model.encoding_.mean.tolist() == [0.0, 0.0]
    assert_allclose(model.encoding_.scale, np.concatenate(X).std(0))
    table = sm.compare({"gamma": model, "gaussian": sm.HMM(2, max_iter=5).fit(X)}, X, baseline="gaussian")
    assert len(table.frame) == 2
    with pytest.raises(ValueError, match="sequence 0 has 0 at frame 2, feature 1, which must be above 0; mark"):
        model.score([np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 0.0]])])
    mixed = sm.Columns([(Gamma(), 1), (sm.GaussianMixture(1), 1)])
    assert sm.HMM(2, observation=mixed, max_iter=3).fit(X).measure_.space == "R^2"


def test_one_state_is_scipys_fit() -> None:
    model = sm.HMM(1, observation=Gamma(), dtype="float64").fit(X)
    for d, x in enumerate(np.concatenate(X).T):
        shape, _, scale = stats.gamma.fit(x, floc=0)
        assert_allclose([model.shapes_[0, d], model.rates_[0, d]], [shape, 1 / scale], rtol=1e-5)


def test_large_and_small_shapes_keep_their_digits() -> None:
    x = torch.tensor([[0.9], [1.0], [1.2]], dtype=torch.float64)
    for shape in (0.02, 19.9, 20.1, 9_999.0):
        row = torch.tensor([np.log(shape), 0.1], dtype=torch.float64)
        twin = stats.gamma(shape, scale=np.exp(0.1) / shape)
        assert_allclose(Gamma().log_prob(row, x), twin.logpdf(x[:, 0]), rtol=1e-10)
    tiny = torch.tensor([[1e-300], [1e300]], dtype=torch.float64)
    assert Gamma().log_prob(torch.tensor([0.5, 0.1], dtype=torch.float64), tiny).isfinite().all()


@pytest.mark.filterwarnings("ignore:feature 0 is 3")
def test_the_m_step_is_exact_at_the_floor_and_the_hit_is_counted() -> None:
    repeated = [np.concatenate([np.full((40, 1), 3.0), RNG.gamma(1.0, size=(40, 1))]) for _ in range(3)]
    model = sm.HMM(2, observation=Gamma(0.05), max_iter=40, tol=0.0, n_init=1, dtype="float64")
    with pytest.warns(UserWarning, match="floor of the scales, min_scale=0.05"):
        model.fit(repeated)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert model.history_["floor_hits"].iloc[-1] == 1
    assert model.shapes_.max() == pytest.approx(400.0)


def test_two_columns_have_the_likelihood_of_a_zero_inflated_gamma_distribution() -> None:
    rng = np.random.default_rng(0)
    moved, amount = rng.uniform(size=200) < 0.7, rng.gamma(2.0, 3.0, size=200)
    track = np.where(moved, amount, 0.0)[:, None]
    with pytest.raises(ValueError, match=r"0 at frame .* must be above 0.* of its own: observations.ZeroInflated"):
        sm.HMM(1, observation=Gamma()).fit([track])
    both = [np.column_stack([moved, np.where(moved, amount, np.nan)])]
    model = sm.HMM(1, observation=sm.Columns([(sm.Bernoulli(), 1), (Gamma(), 1)]), random_state=0).fit(both)
    p, shape, rate = (float(each[0, 0]) for each in (model.probabilities_, model.shapes_, model.rates_))
    of_amounts = stats.gamma(shape, scale=1 / rate).logpdf(amount)
    expected = np.where(moved, np.log(p) + of_amounts, np.log1p(-p)).sum()
    assert model.log_prob(both)[0] == pytest.approx(expected, rel=1e-6)
    inflated = sm.HMM(1, observation=ZeroInflated(Gamma()), random_state=0).fit([track])
    assert inflated.log_prob([track])[0] == pytest.approx(expected, rel=1e-5)
