"""Effects of inputs beside figures of R, standard errors of parameters, and a plain program for a chain."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logit
from scipy.stats import norm
from torch import Tensor

import seqmodels as sm
from seqmodels.hmm import ChainInputEffects, RandomEffect, Smooth
from tests.hmm.test_penalised_terms import animals, fitted, of_r, one_state

LINEAR = ChainInputEffects(transitions=["heat"], emissions=["heat"], first_state=["heat"])


@pytest.mark.parametrize(
    ("y", "u", "term", "values", "fit", "se"),
    [  # mgcv::gam(y ~ s(x, bs = "ps", k = 10), method = "REML", knots = equidistant), predict(se.fit = TRUE)
        (
            *("y", "x", Smooth("u"), [0.5, 3.0, 5.5, 9.0]),
            *([1.2014461, 1.1018218, 0.2787408, 3.5565060], [0.1235745, 0.1256613, 0.1073962, 0.0988502]),
        ),
        # mgcv::gam(y3 ~ s(h, bs = "cp", k = 10), method = "REML", knots = list(h = c(0, 24)))
        (
            *("y3", "h", Smooth("u", period=24), [0.0, 6.0, 13.0]),
            *([1.1509908, 0.1270181, -1.0455194], [0.1306828, 0.1346764, 0.1349446]),
        ),
        # mgcv::gam(y2 ~ s(g, bs = "re"), method = "REML")
        (
            *("y2", "g", RandomEffect("u"), [0.0, 3.0, 7.0]),
            *([1.5083171, 0.5200192, 0.6174553], [0.1252510, 0.1038815, 0.1012806]),
        ),
    ],
)
def test_effects_on_a_mean_are_those_of_mgcv(
    y: str, u: str, term: Any, values: list[float], fit: list[float], se: list[float]
) -> None:
    model, X = one_state(of_r()[y], of_r()[u], term)
    frame = model.effects(X, "u", "emissions", values=values)
    np.testing.assert_allclose(frame["estimate"], fit, rtol=1e-5)
    np.testing.assert_allclose(frame["standard_error"], se, rtol=1e-3)  # here how sure σ is counts too
    np.testing.assert_allclose(frame["ci_high"] - frame["estimate"], norm.ppf(0.975) * frame["standard_error"])
    assert frame["value"].tolist() == values
    assert set(frame["input"]) == {"u"}
    assert set(frame["name"]) == {"means"}


def test_effects_on_a_rate_are_those_of_mgcv() -> None:
    """mgcv::gam(counts ~ s(g, bs = "re"), family = poisson, method = "ML"), on the scale of the linear predictor."""
    data = of_r()
    model, X = one_state(data["counts"], data["g"], RandomEffect("u"), observation=sm.Poisson(), restricted=False)
    frame = model.effects(X, "u", "emissions", values=[0.0, 3.0, 7.0])
    np.testing.assert_allclose(np.log(frame["estimate"]), [0.6430145, -0.0268072, -0.0751081], atol=2e-3)
    error = frame["standard_error"] / frame["estimate"]
    np.testing.assert_allclose(error, [0.1968906, 0.2260808, 0.2257612], rtol=1e-3)
    np.testing.assert_allclose(np.log(frame["ci_high"] / frame["estimate"]), norm.ppf(0.975) * error)


# -- a chain, beside a plain program -----------------------------------------------------------------------------------


@cache
def of_animals() -> sm.HMM:
    return fitted(ChainInputEffects(transitions=[RandomEffect("animal")]))


def plain_log_prob(theta: Tensor, sd: Tensor) -> Tensor:
    """Penalised log p(x) of all animals: logit of the first state, intercepts, two by six effects, means, log-sds."""
    x = torch.as_tensor(np.stack(list(animals())))  # (6, 80, 1)
    log_b = torch.distributions.Normal(theta[15:17], theta[17:19].exp()).log_prob(x)  # (6, 80, 2)
    effects = theta[3:15].view(2, 6)
    leave, zero = theta[1:3, None] + effects, torch.zeros(6, dtype=torch.float64)
    log_a = torch.stack([torch.stack([zero, leave[0]], 1), torch.stack([leave[1], zero], 1)], 1).log_softmax(2)
    log_alpha = torch.stack([zero[0], theta[0]]).log_softmax(0) + log_b[:, 0]
    for t in range(1, 80):
        log_alpha = torch.logsumexp(log_alpha[:, :, None] + log_a, 1) + log_b[:, t]
    return torch.logsumexp(log_alpha, 1).sum() - 0.5 * (effects / sd[:, None]).square().sum()


def shares(theta: np.ndarray, animal: int | None) -> np.ndarray:
    """Stationary probabilities of an animal, or without effects: how often a long chain of two states is in each."""
    leave = 1 / (1 + np.exp(-theta[1:3] - (0.0 if animal is None else theta[3:15].reshape(2, 6)[:, animal])))
    return leave[::-1] / leave.sum()


@pytest.mark.filterwarnings("ignore:.*tangent:UserWarning")
def test_shares_of_states_have_the_errors_of_a_plain_program() -> None:
    model = of_animals()
    p, slopes = model.parameters_, model.transition_slopes_[:, :, 1:-1]  # those of the six groups, without new ones
    odds = np.log([p.transition[0, 1] / p.transition[0, 0], p.transition[1, 0] / p.transition[1, 1]])
    initial = np.log(model.initial_.clip(1e-300))
    first = [initial[1] - initial[0]]
    sds = np.log(model.covariances_.ravel()) / 2
    theta = np.concatenate([first, odds, slopes[0, 1], slopes[1, 0], model.means_.ravel(), sds])
    sd = torch.tensor(model.terms_["sd"].to_numpy())
    hessian = torch.autograd.functional.hessian(lambda each: plain_log_prob(each, sd), torch.tensor(theta))
    is_free = np.arange(len(theta)) > 0 if model.initial_.min() < 1 / 480 else np.arange(len(theta)) >= 0
    covariance = np.zeros((19, 19))
    covariance[np.ix_(is_free, is_free)] = np.linalg.inv(-hessian.numpy()[np.ix_(is_free, is_free)])
    frame = model.effects(animals(), "animal", "stationary", values=[0.0, 3.0, 99.0])
    for animal, value in [(0, 0.0), (3, 3.0), (None, 99.0)]:
        rows = frame[frame["value"] == value]
        at = shares(theta, animal)
        steps = 1e-5 * np.eye(19)
        J = np.stack([(shares(theta + step, animal) - shares(theta - step, animal)) / 2e-5 for step in steps], 1)
        errors = np.sqrt(np.diag(J @ covariance @ J.T))
        np.testing.assert_allclose(rows["estimate"], at, rtol=1e-6)
        np.testing.assert_allclose(rows["standard_error"], errors, rtol=1e-4)
        half = norm.ppf(0.975) * errors / (at * (1 - at))
        np.testing.assert_allclose(logit(rows["ci_low"]), logit(at) - half, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(logit(rows["ci_high"]), logit(at) + half, rtol=1e-4, atol=1e-4)


def test_the_exact_information_is_that_by_differences() -> None:
    model = of_animals()
    objective, _, _ = model._objective_at(model._setting().examples(model._without_past(animals(), None, "")))
    by_differences = torch.zeros_like(exact := objective.information())
    for i, step in enumerate(1e-4 * torch.eye(len(exact), dtype=torch.float64)):
        by_differences[i] = -(objective.gradient(step) - objective.gradient(-step)) / 2e-4
    torch.testing.assert_close(exact, by_differences, rtol=1e-5, atol=1e-4)


# -- inputs without terms ----------------------------------------------------------------------------------------------


@cache
def by_heat(**options: Any) -> tuple[Any, sm.Sequences]:
    rng, items, inputs = np.random.default_rng(5), [], []
    for n in range(10):
        z, heat, states = n % 3, 20 + 3 * rng.normal(size=25), []
        for t in range(25):
            p = np.exp(0.2 * (heat[t] - 20) * np.array([0.0, 1.0, -1.0]) + 2.0 * (np.arange(3) == z))
            states.append(z := int(rng.choice(3, p=p / p.sum())))
        mean = np.array([-4.0, 0.0, 4.0])[states] + 0.1 * (heat - 20)
        items.append(mean[:, None] + rng.normal(size=(25, 1)))
        inputs.append(np.stack([heat, (np.arange(25) % 4 > 1).astype(float)], 1))
    X = sm.Sequences(items, inputs=inputs, input_names=["heat", "open"])
    make, effects = options.pop("make", sm.HMM), options.pop("effects", LINEAR)
    arguments: dict[str, Any] = {"observation": sm.GaussianMixture(1), "n_init": 1, "dtype": "float64"}
    model = make(3, input_effects=effects, **arguments | {"tol": 1e-7, "max_iter": 500} | options)
    return model.fit(X), X


@pytest.mark.parametrize(
    ("on", "name"), [("transitions", "transition"), ("emissions", "means"), ("first_state", "initial")]
)
def test_at_the_mean_of_an_input_they_are_the_standard_errors(on: Any, name: str) -> None:
    model, X = by_heat()
    frame = model.effects(X, "heat", on, values=[float(model.input_scaling_.mean[0])], level=0.8)
    errors = model.standard_errors(X, level=0.8)
    expected = errors[errors["name"] == name]
    assert frame[["name", "state"]].to_numpy().tolist() == expected[["name", "state"]].to_numpy().tolist()
    assert frame["feature"].tolist() == expected["feature"].tolist()
    columns = ["estimate", "standard_error", "ci_low", "ci_high"]
    np.testing.assert_allclose(frame[columns], expected[columns], rtol=1e-6)


def test_estimates_are_the_model_at_these_inputs() -> None:
    model, X = by_heat()
    heat = [14.0, 20.0, 26.0]
    A = model.transition_at({"heat": heat})
    estimates = {
        on: model.effects(X, "heat", on, values=heat)["estimate"].to_numpy()
        for on in ("transitions", "stationary", "first_state", "emissions")
    }
    np.testing.assert_allclose(estimates["transitions"].reshape(3, 3, 3), A, rtol=1e-12)
    long = np.linalg.matrix_power(A, 1000)[:, 0]
    np.testing.assert_allclose(estimates["stationary"].reshape(3, 3), long, rtol=1e-9)
    np.testing.assert_allclose(estimates["first_state"].reshape(3, 3), model.initial_at({"heat": heat}), rtol=1e-12)
    moved = np.array(heat)[:, None] - model.input_scaling_.mean[0]
    lines = model.means_.ravel() + model.emission_slopes_[:, 0, 0] * moved
    np.testing.assert_allclose(estimates["emissions"].reshape(3, 3), lines, rtol=1e-9)


def test_shares_of_semi_markov_states_count_their_durations() -> None:
    effects = ChainInputEffects(transitions=["heat"])
    model, X = by_heat(make=sm.hmm.HSMM, effects=effects, max_duration=6, tol=1e-4)
    segments = np.linalg.matrix_power(0.5 * np.eye(3) + 0.5 * model.transition_at({"heat": [23.0]})[0], 1000)[0]
    steps = segments * (model.durations_ @ np.arange(1, 7))
    frame = model.effects(X, "heat", "stationary", values=[23.0])
    np.testing.assert_allclose(frame["estimate"], steps / steps.sum(), rtol=1e-9)
    assert (frame["standard_error"] > 0).all()


@pytest.mark.filterwarnings("ignore:the parameters are not at the maximum")
def test_rates_of_jumps_give_probabilities_over_one_unit_of_time() -> None:
    model, X = by_heat(make=sm.hmm.ContinuousTimeHMM, effects=ChainInputEffects(transitions=["heat"]), max_iter=8)
    frame = model.effects(X, "heat", values=[18.0])
    np.testing.assert_allclose(frame["estimate"].to_numpy().reshape(3, 3), model.transition_at({"heat": [18.0]})[0])
    errors = frame["standard_error"].to_numpy().reshape(3, 3)
    assert (errors > 0).all()
    assert (errors < 0.2).all()


def test_values_span_the_range_the_period_or_the_groups() -> None:
    model, X = by_heat(effects=ChainInputEffects(transitions=["heat", "open"]))
    heat = np.concatenate(X.inputs)[:, 0]
    frame = model.effects(X, "heat")
    np.testing.assert_allclose(frame["value"].unique(), np.linspace(heat.min(), heat.max(), 100))
    assert model.effects(X, "open")["value"].unique().tolist() == [0.0, 1.0]
    mixed = fitted()
    assert mixed.effects(animals(), "animal")["value"].unique().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    hours = mixed.effects(animals(), "hour")["value"].unique()
    np.testing.assert_allclose(hours, np.linspace(0, 24, 100))


def test_other_inputs_are_held_at_their_mean_or_that_of_the_population() -> None:
    model, X = by_heat(effects=ChainInputEffects(transitions=["heat", "open"]))
    frame = model.effects(X, "heat", values=[22.0])
    mean = float(model.input_scaling_.mean[1])
    np.testing.assert_allclose(frame["estimate"], model.transition_at({"heat": [22.0], "open": [mean]}).ravel())
    frame = model.effects(X, "heat", values=[22.0], others={"open": 1.0})
    np.testing.assert_allclose(frame["estimate"], model.transition_at({"heat": [22.0], "open": [1.0]}).ravel())
    mixed, hour = fitted(), [3.0, 15.0]
    for others, animal in [({}, 99.0), ({"animal": 2.0}, 2.0)]:
        estimates = mixed.effects(animals(), "hour", values=hour, others=others)["estimate"]
        expected = mixed.transition_at({"hour": hour, "animal": [animal, animal]})
        np.testing.assert_allclose(estimates, expected.ravel(), rtol=1e-12)


def test_a_loaded_model_has_the_same_effects(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "terms.safetensors")
    loaded = sm.load(tmp_path / "terms.safetensors")
    for name, on in [("hour", "transitions"), ("animal", "stationary"), ("animal", "emissions")]:
        frames = [each.effects(animals(), name, on) for each in (model, loaded)]
        pd.testing.assert_frame_equal(*frames, rtol=1e-9)


def test_what_nothing_estimated_has_no_interval() -> None:
    """In states 0, 1, 2 from left to right, where the row of the last state leads to itself alone."""
    model, X = by_heat(effects=ChainInputEffects(transitions=["heat"]), topology=sm.LeftToRight())
    frame = model.effects(X, "heat", values=[20.0])
    assert frame[["state", "feature"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 1], [1, 2], [2, 2]]
    assert frame["standard_error"].isna().tolist() == [False, False, False, False, True]
    assert frame["ci_low"].isna().tolist() == [False, False, False, False, True]
    (last,) = model.effects(X, "heat", "stationary", values=[20.0]).to_dict("records")
    assert (last["state"], last["estimate"]) == (2, pytest.approx(1.0))
    assert np.isnan(last["ci_low"])


def test_effects_that_a_model_does_not_have_are_refused() -> None:
    model, X = by_heat(effects=ChainInputEffects(transitions=["heat"]))
    for arguments, message in [
        ({"name": "rain"}, "reads no input 'rain'; it reads heat"),
        ({"name": "heat", "others": {"rain": 1.0}}, "reads no input 'rain'"),
        ({"name": "heat", "on": "emissions"}, "no input changes the emissions"),
        ({"name": "heat", "on": "first_state"}, "no input changes the first state"),
        ({"name": "heat", "on": "means"}, "on is 'means'"),
        ({"name": "heat", "values": [np.nan]}, "'heat' is nan"),
        ({"name": "heat", "values": []}, "values has the shape"),
        ({"name": "heat", "level": 1.0}, "level is 1.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.effects(X, **arguments)
    known = sm.HMM.from_parameters(
        [0.5, 0.5],
        np.eye(2),
        means=[[-4.0], [4.0]],
        covariances=[[1.0], [1.0]],
        transition_slopes=np.zeros((2, 2, 1)),
        inputs={"heat": 20.0},
    )
    with pytest.raises(ValueError, match="several stationary distributions"):
        known.effects(X, "heat", "stationary")
    plain = sm.HMM(1, max_iter=1).fit(list(X))
    with pytest.raises(ValueError, match="depends on no inputs"):
        plain.effects(list(X), "heat")


def test_estimates_far_from_the_maximum_are_warned_of() -> None:
    model, X = by_heat(effects=ChainInputEffects(transitions=["heat"]), tol=0.0, max_iter=1)
    with pytest.warns(UserWarning, match="not at the maximum of their likelihood"):
        model.effects(X, "heat", values=[20.0])
