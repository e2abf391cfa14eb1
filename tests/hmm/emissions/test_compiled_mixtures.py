"""Mixtures in compiled loops against the matrix products they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels import HMM, GaussianMixture
from seqmodels.hmm.emissions import emission_of, gaussian_mixture
from seqmodels.inference.chains import parallel_segments
from seqmodels.inference.chains.scratch import Scratch

pytest.importorskip("numba", reason="without numba the loops are not compiled, and not used")

F64 = torch.float64


@pytest.fixture(autouse=True)
def few_frames_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_segments, "FEWEST_FRAMES_COMPILED", 0)
    monkeypatch.setattr(gaussian_mixture, "MOST_VALUES_IN_LOOPS", 0)


N, K = 1300, 4  # more frames than a block has


def case(n_components: int, dtype: torch.dtype, has_missing: bool) -> tuple[Any, Tensor, Tensor, Tensor]:
    """An emission, its table with a component of weight zero, frames of which some are far away, and gamma."""
    generator = torch.Generator().manual_seed(n_components)
    x = torch.randn(N, 2, generator=generator, dtype=F64)
    x[7], x[8] = 1e3, -3e4
    if has_missing:
        x[torch.rand(N, 2, generator=generator) < 0.2] = torch.nan
    emission = emission_of(GaussianMixture(n_components), 2)
    weights = torch.log_softmax(torch.randn(K, n_components, generator=generator, dtype=F64), 1)
    if n_components > 1:
        weights[1, 0] = -torch.inf
    means = torch.randn(K, n_components, 2, generator=generator, dtype=F64)
    table = emission.observation.pack(weights, means, torch.rand(means.shape, generator=generator, dtype=F64) - 1)
    gamma = torch.softmax(torch.randn(K, N, generator=generator, dtype=F64), 0).to(dtype).T
    return emission, table, x.to(dtype), gamma


@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("n_components", [1, 3])
def test_compiled_mixtures_equal_matrix_products(
    n_components: int, dtype: torch.dtype, has_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    emission, table, x, gamma = case(n_components, dtype, has_missing)
    results = []
    for has_numba in (True, False):
        monkeypatch.setattr(parallel_segments, "_has_numba", lambda has_numba=has_numba: has_numba)
        densities, memo = emission.evaluate(table, x, None, dtype, Scratch())
        assert (type(densities).__name__ == "CompiledMixtures") == has_numba
        b, peak = densities.scaled(Scratch(), 1e-30)
        chains = densities.chains(2)
        both, peaks = chains.scaled(Scratch(), 1e-30)
        figures = [b, peak, both, peaks, densities.log(), chains.chain(1).log(), densities.take(torch.arange(9)).log()]
        figures = [each.clone() for each in figures]
        results.append([*figures, emission.statistics(table, x, None, gamma, memo)[0]])
    tolerance = 1e-12 if dtype == F64 else 2e-5
    for compiled, expected in zip(*results, strict=True):
        assert_allclose(compiled, expected, rtol=tolerance, atol=tolerance * (1e-3 if dtype == F64 else 1))


def test_several_threads_give_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqmodels.hmm.emissions import compiled_mixtures

    monkeypatch.setattr(compiled_mixtures, "PART", 512)
    emission, table, x, gamma = case(3, F64, has_missing=False)
    results = []
    for n_threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda n_threads=n_threads: n_threads)
        densities, memo = emission.evaluate(table, x, None, F64, Scratch())
        b, peak = densities.scaled(Scratch(), 1e-30)
        results.append([b.clone(), peak.clone(), emission.statistics(table, x, None, gamma, memo)[0]])
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


@pytest.mark.parametrize("n_init", [1, 2])
def test_em_gives_the_same_model(n_init: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(n, 2)).cumsum(0) for n in (30, 5, 60, 1)]
    fits = []
    for has_numba in (True, False):
        monkeypatch.setattr(parallel_segments, "_has_numba", lambda has_numba=has_numba: has_numba)
        model = HMM(
            3, observation=GaussianMixture(2), max_iter=8, tol=0, n_init=n_init, random_state=0, dtype="float64"
        )
        fits.append(model.fit(x))
    compiled, plain = fits
    assert_allclose(compiled.history_["log_prob"], plain.history_["log_prob"], rtol=1e-12)
    assert_allclose(compiled.means_, plain.means_, rtol=1e-9)
    assert_allclose(compiled.transition_, plain.transition_, rtol=1e-9, atol=1e-12)
