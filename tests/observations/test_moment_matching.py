"""Observations fitted by moments: a gamma density, in one class, under EM and under a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from torch import Tensor

import seqmodels as sm
from seqmodels.hmm.emissions import MomentEmission, emission_of
from seqmodels.observations import MomentMatching

RNG = np.random.default_rng(0)
SHAPES, RATES = np.array([[2.0, 9.0], [5.0, 0.7]]), np.array([[0.5, 30.0], [4.0, 0.1]])
STATES = [np.repeat(RNG.integers(0, 2, 30), 4) for _ in range(6)]
X = [RNG.gamma(SHAPES[states], 1 / RATES[states]) for states in STATES]
SCALED = sm.Standardize(with_mean=False)  # positive values stay positive


@dataclass(eq=False, repr=False)
class Gamma(MomentMatching):
    """``p(x) = Π_d r_d^{k_d} x_d^{k_d - 1} e^{-r_d x_d} / Γ(k_d)``, of D log-shapes and D log-rates."""

    emits = "vectors"

    def n_output_parameters(self, size: int) -> int:
        return 2 * size

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        shape, rate = output_parameters.exp().chunk(2, dim=-1)
        return (shape * rate.log() - torch.lgamma(shape) + (shape - 1) * x.log() - rate * x).sum(-1)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        shape, rate = output_parameters.exp().chunk(2, dim=-1)
        return torch._standard_gamma(shape, generator=generator) / rate

    def moments(self, x: Tensor) -> Tensor:
        return torch.cat([x, x.log()], dim=-1)

    def from_averages(self, averages: Tensor) -> Tensor:
        mean, mean_log = averages.chunk(2, dim=-1)
        s = mean.log() - mean_log
        shape = (3 - s + ((s - 3) ** 2 + 24 * s).sqrt()) / (12 * s)
        for _ in range(20):
            shape = shape - (shape.log() - torch.digamma(shape) - s) / (1 / shape - torch.polygamma(1, shape))
        return torch.cat([shape.log(), (shape / mean).log()], dim=-1)

    def raw_parameters(
        self, output_parameters: np.ndarray, shift: np.ndarray, scale: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        shape, rate = np.split(np.exp(output_parameters), 2, axis=-1)
        return {"shapes_": shape, "rates_": rate / scale}


def hmm(n_states: int, **options: object) -> sm.HMM:
    return sm.HMM(n_states, observation=Gamma(), encoding=SCALED, dtype="float64", **options)


def test_one_state_is_the_estimate_of_maximum_likelihood() -> None:
    model = hmm(1).fit(X)
    frames = np.concatenate(X)
    fits = [stats.gamma.fit(frames[:, d], floc=0) for d in range(2)]
    assert_allclose(model.shapes_[0], [shape for shape, _, _ in fits], rtol=1e-5)
    assert_allclose(model.rates_[0], [1 / scale for _, _, scale in fits], rtol=1e-5)
    each = sum(stats.gamma(shape, scale=scale).logpdf(frames[:, d]) for d, (shape, _, scale) in enumerate(fits))
    assert model.score(X) == pytest.approx(each.mean(), abs=1e-8)


def test_em_finds_the_states_and_never_goes_down() -> None:
    model = hmm(2, max_iter=30, random_state=0).fit(X)
    assert model.history_["objective"].is_monotonic_increasing
    order = np.argsort(model.shapes_[:, 0])
    assert_allclose(model.shapes_[order], SHAPES, rtol=0.25)
    assert_allclose(model.rates_[order], RATES, rtol=0.25)


def test_a_state_without_frames_keeps_its_parameters() -> None:
    emission = emission_of(Gamma(), 2)
    assert isinstance(emission, MomentEmission)
    x, table = torch.as_tensor(X[0]), torch.randn(3, 4, dtype=torch.float64)
    gamma = torch.nn.functional.one_hot(torch.as_tensor(STATES[0]), 3).double()
    new = emission.maximise(emission.statistics(table, x, None, gamma), table)
    assert torch.equal(new[2], table[2])
    assert new.isfinite().all()
    parts = zip(x.split(50), gamma.split(50), strict=True)
    sums = [emission.statistics(table, *part[:1], None, part[1])[0] for part in parts]
    assert_allclose(torch.stack(sums).sum(0), emission.statistics(table, x, None, gamma)[0])


def test_it_is_saved_and_a_network_takes_it(tmp_path: Path) -> None:
    model = hmm(2, max_iter=3).fit(X)
    with pytest.warns(UserWarning, match="Gamma"):
        model.save(tmp_path / "hmm")
    loaded = sm.load(tmp_path / "hmm", classes=[Gamma])
    np.testing.assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-12)
    network = sm.GRU(d_model=4, max_steps=3, observation=Gamma(), encoding=SCALED).fit(X)
    assert np.isfinite(network.score(X))
    assert (network.sample(length=5, random_state=0)[0] > 0).all()
