"""Missing values under autoregressions: a Kalman filter written out, one probability, and EM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.linalg import solve_triangular
from scipy.stats import norm

import seqmodels as sm
from seqmodels.wrappers.anomalies.full_conditionals import feature_log_probs

A = np.array([[0.7, 0.2], [-0.3, 0.5]])
NOISE = np.array([[1.0, 0.4], [0.4, 0.6]])


def simulated(lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    sequences = []
    for n in lengths:
        x = np.zeros((n, 2))
        for t in range(1, n):
            x[t] = A @ x[t - 1] + [1.0, -0.5] + np.linalg.cholesky(NOISE) @ rng.normal(size=2)
        sequences.append(x)
    return sequences


def with_holes(sequences: list[np.ndarray], share: float = 0.2, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.where(rng.random(x.shape) < share, np.nan, x) for x in sequences]


WHOLE = simulated([30, 20, 25, 12])
HOLES = with_holes(WHOLE)
HOLES[1][7:10] = np.nan  # a gap of whole frames
HOLES[2][0] = np.nan
OBSERVATIONS = [
    sm.AutoregressiveGaussian(1, background=0.0, predictive="plug-in"),
    sm.AutoregressiveGaussian(2, "diag", background=0.0, predictive="plug-in"),
    sm.AutoregressiveGaussian(3, background=0.0, predictive="plug-in"),
]


def kalman_steps(model: sm.HMM, x: np.ndarray) -> np.ndarray:
    """log p(x_t observed | all observed before) of a VAR: the joint Gaussian of all frames, written out."""
    observation, table = model.observation_, model.parameters_.table
    p, d, n = observation.order, x.shape[1], len(x)
    matrix, intercept, shape, first_mean, first_shape = (t[0].numpy() for t in observation.unpack(table, d))
    covariances = [observation._covariance(torch.as_tensor(s), d).numpy() for s in (first_shape, shape)]
    # x = L e + m with independent innovations e, so the covariance of all values is L Cov[e] Lᵀ.
    mean, weights, noise = np.zeros(n * d), np.zeros((n * d, n * d)), np.zeros((n * d, n * d))
    for t in range(n):
        rows = slice(t * d, (t + 1) * d)
        noise[rows, rows], mean[rows] = covariances[t >= p], first_mean
        weights[rows, rows] = np.eye(d)
        if t >= p:
            past = slice((t - p) * d, t * d)
            mean[rows] = matrix @ mean[past] + intercept
            weights[rows] += matrix @ weights[past]
    shift, scale = model.encoding_.affine()
    covariance = weights @ noise @ weights.T * np.outer(np.tile(scale, n), np.tile(scale, n))
    mean, values = mean * np.tile(scale, n) + np.tile(shift, n), x.ravel()
    # With a Cholesky factor C of the covariance of what was observed, C⁻¹ (x - m) is each value given those before it.
    seen = np.flatnonzero(~np.isnan(values))
    factor = np.linalg.cholesky(covariance[np.ix_(seen, seen)])
    white = solve_triangular(factor, values[seen] - mean[seen], lower=True)
    log_probs = norm.logpdf(white) - np.log(factor.diagonal())
    return np.bincount(seen // d, log_probs, minlength=n)


@pytest.mark.parametrize("observation", OBSERVATIONS, ids=repr)
def test_one_state_is_the_joint_gaussian_of_all_frames(observation: sm.AutoregressiveGaussian) -> None:
    model = sm.HMM(1, observation=observation, dtype="float64", max_iter=3).fit(WHOLE)  # learned without holes
    for x, steps in zip(HOLES, model.log_prob_steps(HOLES), strict=True):
        assert_allclose(steps, kalman_steps(model, x), atol=1e-9)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("observation", OBSERVATIONS, ids=repr)
def test_one_state_fitted_with_missing_values_is_the_joint_gaussian(
    observation: sm.AutoregressiveGaussian, dtype: str
) -> None:
    model = sm.HMM(1, observation=observation, dtype=dtype, max_iter=4).fit(HOLES)
    atol = 1e-9 if dtype == "float64" else 1e-5
    batch = model.log_prob_steps(HOLES)
    for x, steps in zip(HOLES, batch, strict=True):
        exact = kalman_steps(model, x)
        assert_allclose(steps, exact, atol=atol)
        stream = model.stream()
        assert_allclose([stream.update(frame) for frame in x], exact, atol=atol)
        for t in (1, 9, 11):  # what comes next, whole, after a past with gaps
            following = np.vstack([x[:t], [0.5, -1.0]])
            predicted = float(model.predict_next(x[:t]).log_prob(torch.tensor([0.5, -1.0]).double()))
            assert_allclose(predicted, kalman_steps(model, following)[-1], atol=atol)
    # What the history says is the score, and no filter of other coefficients is kept.
    assert_allclose(model.history_["log_prob"].iloc[-1], model.score(HOLES), atol=atol)
    assert model.shared_autoregression_ is None


@pytest.mark.slow
def test_em_of_one_state_finds_the_maximum_with_missing_values() -> None:
    observation = sm.AutoregressiveGaussian(1, ridge=0.0, background=0.0, predictive="plug-in")
    model = sm.HMM(1, observation=observation, dtype="float64", tol=0, max_iter=100).fit(HOLES[:2])
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    best, table = model.score(HOLES[:2]), model.parameters_.table
    n_free = 4 + 2 + 3  # coefficients, intercept and innovations; the first steps' Gaussian is left as it is
    for i in range(n_free):
        for step in (-1e-3, 1e-3):
            moved = table.clone()
            moved[0, i] += step
            model.parameters_ = replace(model.parameters_, table=moved)
            assert model.score(HOLES[:2]) < best + 1e-9  # 1e-6 below, where the filter does not smooth some are above


def test_partial_fit_of_one_state_filters_with_what_it_has() -> None:
    model = sm.HMM(
        1, observation=sm.AutoregressiveGaussian(1, background=0.0, predictive="plug-in"), dtype="float64"
    ).fit(WHOLE)
    before = model.coefficients_.copy()
    for _ in range(3):
        model.partial_fit(HOLES)
    assert np.abs(model.coefficients_ - before).max() > 1e-4
    for x, steps in zip(HOLES, model.log_prob_steps(HOLES), strict=True):
        assert_allclose(steps, kalman_steps(model, x), atol=1e-9)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("observation", OBSERVATIONS, ids=repr)
@pytest.mark.parametrize("n_states", [1, 3])
def test_batch_stream_and_prefix_agree(observation: sm.AutoregressiveGaussian, n_states: int) -> None:
    for data in (WHOLE, HOLES):
        model = sm.HMM(n_states, observation=observation, dtype="float64", max_iter=2, n_init=1).fit(data)
        together = model.log_prob_steps(HOLES)
        for i, x in enumerate(HOLES):
            stream = model.stream()
            assert_allclose([stream.update(frame) for frame in x], together[i], atol=1e-9)
            assert_allclose(model.log_prob_steps([x])[0], together[i], atol=1e-10)
        future = [HOLES[0].copy()]
        future[0][15:] += 100.0
        assert_allclose(model.log_prob_steps(future)[0][:15], together[0][:15], atol=1e-10)


def test_the_density_of_what_is_observed_integrates_to_one() -> None:
    model = sm.HMM(2, observation=sm.AutoregressiveGaussian(2), dtype="float64", max_iter=4, n_init=1).fit(HOLES)
    values = np.linspace(-100, 100, 1001)
    for prefix in (HOLES[1][:9], HOLES[1][:10], HOLES[0][:1], HOLES[2][:1]):
        steps = model.log_prob_steps([np.vstack([prefix, [value, np.nan]]) for value in values])
        assert_allclose(np.trapezoid(np.exp([each[-1] for each in steps]), values), 1.0, atol=1e-6)
        predicted = model.predict_next(prefix)
        whole = model.log_prob_steps([np.vstack([prefix, [0.5, -1.0]])])[0][-1]
        assert_allclose(float(predicted.log_prob(torch.tensor([0.5, -1.0]).double())), whole, atol=1e-9)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("observation", OBSERVATIONS, ids=repr)
def test_em_never_falls(observation: sm.AutoregressiveGaussian) -> None:
    model = sm.HMM(3, observation=observation, dtype="float64", tol=0, max_iter=15, n_init=1).fit(HOLES)
    objective = model.history_["objective"].to_numpy()
    assert len(objective) > 5
    assert (np.diff(objective) > -1e-10).all()
    assert objective[-1] > objective[0] + 1e-4
    # What the last row says is the score: without a prior worth a digit.
    assert_allclose(model.history_["log_prob"].iloc[-1], model.score(HOLES), rtol=1e-6)


def test_the_coefficients_are_found_where_a_fifth_is_missing() -> None:
    whole = simulated([500] * 8, seed=3)
    model = sm.HMM(1, observation=sm.AutoregressiveGaussian(1)).fit(with_holes(whole))
    assert_allclose(model.coefficients_[0], A, atol=0.04)
    assert_allclose(model.covariances_[0], NOISE, atol=0.05)
    filled = [np.where(np.isnan(x), np.nanmean(x, 0), x) for x in with_holes(whole)]
    biased = sm.HMM(1, observation=sm.AutoregressiveGaussian(1)).fit(filled)
    assert np.abs(biased.coefficients_[0] - A).max() > 0.06  # so a regression on means would not pass


def test_after_a_gap_the_variance_is_that_of_the_process() -> None:
    model = sm.HMM(1, observation=sm.AutoregressiveGaussian(1, background=0.0), dtype="float64").fit(simulated([2000]))
    gap = np.vstack([simulated([20], 5)[0], np.full((60, 2), np.nan)])
    stationary = np.linalg.solve(np.eye(4) - np.kron(A, A), NOISE.ravel()).reshape(2, 2)
    assert_allclose(model.predict_next(gap).variance.numpy(), np.diag(stationary), rtol=0.15)
    assert_allclose(model.predict_next(gap).mean.numpy(), np.linalg.solve(np.eye(2) - A, [1.0, -0.5]), atol=0.3)


def test_every_question_takes_missing_values(tmp_path: Path) -> None:
    model = sm.HMM(2, observation=sm.AutoregressiveGaussian(1), max_iter=3).fit(HOLES)
    for ask in (model.posterior, model.filter, model.decode):
        assert [len(answer) for answer in ask(HOLES)] == [30, 20, 25, 12]
    assert [paths.shape for paths in model.sample_states(HOLES, 2)] == [(2, 30), (2, 20), (2, 25), (2, 12)]
    ends_in_a_hole = [np.vstack([WHOLE[0], [[np.nan, 1.0]]])]
    forecast = model.forecast_states(ends_in_a_hole, 3)[0]
    assert_allclose(forecast.mean[0], forecast.distribution(1).mean, rtol=1e-5)
    assert_allclose(forecast.mean[0], model.predict_next(ends_in_a_hole[0]).mean, rtol=1e-4)
    assert np.isfinite(model.forecast(ends_in_a_hole, 2).frame["mean"]).all()
    drawn = model.sample(prefix=ends_in_a_hole[0], length=4, random_state=0)[0]
    assert np.isfinite(drawn[31:]).all()
    model.save(tmp_path / "model.safetensors")
    again = sm.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.log_prob(HOLES), model.log_prob(HOLES), rtol=1e-12)
    order = model.reorder([1, 0])
    assert_allclose(order.log_prob(HOLES), model.log_prob(HOLES), rtol=1e-6)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("algorithm", ["stepwise", "gradient"])
def test_other_algorithms_learn_from_missing_values(algorithm: str) -> None:
    model = sm.HMM(2, observation=sm.AutoregressiveGaussian(1), algorithm=algorithm, max_iter=5).fit(HOLES)
    start = sm.HMM(2, observation=sm.AutoregressiveGaussian(1), max_iter=0).fit(HOLES)
    assert model.score(HOLES) > start.score(HOLES)


def test_each_feature_given_the_others_is_the_rest_of_the_joint_density() -> None:
    model = sm.HMM(2, observation=sm.AutoregressiveGaussian(1), dtype="float64", max_iter=3).fit(HOLES)
    x = HOLES[0]
    (conditionals,) = feature_log_probs(model, [x])
    assert np.array_equal(np.isnan(conditionals), np.isnan(x))
    complete = np.flatnonzero(~np.isnan(x).any(1) & np.roll(np.isnan(x).any(1), 1))  # after a frame with a hole
    assert len(complete) > 2
    for t in complete:
        without = x.copy()
        without[t, 0] = np.nan
        joint, others = (model.log_prob_steps([each])[0][t] for each in (x, without))
        assert_allclose(conditionals[t, 0], joint - others, atol=1e-9)


@pytest.mark.slow
def test_rows_that_have_the_same_missing_values_are_filtered_as_each_by_itself() -> None:
    observation = sm.AutoregressiveGaussian(3, min_covariance=1e-3, background=0.0)
    x = with_holes(simulated([120]), 0.3)
    model = sm.HMM(1, observation=observation, max_iter=3).fit(x)
    cursor = model.cursor()
    filter_of_past = cursor._past_filter
    rng = torch.Generator().manual_seed(0)
    past = torch.randn(7, 3, 2, generator=rng, dtype=torch.float64)
    past[3:] = torch.nan  # before the start
    step = torch.randn(7, 2, generator=rng, dtype=torch.float64)
    step[1:3, 0] = torch.nan  # other values than in the first row
    step[5:, 1] = torch.nan
    following = torch.randn(7, 2, generator=rng, dtype=torch.float64)
    together = filter_of_past.advance(filter_of_past.advance(past, step), following)
    for i in range(7):
        row = slice(i, i + 1)
        alone = filter_of_past.advance(filter_of_past.advance(past[row], step[row]), following[row])
        assert_allclose(together[row], alone, rtol=1e-13, atol=1e-13)
    assert not torch.equal(together[0], together[1])
