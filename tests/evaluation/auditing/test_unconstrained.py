"""Values within bounds as reals and back; and audits of every observation of such values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import seqmodels as sm
from seqmodels.evaluation.auditing.proposals import BroadProposal
from seqmodels.evaluation.auditing.unconstrained import from_reals, log_derivative, to_reals
from seqmodels.observations import (
    Beta,
    Gamma,
    LogNormal,
    NegativeBinomial,
    Observation,
    Rounded,
    StudentT,
    VonMises,
    ZeroInflated,
)
from seqmodels.sequences.measure import Values

KINDS: tuple[Values, ...] = ("reals", "positive", "proportions", "angles", "counts")
Draw = Callable[[np.random.Generator, Any], np.ndarray]
OBSERVATIONS: list[tuple[Observation, Draw]] = [
    (Gamma(), lambda rng, size: rng.gamma(2.0, 30.0, size)),
    (LogNormal(), lambda rng, size: rng.lognormal(0.0, 1.0, size)),
    (Beta(), lambda rng, size: rng.beta(2.0, 0.7, size)),
    (VonMises(), lambda rng, size: rng.vonmises(3.0, 2.0, size)),
    (StudentT(), lambda rng, size: rng.standard_t(2, size)),
    (NegativeBinomial(), lambda rng, size: rng.negative_binomial(2, 0.3, size)),
    (ZeroInflated(sm.Poisson()), lambda rng, size: (rng.random(size) < 0.6) * rng.poisson(5.0, size)),
]


def test_the_map_is_inverted_and_its_derivative_is_that_of_differences() -> None:
    v = np.random.default_rng(0).normal(size=(50, len(KINDS))) * 3
    x = from_reals(v, KINDS)
    np.testing.assert_allclose(to_reals(x, KINDS), v, atol=1e-12)
    assert (x[:, 1] > 0).all()
    assert ((x[:, 2] > 0) & (x[:, 2] < 1)).all()
    assert (np.abs(x[:, 3]) < np.pi).all()
    h = 1e-6
    slopes = (from_reals(v + h, KINDS) - from_reals(v - h, KINDS)) / (2 * h)
    np.testing.assert_allclose(log_derivative(v, KINDS), np.log(slopes).sum(1), atol=1e-6)


def test_what_rounds_to_an_end_stays_inside() -> None:
    far = np.array([[0.0, 1e9, 1e9, 1e9, 0.0], [0.0, -1e9, -1e9, -1e9, 0.0]])
    x = from_reals(far, KINDS)
    assert (x[:, 1] > 0).all()
    assert np.isfinite(x).all()
    assert ((x[:, 2] > 0) & (x[:, 2] < 1)).all()
    assert np.isfinite(to_reals(np.array([[0.0, 1.0, 1 - 1e-17, np.pi, 0.0]]), KINDS)).all()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", ["reals", "positive", "proportions", "angles"])
def test_a_proposal_is_a_density_over_what_a_feature_may_be(kind: Values) -> None:
    rng = np.random.default_rng(1)
    points = from_reals(rng.normal(size=(200, 1)), (kind,))
    proposal = BroadProposal.around(points, (kind,), rng)
    v = np.linspace(-40.0, 40.0, 200_001)[:, None]
    density = np.exp(proposal.log_prob(from_reals(v, (kind,))) + log_derivative(v, (kind,)))
    assert np.trapezoid(density, v[:, 0]) == pytest.approx(1.0, abs=1e-3)
    below = float(np.median(points))
    p = np.trapezoid(np.where(from_reals(v, (kind,))[:, 0] < below, density, 0.0), v[:, 0])
    assert (proposal.draw(20_000, rng) < below).mean() == pytest.approx(p, abs=0.02)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("observation", "draw", "n_features"),
    [(*each, 1 + i % 2) for i, each in enumerate(OBSERVATIONS)],
    ids=[repr(each) for each, _ in OBSERVATIONS],
)
def test_every_rule_is_checked(observation: Observation, draw: Draw, n_features: int) -> None:
    rng = np.random.default_rng(0)
    X = [draw(rng, (40, n_features)).astype(float) for _ in range(6)]
    model = sm.HMM(2, observation=observation, max_iter=4, n_init=1).fit(X)
    result = sm.audit(model, X, effort="quick")
    assert [each.verdict for each in result.findings] == ["held"] * 10, str(result)


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_an_amount_of_0_is_part_of_the_sum(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = [(rng.random((30, 1)) < 0.6) * rng.gamma(2.0, 30.0, (30, 1)) for _ in range(4)]
    model = sm.HMM(2, observation=ZeroInflated(Gamma()), max_iter=4, n_init=1).fit(X)
    components = ZeroInflated.components

    def inflated(self: ZeroInflated, output_parameters: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        log_zero, log_other = components(self, output_parameters, x)
        return log_zero + np.log(factor), log_other

    monkeypatch.setattr(ZeroInflated, "components", inflated)
    verdicts = {each.rule: each.verdict for each in sm.audit(model, X, effort="quick").findings}
    assert verdicts["sums to one"] == ("held" if factor == 1 else "broken")
    assert verdicts["samples follow scores"] == "not checked"


@pytest.mark.slow
@pytest.mark.parametrize("density", [sm.GaussianMixture(1), Gamma()])
def test_every_rule_is_checked_of_rounded_values(density: Observation) -> None:
    rng = np.random.default_rng(0)
    X = [np.rint(rng.gamma(2.0, 3.0, (20, 1)) / 0.5) * 0.5 for _ in range(4)]
    model = sm.HMM(2, observation=Rounded(density, width=0.5), max_iter=4, n_init=1).fit(X)
    result = sm.audit(model, X, effort="quick")
    assert [each.verdict for each in result.findings] == ["held"] * 10, str(result)


@pytest.mark.slow
def test_every_rule_is_checked_of_features_of_all_kinds() -> None:
    rng = np.random.default_rng(0)
    columns = [
        rng.normal(size=240),
        rng.gamma(2.0, 3.0, 240),
        rng.beta(2.0, 2.0, 240),
        rng.vonmises(0, 1, 240),
        rng.poisson(3, 240),
        rng.integers(0, 2, 240),
    ]
    X = list(np.stack(columns, axis=1).astype(float).reshape(6, 40, 6))
    each = [sm.GaussianMixture(1), Gamma(), Beta(), VonMises(), sm.Poisson(), sm.Bernoulli()]
    model = sm.HMM(1, observation=sm.Columns([(o, 1) for o in each]), max_iter=4, n_init=1).fit(X)
    result = sm.audit(model, X, effort="quick")
    assert [each.verdict for each in result.findings] == ["held"] * 10, str(result)


class TooLarge(Gamma):
    """A third more than the density that it learns."""

    def feature_log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        return super().feature_log_prob(theta, x) + 0.3


class OtherDraws(VonMises):
    """Draws that are on the other side of the circle."""

    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        x = super().feature_sample(theta, generator)
        return torch.atan2(-x.sin(), -x.cos())


@pytest.mark.slow
@pytest.mark.parametrize("n_features", [1, 2])
def test_what_is_wrong_of_such_values_is_found(n_features: int) -> None:
    rng = np.random.default_rng(2)
    for observation, draw, rules in (
        (TooLarge(), OBSERVATIONS[0][1], {"sums to one", "scores before it learns"}),
        (OtherDraws(), OBSERVATIONS[3][1], {"samples follow scores"}),
    ):
        X = [draw(rng, (40, n_features)).astype(float) for _ in range(6)]
        model = sm.HMM(1, observation=observation, max_iter=4, n_init=1).fit(X)
        assert rules <= set(sm.audit(model, X, effort="quick").broken)
