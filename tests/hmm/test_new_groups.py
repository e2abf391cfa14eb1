"""Groups that fit has not seen, beside a plain program that averages over the effects of a group."""

from __future__ import annotations

import copy
import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, logsumexp, ndtri
from scipy.stats import norm, qmc

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm import ChainInputEffects, RandomEffect, Smooth
from seqmodels.hmm.new_groups import mixed_steps, normal_points

TERMS: dict[str, Any] = {
    "transitions": [RandomEffect("animal"), Smooth("hour", period=24, n_splines=6)],
    "emissions": [RandomEffect("animal")],
}


def animals(numbers: list[float], seed: int, length: int = 60) -> sm.Sequences:
    """A sequence of each animal, whose rates of leaving two states and whose means differ."""
    rng, items, inputs = np.random.default_rng(seed), [], []
    for number in numbers:
        effects, hour, z = rng.normal(size=3), np.arange(length) % 24.0, [0]
        for t in range(1, length):
            odds = effects[z[-1]] - 1 + np.sin(2 * np.pi * hour[t] / 24)
            z.append(1 - z[-1] if rng.random() < 1 / (1 + np.exp(-odds)) else z[-1])
        items.append(20 + 4.0 * (3.0 * np.array(z) + 0.5 * effects[2] + rng.normal(size=length))[:, None])
        inputs.append(np.stack([np.full(length, number), hour], 1))
    return sm.Sequences(items, inputs=inputs, input_names=["animal", "hour"])


@cache
def fitted(new_group_points: int = 64) -> sm.HMM:
    effects = ChainInputEffects(**TERMS, new_group_points=new_group_points)
    model = sm.HMM(2, observation=sm.GaussianMixture(1), n_init=1, dtype="float64", input_effects=effects)
    return model.fit(animals([0, 1, 2, 3, 4, 5], 0))


def log_joint(model: sm.HMM, x: np.ndarray, hour: np.ndarray, effects: np.ndarray) -> np.ndarray:
    """log p(x_1 .. x_t, z_t) of one sequence, ``(M, T, 2)``, given M effects of its group: a plain forward pass.

    ``effects (M, 4)`` are added to the log-odds of leaving state 0 and state 1 and to the means of the states.
    """
    odds = np.log(model.transition_at({"animal": np.full(len(x), 99.0), "hour": hour}))  # (T, 2, 2)
    each = np.repeat(odds[None], len(effects), 0)
    each[:, :, 0, 1] += effects[:, :1]
    each[:, :, 1, 0] += effects[:, 1:2]
    log_a = log_softmax(each, -1)
    means = model.means_.ravel() + effects[:, 2:]  # (M, 2)
    log_b = norm.logpdf(x[None, :, None], means[:, None], np.sqrt(model.covariances_.ravel()))  # (M, T, 2)
    log_alpha = [np.log(model.initial_) + log_b[:, 0]]
    for t in range(1, len(x)):
        log_alpha.append(logsumexp(log_alpha[-1][:, :, None] + log_a[:, t], 1) + log_b[:, t])
    return np.stack(log_alpha, 1)


def effects_at_points(model: sm.HMM, n_points: int = 64) -> np.ndarray:
    """The M points: normal quantiles of Sobol's points, times the standard deviations, ``(M, 4)``."""
    terms = model.terms_[model.terms_["term"] == "random(animal)"]
    uniform = qmc.Sobol(4, scramble=False).random(n_points) + 0.5 / n_points
    return np.asarray(ndtri(uniform) * terms["sd"].to_numpy())


def one_of(X: sm.Sequences, i: int) -> tuple[np.ndarray, np.ndarray]:
    assert X.inputs is not None
    return X[i].ravel(), X.inputs[i][:, 1]


def test_the_mixture_is_that_of_a_plain_program() -> None:
    model, X = fitted(), animals([7, 8], 1)
    assert (model.terms_["sd"] > 0.1).sum() >= 4  # of transitions and of means
    for i, steps in enumerate(model.log_prob_steps(X)):
        joint = log_joint(model, *one_of(X, i), effects_at_points(model))
        sums = logsumexp(joint, axis=(0, 2)) - np.log(64)
        np.testing.assert_allclose(np.cumsum(steps), sums, rtol=1e-10)


def test_many_points_are_near_the_integral() -> None:
    """A plain Monte Carlo mean of p(x | effects) over 20000 normal effects, beside its standard error."""
    model, X = fitted(1024), animals([7], 1, 30)
    sd = model.terms_.loc[model.terms_["term"] == "random(animal)", "sd"].to_numpy()
    drawn = sd * np.random.default_rng(0).normal(size=(20000, 4))
    log_p = logsumexp(log_joint(model, *one_of(X, 0), drawn)[:, -1], 1)
    mean = logsumexp(log_p) - np.log(20000)
    error = np.std(np.exp(log_p - mean)) / np.sqrt(20000)
    assert error < 0.05
    assert abs(model.log_prob(X)[0] - mean) < 3 * error + 0.02
    assert abs(fitted(1).log_prob(X)[0] - mean) > 0.3


def test_one_point_is_an_effect_of_zero_and_known_groups_have_their_own() -> None:
    X = animals([7, 2], 1)
    of_zero = logsumexp(log_joint(fitted(), *one_of(X, 0), np.zeros((1, 4)))[0, -1])
    np.testing.assert_allclose(fitted(1).log_prob(X)[0], of_zero, rtol=1e-10)
    np.testing.assert_array_equal(fitted(1).log_prob(X)[1], fitted().log_prob(X)[1])
    assert abs(fitted().log_prob(X)[0] - of_zero) > 0.1


def test_sequences_of_one_new_group_are_scored_each_on_its_own() -> None:
    X = animals([7, 7, 2], 1)
    together = fitted().log_prob(X)
    np.testing.assert_allclose(together, [fitted().log_prob(X[i : i + 1])[0] for i in range(3)], rtol=1e-12)


def test_streams_files_forecasts_and_states_agree(tmp_path: Path) -> None:
    model, X = fitted(), animals([7, 3], 1)
    assert X.inputs is not None
    steps, filtered = model.log_prob_steps(X), model.filter(X)
    for i in range(2):
        stream = model.stream()
        for t, (x, u) in enumerate(zip(X[i], X.inputs[i], strict=True)):
            np.testing.assert_allclose(stream.update(x, inputs=u), steps[i][t], atol=1e-9)
            np.testing.assert_allclose(stream.filtered, filtered[i][t], atol=1e-9)
    model.save(tmp_path / "groups.safetensors")
    loaded = sm.load(tmp_path / "groups.safetensors")
    np.testing.assert_array_equal(loaded.log_prob(X), model.log_prob(X))
    ahead = [{"animal": [animal] * 3, "hour": [12.0, 13.0, 14.0]} for animal in (7.0, 3.0)]
    means = model.forecast(X, 3, inputs=ahead).frame["mean"].to_numpy().reshape(2, 3)
    states = model.forecast_states(X, 3, inputs=ahead)
    np.testing.assert_allclose(means, [each.mean.ravel() for each in states], rtol=1e-9)
    np.testing.assert_array_equal(loaded.forecast_states(X, 3, inputs=ahead)[0].mean, states[0].mean)
    joint = log_joint(model, X[0].ravel(), X.inputs[0][:, 1], effects_at_points(model))
    log_p = logsumexp(joint[:, -1], 1)
    weights = np.exp(log_p - logsumexp(log_p))
    last = np.exp(joint[:, -1] - log_p[:, None])
    np.testing.assert_allclose(model.posterior(X)[0][-1], weights @ last, atol=1e-9)
    np.testing.assert_allclose(states[0].states.sum(1), 1.0)


def test_a_cursor_selects_sequences_with_their_points() -> None:
    model, X = fitted(), animals([7, 3], 1, 20)
    examples = model._setting().examples(Data.of(X))
    values, inputs = (torch.as_tensor(np.stack([getattr(e, name) for e in examples])) for name in ("values", "inputs"))
    cursor: Any = model.cursor()
    state = cursor.start(n=2)
    for t in range(10):
        state = cursor.advance(cursor.given(state, inputs[:, t]), values[:, t])
    index = torch.tensor([1, 0, 0])
    selected = cursor.given(cursor.select(state, index), inputs[index, 10])
    expected = cursor.distribution(cursor.given(state, inputs[:, 10])).log_prob(values[:, 10])
    torch.testing.assert_close(cursor.distribution(selected).log_prob(values[index, 10]), expected[index])
    steps = [model._steps([example])[0][10] for example in examples]
    torch.testing.assert_close(expected, torch.tensor(steps), rtol=1e-10, atol=1e-10)


def test_past_steps_say_what_the_group_is_like() -> None:
    model, X = fitted(), animals([7], 1)
    assert X.inputs is not None
    head = sm.Sequences([X[0][40:]], inputs=[X.inputs[0][40:]], input_names=X.input_names)
    tail = sm.Sequences(
        [X[0][40:]],
        inputs=[X.inputs[0][40:]],
        input_names=X.input_names,
        past=[X[0][:40]],
        past_inputs=[X.inputs[0][:40]],
    )
    np.testing.assert_allclose(model.log_prob(tail)[0], model.log_prob_steps(X)[0][40:].sum(), rtol=1e-10)
    assert model.log_prob(tail)[0] > model.log_prob(head)[0]


def test_paths_are_drawn_with_their_effects() -> None:
    model, X = fitted(), animals([7], 1, 12)
    paths = model.sample_states(X, 4000)[0]
    np.testing.assert_allclose(paths.mean(0), model.posterior(X)[0][:, 1], atol=0.03)
    x, hour = one_of(X, 0)
    best = effects_at_points(model)[np.argmax(logsumexp(log_joint(model, x, hour, effects_at_points(model))[:, -1], 1))]
    assert model.path_log_prob(X, model.decode(X))[0] < logsumexp(log_joint(model, x, hour, best[None])[0, -1])


def test_renumbered_states_keep_their_effects() -> None:
    model, X = fitted(), animals([7, 2], 1)
    reordered = model.reorder([1, 0])
    assert reordered.terms_["sd"].tolist() == model.terms_["sd"].to_numpy()[[1, 0, 3, 2, 5, 4]].tolist()
    np.testing.assert_allclose(reordered.log_prob(X)[1], model.log_prob(X)[1], rtol=1e-10)
    joint = log_joint(reordered, *one_of(X, 0), effects_at_points(reordered))
    np.testing.assert_allclose(reordered.log_prob(X)[0], logsumexp(joint[:, -1]) - np.log(64), rtol=1e-10)


def test_points_are_spread_evenly_along_each_axis() -> None:
    points = normal_points(256, 5)
    even = ndtri((np.arange(256) + 0.5) / 256)
    np.testing.assert_allclose(np.sort(points, 0), np.tile(even[:, None], 5), atol=1e-12)
    assert np.abs(np.corrcoef(points.T) - np.eye(5)).max() < 0.05


def test_all_strings_of_a_new_group_have_probability_one() -> None:
    X = animals([0, 1, 2, 3], 0)
    symbols = sm.Sequences([(x.ravel() > 26).astype(int) for x in X], inputs=X.inputs, input_names=X.input_names)
    effects = ChainInputEffects(emissions=[RandomEffect("animal")], new_group_points=8)
    model = sm.HMM(1, observation=sm.Categorical(), length="given", dtype="float64", input_effects=effects).fit(symbols)
    assert model.terms_["sd"].item() > 0.1
    assert X.inputs is not None
    strings = [np.array(s) for s in itertools.product(range(2), repeat=4)]
    inputs = [np.stack([np.array([1.0, 9.0, 9.0, 9.0]), np.arange(4.0)], 1)] * 16
    each = model.log_prob(sm.Sequences(strings, inputs=inputs, input_names=X.input_names))
    assert np.exp(each).sum() == pytest.approx(1.0, abs=1e-12)
    drawn = np.array(model.sample(4000, inputs={"animal": inputs[0][:, 0]}))
    shares = [(drawn == string).all(1).mean() for string in strings]
    np.testing.assert_allclose(shares, np.exp(each), atol=0.03)


def test_held_out_sequences_are_scored_with_the_terms() -> None:
    effects = ChainInputEffects(emissions=[RandomEffect("animal")])
    model = sm.HMM(1, observation=sm.GaussianMixture(1), dtype="float64", input_effects=effects)
    held_out = animals([0, 9], 3)
    model.fit(animals([0, 1, 2, 3], 0), validation=held_out)
    assert model.history_["validation"].iloc[-1] == pytest.approx(model.score(held_out), rel=1e-12)
    assert model.history_["starts_range"].notna().iloc[-1]


def test_impossible_steps_of_all_points_are_impossible() -> None:
    steps = np.array([[-1.0, -np.inf, -1.0], [-2.0, -np.inf, -3.0]])
    assert np.isneginf(mixed_steps(steps)[1:]).all()
    assert mixed_steps(np.array([[-1.0, -np.inf, -1.0], [-2.0, -2.0, -3.0]]))[2] == pytest.approx(-3.0)


@pytest.mark.parametrize("n_points", [0, 3, 1 << 17])
def test_numbers_of_points_that_are_no_power_of_two_are_refused(n_points: int) -> None:
    effects = ChainInputEffects(transitions=[RandomEffect("animal")], new_group_points=n_points)
    with pytest.raises(ValueError, match=f"new_group_points is {n_points}; pass a power of two"):
        sm.HMM(2, input_effects=effects).fit(animals([0, 1], 0))

    with pytest.raises(ValueError, match=f"new_group_points is {n_points}"):
        copy.deepcopy(fitted()).set_params(input_effects__new_group_points=n_points).score(animals([7], 1))


def test_labels_of_components_come_back_from_a_file(tmp_path: Path) -> None:
    X = animals([0, 1, 2, 3], 0)
    effects = ChainInputEffects(emissions=[RandomEffect("animal")], new_group_points=4)
    model = sm.HMM(1, observation=sm.GaussianMixture(2), n_init=1, max_iter=5, dtype="float64", input_effects=effects)
    model.fit(X).save(tmp_path / "mixture.safetensors")
    loaded = sm.load(tmp_path / "mixture.safetensors")
    assert loaded.terms_["feature"].tolist() == model.terms_["feature"].tolist() == [(0, 0), (1, 0)]
    new = animals([2, 7], 1)
    np.testing.assert_array_equal(loaded.log_prob(new), model.log_prob(new))


def test_the_rest_of_a_new_group_is_not_known() -> None:
    with pytest.raises(ValueError, match="pass given='past', or sequences of the groups of the fit"):
        sm.check(fitted(), animals([7], 1), given="rest")
