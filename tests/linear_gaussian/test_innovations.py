"""Student t innovations of ``LinearGaussian``, against a plain Kalman filter with the densities of scipy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

import seqmodels as sm
from seqmodels.linear_gaussian.innovations import InnovationSteps
from seqmodels.model.fitting import checked_data
from tests.linear_gaussian.dense import random_parameters

FOLLOWING = "beta-t-egarch"
KINDS = ("t", FOLLOWING)


def fitted(kind: str, x: list[np.ndarray], seed: int = 0, n_states: int = 2) -> sm.LinearGaussian:
    """Innovations of ``x`` under a random system, which is held fixed."""
    p = random_parameters(seed, n_states, x[0].shape[1])
    arguments = (p.transition, p.state_covariance, p.observation, p.observation_covariance, p.initial_mean)
    model = sm.LinearGaussian.from_parameters(*arguments, p.initial_covariance, intercept=p.intercept)
    return model.set_params(innovations=kind, warm_start=True, max_iter=0).fit(x)


def with_jumps(seed: int, *lengths: int, n_features: int = 2, freedom: float = 2.5) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [3 * rng.standard_t(freedom, size=(n, n_features)).cumsum(0) for n in lengths]


def plain_log_prob(model: sm.LinearGaussian, x: np.ndarray) -> np.ndarray:
    """Covariances as they stand in books, and one step after another, from attributes in raw units."""
    A, Q, C, R = model.transition_, model.state_covariance_, model.observation_matrix_, model.observation_covariance_
    mean, P, t, result = model.initial_mean_, model.initial_covariance_, model.innovations_, []
    nu, scale = t.degrees_of_freedom, t.scale
    for each in x:
        seen = ~np.isnan(each)
        error = (each - C @ mean - model.intercept_)[seen]
        F, gain = (C @ P @ C.T + R)[np.ix_(seen, seen)], P @ C[seen].T
        if seen.any():
            result.append(stats.multivariate_t(shape=scale**2 * F, df=nu).logpdf(error))
            square, n = error @ np.linalg.solve(F, error) / scale**2, seen.sum()
            score = (nu + n) * square / (nu + square) - n
            scale = max(scale * np.exp(t.gain / len(each) * score), 0.01)
            mean, kept = mean + gain @ np.linalg.solve(F, error), np.eye(len(P)) - gain @ np.linalg.solve(F, C[seen])
            noise = gain @ np.linalg.inv(F)
            P = kept @ P @ kept.T + noise @ R[np.ix_(seen, seen)] @ noise.T  # Joseph's form, as rounding grows else
        else:
            result.append(0.0)
        mean, P = A @ mean, A @ P @ A.T + Q
    return np.array(result)


def twin_of(prediction: Any) -> Any:
    """The same density of one feature in scipy."""
    density = prediction.component_distribution
    return stats.t(float(density.df), float(density.loc), float(density.scale_tril))


def streamed(model: sm.LinearGaussian, x: Any) -> np.ndarray:
    stream = model.stream()
    return np.array([stream.update(each) for each in x])


# -- the density -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_features", [1, 3])
def test_steps_are_those_of_a_plain_filter(kind: str, n_features: int) -> None:
    x = with_jumps(0, 50, 1, 30, 50, n_features=n_features)
    x[2][:10:3, 0] = np.nan
    x[3][4:9] = np.nan
    model = fitted(kind, x)
    for each, steps in zip(x, model.log_prob_steps(x), strict=True):
        np.testing.assert_allclose(steps, plain_log_prob(model, each), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(streamed(model, each), steps, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_many_sequences_that_miss_other_values_are_scored_side_by_side(kind: str) -> None:
    rng, x = np.random.default_rng(0), with_jumps(1, *range(20, 60))
    x = [np.where(rng.random(each.shape) < 0.2, np.nan, each) for each in x]
    model = sm.LinearGaussian(2, innovations=kind, max_iter=2).fit(x)
    assert model._corpus(model._setting().examples(checked_data(model, x))).missing
    for each, steps in zip(x, model.log_prob_steps(x), strict=True):
        np.testing.assert_allclose(model.log_prob_steps([each])[0], steps, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(plain_log_prob(model, each), steps, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_move_the_location(kind: str) -> None:
    rng = np.random.default_rng(0)
    u = [rng.normal(size=40) for _ in range(2)]
    items = [5 * each[:, None] + noise for each, noise in zip(u, with_jumps(2, 40, 40, n_features=1), strict=True)]
    x = sm.Sequences(items, inputs=u)
    model = sm.LinearGaussian.local_level(observation_inputs=True, innovations=kind).fit(x)
    slope = model.input_effects(x)["estimate"][0]
    moved = sm.Sequences([each + 2 * slope for each in items], inputs=[each + 2 for each in u])
    np.testing.assert_allclose(model.log_prob(moved), model.log_prob(x), rtol=1e-9)
    stream = model.stream()
    steps = [stream.update(each, inputs=at) for each, at in zip(items[0], u[0], strict=True)]
    np.testing.assert_allclose(steps, model.log_prob_steps(x)[0], rtol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [sm.LinearGaussian.local_level, sm.LinearGaussian.trend])
def test_a_gap_of_time_is_steps_of_which_nothing_is_observed(kind: str, make: Any) -> None:
    (x,), times = with_jumps(3, 30, n_features=1), np.cumsum([1, 1, 1, 2, 3] * 6)
    model = make(time_step=1.0, innovations=kind).fit(sm.Sequences([x], times=[times]))
    whole = np.full((times[-1] - times[0] + 1, 1), np.nan)
    whole[times - times[0]] = x
    steps = model.log_prob_steps(sm.Sequences([x], times=[times]))[0]
    np.testing.assert_allclose(model.log_prob_steps([whole])[0][times - times[0]], steps, rtol=1e-10)
    stream = model.stream()
    by_time = [stream.update(each, time=time) for each, time in zip(x, times, strict=True)]
    np.testing.assert_allclose(by_time, steps, rtol=1e-10)


def test_a_jump_costs_its_logarithm() -> None:
    (x,) = with_jumps(4, 300, n_features=1, freedom=30.0)
    models = {kind: sm.LinearGaussian.local_level(innovations=kind).fit([x]) for kind in ("gaussian", *KINDS)}
    after = np.append(x, x[-1:] + 1000 * np.diff(x[:, 0]).std())[:, None]
    costs = {kind: -model.log_prob_steps([after])[0][-1] for kind, model in models.items()}
    assert costs["gaussian"] > 1e5
    assert all(costs[kind] < 100 for kind in KINDS)


@pytest.mark.parametrize("n_features", [1, 6])
def test_gaussian_data_lose_little_whatever_the_number_of_features(n_features: int) -> None:
    x = [np.random.default_rng(5).normal(size=(3000, n_features))]
    gaussian, t, following = (
        sm.LinearGaussian(1, max_iter=2, innovations=kind).fit(x) for kind in ("gaussian", *KINDS)
    )
    assert t.innovations_.degrees_of_freedom == pytest.approx(10 * n_features)
    assert gaussian.score(x) - 0.007 < t.score(x) < gaussian.score(x)
    assert gaussian.score(x) - 0.016 < following.score(x)


def test_a_scale_follows_one_that_grows() -> None:
    rng = np.random.default_rng(5)
    x = np.cumsum(rng.normal(size=(200, 1)) * np.exp(np.arange(200) / 40)[:, None], 0)
    scores = {}
    for kind in ("gaussian", *KINDS):
        steps = sm.LinearGaussian.local_level(innovations=kind).fit([x[:140]]).log_prob_steps([x])[0]
        scores[kind] = steps[140:].mean()
    assert scores[FOLLOWING] > scores["t"] + 0.2 > scores["gaussian"] + 0.4


# -- the fit ---------------------------------------------------------------------------------------------------------


def test_numbers_are_the_most_probable_ones() -> None:
    x = with_jumps(6, 40, 60, n_features=1, freedom=4.0)
    model = sm.LinearGaussian.local_level(innovations="t").fit(x)
    gaussian = sm.LinearGaussian.local_level().fit(x)
    np.testing.assert_array_equal(gaussian.observation_covariance_, model.observation_covariance_)
    errors = []  # in deviations of the filter, which Gaussian predictions have
    for each in x:
        stream = gaussian.stream()
        for value in each:
            prediction = stream.predict_next()
            errors.append(((value - prediction.mean.numpy()) / prediction.variance.sqrt().numpy()).item())
            stream.update(value)

    def loss(numbers: np.ndarray) -> float:
        return -stats.t(np.exp(numbers[0]), scale=np.exp(numbers[1])).logpdf(errors).sum()

    best = np.exp(optimize.minimize(loss, [1.0, 0.0], method="Nelder-Mead", tol=1e-10).x)
    found = model.innovations_
    np.testing.assert_allclose([found.degrees_of_freedom, found.scale], best, rtol=1e-4)
    assert 2 < found.degrees_of_freedom < 10


def test_no_number_near_those_of_a_scale_that_follows_is_likelier() -> None:
    rng = np.random.default_rng(7)
    spread = np.exp(np.sin(np.arange(600) / 30))
    x = [np.cumsum(rng.standard_t(5, size=600) * spread)[:, None]]
    weights = np.array([2.0])
    model = sm.LinearGaussian.local_level(innovations=FOLLOWING).fit(x, sample_weight=weights)
    found, best = model.innovations_, model.score(x)
    assert 0.05 < found.gain < 0.3
    for name in ("degrees_of_freedom", "scale", "gain"):
        for factor in (0.99, 1.01):
            model.innovations_ = replace(found, **{name: factor * getattr(found, name)})
            assert model.score(x) < best


def test_weights_count_as_copies() -> None:
    x = with_jumps(8, 60, 80, n_features=1)
    weighted = fitted(FOLLOWING, x)
    weighted.fit(x, sample_weight=np.array([1.0, 3.0]))
    copies = fitted(FOLLOWING, [x[0], x[1], x[1], x[1]])
    np.testing.assert_allclose(weighted.innovations_.numbers(), copies.innovations_.numbers(), rtol=1e-5)


def test_two_or_three_numbers_more_are_counted() -> None:
    x = with_jumps(9, 60, n_features=1)
    for make in (sm.LinearGaussian.trend, partial(sm.LinearGaussian, 1, max_iter=2)):
        counts = [make(innovations=kind).fit(x).n_parameters_ for kind in ("gaussian", *KINDS)]
        assert counts == [counts[0], counts[0] + 2, counts[0] + 3]


@pytest.mark.filterwarnings("ignore:feature 0 is 3")
@pytest.mark.parametrize("kind", KINDS)
def test_values_that_repeat_end_at_the_floor_and_it_is_counted(kind: str) -> None:
    x = [np.concatenate([with_jumps(10, 100, n_features=1)[0], np.full((900, 1), 3.0)])]
    model, gaussian = (sm.LinearGaussian.local_level(innovations=each).fit(x) for each in (kind, "gaussian"))
    assert model.history_["floor_hits"].iloc[-1] == gaussian.history_["floor_hits"].iloc[-1] + 1
    np.testing.assert_allclose(model.log_prob_steps(x)[0], plain_log_prob(model, x[0]), rtol=1e-7)
    lower, higher = (model._with_floor(factor).innovations_ for factor in (0.25, 4.0))
    assert [lower.least_scale, higher.least_scale] == pytest.approx([0.005, 0.02])
    assert (lower.scale < model.innovations_.scale) == (kind == "t")
    assert model._with_floor(0.25).score(x) > model.score(x) > model._with_floor(4.0).score(x)


@pytest.mark.parametrize("kind", KINDS)
def test_a_level_of_1e9_changes_nothing(kind: str) -> None:
    x = with_jumps(11, 100, n_features=1)
    near, far = (sm.LinearGaussian.local_level(innovations=kind).fit([x[0] + shift]) for shift in (0.0, 2.0**30))
    assert far.score([x[0] + 2.0**30]) == pytest.approx(near.score(x), abs=1e-6)


def test_from_parameters_says_how_to_estimate_the_rest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="warm_start=True, max_iter=0"):
        sm.LinearGaussian.from_parameters([[0.9]], [[1.0]], [[1.0]], [[1.0]], innovations="t")
    x = with_jumps(12, 50)
    model = fitted(FOLLOWING, x)
    np.testing.assert_array_equal(model.transition_, random_parameters(0, 2, 2).transition)
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert loaded.innovations_ == model.innovations_
    np.testing.assert_array_equal(loaded.log_prob(x), model.log_prob(x))
    back = model.set_params(innovations="gaussian").fit(x)
    assert back.innovations_ is None
    assert type(back.observation_) is sm.GaussianMixture
    with pytest.raises(ValueError, match="innovations is 'student'"):
        sm.LinearGaussian(innovations="student").fit(x)


# -- draws and forecasts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_of_the_density(kind: str) -> None:
    model = fitted(kind, with_jumps(13, 60, n_features=1))
    drawn = model.sample(20, length=100, random_state=0)
    corpus = model._corpus(model._setting().examples(checked_data(model, drawn)))
    steps = InnovationSteps.of(model.parameters_, model._form(), corpus)
    squares = steps.squares * np.exp(-2 * model.innovations_.log_scales(steps))
    positions = stats.f(1, model.innovations_.degrees_of_freedom).cdf(squares)
    assert stats.kstest(positions, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(positions[1:], positions[:-1])[0, 1]) < 0.06


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_ahead_is_exact_and_more_are_drawn(kind: str) -> None:
    x = with_jumps(14, 60, n_features=1)
    model = sm.LinearGaussian.local_level(innovations=kind).fit(x)
    frame = model.forecast(x, 2, n=2000, random_state=0).frame
    assert list(frame["method"]) == ["exact", "sampled"]
    stream = model.stream()
    for value in x[0]:
        stream.update(value)
    levels = twin_of(stream.predict_next()).ppf([0.05, 0.5, 0.95])
    np.testing.assert_allclose(frame.loc[0, ["5%", "50%", "95%"]].astype(float), levels, rtol=1e-6)
    # The second step is that of draws: of the level a step later, by the whole first step's gain.
    drawn = np.array([each[-1, 0] for each in model.sample(4000, length=2, prefix=x[0], random_state=1)])
    spread = np.subtract(*frame.loc[1, ["95%", "5%"]].astype(float))
    assert spread == pytest.approx(np.subtract(*np.quantile(drawn, [0.95, 0.05])), rel=0.1)


@pytest.mark.parametrize("kind", ["t", "beta-t-egarch"])
def test_pseudo_residuals_are_those_of_the_student_t(kind: str) -> None:
    (x,) = with_jumps(0, 40, n_features=1)
    model = fitted(kind, [x])
    stream, expected = model.stream(), []
    for value in x:
        expected.append(stats.norm.ppf(twin_of(stream.predict_next()).cdf(value)).item())
        stream.update(value)
    residuals = sm.check(model, [x], n_simulations=0).residuals[0]
    np.testing.assert_allclose(residuals[:, 0], expected, rtol=1e-6, atol=1e-8)
