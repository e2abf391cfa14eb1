"""The filter one step at a time, against the evaluation of whole sequences and the joint Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.linear_gaussian.cursor import SystemCursor
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from tests.linear_gaussian.dense import dense, random_parameters

K, D = 3, 2


def cursor_of(parameters: SystemParameters) -> SystemCursor:
    return SystemCursor.of(parameters, Form("learned", "full", "full", "full", True, 1e-6), torch.device("cpu"))


@pytest.mark.parametrize("rank", [None, 1])
def test_steps_add_up_to_the_joint_gaussian_and_forecasts_are_its_conditionals(rank: int | None) -> None:
    parameters, rng = random_parameters(2, K, D, rank), np.random.default_rng(0)
    cursor, n, k = cursor_of(parameters), 6, 3
    x = 2 * rng.normal(size=(2, n, D))
    x[0, 1, 0] = x[0, 3] = x[1, 5, 1] = np.nan
    state, nats = cursor.start(n=2), np.zeros(2)
    for step in torch.tensor(x).unbind(1):
        nats += cursor.distribution(state).log_prob(step).numpy()
        state = cursor.advance(state, step)
    predictions = cursor.predictions_ahead(state, k)
    assert predictions is not None
    for i in range(2):
        known = dense(parameters, np.concatenate([x[i], np.full((k, D), np.nan)]))
        assert nats[i] == pytest.approx(known.log_prob, rel=1e-10)
        for h, prediction in enumerate(predictions):
            expected = parameters.observation @ known.means[n + h] + parameters.intercept
            spread = parameters.observation @ known.covariances[n + h, :, n + h] @ parameters.observation.T
            distribution = prediction.as_distribution(torch.zeros(D).double(), torch.ones(D).double())
            if i == 0:  # which ``as_distribution`` is of
                component = distribution.component_distribution
                np.testing.assert_allclose(component.mean[0].numpy(), expected, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(
                    component.covariance_matrix[0].numpy(), spread + parameters.observation_covariance, rtol=1e-8
                )


@pytest.mark.parametrize(("n", "n_steps"), [(1, 1), (1, 200), (3, 60)])
@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("level", [0.0, 1e9])
def test_many_steps_are_read_as_one_after_the_other(n: int, n_steps: int, has_missing: bool, level: float) -> None:
    cursor, rng = cursor_of(random_parameters(0, K, D)), np.random.default_rng(0)
    x = torch.tensor(level + rng.normal(size=(n, n_steps, D)))
    if has_missing:
        x[0, n_steps // 2, 0] = torch.nan
    by_step = [cursor.start(n=n)]
    for step in x.unbind(1):
        by_step.append(cursor.advance(by_step[-1], step))
    half = n_steps // 2
    for start, seen in ((0, x), (half, x[:, half:])):  # from the first step on, and on the way
        read = cursor.read(by_step[start], seen)
        torch.testing.assert_close(read.mean, by_step[-1].mean, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(read.filtered, by_step[-1].filtered, rtol=1e-10, atol=1e-12)
        u, v = read.each_factor, by_step[-1].each_factor  # whose rows may have other signs
        torch.testing.assert_close(u.mT @ u, v.mT @ v, rtol=1e-9, atol=1e-12)


def test_one_covariance_is_kept_for_all_until_values_are_missing() -> None:
    cursor, rng = cursor_of(random_parameters(0, K, D)), np.random.default_rng(0)
    state = cursor.start(n=4)
    x = torch.tensor(rng.normal(size=(4, D)))
    state = cursor.advance(state, x)
    assert state.factor.shape == (1, K, K)
    selected = cursor.select(state, torch.tensor([2, 2, 0]))
    assert (selected.mean.shape, selected.factor.shape) == ((3, K), (1, K, K))
    assert torch.equal(selected.mean[0], state.mean[2])
    x[1, 0] = torch.nan
    gaps = cursor.advance(state, x)
    assert gaps.factor.shape == (4, K, K)
    again = cursor.select(gaps, torch.tensor([1, 0]))
    assert torch.equal(again.factor, gaps.factor[[1, 0]])
    torch.testing.assert_close(gaps.factor[0].mT @ gaps.factor[0], gaps.factor[2].mT @ gaps.factor[2])
    assert not torch.allclose(gaps.factor[0].mT @ gaps.factor[0], gaps.factor[1].mT @ gaps.factor[1])


def test_rows_drawn_from_few_sequences_share_their_factors() -> None:
    cursor, rng = cursor_of(random_parameters(0, K, D)), np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(3, D)))
    x[1, 0] = torch.nan
    few = cursor.advance(cursor.start(n=3), x)
    index = torch.tensor([2, 2, 1, 1, 2])
    shared = cursor.select(few, index)
    assert shared.factor.shape == (2, K, K)
    assert torch.equal(shared.each_factor, few.factor[index])
    alone = [cursor.select(few, torch.tensor([i])) for i in index]
    following = torch.tensor(rng.normal(size=(4, 5, D)))
    following[2, 3, 1] = torch.nan  # one row misses a value that the others have
    for t, step in enumerate(following):
        for i, state in enumerate(alone):
            expected, given = cursor.distribution(state), cursor.distribution(shared)
            torch.testing.assert_close(given.output_parameters[i], expected.output_parameters[0])
            u, v = shared.each_factor[i], state.factor[0]  # whose rows may have other signs
            torch.testing.assert_close(u.mT @ u, v.mT @ v)
        assert len(shared.factor) == (2 if t < 3 else 5)
        shared = cursor.advance(shared, step)
        alone = [cursor.advance(state, step[i : i + 1]) for i, state in enumerate(alone)]
    fewer = cursor.select(cursor.select(few, index), torch.tensor([3, 2, 3]))
    torch.testing.assert_close(cursor.unseen(fewer).each_factor, cursor.unseen(few).factor[[1, 1, 1]])


def test_inputs_drive_states_but_not_the_first() -> None:
    parameters = random_parameters(1, 1, 1)
    parameters = SystemParameters(
        *(np.array([[0.5]]), np.array([[0.2]]), np.ones((1, 1)), np.zeros(1), np.array([[0.1]])),
        *(np.array([1.0]), np.array([[0.3]]), np.array([[2.0]]), np.array([[10.0]])),
    )
    form = Form("learned", "full", "full", "full", True, 1e-6, None, (0,), (1,))
    cursor = SystemCursor.of(parameters, form, torch.device("cpu"))
    u = torch.tensor([[1.0, 0.1]], dtype=torch.float64)
    state = cursor.given(cursor.start(), u)
    first = cursor.distribution(state).output_parameters[0, 0, 1]
    assert float(first) == pytest.approx(1.0 + 1.0)
    second = cursor.given(cursor.unseen(state), u)
    assert float(cursor.distribution(second).output_parameters[0, 0, 1]) == pytest.approx(0.5 + 2.0 + 1.0)
    with pytest.raises(ValueError, match="those of the next step are not known"):
        cursor.distribution(cursor.unseen(second))


def test_a_forecast_of_a_model_is_in_closed_form() -> None:
    p = random_parameters(4, 2, 1)
    model = sm.LinearGaussian.from_parameters(
        *(p.transition, p.state_covariance, p.observation, p.observation_covariance, p.initial_mean),
        *(p.initial_covariance,),
        intercept=p.intercept,
    )
    x = [np.random.default_rng(0).normal(size=(5, 1))]
    frame = model.forecast(x, 4).frame
    assert set(frame["method"]) == {"exact"}
    known = dense(p, np.concatenate([x[0], np.full((4, 1), np.nan)]))
    np.testing.assert_allclose(frame["mean"], known.means[5:] @ p.observation[0] + p.intercept[0], rtol=1e-8)
