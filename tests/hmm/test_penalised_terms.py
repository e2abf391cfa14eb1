"""Penalised terms beside the linear mixed model in closed form, figures of R, and a plain program for a chain."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import gammaln, log_softmax, logsumexp
from scipy.stats import chi2, norm

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm import ChainInputEffects, RandomEffect, Smooth
from seqmodels.hmm.learning.marginal_likelihood import MarginalLikelihood, Maximum
from seqmodels.hmm.observed_information import ExactObjective, Places
from seqmodels.hmm.penalised_terms import marginal_likelihood
from seqmodels.hmm.standard_errors import FitObjective, hessian


@cache
def of_r() -> dict[str, np.ndarray]:
    """Data that R was given too: ``y`` on ``x``, ``y2`` on groups ``g``, ``y3`` on hours ``h``, counts on ``g``."""
    rng, n = np.random.default_rng(0), 300
    x = rng.uniform(0, 10, n)
    y = np.sin(x) * 2 + 0.3 * x + rng.normal(size=n) * 0.7
    g = rng.integers(0, 15, n).astype(float)
    b = rng.normal(size=15) * 0.8
    y2 = 1 + b[g.astype(int)] + rng.normal(size=n) * 0.5
    h = rng.uniform(0, 24, n)
    y3 = np.cos(2 * np.pi * h / 24) + rng.normal(size=n)
    counts = rng.poisson(np.exp(0.5 + b[g.astype(int)]))
    return {"x": x, "y": y, "g": g, "y2": y2, "h": h, "y3": y3, "counts": counts}


def one_state(y: np.ndarray, u: np.ndarray, term: Any, **options: Any) -> tuple[sm.HMM, sm.Sequences]:
    restricted, others = options.pop("restricted", True), {"observation": sm.GaussianMixture(1)} | options
    X = sm.Sequences([y[:, None].astype(float)], inputs=[u], input_names=["u"])
    effects = ChainInputEffects(emissions=[term], restricted=restricted)
    return sm.HMM(1, input_effects=effects, dtype="float64", **others).fit(X), X


def fixed_and_random(model: sm.HMM, X: sm.Sequences) -> tuple[np.ndarray, np.ndarray]:
    assert model.input_scaling_ is not None
    (columns,) = model.input_scaling_.encode(X)
    is_linear = bool(model._terms[0].linear)
    return np.concatenate([np.ones((len(columns), 1)), columns[:, :is_linear]], 1), columns[:, 1:]


def reml(y: np.ndarray, fixed: np.ndarray, random: np.ndarray) -> tuple[float, float, np.ndarray]:
    """σ, τ and fitted values of ``y = X β + Z b + e`` at the maximum of the restricted likelihood, in closed form."""

    def loss(log_sd: np.ndarray) -> float:
        V = np.exp(2 * log_sd[0]) * np.eye(len(y)) + np.exp(2 * log_sd[1]) * random @ random.T
        inverse = np.linalg.inv(V)
        information = fixed.T @ inverse @ fixed
        residual = y - fixed @ np.linalg.solve(information, fixed.T @ inverse @ y)
        log_dets = np.linalg.slogdet(V)[1] + np.linalg.slogdet(information)[1]
        return float(log_dets + residual @ inverse @ residual)

    sigma, tau = np.exp(minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}).x)
    design = np.concatenate([fixed, random], 1)
    penalty = np.repeat([0.0, (sigma / tau) ** 2], [fixed.shape[1], random.shape[1]])
    return sigma, tau, design @ np.linalg.solve(design.T @ design + np.diag(penalty), design.T @ y)


@pytest.mark.parametrize(
    ("y", "u", "term"), [("y2", "g", RandomEffect("u")), ("y", "x", Smooth("u")), ("y3", "h", Smooth("u", period=24))]
)
def test_a_gaussian_regression_is_the_linear_mixed_model(y: str, u: str, term: Any) -> None:
    model, X = one_state(of_r()[y], of_r()[u], term)
    fixed, random = fixed_and_random(model, X)
    sigma, tau, fitted = reml(of_r()[y], fixed, random)
    np.testing.assert_allclose(np.sqrt(model.covariances_.item()), sigma, rtol=1e-4)
    np.testing.assert_allclose(model.terms_["sd"], tau, rtol=1e-3)
    by_model = model.means_.item() + model.input_scaling_.encode(X)[0] @ (
        model.emission_slopes_[0, 0] * model.input_scaling_.units
    )
    np.testing.assert_allclose(by_model, fitted, atol=2e-4)


def test_an_autoregression_with_groups_is_a_linear_mixed_model_too() -> None:
    """By maximum likelihood given the first step, because the coefficient of the past is not integrated out."""
    data, rng = of_r(), np.random.default_rng(3)
    y, g = np.zeros(300), data["g"]
    for t in range(1, 300):
        y[t] = 0.5 * y[t - 1] + 0.6 * np.sin(g[t]) + 0.4 * rng.normal()
    model, _ = one_state(
        y, g, RandomEffect("u"), observation=sm.AutoregressiveGaussian(1, background=0), restricted=False
    )
    fixed, random = np.stack([np.ones(299), y[:-1]], 1), (g[1:, None] == np.arange(15)).astype(float)

    def loss(log_sd: np.ndarray) -> float:
        V = np.exp(2 * log_sd[0]) * np.eye(299) + np.exp(2 * log_sd[1]) * random @ random.T
        inverse = np.linalg.inv(V)
        residual = y[1:] - fixed @ np.linalg.solve(fixed.T @ inverse @ fixed, fixed.T @ inverse @ y[1:])
        return float(np.linalg.slogdet(V)[1] + residual @ inverse @ residual)

    sigma, tau = np.exp(minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8}).x)
    np.testing.assert_allclose(np.sqrt(model.covariances_.item()), sigma, rtol=1e-4)
    np.testing.assert_allclose(model.terms_["sd"], tau, rtol=1e-3)


@pytest.mark.parametrize(
    ("y", "u", "term", "options", "sigma", "sd", "edf"),
    [  # lme4::lmer(y2 ~ (1 | g))
        ("y2", "g", RandomEffect("u"), {}, 0.4554643, 0.9303830, None),
        # mgcv::gam(y ~ s(x, bs = "ps", k = 10), method = "REML", knots = equidistant over the range of x)
        ("y", "x", Smooth("u"), {}, 0.6835171, None, 7.328493),
        # mgcv::gam(y3 ~ s(h, bs = "cp", k = 10), method = "REML", knots = list(h = c(0, 24)))
        ("y3", "h", Smooth("u", period=24), {}, 1.019378, None, 4.197078),
        # glmmTMB::glmmTMB(counts ~ (1 | g), family = poisson)
        ("counts", "g", RandomEffect("u"), {"observation": sm.Poisson(), "restricted": False}, None, 0.9332773, None),
    ],
)
def test_figures_are_those_of_r(
    y: str, u: str, term: Any, options: Any, sigma: float | None, sd: float | None, edf: float | None
) -> None:
    model, _ = one_state(of_r()[y], of_r()[u], term, **options)
    if sigma is not None:
        np.testing.assert_allclose(np.sqrt(model.covariances_.item()), sigma, rtol=2e-5)
    if sd is not None:
        np.testing.assert_allclose(model.terms_["sd"], sd, rtol=2e-5)
    if edf is not None:
        np.testing.assert_allclose(model.terms_["edf"], edf, rtol=2e-5)


@pytest.mark.parametrize(
    ("y", "options", "low", "high"),
    [  # glmmTMB::glmmTMB(y2 ~ (1 | g), REML = TRUE), and confint(parm = "theta_")
        ("y2", {}, 0.6395871, 1.353393),
        # glmmTMB::glmmTMB(counts ~ (1 | g), family = poisson), and confint(parm = "theta_")
        ("counts", {"observation": sm.Poisson(), "restricted": False}, 0.6341367, 1.373531),
    ],
)
def test_intervals_of_standard_deviations_are_those_of_r(y: str, options: Any, low: float, high: float) -> None:
    model, X = one_state(of_r()[y], of_r()["g"], RandomEffect("u"), **options)
    frame = model.term_intervals(X)
    assert frame[model.terms_.columns].equals(model.terms_)
    np.testing.assert_allclose(frame[["ci_low", "ci_high"]].to_numpy(), [[low, high]], rtol=2e-5)
    half = norm.ppf(0.95) * frame["standard_error"] / frame["sd"]
    np.testing.assert_allclose(np.log(model.term_intervals(X, level=0.9)["ci_high"] / frame["sd"]), half)


@cache
def without_differences() -> tuple[sm.HMM, sm.Sequences]:
    return one_state(np.random.default_rng(1).normal(size=60), np.arange(60) % 6.0, RandomEffect("u"))


def test_the_interval_of_a_term_that_vanishes_is_of_the_profile_likelihood_in_closed_form() -> None:
    model, X = without_differences()
    y, groups, ones = X[0][:, 0], (np.arange(60)[:, None] % 6 == np.arange(6)).astype(float), np.ones((60, 1))
    (row,) = model.term_intervals(X).to_dict("records")

    def minus_twice(tau: float) -> float:
        def loss(log_sigma: float) -> float:
            V = np.exp(2 * log_sigma) * np.eye(60) + tau**2 * groups @ groups.T
            inverse = np.linalg.inv(V)
            information = ones.T @ inverse @ ones
            residual = y - ones @ np.linalg.solve(information, ones.T @ inverse @ y)
            return float(np.linalg.slogdet(V)[1] + np.linalg.slogdet(information)[1] + residual @ inverse @ residual)

        return float(minimize_scalar(loss, bounds=(-2, 2), method="bounded", options={"xatol": 1e-8}).fun)

    assert minus_twice(0.0) <= minus_twice(0.01) <= minus_twice(0.1)  # so that the deviation is zero
    end = brentq(lambda tau: minus_twice(tau) - minus_twice(0.0) - chi2.ppf(0.95, 1), 0.01, 3.0)
    assert row["sd"] < 1e-3
    assert np.isnan(row["standard_error"])
    np.testing.assert_allclose([row["ci_low"], row["ci_high"]], [0.0, end], rtol=2e-3)
    assert model.term_intervals(X, level=0.5)["ci_high"].item() < end


def test_terms_are_needed_for_their_intervals() -> None:
    model, X = one_state(np.random.default_rng(1).normal(size=60), np.arange(60) % 6.0, "u")
    with pytest.raises(ValueError, match="has no penalised terms"):
        model.term_intervals(X)


def test_a_variance_beside_random_effects_has_no_profile_interval() -> None:
    data = of_r()
    model, X = one_state(data["y2"], data["g"], RandomEffect("u"))
    with pytest.raises(ValueError, match=r"covariances.* it maximises the marginal likelihood"):
        model.profile_interval(X, "covariances", 0, 0)
    errors = model.standard_errors(X).set_index("name")
    low, high = model.profile_interval(X, "means", 0, 0)
    wald = errors.loc["means", ["ci_low", "ci_high"]].to_numpy(float)
    np.testing.assert_allclose([low, high], wald, atol=0.1 * float(np.diff(wald)[0]))


def test_slopes_of_a_term_that_vanishes_have_no_interval() -> None:
    model, X = without_differences()
    with pytest.raises(ValueError, match="has no interval: on the boundary: the standard deviation of its term is"):
        model.profile_interval(X, "emission_slopes", 0, (0, "u=1"))
    rows = model.standard_errors(X).set_index("name")
    assert rows.loc["emission_slopes", "note"].str.contains("estimated as zero").all()
    assert rows.loc["emission_slopes", ["standard_error", "ci_low", "ci_high"]].isna().all(axis=None)
    y = X[0][:, 0]
    half = np.sqrt(y.var() * np.expm1(chi2.ppf(0.95, 1) / 60))
    low, high = model.profile_interval(X, "means", 0, 0)  # with effects of zero that of one Gaussian, but for REML
    np.testing.assert_allclose([low, high], [y.mean() - half, y.mean() + half], atol=5e-3)


def test_groups_that_are_separated_are_warned_of() -> None:
    y, groups = np.repeat([0, 1, 0, 1], 10), np.repeat(np.arange(4.0), 10)
    with pytest.warns(
        UserWarning, match=r"deviation of random\(u\) of emissions of state 0 .* is at its upper bound, 10"
    ):
        model, _ = one_state(y, groups, RandomEffect("u"), observation=sm.Bernoulli())
    np.testing.assert_allclose(model.terms_["sd"], 10.0)


def test_the_objective_of_counts_is_their_log_likelihood_by_laplace() -> None:
    """glmmTMB's -479.0801, and a plain program: each group's integral by its own mode and curvature."""
    data = of_r()
    model, _ = one_state(data["counts"], data["g"], RandomEffect("u"), observation=sm.Poisson(), restricted=False)
    b0, sd, total = float(np.log(model.rates_.item())), float(model.terms_["sd"].iloc[0]), 0.0
    for g in range(15):
        x = data["counts"][data["g"] == g]

        def minus(b: np.ndarray, x: np.ndarray = x) -> float:
            log_p = x * (b0 + b[0]) - np.exp(b0 + b[0]) - gammaln(x + 1)
            return float(-log_p.sum() + 0.5 * (b[0] / sd) ** 2 + np.log(sd))

        mode = minimize(minus, np.zeros(1), options={"gtol": 1e-10}).x
        total -= minus(mode) + 0.5 * np.log(len(x) * np.exp(b0 + mode[0]) + 1 / sd**2)
    objective = 300 * model.history_["objective"].iloc[-1]
    np.testing.assert_allclose([objective, objective], [total, -479.0801], rtol=1e-6)


# -- chains ------------------------------------------------------------------------------------------------------------


@cache
def animals() -> sm.Sequences:
    rng, items, inputs = np.random.default_rng(1), [], []
    for animal, effect in enumerate(rng.normal(size=(6, 2))):
        z, hour = 0, np.arange(80) % 24.0
        states = []
        for t in range(80):
            states.append(z := 1 - z if rng.random() < 1 / (1 + np.exp(2 - effect[z] - np.sin(hour[t] / 4))) else z)
        items.append(3.0 * np.array(states)[:, None] + rng.normal(size=(80, 1)))
        inputs.append(np.stack([np.full(80, float(animal)), hour], 1))
    flat = np.concatenate(items)  # standardised, so that encoded values are raw ones
    items = [(x - flat.mean()) / flat.std() for x in items]
    return sm.Sequences(items, inputs=inputs, input_names=["animal", "hour"])


TERMS = ChainInputEffects(
    transitions=[RandomEffect("animal"), Smooth("hour", period=24, n_splines=6)],
    emissions=[RandomEffect("animal")],
)
TRANSITIONS = ChainInputEffects(transitions=[RandomEffect("animal")])


@cache
def fitted(effects: ChainInputEffects = TERMS) -> sm.HMM:
    observation = sm.GaussianMixture(1)
    return sm.HMM(2, observation=observation, n_init=1, dtype="float64", input_effects=effects).fit(animals())


def objectives(model: sm.HMM) -> tuple[FitObjective, ExactObjective, MarginalLikelihood]:
    examples = model._setting().examples(Data.of(animals()))
    objective, _, _ = model._objective_at(examples)
    chain = model._fitted_chain
    exact = model._exact(objective, examples)
    return objective, exact, marginal_likelihood(exact, chain.inputs, restricted=True)[0]


def test_coefficients_of_equal_columns_act_by_their_sum() -> None:
    none, one = torch.full((2, 3), -1), torch.ones(2, 1, 3, dtype=torch.float64)
    transition = torch.tensor([[[-1] * 3, [0, 1, 2]], [[3, 4, -1], [-1] * 3]])
    table = torch.tensor([[[5, 6, -1]], [[7, -1, 8]]])
    of_durations = torch.empty(0, 0, 3, dtype=torch.long), torch.empty(0, 0, 3, dtype=torch.float64)
    places = Places(none, transition, table, one, *of_durations)
    columns, used, sums, merged = places.merged(torch.tensor([0, 0, 1]))  # the first two columns are equal
    assert columns.tolist() == [0, 0, 1]
    assert used.tolist() == list(range(9))
    assert sums.tolist() == [0, 0, 1, 2, 2, 3, 3, 4, 5]
    assert merged.transition.tolist() == [[[-1] * 2, [0, 1]], [[2, -1], [-1] * 2]]
    assert merged.table.tolist() == [[[3, -1]], [[4, 5]]]
    tied = torch.tensor([[[5, 6, -1]], [[7, 6, 8]]])  # number 6 acts in both states, 5 and 7 in one each
    columns, used, sums, merged = Places(none, transition, tied, one, *of_durations).merged(torch.tensor([0, 0, 1]))
    assert columns.tolist() == [0, 1, 2]
    assert torch.equal(merged.table, tied)


def test_the_information_is_minus_the_hessian() -> None:
    objective, exact, _ = objectives(fitted())
    u = 0.1 * torch.randn(objective.coordinates.n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain = FitObjective(
        *(getattr(objective, name) for name in ("coordinates", "prior", "batches", "log_prob", "refuse"))
    )
    value, gradient, information = exact.derivatives(u)
    expected_value, expected = plain.value_and_gradient(u)
    np.testing.assert_allclose(value, expected_value, rtol=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(information, -hessian(plain.gradient, u), rtol=1e-6, atol=1e-5)


def test_the_gradient_of_the_marginal_likelihood_is_its_difference() -> None:
    _, exact, marginal = objectives(fitted())
    generator = torch.Generator().manual_seed(0)
    u = torch.zeros(exact.coordinates.n, dtype=torch.float64)
    n_outer, n_blocks = len(marginal.outer), len(marginal.blocks)
    at = torch.cat([u[marginal.outer], 1 + 0.3 * torch.randn(n_blocks, dtype=torch.float64, generator=generator)])
    _, gradient = marginal.value_and_gradient(at, u)
    differences = torch.empty(n_outer + n_blocks, dtype=torch.float64)
    for i in range(len(at)):
        step = torch.zeros_like(at)
        step[i] = 1e-4
        up, down = (marginal.value_and_gradient(at + sign * step, u)[0] for sign in (1, -1))
        differences[i] = (up - down) / 2e-4
    torch.testing.assert_close(gradient, differences, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_the_trace_is_its_difference_where_a_direction_is_hardly_determined() -> None:
    _, exact, _ = objectives(fitted())
    generator = torch.Generator().manual_seed(0)
    n = exact.coordinates.n
    root = 0.1 * torch.randn(n, 3, dtype=torch.float64, generator=generator)
    root[:, 0] *= 100  # standard errors of 10
    u, C = torch.zeros(n, dtype=torch.float64), root @ root.T
    differences = torch.empty(n, dtype=torch.float64)
    for i in range(n):
        step = torch.zeros_like(u)
        step[i] = 1e-4
        up, down = (float((C * exact.derivatives(u + sign * step)[2]).sum()) for sign in (1, -1))
        differences[i] = (up - down) / 2e-4
    found = exact.information_gradient(u, C)
    torch.testing.assert_close(found, differences, rtol=1e-3, atol=1e-4 * float(differences.abs().max()))


def test_probabilities_that_are_too_small_are_computed_in_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    _, exact, _ = objectives(fitted())
    n = exact.coordinates.n
    u, C = torch.full((n,), 0.05, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    expected = (*exact.derivatives(u), exact.information_gradient(u, C))
    monkeypatch.setattr("seqmodels.hmm.score_loops.smooth", lambda *arguments: False)
    found = (*exact.derivatives(u), exact.information_gradient(u, C))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    for i in (1, 2, 3):
        torch.testing.assert_close(found[i], expected[i], rtol=1e-8, atol=1e-6)


def test_derivatives_are_exact_where_a_state_has_nearly_no_probability() -> None:
    _, exact, _ = objectives(fitted())
    n, generator = exact.coordinates.n, torch.Generator().manual_seed(0)
    u = 3 * torch.randn(n, dtype=torch.float64, generator=generator)
    information = exact.derivatives(u)[2]
    expected = -hessian(lambda at: exact.value_and_gradient(at)[1], u)
    torch.testing.assert_close(information, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    assert exact.information_gradient(u, torch.eye(n, dtype=torch.float64)).isfinite().all()


def few_steps(seed: int, *, is_missing: bool) -> sm.Sequences:
    """Two to five animals with 10 to 25 steps each, in two states that differ by two standard deviations."""
    rng, items, inputs = np.random.default_rng(seed), [], []
    for animal in range(int(rng.integers(2, 6))):
        T = int(rng.integers(10, 26))
        hour, effect, z, states = (rng.integers(24) + np.arange(T)) % 24.0, 0.7 * rng.normal(size=2), 0, []
        for _ in range(T):
            states.append(z := 1 - z if rng.random() < 1 / (1 + np.exp(1.5 - effect[z])) else z)
        x = 2.0 * np.array(states)[:, None] + 0.5 * np.sin(2 * np.pi * hour / 24)[:, None] + rng.normal(size=(T, 1))
        items.append(np.where(is_missing & (rng.random(x.shape) < 0.15), np.nan, x))
        inputs.append(np.stack([np.full(T, float(animal)), hour], 1))
    return sm.Sequences(items, inputs=inputs, input_names=["animal", "hour"])


@pytest.mark.filterwarnings("ignore:the standard deviation of", "ignore:the marginal likelihood of the terms")
@pytest.mark.parametrize(("seed", "is_missing"), [(1, False), (2, False), (5, False), (2, True), (4, True)])
def test_fits_to_few_steps_end_soon_where_no_step_raises_the_criterion(
    seed: int, is_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, calls, found = few_steps(seed, is_missing=is_missing), [], []
    derivatives, maximise = ExactObjective.derivatives, MarginalLikelihood.maximise

    def counted(self: ExactObjective, u: torch.Tensor) -> Any:
        calls.append(0)
        return derivatives(self, u)

    def kept(self: MarginalLikelihood, u: torch.Tensor) -> Maximum:
        found.append((self, maximise(self, u)))
        return found[-1][1]

    monkeypatch.setattr(ExactObjective, "derivatives", counted)
    monkeypatch.setattr(MarginalLikelihood, "maximise", kept)
    effects = ChainInputEffects(transitions=[RandomEffect("animal")], emissions=[Smooth("hour", period=24)])
    model = sm.HMM(2, observation=sm.GaussianMixture(1), n_init=1, dtype="float64", input_effects=effects).fit(X)
    assert len(calls) < 100
    assert (model.terms_["sd"] <= 10 * max(1.0, float(np.nanstd(np.concatenate(list(X)))))).all()
    marginal, maximum = found[0]
    at = torch.cat([maximum.u[marginal.outer], maximum.log_precision])
    best = marginal.value_and_gradient(at, maximum.u)[0]
    np.testing.assert_allclose(best, maximum.value, atol=1e-6)
    assert model.converged_ == maximum.converged
    for i in range(len(at)) if maximum.converged else ():
        for length in (-0.3, 0.3):
            moved = at.clone()
            moved[i] += length
            assert marginal.value_and_gradient(moved, maximum.u)[0] < best + 2e-4


@pytest.mark.filterwarnings("ignore:the standard deviation of")
def test_without_a_maximum_terms_are_by_quasi_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, maximise = [], MarginalLikelihood.maximise

    def keeping(self: MarginalLikelihood, u: torch.Tensor) -> Maximum:
        kept.append((self, maximise(self, u)))
        return kept[-1][1]

    monkeypatch.setattr(MarginalLikelihood, "maximise", keeping)
    effects = ChainInputEffects(transitions=[RandomEffect("animal")], emissions=[Smooth("hour", period=24)])
    model = sm.HMM(2, observation=sm.GaussianMixture(1), n_init=1, dtype="float64", input_effects=effects)
    with pytest.warns(UserWarning, match="those of penalised quasi-likelihood"):
        model.fit(few_steps(24, is_missing=True))
    assert not model.converged_
    (marginal, maximum), *_ = kept
    at = marginal._expanded(maximum.u)
    value, gradient = marginal._model(at, maximum.u[marginal.outer], maximum.log_precision)
    np.testing.assert_allclose(value, maximum.value, atol=1e-6)
    n, is_there = len(marginal.outer), model.terms_["sd"].to_numpy() > 1e-3
    assert gradient[:n].abs().max() < 1e-2  # the linear mixed model has its maximum here
    assert gradient[n:][is_there].abs().max() < 1e-2
    outer = torch.cat([at.u[marginal.outer], maximum.log_precision])
    assert marginal.value_and_gradient(outer, at.u)[1].abs().max() > 0.1


def plain_log_prob(theta: np.ndarray) -> float:
    """log p(x) of all animals, given logit of the first state, two intercepts, two by six effects, means, log-sds."""
    first, intercept, effects = theta[0], theta[1:3], theta[3:15].reshape(2, 6)
    means, sds, x = theta[15:17], np.exp(theta[17:19]), np.stack(list(animals()))  # (6, 80, 1)
    log_b = -0.5 * ((x - means) / sds) ** 2 - np.log(sds) - 0.5 * np.log(2 * np.pi)  # (6, 80, 2)
    leave = intercept[:, None] + effects
    zero = np.zeros(6)
    log_a = log_softmax(np.array([[zero, leave[0]], [leave[1], zero]]).transpose(2, 0, 1), 2)  # (6, 2, 2)
    log_alpha = log_softmax(np.array([0.0, first])) + log_b[:, 0]
    for t in range(1, 80):
        log_alpha = logsumexp(log_alpha[:, :, None] + log_a, 1) + log_b[:, t]
    return float(logsumexp(log_alpha, 1).sum())


def test_the_objective_of_a_chain_is_the_criterion_of_a_plain_program() -> None:
    """Random effects of animals on two transitions: the mode by BFGS, and a numerical Hessian of the inner numbers."""
    model = fitted(ChainInputEffects(transitions=[RandomEffect("animal")]))
    p, slopes = model.parameters_, model.transition_slopes_[:, :, 1:7]  # of animals, before the column of new ones
    initial = np.log(model.initial_.clip(1e-300))
    odds = np.log([p.transition[0, 1] / p.transition[0, 0], p.transition[1, 0] / p.transition[1, 1]])
    effects = np.stack([slopes[0, 1], slopes[1, 0]])
    sds = np.sqrt(model.covariances_.ravel())
    theta = np.concatenate([[initial[1] - initial[0]], odds, effects.ravel(), model.means_.ravel(), np.log(sds)])
    inner, sd = np.arange(1, 15), model.terms_["sd"].to_numpy().repeat(6)

    def minus(free: np.ndarray) -> float:
        whole = theta.copy()
        whole[inner] = free
        return -plain_log_prob(whole) + 0.5 * float(np.sum((free[2:] / sd) ** 2))

    mode = minimize(minus, theta[inner], options={"gtol": 1e-7}).x
    np.testing.assert_allclose(mode, theta[inner], atol=1e-4)
    steps, H = 1e-3 * np.eye(len(inner)), np.empty((len(inner), len(inner)))
    for i, j in np.ndindex(H.shape):
        signs = [(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)]
        H[i, j] = sum(c * minus(mode + a * steps[i] + b * steps[j]) for a, b, c in signs) / 4e-6
    criterion = -minus(mode) - np.log(sd).sum() - 0.5 * np.linalg.slogdet(H)[1] + np.log(2 * np.pi)
    np.testing.assert_allclose(480 * model.history_["objective"].iloc[-1], criterion, rtol=1e-6)


def test_scores_streams_files_and_forecasts_agree(tmp_path: Path) -> None:
    model, X = fitted(), animals()
    steps = model.log_prob_steps(X)
    stream = model.stream()
    assert X.inputs is not None
    streamed = [stream.update(x, inputs=u) for x, u in zip(X[2], X.inputs[2], strict=True)]
    np.testing.assert_allclose(streamed, steps[2], atol=1e-10)
    model.save(tmp_path / "terms.safetensors")
    loaded = sm.load(tmp_path / "terms.safetensors")
    np.testing.assert_array_equal(loaded.log_prob(X), model.log_prob(X))
    assert loaded.terms_.equals(model.terms_)
    assert model.n_parameters_ == loaded.n_parameters_ > 10
    ahead = [{"animal": [float(i)] * 3, "hour": [8.0, 9.0, 10.0]} for i in range(6)]
    np.testing.assert_array_equal(
        loaded.forecast(X, 3, inputs=ahead).frame["mean"], model.forecast(X, 3, inputs=ahead).frame["mean"]
    )
    assert model.sample(1, inputs={"animal": np.zeros(5), "hour": np.arange(5.0)})[0].shape == (5, 1)
    assert len(model.decode(X)) == 6
    clone = model.clone()
    assert clone.input_effects.transitions == model.input_effects.transitions


def test_a_ridge_is_of_slopes_without_a_penalty_alone() -> None:
    effects = ChainInputEffects(transitions=[RandomEffect("animal")], ridge=100.0)
    plain = fitted(ChainInputEffects(transitions=[RandomEffect("animal")]))
    np.testing.assert_allclose(fitted(effects).terms_["sd"], plain.terms_["sd"], rtol=1e-6)


def test_transitions_of_a_new_group_are_those_of_the_mean_of_the_population() -> None:
    model = fitted(ChainInputEffects(transitions=[RandomEffect("animal")]))
    np.testing.assert_allclose(model.transition_at({"animal": [99.0]})[0], model.transition_, atol=1e-12)


def test_missing_values_are_summed_out() -> None:
    items = [np.where(np.arange(80)[:, None] % 7 == 3, np.nan, x) for x in animals()]
    X = sm.Sequences(items, inputs=animals().inputs, input_names=["animal", "hour"])
    model = sm.HMM(2, observation=sm.GaussianMixture(1), n_init=1, dtype="float64", input_effects=TERMS).fit(X)
    assert np.isfinite(model.log_prob(X)).all()
    near = fitted()
    np.testing.assert_allclose(model.terms_["sd"].iloc[0], near.terms_["sd"].iloc[0], rtol=0.5)


@pytest.mark.filterwarnings("ignore:50% of the frames are exact copies")
def test_weights_count_sequences_twice() -> None:
    X = animals()
    options: dict[str, Any] = {"observation": sm.GaussianMixture(1), "n_init": 1, "dtype": "float64"}
    effects = ChainInputEffects(transitions=[RandomEffect("animal")])
    twice = sm.HMM(2, input_effects=effects, **options).fit(sm.Sequences.joined([X, X]))
    weighted = sm.HMM(2, input_effects=effects, **options).fit(X, sample_weight=np.full(6, 2.0))
    np.testing.assert_allclose(weighted.terms_["sd"], twice.terms_["sd"], rtol=1e-4)


def test_standard_errors_have_the_effects_of_groups() -> None:
    model = fitted(ChainInputEffects(transitions=[RandomEffect("animal")]))
    rows = model.standard_errors(animals())
    effects = rows[(rows["name"] == "transition_slopes") & (rows["state"] == 0)]
    assert effects["feature"].tolist() == [(1, f"animal={i}") for i in range(6)]
    assert (effects["standard_error"] < 1.1 * model.terms_["sd"].iloc[0]).all()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (sm.HMM(2, input_effects=TERMS, algorithm="gradient"), "algorithm='gradient'"),
        (sm.HMM(2, input_effects=TERMS, start="stationary"), "stationary"),
        (sm.hmm.MarkovSwitchingAR(2, input_effects=TRANSITIONS), "pass them to an HMM or an hmm.HSMM"),
        (sm.hmm.PosteriorHMM(sm.HMM(2, input_effects=TERMS)), "no posterior is drawn"),
        (sm.Mixture([sm.HMM(2, input_effects=TERMS, n_init=1), sm.HMM(2)]), "leave it out of members of a Mixture"),
    ],
)
def test_what_does_not_go_with_terms_is_refused(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(animals())


def test_parts_known_states_and_missing_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="all sequences at once"):
        fitted().clone().partial_fit(animals())
    with pytest.raises(ValueError, match="leave states out"):
        fitted().clone().fit(animals(), states=[np.zeros(80, int)] * 6)
    with pytest.raises(ValueError, match="the model reads the inputs"):
        fitted().log_prob(sm.Sequences([np.zeros((3, 1))]))
    with pytest.raises(ValueError, match="cannot be continued"):
        copy.copy(fitted()).set_params(warm_start=True).fit(animals())
