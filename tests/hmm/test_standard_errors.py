"""Standard errors against closed forms, and against Hessians of log-likelihoods that are written out here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import norm, poisson

import seqmodels as sm
from seqmodels.hmm.estimates import ON_BOUNDARY, ON_FLOOR, ON_ZERO
from seqmodels.hmm.standard_errors import NOT_IDENTIFIED, Information, wald_interval
from seqmodels.observations import Gamma, LogNormal, StudentT, VonMises
from seqmodels.sequences import Sequences
from tests.made import made

rng = np.random.default_rng(0)
COUNTS = [rng.poisson([4.0, 0.5], (100, 2)), rng.poisson([4.0, 0.5], (60, 2))]
BITS = [np.asarray(rng.random((150, 2)) < [0.3, 0.8], dtype=float)]
VECTORS = [rng.multivariate_normal([3.0, -500.0], [[4.0, 30.0], [30.0, 900.0]], 150) for _ in range(2)]
TWO_LEVELS, _ = sm.data.hmm_draws(4, 150, n_states=2, n_features=1, random_state=3)


def errors(frame: pd.DataFrame, name: str) -> np.ndarray:
    return frame.loc[frame["name"] == name, "standard_error"].to_numpy()


def fitted(n_states: int, x: Any, **options: Any) -> sm.HMM:
    steps = options.pop("max_iter", 3 if n_states == 1 else 120)
    return made(sm.HMM, n_states, tol=0, max_iter=steps, dtype="float64", n_init=1, **options).fit(x)


# -- closed forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", ["diag", "spherical", "full", "tied"])
def test_of_one_gaussian(covariance_type: Any) -> None:
    model, n = fitted(1, VECTORS, observation=sm.GaussianMixture(1, covariance_type=covariance_type)), 300
    frame, covariance = model.standard_errors(VECTORS), np.cov(np.concatenate(VECTORS).T, bias=True)
    variances = np.diag(covariance)
    assert frame["note"].eq("").all()
    if covariance_type == "spherical":  # in standardised units both variances are one number, from 2 n values
        assert_allclose(errors(frame, "covariances"), variances * np.sqrt(2 / (2 * n)), rtol=1e-6)
        return
    assert_allclose(errors(frame, "means"), np.sqrt(variances / n), rtol=1e-6)
    expected = variances * np.sqrt(2 / n)
    if covariance_type != "diag":
        expected = np.insert(expected, 1, np.sqrt((variances.prod() + covariance[0, 1] ** 2) / n))
    assert_allclose(errors(frame, "covariances"), expected, rtol=1e-6)


def test_of_one_poisson_with_and_without_a_prior() -> None:
    frame = fitted(1, COUNTS, observation=sm.Poisson()).standard_errors(COUNTS)
    rates = np.concatenate(COUNTS).mean(0)
    assert_allclose(frame["estimate"], rates)
    assert_allclose(frame["standard_error"], np.sqrt(rates / 160), rtol=1e-7)
    half = norm.ppf(0.975) / np.sqrt(160 * rates)  # on the scale of logarithms
    assert_allclose(frame["ci_low"], rates * np.exp(-half), rtol=1e-7)
    assert_allclose(frame["ci_high"], rates * np.exp(half), rtol=1e-7)
    model = fitted(1, COUNTS, observation=sm.Poisson(pseudocount=40, mean=2.0))
    frame = model.standard_errors(COUNTS)
    assert_allclose(frame["standard_error"], np.sqrt(model.rates_[0] / 200), rtol=1e-7)  # of a Gamma distribution


def test_of_groups_of_columns_they_are_those_of_each_group() -> None:
    x = [np.column_stack([VECTORS[0][:, 0], BITS[0][:, 0], VECTORS[0][:, 1]])]
    groups = [(sm.GaussianMixture(1), 1), (sm.Bernoulli(), 1), (sm.GaussianMixture(1), 1)]
    model = fitted(1, x, observation=sm.Columns(groups))
    frame, variance = model.standard_errors(x), x[0].var(0)
    assert_allclose(errors(frame, "means_0"), np.sqrt(variance[:1] / 150), rtol=1e-6)
    assert_allclose(errors(frame, "probabilities"), np.sqrt(variance[1:2] / 150), rtol=1e-6)
    assert_allclose(errors(frame, "covariances_2"), variance[2:] * np.sqrt(2 / 150), rtol=1e-6)
    assert frame["feature"].tolist() == [0, 0, 1, 2, 2]
    assert_allclose(frame.loc[frame["name"] == "means_2", "estimate"], model.means_2_.ravel())


def test_of_two_states_of_columns_they_are_those_of_one_observation_of_both() -> None:
    x = [np.column_stack([item, item[::-1]]) for item in TWO_LEVELS.items]
    whole = fitted(2, x, observation=sm.GaussianMixture(1))
    apart = fitted(2, x, observation=sm.Columns([(sm.GaussianMixture(1), 1)] * 2))
    expected, frame = whole.standard_errors(x), apart.standard_errors(x)
    both = np.sort(expected.loc[expected["name"] == "means", "standard_error"])
    assert_allclose(np.sort([*errors(frame, "means_0"), *errors(frame, "means_1")]), both, rtol=1e-4)


def test_of_one_bernoulli() -> None:
    frame, p = fitted(1, BITS, observation=sm.Bernoulli()).standard_errors(BITS, level=0.8), BITS[0].mean(0)
    assert_allclose(frame["standard_error"], np.sqrt(p * (1 - p) / 150), rtol=1e-7)
    half = norm.ppf(0.9) / np.sqrt(150 * p * (1 - p))  # on the scale of log-odds
    assert_allclose(frame["ci_low"], 1 / (1 + np.exp(-np.log(p / (1 - p)) + half)), rtol=1e-7)
    assert_allclose(frame["ci_high"], 1 / (1 + np.exp(-np.log(p / (1 - p)) - half)), rtol=1e-7)


def test_of_one_categorical_by_the_names_of_its_symbols() -> None:
    words = [["sit", "walk", "sit", "lie", "sit", "walk"] * 10]
    frame = fitted(1, words, length="given").standard_errors(words)
    p = np.array([10, 30, 20]) / 60
    assert frame["feature"].tolist() == ["lie", "sit", "walk"]
    assert_allclose(frame["standard_error"], np.sqrt(p * (1 - p) / 60), rtol=1e-7)


def test_of_a_visible_chain_with_ends_they_are_multinomial() -> None:
    x = [np.array(s) for s in ([0, 0, 1, 1, 0], [1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 0, 0], [1, 1])]
    model = made(
        sm.HMM.from_parameters,
        [0.5, 0.5],
        [[0.4, 0.4], [0.4, 0.4]],
        [0.2, 0.2],
        emission=np.eye(2),
        training__frozen=["emission"],
        tol=0,
    )
    model.set_params(warm_start=True, pseudocount=0.0).fit(x)
    frame = model.standard_errors(x).set_index("name")
    joined = [(i, j) for s in x for i, j in zip(s, [*s[1:], 2], strict=True)]
    counts = np.array([[joined.count((i, j)) for j in range(3)] for i in range(2)], dtype=float)
    p, n = counts / counts.sum(1, keepdims=True), counts.sum(1, keepdims=True)
    expected = np.sqrt(p * (1 - p) / n)
    assert_allclose(frame.loc["transition", "standard_error"], expected[:, :2].ravel(), rtol=1e-6)
    assert_allclose(frame.loc["final", "standard_error"], expected[:, 2], rtol=1e-6)
    assert_allclose(frame.loc["initial", "standard_error"], np.sqrt(0.4 * 0.6 / 5) * np.ones(2), rtol=1e-6)
    assert set(frame.index) == {"initial", "transition", "final"}
    assert frame.loc["transition", "state"].tolist() == [0, 0, 1, 1]
    assert frame.loc["transition", "feature"].tolist() == [0, 1, 0, 1]


# -- Hessians of log-likelihoods written out ---------------------------------------------------------------------------


def log_likelihood(
    x: list[np.ndarray], start: np.ndarray, rows: np.ndarray, log_b: Callable[[np.ndarray], Any]
) -> float:
    total = 0.0
    for item in x:
        b = np.exp(log_b(item))  # (T, K)
        alpha = start * b[0]
        total += np.log(alpha.sum())
        for frame in b[1:]:
            alpha = (alpha / alpha.sum()) @ rows * frame
            total += np.log(alpha.sum())
    return float(total)


def deviations(objective: Callable[[np.ndarray], float], theta: np.ndarray) -> np.ndarray:
    """Standard errors by differences of differences of the log-likelihood, in raw units."""
    unit = 1e-3 * np.maximum(np.abs(theta), 0.05)

    def scaled(u: np.ndarray) -> float:
        return objective(theta + unit * u)

    def gradient(u: np.ndarray) -> np.ndarray:
        return np.array([(scaled(u + e) - scaled(u - e)) / 2 for e in np.eye(len(u))])

    hessian = np.array([(gradient(e) - gradient(-e)) / 2 for e in np.eye(len(theta))])
    return np.sqrt(np.diag(np.linalg.inv(-0.5 * (hessian + hessian.T)))) * unit


def rows_of(leave: np.ndarray) -> np.ndarray:
    return np.array([[1 - leave[0], leave[0]], [leave[1], 1 - leave[1]]])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("start", ["free", "stationary", "uniform"])
def test_of_two_states_of_a_gaussian(start: Any) -> None:
    model = fitted(2, TWO_LEVELS, observation=sm.GaussianMixture(1), start=start)
    frame = model.standard_errors(TWO_LEVELS)
    a, free = model.transition_, start == "free" and 0.01 < model.initial_[0] < 0.99

    def objective(theta: np.ndarray) -> float:
        leave, means, variances = theta[:2], theta[2:4], theta[4:6]
        first = {
            "free": np.array([theta[-1], 1 - theta[-1]]) if free else model.initial_,
            "stationary": leave[::-1] / leave.sum(),
            "uniform": np.full(2, 0.5),
        }[start]
        return log_likelihood(TWO_LEVELS, first, rows_of(leave), lambda x: norm.logpdf(x, means, np.sqrt(variances)))

    theta = np.array([a[0, 1], a[1, 0], *model.means_.ravel(), *model.covariances_.ravel()])
    theta = np.append(theta, model.initial_[0]) if free else theta
    expected = deviations(objective, theta)
    assert_allclose(errors(frame, "transition")[[0, 1, 2, 3]], expected[[0, 0, 1, 1]], rtol=2e-4)
    assert_allclose(errors(frame, "means"), expected[2:4], rtol=2e-4)
    assert_allclose(errors(frame, "covariances"), expected[4:6], rtol=2e-4)
    if start == "stationary":  # π_0 = leave_1 / (leave_0 + leave_1)
        assert (errors(frame, "initial") > 0).all()
        assert_allclose(*errors(frame, "initial"))
    elif start == "uniform":
        assert "initial" not in set(frame["name"])
    elif free:
        assert_allclose(errors(frame, "initial"), expected[-1], rtol=2e-4)


def test_of_two_states_of_a_poisson_in_other_units_of_the_hessian() -> None:
    state = (np.arange(300) // 30) % 2
    x = [np.random.default_rng(1).poisson(np.array([2.0, 9.0])[state])[:, None]]
    model = fitted(2, x, observation=sm.Poisson(), start="stationary")
    frame, a = model.standard_errors(x), model.transition_

    def objective(theta: np.ndarray) -> float:
        leave = theta[:2]
        first = leave[::-1] / leave.sum()
        return log_likelihood(x, first, rows_of(leave), lambda item: poisson.logpmf(item, theta[2:]))

    expected = deviations(objective, np.array([a[0, 1], a[1, 0], *model.rates_.ravel()]))
    assert_allclose(errors(frame, "rates"), expected[2:], rtol=2e-4)
    assert_allclose(errors(frame, "transition")[1:3], expected[:2], rtol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("w", [0.0, 0.05])
def test_of_two_states_of_an_autoregression(w: float) -> None:
    generator, x = np.random.default_rng(2), []
    for _ in range(3):
        values, state = [0.0], (np.arange(200) // 25) % 2
        for z in state:
            values.append([0.9, -0.5][z] * values[-1] + [0.0, 3.0][z] + generator.normal())
        x.append(10 + 5 * np.array(values)[:, None])
    observation = sm.AutoregressiveGaussian(1, ridge=0.0, background=w)
    model = fitted(2, x, observation=observation, start="stationary")
    frame, a, scale = model.standard_errors(x), model.transition_, float(model.encoding_.affine()[1][0])
    # The first step has a density of its own that all states share, and says nothing of parameters.
    later = [np.stack([item[:-1, 0], item[1:, 0]], 1) for item in x]

    def objective(theta: np.ndarray) -> float:
        leave, slope, intercept, variance = theta[:2], theta[2:4], theta[4:6], theta[6:8]
        rows, first = rows_of(leave), leave[::-1] / leave.sum()

        def log_b(pairs: np.ndarray) -> Any:
            regression = norm.pdf(pairs[:, 1:], slope * pairs[:, :1] + intercept, np.sqrt(variance))
            return np.log((1 - w) * regression + w * norm.pdf(pairs[:, 1:], pairs[:, :1], np.sqrt(10) * scale))

        return log_likelihood(later, first @ rows, rows, log_b)

    theta = np.concatenate([[a[0, 1], a[1, 0]], model.coefficients_.ravel(), model.intercepts_.ravel()])
    expected = deviations(objective, np.concatenate([theta, model.covariances_.ravel()]))
    for name, part in (("coefficients", slice(2, 4)), ("intercepts", slice(4, 6)), ("covariances", slice(6, 8))):
        assert_allclose(errors(frame, name), expected[part], rtol=2e-4)
    assert frame.loc[frame["name"] == "coefficients", "feature"].tolist() == [(0, 0, 1)] * 2


# -- given inputs ------------------------------------------------------------------------------------------------------


def given_heat(kind: str, n: int = 300) -> sm.Sequences:
    """One sequence, what is seen in which follows an input."""
    generator = np.random.default_rng(4)
    heat = 20 + 3 * generator.normal(size=n)
    level = (heat - 20) / 3
    items = {
        "reals": np.stack([level, -level], 1) + generator.multivariate_normal([5, 0], [[1.0, 0.6], [0.6, 2.0]], n),
        "counts": generator.poisson(np.exp(1 + 0.4 * level))[:, None],
        "bits": (generator.random(n) < 1 / (1 + np.exp(0.5 - level))).astype(float)[:, None],
        "symbols": (generator.random((n, 2)) < 1 / (1 + np.exp(-level[:, None] * [1, -1]))).sum(1),
    }
    return sm.Sequences([items[kind]], inputs=[heat[:, None]], input_names=["heat"])


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_of_one_state_given_inputs_they_are_those_of_a_linear_regression(covariance_type: Any) -> None:
    x = given_heat("reals")
    model = fitted(1, x, observation=sm.GaussianMixture(1, covariance_type), input_effects__emissions=True)
    frame, heat = model.standard_errors(x), x.inputs[0][:, 0] if x.inputs is not None else np.empty(0)
    slope, intercept = np.polyfit(heat, x.items[0], 1)
    variance = np.mean((x.items[0] - heat[:, None] * slope - intercept) ** 2, axis=0)
    rows = frame[frame["name"] == "emission_slopes"]
    assert_allclose(rows["estimate"], slope, rtol=1e-8)
    assert_allclose(rows["standard_error"], np.sqrt(variance / ((heat - heat.mean()) ** 2).sum()), rtol=1e-6)
    assert rows["feature"].tolist() == [(0, "heat"), (1, "heat")]
    assert_allclose(errors(frame, "means"), np.sqrt(variance / len(heat)), rtol=1e-6)


@pytest.mark.parametrize("kind", ["counts", "bits", "symbols"])
def test_of_one_state_given_inputs_they_are_those_of_a_generalised_linear_model(kind: str) -> None:
    x = given_heat(kind)
    observation = {"counts": sm.Poisson(), "bits": sm.Bernoulli(), "symbols": sm.Categorical()}[kind]
    model = fitted(1, x, observation=observation, input_effects__emissions=True, length="given")
    frame = model.standard_errors(x)
    assert x.inputs is not None
    heat = x.inputs[0][:, 0]
    design, slopes = np.stack([np.ones_like(heat), heat - heat.mean()], 1), model.emission_slopes_[0, :, 0]
    if kind == "symbols":
        log_p = np.log(model.emission_[0]) + design[:, 1:] * slopes
        p = np.exp(log_p) / np.exp(log_p).sum(1, keepdims=True)
        p = p[:, 1:]
        weight = np.einsum("nj,jl->njl", p, np.eye(2)) - p[:, :, None] * p[:, None]
        information = np.einsum("njl,na,nb->jalb", weight, design, design).reshape(4, 4)
        expected = np.sqrt(np.diag(np.linalg.inv(information)))[[1, 3]]
        assert frame.loc[frame["name"] == "emission_slopes", "feature"].tolist() == [(1, "heat"), (2, "heat")]
    else:
        base = np.log(model.rates_[0]) if kind == "counts" else np.log(1 / (1 / model.probabilities_[0] - 1))
        mean = np.exp(base + slopes * design[:, 1])
        weight = mean if kind == "counts" else mean / (1 + mean) ** 2
        expected = np.sqrt(np.linalg.inv(design.T @ (weight[:, None] * design))[1, 1])
    assert_allclose(errors(frame, "emission_slopes"), expected, rtol=1e-6)
    assert frame["note"].eq("").all()


def test_positive_values_given_inputs() -> None:
    generator = np.random.default_rng(7)
    heat = 20 + 3 * generator.normal(size=200)
    x = 5 * generator.gamma(2.0, np.exp(0.2 * (heat - 20)))[:, None]
    X, centred = sm.Sequences([x], inputs=[heat[:, None]], input_names=["heat"]), heat - heat.mean()
    design = np.stack([np.ones_like(heat), centred], 1)

    normal = fitted(1, X, observation=LogNormal(), input_effects__emissions=True)
    slope, intercept = np.polyfit(centred, np.log(x[:, 0]), 1)
    variance = np.mean((np.log(x[:, 0]) - slope * centred - intercept) ** 2)
    frame = normal.standard_errors(X)
    rows = frame[frame["name"] == "emission_slopes"]
    assert_allclose(rows["estimate"], slope, rtol=1e-6)
    assert_allclose(rows["standard_error"], np.sqrt(variance / (centred**2).sum()), rtol=1e-5)

    gamma = fitted(1, X, observation=Gamma(), input_effects__emissions=True)
    shape, slope = gamma.shapes_[0, 0], gamma.emission_slopes_[0, 0, 0]
    ratio = x[:, 0] / (shape / gamma.rates_[0, 0] * np.exp(slope * centred))
    assert_allclose(design.T @ (ratio - 1), 0.0, atol=1e-5)  # the score of a regression of the log-mean
    expected = np.sqrt(np.linalg.inv(design.T @ (shape * ratio[:, None] * design))[1, 1])
    assert_allclose(errors(gamma.standard_errors(X), "emission_slopes"), expected, rtol=1e-5)


def test_slopes_have_the_units_of_what_they_add_to() -> None:
    generator = np.random.default_rng(8)
    heat = generator.normal(size=(80, 1))
    reals, angles = heat + generator.standard_t(4.0, (80, 1)), generator.vonmises(0.5 * heat, 2.0)

    def slopes(observation: Any, x: np.ndarray) -> np.ndarray:
        X = sm.Sequences([x], inputs=[heat])
        return fitted(1, X, observation=observation, input_effects__emissions=True).emission_slopes_[0, :, 0]

    assert_allclose(slopes(StudentT(), 10 * reals), 10 * slopes(StudentT(), reals), rtol=1e-4)
    assert_allclose(slopes(Gamma(), 10 * np.exp(reals)), slopes(Gamma(), np.exp(reals)), rtol=1e-4)
    X = sm.Sequences([angles], inputs=[heat], input_names=["heat"])
    frame = fitted(1, X, observation=VonMises(), input_effects__emissions=True).standard_errors(X)
    labels = frame.loc[frame["name"] == "emission_slopes", "feature"].tolist()
    assert labels == [(("cos", 0), "heat"), (("sin", 0), "heat")]
    assert frame["note"].eq("").all()


def driven_counts(n: int = 70) -> sm.Sequences:
    """Counts of two states that overlap; heat drives the transitions, and noise the rates."""
    generator, items, inputs = np.random.default_rng(6), [], []
    for _ in range(2):
        u, z, counts = generator.normal(size=(n, 2)), 0, []
        for t in range(n):
            z = 1 - z if generator.random() < 1 / (1 + np.exp(1.5 - u[t, 0])) else z
            counts.append(generator.poisson(np.exp([0.7, 1.8][z] + [0.3, -0.2][z] * u[t, 1])))
        items.append(np.array(counts)[:, None])
        inputs.append(10 + 2 * u)
    return sm.Sequences(items, inputs=inputs, input_names=["heat", "noise"])


def driven_log_likelihood(model: sm.HMM, x: sm.Sequences, theta: np.ndarray) -> float:
    """Of leaving and rates where inputs are at their mean, then of slopes of the two; with the prior of the ridge."""
    leave, rates, slopes, of_rates = theta[:2], theta[2:4], theta[4:6], theta[6:8]
    scaling, total = model.input_scaling_, 0.0
    assert scaling is not None
    for item, inputs in zip(x.items, x.inputs or [], strict=True):
        u = inputs - scaling.mean
        odds = leave / (1 - leave) * np.exp(u[:, :1] * slopes)
        b = poisson.pmf(item, rates * np.exp(u[:, 1:] * of_rates))
        alpha = 0.5 * b[0]
        for t in range(1, len(b)):
            total += np.log(alpha.sum())
            alpha = alpha / alpha.sum() @ rows_of(odds[t] / (1 + odds[t])) * b[t]
        total += np.log(alpha.sum())
    # Of two slopes of a row, of which one is zero, less their mean.
    return float(total - 0.25 * model.input_effects.ridge * ((slopes * scaling.scale[0]) ** 2).sum())


def driven_model(x: sm.Sequences, ridge: float = 0.0) -> tuple[sm.HMM, np.ndarray]:
    """One fitted to ``driven_counts``, and the parameters that ``driven_log_likelihood`` takes."""
    which: dict[str, Any] = {
        "input_effects__transitions": ["heat"],
        "input_effects__emissions": ["noise"],
        "input_effects__ridge": ridge,
    }
    model = fitted(2, x, observation=sm.Poisson(), start="uniform", **which)
    across = ([0, 1], [1, 0])
    chain = (model.transition_[across], model.rates_.ravel(), model.transition_slopes_[(*across, 0)])
    return model, np.concatenate([*chain, model.emission_slopes_[:, 0, 1]])


@pytest.mark.slow
@pytest.mark.parametrize("ridge", [0.0, 20.0])
def test_of_two_states_whose_transitions_and_emissions_depend_on_inputs(ridge: float) -> None:
    x = driven_counts()
    model, theta = driven_model(x, ridge)
    frame = model.standard_errors(x)
    expected = deviations(lambda theta: driven_log_likelihood(model, x, theta), theta)
    assert_allclose(errors(frame, "transition"), expected[[0, 0, 1, 1]], rtol=5e-4)
    assert_allclose(errors(frame, "rates"), expected[2:4], rtol=5e-4)
    assert_allclose(errors(frame, "transition_slopes"), expected[4:6], rtol=5e-4)
    assert_allclose(errors(frame, "emission_slopes"), expected[6:8], rtol=5e-4)
    of_inputs = frame[frame["name"].isin(["transition_slopes", "emission_slopes"])]
    assert of_inputs["feature"].tolist() == [(1, "heat"), (0, "heat"), (0, "noise"), (0, "noise")]
    assert_allclose(of_inputs["estimate"], theta[4:])


def test_of_a_first_state_they_are_those_of_a_logistic_regression() -> None:
    generator, items, inputs = np.random.default_rng(5), [], []
    for _ in range(150):
        u = generator.normal(size=(3, 1))
        first = int(generator.random() < 1 / (1 + np.exp(-0.3 - u[0, 0])))
        items.append(100.0 * first + generator.normal(size=(3, 1)))  # a state that is seen, and kept
        inputs.append(7 + 2 * u)
    x = sm.Sequences(items, inputs=inputs, input_names=["heat"])
    model = fitted(
        2, x, observation=sm.GaussianMixture(1), input_effects__first_state=True, max_iter=20, pseudocount=1.0
    )
    frame, heat = model.standard_errors(x), np.array([u[0, 0] for u in inputs])
    scaling, high = model.input_scaling_, int(model.means_[:, 0, 0].argmax())
    assert scaling is not None
    design = np.stack([np.ones_like(heat), heat - scaling.mean[0]], 1)
    base, slope = np.log(model.initial_[1] / model.initial_[0]), model.initial_slopes_[1, 0]
    p = 1 / (1 + np.exp(-(base + slope * design[:, 1])))
    information = design.T @ (design * (p * (1 - p))[:, None])
    information[0, 0] += 2 * model.initial_.prod()  # of the prior: a start in each state, where heat is at its mean
    errors_expected = np.sqrt(np.diag(np.linalg.inv(information)))
    row = frame[frame["name"] == "initial_slopes"]
    assert row[["state", "feature", "note"]].to_numpy().tolist() == [[1, "heat", ""]]
    assert_allclose(row["estimate"], slope)
    assert_allclose(row["standard_error"], errors_expected[1], rtol=1e-5)
    assert_allclose(errors(frame, "initial"), errors_expected[0] * model.initial_.prod(), rtol=1e-5)
    assert (slope > 0) == (high == 1)
    low_end, high_end = model.profile_interval(x, "initial_slopes", 1, "heat")
    assert low_end < slope < high_end
    assert_allclose([slope - low_end, high_end - slope], 1.96 * errors_expected[1], rtol=0.15)


def test_a_slope_of_a_transition_that_never_comes_has_none() -> None:
    generator = np.random.default_rng(0)
    x = [np.concatenate([generator.normal(m, 1.0, (30, 1)) for m in (0, 9, 18)]) for _ in range(5)]
    given = sm.Sequences(x, inputs=[generator.normal(size=(90, 1)) for _ in x], input_names=["heat"])
    options: dict[str, Any] = {
        "topology": sm.LeftToRight(skips=1),
        "input_effects__transitions": True,
        "input_effects__ridge": 1.0,
    }
    model = fitted(3, given, observation=sm.GaussianMixture(1), max_iter=60, **options)
    frame = model.standard_errors(given)
    slopes = frame[frame["name"] == "transition_slopes"]
    found = list(zip(slopes["state"], slopes["feature"], slopes["note"], strict=True))
    assert found == [(0, (1, "heat"), ""), (0, (2, "heat"), ON_BOUNDARY), (1, (2, "heat"), "")]
    with_errors = slopes["standard_error"].notna().tolist()
    assert with_errors == [True, False, True]


# -- what holds of all -------------------------------------------------------------------------------------------------


def test_errors_scale_with_the_data_and_follow_the_order_of_states() -> None:
    model = fitted(2, TWO_LEVELS, observation=sm.GaussianMixture(1), start="uniform")
    frame = model.standard_errors(TWO_LEVELS)
    large = [8.0 * item for item in TWO_LEVELS]
    scaled = fitted(2, large, observation=sm.GaussianMixture(1), start="uniform").standard_errors(large)
    for name, factor in (("means", 8), ("covariances", 64), ("transition", 1)):
        assert_allclose(errors(scaled, name), factor * errors(frame, name), rtol=1e-5)
    other = model.reorder([1, 0]).standard_errors(TWO_LEVELS)
    assert_allclose(errors(other, "means"), errors(frame, "means")[::-1], rtol=1e-6)


def test_states_that_share_an_emission_share_its_errors() -> None:
    model = fitted(2, TWO_LEVELS, observation=sm.GaussianMixture(1), training__tied=[0, 0], max_iter=5)
    frame = model.standard_errors(TWO_LEVELS)
    values = np.concatenate(TWO_LEVELS)
    assert_allclose(errors(frame, "means"), np.sqrt(values.var() / len(values)), rtol=1e-5)
    # Of states that emit alike the data say nothing of transitions.
    assert frame.loc[frame["name"] == "transition", "note"].eq(NOT_IDENTIFIED).all()


# -- boundaries --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:feature 0 is 1 in 40%", "ignore:.*floor")
def test_a_variance_on_its_floor_has_none() -> None:
    x = [np.concatenate([np.full(40, 1.0), np.random.default_rng(0).normal(9.0, 1.0, 60)])[:, None]]
    model = fitted(2, x, observation=sm.GaussianMixture(1), start="uniform", max_iter=50)
    frame = model.standard_errors(x)
    narrow = int(model.covariances_.argmin())
    row = frame[(frame["name"] == "covariances") & (frame["state"] == narrow)].iloc[0]
    assert row["note"] == ON_FLOOR
    assert np.isnan(row[["standard_error", "ci_low", "ci_high"]].astype(float)).all()
    other = frame[(frame["name"] == "covariances") & (frame["state"] != narrow)].iloc[0]
    assert_allclose(other["standard_error"], other["estimate"] * np.sqrt(2 / 60), rtol=1e-5)


def test_a_probability_near_zero_has_none_and_one_that_is_ruled_out_no_row() -> None:
    x = [np.concatenate([np.random.default_rng(i).normal(m, 1.0, (30, 1)) for m in (0, 9, 18)]) for i in range(5)]
    model = fitted(3, x, observation=sm.GaussianMixture(1), topology=sm.LeftToRight(skips=1), max_iter=60)
    frame = model.standard_errors(x)
    chain = frame[frame["name"] == "transition"]
    assert "initial" not in set(frame["name"])  # the topology has one first state
    assert list(zip(chain["state"], chain["feature"], strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]
    assert chain["note"].tolist() == ["", "", ON_BOUNDARY, "", ""]
    # A state is left 5 times, after 30 steps each.
    assert_allclose(
        chain["standard_error"],
        [*[np.sqrt(29 / 30 / 30 / 150)] * 2, np.nan, *[np.sqrt(29 / 30 / 30 / 150)] * 2],
        rtol=1e-4,
    )


def test_rates_of_zero_and_certain_bits_and_symbols_have_none() -> None:
    counts = [np.column_stack([item[:, 0], np.zeros(len(item))]) for item in COUNTS]
    frame = fitted(1, counts, observation=sm.Poisson()).standard_errors(counts)
    assert frame["note"].tolist() == ["", ON_ZERO]
    bits = [np.column_stack([BITS[0][:, 0], np.ones(150)])]
    frame = fitted(1, bits, observation=sm.Bernoulli()).standard_errors(bits)
    assert frame["note"].tolist() == ["", ON_BOUNDARY]
    model = fitted(1, [np.array([0, 1, 1, 0, 1])], length="given", encoding=sm.Symbols(3))
    frame = model.standard_errors([np.array([0, 1, 1, 0, 1])])
    assert frame["note"].tolist() == ["", "", ON_BOUNDARY]
    assert_allclose(frame["standard_error"], [np.sqrt(0.24 / 5)] * 2 + [np.nan], rtol=1e-7)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_parameters_that_are_not_at_the_maximum_are_warned_of() -> None:
    model = fitted(1, VECTORS, observation=sm.GaussianMixture(1))
    away = [item + np.array([0.5, 0.0]) for item in VECTORS]
    with pytest.warns(UserWarning, match=r"means of state 0 is about 4\.\d standard errors away"):
        model.standard_errors(away)


def test_what_has_no_standard_errors_is_refused() -> None:
    model = sm.HMM(2, observation=sm.AutoregressiveGaussian(1), max_iter=2).fit(VECTORS)
    missing = [np.where(np.arange(150)[:, None] == 7, np.nan, VECTORS[0])]
    with pytest.raises(ValueError, match="where values are missing that later steps look at"):
        model.standard_errors(missing)
    with pytest.raises(ValueError, match="standard_errors reads whole sequences"):
        model.standard_errors(Sequences(VECTORS, past=VECTORS))
    with pytest.raises(ValueError, match=r"level is 95; pass a probability between 0 and 1"):
        model.standard_errors(VECTORS, level=95)
    impossible = sm.HMM.from_parameters([1.0, 0.0], [[0.5, 0.5], [0.5, 0.5]], emission=np.eye(2))
    with pytest.raises(ValueError, match="sequence 1 has probability zero"):
        impossible.standard_errors([np.array([0]), np.array([1])])


def test_a_stationary_start_where_sequences_end_has_a_gradient() -> None:
    """The first state has the left Perron vector of the transitions, which moves with them."""
    rng = np.random.default_rng(3)
    x = [rng.integers(0, 2, 8) for _ in range(6)]
    model = sm.HMM(2, start="stationary", max_iter=3, dtype="float64").fit(x)
    objective, _, _ = model._objective_at(model._setting().examples(sm.encodings.raw_data.Data.of(x)))
    u = torch.tensor(0.1 * rng.normal(size=objective.coordinates.n))
    _, gradient = objective.value_and_gradient(u)
    for step in torch.eye(len(u), dtype=torch.float64):
        up, down = (objective.value_and_gradient(u + sign * 1e-5 * step)[0] for sign in (1, -1))
        assert_allclose((up - down) / 2e-5, float(gradient @ step), rtol=1e-6, atol=1e-7)
    at = objective.coordinates.at(u)[0]
    assert_allclose(at.initial @ at.transition, (at.transition.sum(1) @ at.initial) * at.initial, rtol=1e-12)


def test_a_value_rounded_to_the_end_of_its_range_has_an_interval_of_all_that_is_possible() -> None:
    assert wald_interval(0.0, 0.1, "log", 0.95) == (0.0, np.inf)
    assert wald_interval(1.0, 0.1, "logit", 0.95) == (0.0, 1.0)


@pytest.mark.parametrize("error", [1e6, 1e300, np.inf])
def test_the_interval_of_what_is_not_determined_holds_all_that_is_possible(error: float) -> None:
    """Without an overflow, which would be a warning."""
    assert wald_interval(7.0, error, "log", 0.95) == (0.0, np.inf)
    assert wald_interval(0.3, error, "logit", 0.95) == (0.0, 1.0)
    assert_allclose(wald_interval(7.0, error, "identity", norm.cdf(1) - norm.cdf(-1)), (7 - error, 7 + error))
    assert_allclose(wald_interval(1e-305, 7e-303, "log", norm.cdf(1) - norm.cdf(-1)), (0.0, 1e-305 * np.exp(700)))


@pytest.mark.parametrize("rounding", [1e-11, -1e-11, 0.0])
def test_an_entry_of_the_information_that_is_rounding_is_a_flat_direction(rounding: float) -> None:
    information = Information.of(torch.tensor([[16.0, 0.0], [0.0, rounding]], dtype=torch.float64))
    assert information.is_identified(torch.eye(2, dtype=torch.float64)).tolist() == [True, False]
    assert_allclose((information.root @ information.root.T).numpy(), [[1 / 16, 0.0], [0.0, 0.0]], atol=1e-30)
