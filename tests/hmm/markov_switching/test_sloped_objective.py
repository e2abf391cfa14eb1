"""Means that depend on inputs: against statsmodels, EM's maximum and standard errors by differences, predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import seqmodels as sm
from seqmodels.hmm import ChainInputEffects, MarkovSwitchingAR
from tests.made import made

Array = NDArray[np.float64]

# log p(y_t | y_<t) from t = 2 on, and p(z_t = 0 | y), of statsmodels 0.15.0: MarkovAutoregression(Y, k_regimes=2,
# order=2, exog=U, switching_exog=True).smooth(..) at the parameters of GIVEN.
Y = np.array([0.3, 0.692, 0.04, 0.795, 2.73, 0.647, -0.678, -0.483, 2.593, 2.689, -1.119, -0.243])[:, None]
U = np.array([1.0, 0.622, -0.227, -0.904, -0.897, -0.211, 0.635, 1.0, 0.608, -0.244, -0.911, -0.889])[:, None]
GIVEN: dict[str, Any] = {
    "transition": [[0.8, 0.2], [0.3, 0.7]],
    "means": [[0.2], [1.9]],
    "autoregression": [[[0.3], [0.1]], [[-0.2], [0.25]]],
    "variances": [0.5],
    "emission_slopes": [[[0.5]], [[-0.7]]],
    "inputs": {"u": 0.0},
}
LOG_PROB = [
    *(-1.0830789347667784, -1.8959932097510905, -2.2482520241235844, -1.6665727330432498, -2.606259300678195),
    *(-1.45456193103539, -3.5024976763997997, -2.2531961417703763, -3.128040148463285, -0.8348786679638015),
]
SMOOTHED = [
    *(0.9953624734491171, 0.7435573728640557, 0.0028347758348301684, 0.6012731125642966, 0.994168421558474),
    *(0.9454595300736054, 0.0033419700177352947, 0.002816830848855709, 0.9999993991576553, 0.9999817876080671),
]


def of_inputs(x: list[Array], u: list[Array]) -> sm.Sequences:
    return sm.Sequences(x, inputs=u, input_names=["u"])


def test_the_figures_are_those_of_statsmodels() -> None:
    model, data = made(MarkovSwitchingAR.from_parameters, **GIVEN), of_inputs([Y], [U])
    assert_allclose(model.log_prob_steps(data)[0][2:], LOG_PROB, rtol=1e-9)
    assert_allclose(model.posterior(data)[0][2:, 0], SMOOTHED, rtol=1e-8)
    assert_allclose(model.emission_slopes_, GIVEN["emission_slopes"], rtol=1e-12)
    stream = model.stream()
    assert_allclose([stream.update(y, inputs=u) for y, u in zip(Y, U, strict=True)][2:], LOG_PROB, rtol=1e-9)


def test_a_forecast_is_the_sum_over_all_states() -> None:
    given = {**GIVEN, "autoregression": [[0.4]], "variances": [0.5], "emission_slopes": [[[2.0]], [[3.0]]]}
    model, slopes = made(MarkovSwitchingAR.from_parameters, **given), np.array([2.0, 3.0])
    ahead = model.forecast(of_inputs([Y[:6]], [U[:6]]), 1, inputs=[U[6:7]]).frame
    belief = model.filter(of_inputs([Y[:6]], [U[:6]]))[0][-1]
    level = np.array(GIVEN["means"])[:, 0] + slopes * U[5:7]  # (2, K)
    joint = belief[:, None] * model.transition_  # of the states of steps 5 and 6
    expected = (joint * (level[1] + 0.4 * (Y[5] - level[0])[:, None])).sum()
    assert_allclose(ahead["mean"], expected, rtol=1e-10)
    drawn = model.sample(2000, inputs=U[:3], random_state=0)
    # A deviation shrinks by 0.4 a step, whatever the states: the third mean is its level and what is left of the first.
    of_states = [model.initial_ @ np.linalg.matrix_power(model.transition_, t) for t in (0, 2)]
    levels = np.array(GIVEN["means"])[:, 0] + slopes * U[[0, 2]]  # (2, K)
    first, third = (p @ level for p, level in zip(of_states, levels, strict=True))
    values = np.stack(drawn)[:, :, 0]
    mean = third + 0.4**2 * (values[:, 0].mean() - first)
    assert_allclose(values[:, 2].mean(), mean, atol=4 * values[:, 2].std() / np.sqrt(2000))
    assert np.isfinite(model.log_prob(of_inputs(drawn[:3], [U[:3]] * 3))).all()


RNG = np.random.default_rng(0)
STATES = [np.repeat([0, 1, 0] if RNG.random() < 0.6 else [1, 0, 1], RNG.integers(1, 5, 3)) for _ in range(24)]
INPUTS = [RNG.normal(size=(len(z), 1)) for z in STATES]
X = [
    6.0 * z[:, None] + np.where(z[:, None] == 0, 0.8, -0.5) * u + RNG.normal(size=(len(z), 1))
    for z, u in zip(STATES, INPUTS, strict=True)
]
DATA = of_inputs(X, INPUTS)


def softmax(logit: float) -> list[float]:
    p = 1 / (1 + np.exp(-logit))
    return [1 - p, p]


def gradient(f: Callable[[Array], float], at: Array, step: float = 1e-4) -> Array:
    steps = step * np.eye(len(at))
    return np.array([(f(at + each) - f(at - each)) / (2 * step) for each in steps])


def log_prob_of(model: MarkovSwitchingAR, at: Array) -> float:
    """Return the log-probability of DATA and its first states under these parameters, in raw units.

    The Gaussian of the first steps is that of the model.
    """
    parts = np.split(at, np.cumsum([2, 2, 1, 1, 2, 2, 1]))
    logits, means, coefficients, log_variance, transition_slopes, emission_slopes, initial, initial_slope = parts
    like = made(
        MarkovSwitchingAR.from_parameters,
        [softmax(-logits[0])[::-1], softmax(logits[1])],
        means=means[:, None],
        autoregression=[coefficients],
        variances=np.exp(log_variance),
        initial=softmax(initial[0]),
        transition_slopes=[[[0.0], transition_slopes[:1]], [[0.0], transition_slopes[1:]]],
        emission_slopes=emission_slopes[:, None, None],
        initial_slopes=[[0.0], initial_slope],
        first_means=model.first_means_,
        first_variances=model.first_variances_,
        inputs=dict(zip(model.input_names_, model.input_scaling_.mean, strict=True)),
        min_covariance=1e-9,
    )
    of_first = [gamma[0, z[0]] for gamma, z in zip(like.posterior(DATA), STATES, strict=True)]
    return float(like.log_prob(DATA).sum() + np.log(of_first).sum())


def numbers_of(model: MarkovSwitchingAR) -> Array:
    slopes, logits = model.transition_slopes_[..., 0], np.log(model.transition_)
    of_chain = [logits[:, 1] - logits[:, 0], model.means_[:, 0], model.autoregression_[0], np.log(model.variances_)]
    of_inputs = [slopes[:, 1] - slopes[:, 0], model.emission_slopes_[:, 0, 0]]
    return np.concatenate([*of_chain, *of_inputs, np.diff(np.log(model.initial_)), model.initial_slopes_[1]])


FIRST = [np.where(np.arange(len(z)) == 0, z, -1) for z in STATES]


def test_at_the_end_of_em_the_gradient_is_zero_for_all_parameters() -> None:
    """First states are known, because few steps say little of them, so that EM takes long to their maximum."""
    effects = ChainInputEffects(transitions=True, emissions=True, first_state=True)
    model = MarkovSwitchingAR(2, 1, start="free", n_init=1, max_iter=25, tol=1e-12, input_effects=effects)
    model.fit(DATA, states=FIRST)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    at, f = numbers_of(model), partial(log_prob_of, model)
    n = sum(map(len, X))
    assert_allclose(f(at) / n, model.history_["log_prob"].iloc[-1], rtol=1e-10)
    assert_allclose(gradient(f, at), 0.0, atol=2e-3)
    assert (np.abs(gradient(f, at + 0.1)) > 0.3).all()  # each number matters


@pytest.mark.slow
def test_standard_errors_are_those_of_a_numerical_hessian() -> None:
    options = {"start": "free", "topology": "left-to-right", "input_effects": ChainInputEffects(emissions=True)}
    u = INPUTS[:12]
    x = [3.0 * (np.arange(len(v)) > 2)[:, None] - 0.5 * v + RNG.normal(size=v.shape) for v in u]
    data = of_inputs(x, u)
    model = made(MarkovSwitchingAR, 2, 1, n_init=1, max_iter=40, tol=1e-13, **options).fit(data)

    def log_prob(at: Array) -> float:
        stays, means, phi, variance, slopes = np.split(at, [1, 3, 4, 5])
        like = made(
            MarkovSwitchingAR.from_parameters,
            [[stays[0], 1 - stays[0]], [0.0, 1.0]],
            means=means[:, None],
            autoregression=[phi],
            variances=variance,
            emission_slopes=slopes[:, None, None],
            first_means=model.first_means_,
            first_variances=model.first_variances_,
            inputs={"u": model.input_scaling_.mean[0]},
            min_covariance=1e-9,
            **options,
        )
        return float(like.log_prob(data).sum())

    of_states = [model.means_[:, 0], model.autoregression_[0], model.variances_, model.emission_slopes_[:, 0, 0]]
    at = np.concatenate([model.transition_[:1, 0], *of_states])
    step = 1e-3
    hessian = [gradient(log_prob, at + e, step) - gradient(log_prob, at - e, step) for e in step * np.eye(len(at))]
    expected = np.sqrt(np.diag(np.linalg.inv(-np.array(hessian) / (2 * step))))
    frame = model.standard_errors(data)
    names = ["transition", "means", "autoregression", "variances", "emission_slopes"]
    rounded = frame.assign(standard_error=frame["standard_error"].astype(float).round(9))  # p and 1 - p have one error
    found = rounded[~rounded.duplicated(["name", "standard_error"])].set_index("name").loc[names, "standard_error"]
    assert_allclose(found, expected, rtol=1e-4)
    low, high = model.profile_interval(data, "emission_slopes", 0, (0, "u"))
    assert low < model.emission_slopes_[0, 0, 0] < high
    assert_allclose(high - low, 2 * 1.96 * expected[-2], rtol=0.1)
