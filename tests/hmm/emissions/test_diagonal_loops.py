"""Mixtures of diagonal Gaussians in loops over few frames: densities, sums and M-steps from their equations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels import GaussianMixture
from seqmodels.common.compiled import is_compiling
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.emissions.diagonal_loops import DiagonalInLoops, densities_of_few

pytestmark = pytest.mark.skipif(not is_compiling(), reason="numba is not installed")
F64 = torch.float64
N, K, D = 700, 3, 2  # more frames than a block has


def frames(level: float, has_missing: bool) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = level + rng.normal(size=(N, D))
    x[5], x[6] = level + 300.0, level - 1e5  # of which every density underflows
    if has_missing:
        x[rng.random(x.shape) < 0.2] = np.nan
        x[9] = np.nan
    return x


def mixtures(n_components: int, level: float) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n_components)
    log_weights = torch.log_softmax(torch.randn(K, n_components, generator=generator, dtype=F64), 1)
    if n_components > 1:
        log_weights[1] = torch.tensor([-torch.inf, 0.0])
    means = level + torch.randn(K, n_components, D, generator=generator, dtype=F64)
    return log_weights, means, 0.3 * torch.randn(K, n_components, D, generator=generator, dtype=F64)


def log_components(x: np.ndarray, table: tuple[Tensor, Tensor, Tensor]) -> np.ndarray:
    """``(N, K, M)`` log w N of what is observed."""
    log_weights, means, log_variances = (each.numpy() for each in table)
    each = scipy.stats.norm.logpdf(x[:, None, None], means, np.exp(log_variances / 2))
    return np.asarray(log_weights + np.where(np.isnan(x)[:, None, None], 0.0, each).sum(-1))


@pytest.mark.parametrize("level", [0.0, 1e9])
@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("n_components", [1, 2])
def test_densities_and_sums_are_those_of_their_equations(n_components: int, has_missing: bool, level: float) -> None:
    x, table = frames(level, has_missing), mixtures(n_components, level)
    log_b, found = densities_of_few(np.ascontiguousarray(x.T), has_missing, table, 1e-4)
    components = log_components(x, table)
    expected = scipy.special.logsumexp(components, 2)
    assert_allclose(log_b, expected, rtol=1e-12, atol=1e-14)
    gamma = np.random.default_rng(1).dirichlet(np.ones(K), N)
    share = gamma[..., None] * np.exp(components - expected[..., None])  # (N, K, M)
    observed = ~np.isnan(x)
    values = np.where(observed, x, 0.0)
    features = np.concatenate([values, values**2, observed, np.ones((N, 1))], 1)
    assert_allclose(
        found.expected_sums(torch.from_numpy(gamma)), np.einsum("nkm,nf->mkf", share, features), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
@pytest.mark.parametrize("n_components", [1, 2])
def test_an_m_step_is_that_of_tensors(n_components: int, covariance_type: str) -> None:
    observation = GaussianMixture(n_components, covariance_type, min_covariance=0.9)  # type: ignore[arg-type]
    emission = emission_of(observation, D)
    log_weights, means, shapes = mixtures(n_components, 0.0)
    table = observation.pack(log_weights, means, shapes)
    x = frames(0.0, has_missing=True)
    gamma = np.random.default_rng(1).dirichlet(np.ones(K), N)
    gamma[:, 2] = 0.0  # a state without frames stays as it is
    loops = DiagonalInLoops(observation, table, [torch.from_numpy(x)])
    loops.forget()
    loops.log_densities(0)
    loops.add(0, gamma, 2.0)
    loops.maximise()
    (sums,) = emission.statistics(table, torch.from_numpy(x), None, torch.from_numpy(gamma))
    expected = emission.maximise((2.0 * sums,), table)
    assert_allclose(loops.table(), expected, rtol=1e-9, atol=1e-12)
    assert loops.floor_hits() == int(emission.floor_hits(expected).sum())
    assert_allclose(loops.statistics()[0], 2.0 * sums, rtol=1e-9, atol=1e-9)


def test_variances_below_the_floor_count_as_it() -> None:
    x, table = frames(0.0, has_missing=False), mixtures(1, 0.0)
    log_b, _ = densities_of_few(np.ascontiguousarray(x.T), False, table, 1.0)
    floored = (table[0], table[1], table[2].clamp(min=0.0))
    assert_allclose(log_b[:, :, None], log_components(x, floored), rtol=1e-12)
