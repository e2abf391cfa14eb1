"""The t density: its limits, its floor, and what it is for: outliers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

import seqmodels as sm
from seqmodels.observations import StudentT
from seqmodels.observations.special_functions import log_gamma_step, shape_of_gamma

RNG = np.random.default_rng(0)


def test_many_degrees_of_freedom_are_a_gaussian_and_far_values_are_finite() -> None:
    row = torch.tensor([0.5, 0.3, 40.0], dtype=torch.float64)  # e^40, of which 1e6 are left
    x = torch.tensor([[-2.0], [0.5], [4.0]], dtype=torch.float64)
    assert_allclose(StudentT().log_prob(row, x), stats.norm(0.5, np.exp(0.3)).logpdf(x[:, 0]), atol=1e-4)
    heavy = torch.tensor([0.0, 0.0, 0.0], dtype=torch.float64)  # Cauchy
    far = torch.tensor([[1e30], [1e200]], dtype=torch.float64)
    assert_allclose(StudentT().log_prob(heavy, far), -np.log(np.pi) - 2 * far[:, 0].log(), rtol=1e-12)


def test_one_outlier_moves_a_gaussian_and_not_this() -> None:
    X = [RNG.normal(10.0, 1.0, (100, 1)) for _ in range(4)]
    X[1][7] = 500.0
    robust = sm.HMM(1, observation=StudentT(), max_iter=200).fit(X)
    assert robust.locations_[0, 0] == pytest.approx(10.0, abs=0.2)
    assert robust.scales_[0, 0] == pytest.approx(1.0, abs=0.2)
    assert sm.HMM(1, observation=sm.GaussianMixture(1)).fit(X).means_[0, 0, 0] > 11.0


@pytest.mark.filterwarnings("ignore:feature 0 is 3")
def test_the_m_step_is_exact_at_the_floor_and_the_hit_is_counted() -> None:
    X = [np.concatenate([np.full((40, 1), 3.0), RNG.normal(size=(40, 1))]) for _ in range(3)]
    model = sm.HMM(2, observation=StudentT(0.05), max_iter=60, tol=0.0, n_init=1, dtype="float64")
    with pytest.warns(UserWarning, match=r"1 state\(s\) ended on the floor of the scales, min_scale=0.05"):
        model.fit(X)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert model.history_["floor_hits"].iloc[-1] == 1
    assert model.scales_.min() == pytest.approx(0.05 * model.encoding_.scale[0])


def test_tempered_is_the_power_of_the_density() -> None:
    row = torch.tensor([1.0, 0.5, np.log(4.0)], dtype=torch.float64)
    x = torch.linspace(-5, 5, 11, dtype=torch.float64).unsqueeze(-1)
    difference = StudentT().log_prob(StudentT().tempered(row, 1.5), x) - StudentT().log_prob(row, x) / 1.5
    assert_allclose(difference, difference[0].expand(11), rtol=1e-10)
    with pytest.raises(ValueError, match="pass a lower one"):
        StudentT().tempered(row, 4.0)


def test_special_functions_keep_their_digits() -> None:
    z = torch.tensor([0.3, 1.0, 19.5, 20.1, 1e3], dtype=torch.float64)
    assert_allclose(log_gamma_step(z[:2]), [-0.943738316418238, -0.120782237635245], rtol=1e-12)
    assert_allclose(log_gamma_step(z + 1) - log_gamma_step(z), ((z + 0.5) / z).log(), rtol=1e-11)
    assert float(log_gamma_step(torch.tensor(1e12, dtype=torch.float64))) == pytest.approx(6 * np.log(10), rel=1e-13)
    k = torch.tensor([0.02, 0.7, 5.0, 1e4], dtype=torch.float64)
    assert_allclose(shape_of_gamma(k.log() - torch.digamma(k), 1e-3, 1e6), k, rtol=1e-8)
    assert shape_of_gamma(torch.zeros(1, dtype=torch.float64), 1e-3, 1e6).item() == 1e6
    assert shape_of_gamma(torch.full((1,), 1e9, dtype=torch.float64), 1e-3, 1e6).item() == 1e-3


def test_one_outlier_does_not_set_the_floor_of_the_scale() -> None:
    """The deviation of these values is 316, and a hundredth of that was the floor."""
    x = np.random.default_rng(0).normal(size=(1000, 1))
    x[500] = 1e4
    model = sm.HMM(1, observation=StudentT(), random_state=0).fit([x])
    free = sm.HMM(1, observation=StudentT(min_scale=1e-9), random_state=0).fit([x])
    assert model.score([x]) == pytest.approx(-1.4577, abs=1e-3)
    assert_allclose(model.scales_, free.scales_, rtol=1e-6)
    assert model.history_["floor_hits"].iloc[-1] == 0
    both = [np.hstack([x, x + 5])]
    columns = sm.HMM(1, observation=sm.Columns([(sm.GaussianMixture(1), 1), (StudentT(), 1)]), random_state=0).fit(both)
    assert columns.encoding_.robust == [False, True]
    assert_allclose(columns.scales_, free.scales_, rtol=1e-4)


def test_a_floor_that_is_hit_says_to_lower_it() -> None:
    x = np.random.default_rng(0).normal(size=(300, 1))
    with pytest.warns(UserWarning, match=r"where states are meant to be so narrow, lower min_scale$"):
        sm.HMM(1, observation=StudentT(min_scale=3.0), random_state=0).fit([x])
