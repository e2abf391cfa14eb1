"""Penalised terms of HSMMs: beside an HMM, a Poisson regression with random effects, and differences of gradients."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import brentq, minimize
from scipy.special import gammaln, logsumexp

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm import HSMM, ChainInputEffects, ChainTraining, RandomEffect, Smooth
from seqmodels.hmm.learning import marginal_likelihood as maximisation
from seqmodels.hmm.new_groups import normal_points
from seqmodels.hmm.observed_information import ExactObjective
from seqmodels.hmm.penalised_terms import marginal_likelihood
from seqmodels.hmm.standard_errors import FitObjective, hessian

ANIMAL, HOUR = RandomEffect("animal"), Smooth("hour", period=24, n_splines=5)
EVERYWHERE: dict[str, Any] = {
    "transitions": [ANIMAL],
    "durations": [ANIMAL, HOUR],
    "emissions": [ANIMAL],
    "first_state": [ANIMAL],
}


def visits(n: int = 3, length: int = 14, seed: int = 0) -> sm.Sequences:
    """A sequence of each of n animals, which visit three levels for longer the larger their number."""
    rng, items, inputs = np.random.default_rng(seed), [], []
    for animal in range(n):
        z, states = int(rng.integers(3)), []
        while len(states) < length:
            states += [z] * (1 + rng.poisson(1 + animal % 3))
            z = (z + rng.integers(1, 3)) % 3
        items.append(1.5 * np.array(states[:length])[:, None] + rng.normal(size=(length, 1)))
        inputs.append(np.stack([np.full(length, float(animal)), (np.arange(length) + rng.integers(24)) % 24.0], 1))
    return sm.Sequences(items, inputs=inputs, input_names=["animal", "hour"])


@pytest.fixture
def few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits whose terms keep the variances that the search starts from, for tests of what is then computed."""
    monkeypatch.setattr(maximisation, "MOST_MODELS", 0)


def objectives(model: Any, X: sm.Sequences) -> tuple[FitObjective, ExactObjective]:
    """The objective of a fit as gradients of expected counts have it, and the one with exact second derivatives."""
    examples = model._setting().examples(Data.of(X))
    objective, _, _ = model._objective_at(examples)
    plain = FitObjective(
        *(getattr(objective, name) for name in ("coordinates", "prior", "batches", "log_prob", "refuse"))
    )
    return plain, model._exact(objective, examples)


def made(X: sm.Sequences, effects: dict[str, Any], n_states: int = 3, **options: Any) -> HSMM:
    options = {"durations": "poisson", "max_duration": 6, "observation": sm.GaussianMixture(1)} | options
    terms = ChainInputEffects(**effects)
    return HSMM(n_states, n_init=1, max_iter=3, length="given", input_effects=terms, random_state=0, **options).fit(X)


ROWS: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    *(
        (EVERYWHERE, {"durations": family, "left_censored": left_censored}, 14)
        for family in ("poisson", "negative-binomial", "logarithmic", "categorical")
        for left_censored in (False, True)
    ),
    ({"transitions": [ANIMAL], "emissions": [HOUR]}, {"durations": "negative-binomial"}, 14),
    ({"transitions": [ANIMAL], "emissions": [HOUR]}, {"left_censored": True}, 14),
    ({"durations": [ANIMAL]}, {"durations": "negative-binomial", "tied_durations": [0, 0, 1]}, 14),
    ({"durations": [ANIMAL]}, {"max_duration": 9}, 5),  # longer than the sequences
    ({"durations": [ANIMAL]}, {"max_duration": 9, "left_censored": True}, 5),
    ({"durations": [ANIMAL]}, {"training": ChainTraining(tied=[0, 0, 1])}, 14),
]


@pytest.mark.quick_cases(5)
@pytest.mark.usefixtures("few_models")
@pytest.mark.filterwarnings("ignore:the standard deviation of")
@pytest.mark.parametrize(("effects", "options", "length"), ROWS)
def test_derivatives_are_those_of_the_log_likelihood(
    effects: dict[str, Any], options: dict[str, Any], length: int
) -> None:
    X = visits(length=length)
    model = made(X, effects, **options)
    plain, exact = objectives(model, X)
    generator = torch.Generator().manual_seed(0)
    u = 0.1 * torch.randn(plain.coordinates.n, dtype=torch.float64, generator=generator)
    value, gradient, information = exact.derivatives(u)
    expected_value, expected = plain.value_and_gradient(u)
    assert_allclose(value, expected_value, rtol=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(information, -hessian(plain.gradient, u), rtol=1e-6, atol=1e-5)

    # The gradient of its trace, along coefficients that are integrated out.
    marginal, _ = marginal_likelihood(exact, model._fitted_chain.inputs, restricted=True)
    root = torch.zeros(len(u), 3, dtype=torch.float64)
    root[marginal.inner] = 0.1 * torch.randn(len(marginal.inner), 3, dtype=torch.float64, generator=generator)
    covariance, along = root @ root.T, 1e-3 * torch.randn(len(u), dtype=torch.float64, generator=generator)
    up, down = (float((covariance * exact.derivatives(u + sign * along)[2]).sum()) for sign in (1, -1))
    of_prior = [float((covariance * exact._prior_information(u + sign * along)).sum()) for sign in (1, -1)]
    slope = float(exact.information_gradient(u, covariance) @ along)
    assert_allclose(slope, (up - of_prior[0] - down + of_prior[1]) / 2, rtol=1e-3, atol=1e-7)


@pytest.mark.usefixtures("few_models")
def test_geometric_durations_with_terms_are_an_hmm() -> None:
    X, effects = visits(), {"transitions": [ANIMAL], "emissions": [HOUR], "first_state": [ANIMAL]}
    model = made(X, effects, durations="geometric")
    hmm = sm.HMM(3, observation=sm.GaussianMixture(1), n_init=1, input_effects=ChainInputEffects(**effects)).fit(X)
    of_hmm, of_hsmm = objectives(hmm, X)[1], objectives(model, X)[1]
    at = ExactObjective(of_hsmm.coordinates, of_hmm.emission, of_hmm.batches, of_hsmm.log_prior, of_hmm.n_inputs)
    u = torch.zeros(of_hsmm.coordinates.n, dtype=torch.float64)
    for ours, expected in zip(of_hsmm.derivatives(u), at.derivatives(u), strict=True):
        torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(expected), rtol=1e-9, atol=1e-9)


# -- durations that are seen -------------------------------------------------------------------------------------------


@cache
def counted(n: int = 8, n_visits: int = 6) -> tuple[sm.Sequences, np.ndarray]:
    """Visits to two levels that nothing confuses, and ``d - 1`` of each, ``(n, n_visits, 2)``.

    Each sequence ends with a first step of another visit, which is known to last at least one step, so that it says
    nothing of durations.
    """
    rng = np.random.default_rng(2)
    rates = np.exp(np.log([2.0, 5.0]) + np.array([0.5, 0.8]) * rng.normal(size=(n, 2)))
    later = rng.poisson(rates[:, None], (n, n_visits, 2))
    states = [np.append(np.repeat(np.tile([0, 1], n_visits), 1 + each.flatten()), 0) for each in later]
    items = [50.0 * z[:, None] + rng.normal(size=(len(z), 1)) for z in states]
    inputs = [np.full((len(z), 1), float(animal)) for animal, z in enumerate(states)]
    return sm.Sequences(items, inputs=inputs, input_names=["animal"]), later


@cache
def fitted(durations: str = "poisson") -> HSMM:
    effects = ChainInputEffects(durations=[ANIMAL], restricted=False, new_group_points=8)
    options: dict[str, Any] = {"durations": durations, "max_duration": 60, "observation": sm.GaussianMixture(1)}
    return HSMM(2, n_init=1, length="given", input_effects=effects, **options).fit(counted()[0])


def by_laplace(counts: np.ndarray, log_rate: float, sd: float) -> float:
    """Log-likelihood of Poisson counts of groups, ``(n, m)``, with random intercepts, in Laplace's approximation."""
    total = 0.0
    for each in counts:
        effect = brentq(lambda b, x=each: (x - np.exp(log_rate + b)).sum() - b / sd**2, -9, 9, xtol=1e-13)
        log_prob = (each * (log_rate + effect) - np.exp(log_rate + effect) - gammaln(each + 1)).sum()
        curvature = len(each) * np.exp(log_rate + effect) + sd**-2
        total += log_prob - 0.5 * (effect / sd) ** 2 - np.log(sd) - 0.5 * np.log(curvature)
    return total


def test_durations_that_are_seen_are_a_poisson_regression_with_random_effects() -> None:
    later, model = counted()[1], fitted()
    low = np.argsort(model.means_[:, 0, 0])
    for k, state in enumerate(low):
        counts = later[:, :, k]
        best = minimize(lambda at, x=counts: -by_laplace(x, at[0], np.exp(at[1])), [1.0, -0.5], method="Nelder-Mead")
        assert_allclose(model.duration_rates_[state], np.exp(best.x[0]), rtol=1e-3)
        assert_allclose(model.terms_["sd"][state], np.exp(best.x[1]), rtol=1e-3)


def test_standard_errors_and_intervals_of_terms_of_durations() -> None:
    later, model = counted()[1], fitted()
    table = model.term_intervals(counted()[0])
    k = int(np.argmax(model.means_[:, 0, 0]))
    counts = later[:, :, 1]

    def loss(at: np.ndarray) -> float:
        return -by_laplace(counts, at[0], np.exp(at[1]))

    best, step = minimize(loss, [1.0, -0.5], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}).x, 1e-3
    second = np.empty((2, 2))
    for i in range(2):
        for j in range(2):
            a, b = step * np.eye(2)[[i, j]]
            up, down = (loss(best + sign * a + b) - loss(best + sign * a - b) for sign in (1, -1))
            second[i, j] = (up - down) / (4 * step**2)
    expected = np.exp(best[1]) * np.sqrt(np.linalg.inv(second)[1, 1])
    assert_allclose(table["standard_error"][k], expected, rtol=1e-2)
    effects = model.effects(counted()[0], "animal", "durations")
    assert len(effects)
    assert np.isfinite(effects["ci_low"].to_numpy(float)).all()


def test_a_new_group_has_durations_of_the_population(tmp_path: Path) -> None:
    model, X = fitted(), counted()[0]
    assert X.inputs is not None
    inputs = [np.full((20, 1), 90.0), X.inputs[1][:20]]
    new = sm.Sequences([x[:20] for x in X.items[:2]], inputs=inputs, input_names=["animal"])
    log_prob = model.log_prob(new)
    of_points = []
    for effect in normal_points(8, 2) * model.terms_["sd"].to_numpy():
        at = HSMM.from_parameters(
            model.initial_,
            model.transition_,
            duration_rates=model.duration_rates_ * np.exp(effect),
            means=model.means_,
            covariances=model.covariances_,
            weights=model.weights_,
            max_duration=60,
        )
        of_points.append(at.log_prob(new.items))
    assert_allclose(log_prob[0], logsumexp(np.array(of_points)[:, 0]) - np.log(8), rtol=1e-9)
    assert abs(log_prob[1] - np.array(of_points)[:, 1]).min() > 1e-3  # its group has an effect of its own
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert_allclose(loaded.log_prob(new), log_prob, rtol=1e-12)
    for i, group in enumerate((90.0, 1.0)):
        stream = loaded.stream()
        steps = [stream.update(x, inputs=[group]) for x in new.items[i]]
        assert_allclose(np.sum(steps), log_prob[i], rtol=1e-9)
    ahead = loaded.forecast_states(new, 3, inputs=[np.full((3, 1), 90.0), np.full((3, 1), 1.0)])
    assert_allclose([each.states.sum(1) for each in ahead], 1.0)
    swapped = model.reorder([1, 0])
    assert_allclose(swapped.log_prob(new), log_prob, rtol=1e-12)
    assert_allclose(swapped.terms_["sd"], model.terms_["sd"][::-1])


@pytest.mark.usefixtures("few_models")
@pytest.mark.filterwarnings("ignore:the standard deviation of")
def test_tied_durations_have_the_effects_of_a_new_group_together() -> None:
    X, tied = visits(), {"tied_durations": [0, 0, 1], "new_group_points": 2}
    effects = {"durations": [ANIMAL], "new_group_points": tied.pop("new_group_points")}
    model = made(X, effects, **tied)
    new = sm.Sequences(
        X.items[:1], inputs=[np.stack([np.full(14, 90.0), np.arange(14.0)], 1)], input_names=X.input_names
    )
    of_points = []
    for point in normal_points(2, 2) * model.terms_["sd"].to_numpy():
        at = HSMM.from_parameters(
            model.initial_,
            model.transition_,
            duration_rates=model.duration_rates_ * np.exp(point[[0, 0, 1]]),
            means=model.means_,
            covariances=model.covariances_,
            weights=model.weights_,
            max_duration=6,
        )
        of_points.append(at.log_prob(new.items)[0])
    assert_allclose(model.log_prob(new)[0], logsumexp(of_points) - np.log(2), rtol=1e-9)


def test_a_ridge_and_the_count_of_parameters_leave_out_the_slopes_of_terms() -> None:
    model = fitted()
    effects = ChainInputEffects(durations=[ANIMAL], restricted=False, new_group_points=8, ridge=100.0)
    ridged = model.clone().set_params(input_effects=effects).fit(counted()[0])
    assert_allclose(ridged.duration_slopes_, model.duration_slopes_, rtol=1e-4, atol=1e-5)
    linear = model.clone().set_params(input_effects=ChainInputEffects()).fit(counted()[0])
    assert model.n_parameters_ == linear.n_parameters_ + round(model.terms_["edf"].sum())


def test_names_of_durations_in_a_warning() -> None:
    rng = np.random.default_rng(0)
    items = [np.zeros((9, 1)) + rng.normal(size=(9, 1)) for _ in range(4)]
    X = sm.Sequences(items, inputs=[np.full((9, 1), float(i)) for i in range(4)], input_names=["animal"])
    with pytest.warns(UserWarning, match="of durations of state 0 is not determined by the data"):
        made(X, {"durations": [ANIMAL]}, n_states=1)
