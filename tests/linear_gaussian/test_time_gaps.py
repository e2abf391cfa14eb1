"""``LinearGaussian`` of processes in continuous time: against the Gaussian that their kernels say at any times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

import seqmodels as sm
from seqmodels.hmm import ContinuousTimeHMM
from seqmodels.linear_gaussian.learning.statistics import SystemData
from seqmodels.linear_gaussian.learning.structural import StructuralNumbers, diffuse_log_prob, likelihood_of
from seqmodels.linear_gaussian.structures import Cycle, LocalLevel, OrnsteinUhlenbeck, SmoothTrend, Structure
from seqmodels.linear_gaussian.time_gaps import SystemCursorOverGaps

Array = NDArray[np.float64]
STEP = 0.7
MODELS: dict[str, Callable[..., sm.LinearGaussian]] = {
    "level": sm.LinearGaussian.local_level,
    "spline": sm.LinearGaussian.smooth_trend,
    "returning": sm.LinearGaussian.ornstein_uhlenbeck,
    "cycle": partial(sm.LinearGaussian.cycle, 24.3),
    "cycles": lambda **options: (
        sm.LinearGaussian.local_level(**options) + sm.LinearGaussian.cycle(24.3) + sm.LinearGaussian.cycle(4.0)
    ),
    "sum": lambda **options: (
        sm.LinearGaussian.smooth_trend(**options) + sm.LinearGaussian.ornstein_uhlenbeck(**options)
    ),
}


def irregular(seed: int = 0, n_steps: int = 25, n: int = 3) -> sm.Sequences:
    """Smooth curves with noise at random times, two of them at one, and values that are missing."""
    rng = np.random.default_rng(seed)
    items, times = [], []
    for _ in range(n):
        at = 5.0 + np.sort(rng.exponential(1.0, n_steps).cumsum())
        at[7] = at[6]
        x = 3.0 + 10 * np.sin(at / 4)[:, None] + rng.normal(size=(n_steps, 1))
        x[[4, 11], 0] = np.nan
        items.append(x)
        times.append(at)
    return sm.Sequences(items, times=times)


def fitted(name: str, X: sm.Sequences, **options: object) -> sm.LinearGaussian:
    return MODELS[name](time_step=STEP).set_params(**{"max_iter": 5, **options}).fit(X)


def kernel(model: sm.LinearGaussian, elapsed: Array) -> tuple[Array, Array]:
    """Mean and covariance of the series, raw units, at times since the first step, of the numbers by name."""
    s, t = elapsed[:, None], elapsed[None]
    covariance, from_start = np.zeros((len(elapsed), len(elapsed))), []
    numbers = model.components_
    assert model.structure is not None
    n_cycles = 0
    for component in model.structure:
        if isinstance(component, LocalLevel):
            covariance += numbers["level_variance"] * np.minimum(s, t)
            from_start.append(np.ones((len(elapsed), 1)))
        elif isinstance(component, SmoothTrend):
            least, most = np.minimum(s, t), np.maximum(s, t)
            covariance += numbers["smooth_trend_variance"] * least**2 * (3 * most - least) / 6
            from_start.append(np.stack([np.ones_like(elapsed), elapsed], 1))
        elif isinstance(component, Cycle):
            n_cycles += 1
            name, lag = "cycle" if n_cycles == 1 else f"cycle{n_cycles}", np.abs(s - t)
            decay = np.exp(-numbers[f"{name}_rate"] * lag)
            covariance += numbers[f"{name}_variance"] * decay * np.cos(2 * np.pi * lag / component.period)
            from_start.append(np.zeros((len(elapsed), 2)))
        else:
            rate = numbers["ornstein_uhlenbeck_rate"]
            covariance += numbers["ornstein_uhlenbeck_variance"] * np.exp(-rate * np.abs(s - t))
            from_start.append(np.zeros((len(elapsed), 1)))  # stationary: what it starts from is in the kernel
    first = np.concatenate(from_start, 1)
    covariance += first @ model.initial_covariance_ @ first.T
    return first @ model.initial_mean_ + model.intercept_, covariance


@pytest.mark.parametrize("name", MODELS)
def test_at_any_times_it_is_the_gaussian_of_its_kernels(name: str) -> None:
    X = irregular()
    assert X.times is not None
    model = fitted(name, X)
    noise = model.components_["noise_variance"]
    for x, times, nats in zip(X, X.times, model.log_prob(X), strict=True):
        mean, covariance = kernel(model, (times - times[0]) / STEP)
        seen = ~np.isnan(x[:, 0])
        marginal = (covariance + noise * np.eye(len(x)))[np.ix_(seen, seen)]
        expected = multivariate_normal(mean[seen], marginal).logpdf(x[seen, 0])
        assert nats == pytest.approx(expected, rel=1e-11, abs=1e-10)
    gain = np.linalg.solve(marginal, covariance[seen]).T
    smoothed, left = mean + gain @ (x[seen, 0] - mean[seen]), covariance - gain @ covariance[seen]
    moments, weights = model.smooth(X)[-1], model.observation_matrix_[0]
    assert_allclose(moments.means @ weights + model.intercept_, smoothed, atol=1e-8)
    assert_allclose(
        np.einsum("k,tkl,l->t", weights, moments.covariances, weights), np.diagonal(left), rtol=1e-7, atol=1e-9
    )
    last = model.filter(X)[-1]
    assert_allclose(last.means[-1], moments.means[-1], atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_whole_numbers_of_steps_are_those_of_the_grid(name: str) -> None:
    rng = np.random.default_rng(1)
    places = np.append(0, 1 + np.sort(rng.choice(60, 24, replace=False)))
    X = sm.Sequences(irregular(n=1).items, times=[STEP * places])
    model = fitted(name, X)
    grid = model.clone().set_params(time_step=None)
    grid.__dict__.update({k: v for k, v in vars(model).items() if k.endswith("_")})
    whole = np.full((int(places[-1]) + 1, 1), np.nan)
    whole[places] = X[0]
    assert_allclose(model.log_prob(X), grid.log_prob([whole]), rtol=1e-12, atol=1e-10)
    assert_allclose(model.diffuse_log_prob(X), grid.diffuse_log_prob([whole]), rtol=1e-11, atol=1e-10)
    assert_allclose(model.smooth(X)[0].means, grid.smooth([whole])[0].means[places], atol=1e-8)
    ours, theirs = model.components(X)[0], grid.components([whole])[0]
    at_places = theirs[theirs["step"].isin(places)]
    assert_allclose(ours[["mean", "deviation"]], at_places[["mean", "deviation"]], atol=1e-7)


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_derivatives_are_those_of_the_diffuse_likelihood(name: str, is_alone: bool) -> None:
    X = irregular(2, n=1 if is_alone else 3)
    assert X.times is not None
    model = MODELS[name](time_step=STEP)
    assert model.structure is not None
    gaps = [np.append(np.diff(t), 0.0) for t in X.times]
    data = SystemData([(x - 3) / 7 for x in X], np.arange(1.0, len(X) + 1), gaps=gaps)
    structure = Structure.of(model.structure)
    form = replace(model._form(), diffuse=structure.diffuse())
    every = StructuralNumbers(structure, form)
    numbers = every.start(1, 0)
    log_prob, gradient = likelihood_of(every, data)(numbers)

    def at(moved: Array) -> float:
        return diffuse_log_prob(every.parameters(moved), form, data)

    assert log_prob == pytest.approx(at(numbers), rel=1e-12)
    slopes = [(at(numbers + h) - at(numbers - h)) / 2e-5 for h in 1e-5 * np.eye(len(numbers))]
    assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-6)


def test_a_fit_finds_the_numbers_of_what_was_drawn() -> None:
    rng = np.random.default_rng(0)
    times = [rng.exponential(0.8, 300).cumsum() for _ in range(4)]
    items = []
    for at in times:
        decay = np.exp(-0.5 * np.diff(at))
        z = [2.0 * rng.normal()]
        for a in decay:
            z.append(a * z[-1] + 2.0 * np.sqrt(1 - a * a) * rng.normal())
        items.append(np.array(z)[:, None] + 10 + 0.5 * rng.normal(size=(300, 1)))
    X = sm.Sequences(items, times=times)
    model = sm.LinearGaussian.ornstein_uhlenbeck(time_step=2.0).fit(X)
    found = model.components_
    assert model.converged_
    assert found["ornstein_uhlenbeck_rate"] == pytest.approx(1.0, rel=0.25)  # by time_step
    assert found["ornstein_uhlenbeck_variance"] == pytest.approx(4.0, rel=0.25)
    assert found["noise_variance"] == pytest.approx(0.25, rel=0.4)
    other = sm.LinearGaussian.ornstein_uhlenbeck(time_step=1.0).fit(X)
    assert other.components_["ornstein_uhlenbeck_rate"] == pytest.approx(0.5 * found["ornstein_uhlenbeck_rate"], 1e-3)
    assert_allclose(other.log_prob(X), model.log_prob(X), atol=1e-2)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", MODELS)
def test_step_by_step_and_several_at_once(name: str) -> None:
    X = irregular()
    assert X.times is not None
    model = fitted(name, X)
    steps = model.log_prob_steps(X)
    assert_allclose([s.sum() for s in steps], model.log_prob(X))
    for i, (x, times) in enumerate(zip(X, X.times, strict=True)):
        assert_allclose(model.log_prob_steps(X[i : i + 1])[0], steps[i], atol=1e-12)
        stream = model.stream()
        assert_allclose([stream.update(frame, time=t) for frame, t in zip(x, times, strict=True)], steps[i], atol=1e-9)
    cursor, encoded = model.cursor(), torch.tensor(np.stack([model.encoding_.encode(x) for x in X]))
    assert isinstance(cursor, SystemCursorOverGaps)
    state, log_det = cursor.start(n=3), np.log(np.reshape(model.encoding_.affine()[1], -1)[0])
    for t in range(10):
        state = cursor.given(state, torch.tensor([[at[t] / STEP] for at in X.times]))
        if t not in (4, 11):
            nats = cursor.distribution(state).log_prob(encoded[:, t]) - log_det
            assert_allclose(nats, [each[t] for each in steps], atol=1e-9)
        state = cursor.advance(state, encoded[:, t])
    chosen = cursor.select(state, torch.tensor([2, 0]))
    assert_array_equal(chosen.time, state.time[[2, 0]])
    assert_allclose(
        cursor.distribution(chosen).log_prob(encoded[[2, 0], 10]),
        cursor.distribution(state).log_prob(encoded[:, 10])[[2, 0]],
    )


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", MODELS)
def test_forecasts_and_draws_are_of_the_times_that_are_asked_for(name: str, tmp_path: Path) -> None:
    X = irregular()
    assert X.times is not None
    model = fitted(name, X)
    ahead = X.times[0][-1] + np.array([0.1, 0.1234, 11.7])
    frame = model.forecast(X[:1], 3, times=[ahead]).frame
    assert_allclose(frame["time"], ahead)
    times = np.concatenate([X.times[0], ahead])
    mean, covariance = kernel(model, (times - times[0]) / STEP)
    seen, later = np.flatnonzero(~np.isnan(X[0][:, 0])), np.arange(len(times) - 3, len(times))
    noise = model.components_["noise_variance"]
    marginal = covariance[np.ix_(seen, seen)] + noise * np.eye(len(seen))
    gain = np.linalg.solve(marginal, covariance[np.ix_(seen, later)]).T
    assert_allclose(frame["mean"], mean[later] + gain @ (X[0][seen, 0] - mean[seen]), rtol=1e-7, atol=1e-8)
    left = np.diagonal(covariance[np.ix_(later, later)] - gain @ covariance[np.ix_(seen, later)]) + noise
    assert_allclose((frame["95%"] - frame["5%"]) / (2 * 1.6448536269514722), np.sqrt(left), rtol=1e-6)

    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-12)
    draws = (each.sample(1, times=times, random_state=0)[0] for each in (loaded, model))
    assert_allclose(*draws, rtol=1e-12, atol=1e-12)  # products depend on where in memory an array lies
    drawn = np.stack(model.sample(4000, times=[0.0, 0.5, 4.3], random_state=0))[:, :, 0]
    mean, covariance = kernel(model, np.array([0.0, 0.5, 4.3]) / STEP)
    expected = covariance + noise * np.eye(3)
    scale = np.sqrt(np.diagonal(expected))
    assert_allclose(drawn.mean(0) / scale, mean / scale, atol=0.07)
    assert_allclose(np.cov(drawn.T) / np.outer(scale, scale), expected / np.outer(scale, scale), atol=0.1)


def test_densities_of_each_step_integrate_to_one() -> None:
    X = irregular(n=1)
    assert X.times is not None
    model = fitted("sum", X)
    stream = model.stream()
    for t in range(9):
        stream.update(X[0][t], time=X.times[0][t])
    grid = np.linspace(-200, 200, 40_001)
    nats = stream.predict_next(time=X.times[0][8] + 0.313).log_prob(torch.tensor(grid[:, None])).numpy().reshape(-1)
    assert np.trapezoid(np.exp(nats), grid) == pytest.approx(1.0, abs=1e-9)


def test_a_tail_is_scored_given_the_times_of_its_past() -> None:
    X = irregular(n=1)
    model = fitted("sum", X)
    train, test = X.split(0.4)
    assert model.log_prob(train) + model.log_prob(test) == pytest.approx(model.log_prob(X), abs=1e-10)


def test_of_steps_that_are_one_apart_nothing_changes() -> None:
    X = sm.Sequences(irregular().items, times=[STEP * np.arange(25.0)] * 3)
    model, plain = fitted("level", X), sm.LinearGaussian.local_level(max_iter=5).fit(X.items)
    assert_allclose(model.log_prob(X), plain.log_prob(X.items), rtol=1e-9, atol=1e-9)
    assert_allclose(model.log_prob(X.items), plain.log_prob(X.items), rtol=1e-9, atol=1e-9)


def test_other_structures_stay_on_their_grid() -> None:
    X = irregular(n=1)
    with pytest.raises(
        ValueError, match="LinearGaussian of local_level, smooth_trend, ornstein_uhlenbeck and cycle alone"
    ):
        (sm.LinearGaussian.local_level(time_step=STEP) + sm.LinearGaussian.seasonal(4)).fit(X)
    model = fitted("level", X)
    stream = model.stream()
    stream.update(np.zeros(1), time=3.0)
    with pytest.raises(ValueError, match="pass times that do not fall"):
        stream.update(np.zeros(1), time=2.3)


def test_processes_over_a_step_are_their_matrices() -> None:
    structure = Structure.of([LocalLevel(), SmoothTrend(), OrnsteinUhlenbeck(), Cycle(7.5)])
    numbers = np.array([0.3, 0.2, -1.0, 0.7, -0.4, 1.3])
    for over, one in zip(structure.matrices_over(numbers, np.ones(1)), structure.matrices(numbers), strict=True):
        assert_allclose(over[0], one, rtol=1e-13, atol=1e-15)
    half = structure.matrices_over(numbers, np.array([0.25, 0.75]))
    (a, b), (q, r) = half
    assert_allclose(b @ a, structure.matrices(numbers)[0], atol=1e-14)
    assert_allclose(b @ q @ b.T + r, structure.matrices(numbers)[1], atol=1e-14)


def test_dates_are_counted_in_their_unit() -> None:
    hours = np.array([0, 5, 6, 31, 47, 48, 100])
    x = np.sin(hours / 9.0)[:, None]
    dated = sm.Sequences([x], times=[np.datetime64("2024-02-28T07") + hours.astype("timedelta64[h]")])
    in_days = sm.Sequences([x], times=[hours / 24.0], time_unit="D")
    model = fitted("returning", in_days)
    assert_allclose(model.log_prob(dated), model.log_prob(in_days), atol=1e-10)


def test_a_start_that_ended_is_taken_from_its_checkpoint(tmp_path: Path) -> None:
    X, options = irregular(), {"max_iter": 6, "n_init": 2}
    path = str(tmp_path / "run")
    whole = fitted("returning", X, **options, training__checkpoint=path)
    resumed = fitted("returning", X, **options, training__resume_from=path)
    assert_allclose(resumed.log_prob(X), whole.log_prob(X), rtol=1e-9)
    assert_allclose(resumed.initial_covariance_, whole.initial_covariance_, rtol=1e-9)


def test_a_warm_start_goes_on_from_the_numbers() -> None:
    X = irregular()
    model = fitted("returning", X, max_iter=500)
    before = model.history_["log_prob"].iloc[-1]
    model.set_params(warm_start=True).fit(X)
    assert model.history_["log_prob"].iloc[0] == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("model", [sm.LinearGaussian.local_level(time_step=1.0), ContinuousTimeHMM(2)])
def test_the_same_instants_have_the_same_score_in_any_unit(model: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    hours = np.cumsum(rng.integers(1, 9, 30))
    x = np.cumsum(rng.normal(size=(30, 1)), axis=0)
    in_hours = sm.Sequences([x], times=[hours], time_unit="h")
    dated = sm.Sequences([x], times=[np.datetime64("2024-01-01T00") + hours.astype("timedelta64[h]")])
    in_seconds = sm.Sequences([x], times=[hours * 3600.0], time_unit="s")
    fit_to_hours = model.clone().set_params(max_iter=3).fit(in_hours)
    fit_to_hours.save(tmp_path / "model")
    loaded: Any = sm.load(tmp_path / "model")
    for other in (dated, in_seconds):
        assert_allclose(loaded.log_prob(other), fit_to_hours.log_prob(in_hours), rtol=1e-9)
    with pytest.raises(ValueError, match="the times are numbers of an unknown unit, but the model was"):
        loaded.score(sm.Sequences([x], times=[hours]))
    forecasts = [
        loaded.forecast(X, 1, times=[X.times[0][-1:] + step]).frame["mean"]
        for X, step in ((in_hours, 5), (in_seconds, 18000.0), (dated, np.timedelta64(5, "h")))
        if X.times is not None
    ]
    assert_allclose(forecasts[1:], forecasts[:1] * 2, rtol=1e-9)
