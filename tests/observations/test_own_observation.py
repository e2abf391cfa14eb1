"""An observation of one's own: a gamma density in one class, trained, scored and drawn from under a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import seqmodels as sm

RNG = np.random.default_rng(0)
X = [RNG.gamma(3.0, 20.0, (n, 2)) for n in (60, 45, 80, 70)]


@dataclass(eq=False, repr=False)
class Gamma(sm.observations.Observation):
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


def network(**options: object) -> sm.GRU:
    return sm.GRU(
        d_model=8,
        max_steps=150,
        lr=0.02,
        observation=Gamma(),
        encoding=sm.Standardize(with_mean=False),
        dtype="float64",
        device="cpu",
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def fitted() -> sm.GRU:
    return network().fit(X, validation=None)


def test_its_density_is_scipys() -> None:
    output_parameters, x = torch.randn(5, 4, dtype=torch.float64), torch.rand(5, 2, dtype=torch.float64)
    shape, rate = output_parameters.exp().numpy()[:, :2], output_parameters.exp().numpy()[:, 2:]
    expected = stats.gamma.logpdf(x.numpy(), shape, scale=1 / rate).sum(1)
    np.testing.assert_allclose(Gamma().log_prob(output_parameters, x), expected, rtol=1e-10)


@pytest.mark.slow
def test_a_network_learns_it_in_raw_units(fitted: sm.GRU) -> None:
    best = float(np.concatenate([stats.gamma.logpdf(x, 3.0, scale=20.0).sum(1) for x in X]).mean())
    assert fitted.score(X) == pytest.approx(best, abs=0.1)
    doubled = network().fit([2 * x for x in X], validation=None)
    assert doubled.score([2 * x for x in X]) == pytest.approx(fitted.score(X) - 2 * np.log(2), rel=1e-5)


def test_it_streams_predicts_and_draws(fitted: sm.GRU) -> None:
    stream = fitted.stream()
    steps = fitted.log_prob_steps(X[:1])[0]
    np.testing.assert_allclose([stream.update(x) for x in X[0][:10]], steps[:10], rtol=1e-9)
    predicted = fitted.predict_next(X[0][:10])
    assert float(predicted.log_prob(torch.as_tensor(X[0][10]))) == pytest.approx(steps[10])
    torch.manual_seed(0)
    assert predicted.sample((500,)).mean(0).numpy() == pytest.approx([60.0, 60.0], rel=0.3)
    (drawn,) = fitted.sample(length=200, random_state=0)
    assert (drawn > 0).all()
    assert drawn.mean() == pytest.approx(60.0, rel=0.3)


def test_what_it_does_not_define_is_refused(fitted: sm.GRU) -> None:
    with pytest.raises(ValueError, match="cannot sum out missing values"):
        fitted.score([np.where(X[0] > 100, np.nan, X[0])])
    with pytest.raises(ValueError, match="has no temperature"):
        fitted.sample(length=3, temperature=0.5)
