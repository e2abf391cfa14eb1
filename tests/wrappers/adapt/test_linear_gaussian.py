"""Linear-Gaussian systems of Pyro: its log-probabilities, and the Gaussian of all steps together."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

import seqmodels as sm
from seqmodels.wrappers.adapt.hmm_libraries import _Affine, _state_space

GENERATOR = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=torch.float64)


def normal(size: int, *, full: bool) -> Any:
    if not full:
        return dist.Normal(numbers(size), numbers(size).exp()).to_event(1)
    root = numbers(size, size)
    return dist.MultivariateNormal(numbers(size), root @ root.T + 0.1 * torch.eye(size).double())


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("hidden", "observed"), [(2, 3), (3, 1)])
def test_pyro_says_the_same_here(hidden: int, observed: int, full: bool) -> None:
    parts = [normal(hidden, full=True), 0.5 * numbers(hidden, hidden), normal(hidden, full=full)]
    parts += [numbers(hidden, observed), normal(observed, full=full)]
    theirs, x = dist.GaussianHMM(*parts), numbers(7, observed)
    for distribution in (theirs, dist.LinearHMM(*parts, duration=7)):
        ours = sm.adapt.from_pyro(distribution)
        assert type(ours) is sm.LinearGaussian
        (steps,) = ours.log_prob_steps([x.numpy()])
        first = [float(theirs.log_prob(x[: t + 1])) for t in range(7)]
        assert_allclose(np.cumsum(steps), first, rtol=1e-8, atol=1e-8)


def test_a_gaussian_hmm_has_its_parameters_where_this_version_of_pyro_keeps_them() -> None:
    """It has no public ones: look at ``_gaussian_of_pyro`` before a newer version is added here."""
    assert version("pyro-ppl") in {"1.9.0", "1.9.1", "1.9.2"}
    parts = [normal(1, full=True), numbers(1, 1), normal(1, full=True), numbers(1, 1), normal(1, full=True)]
    theirs = dist.GaussianHMM(*parts)
    assert {"_init", "_trans", "_obs"} <= set(vars(theirs))
    del theirs._trans
    with pytest.raises(ValueError, match=r"not where Pyro 1\.9 keeps them; pass a LinearHMM"):
        sm.adapt.from_pyro(theirs)


def test_all_steps_together_are_one_gaussian() -> None:
    a, c, q, r = np.array([[0.8, 0.3], [0.0, 0.5]]), np.array([[1.0], [2.0]]), np.diag([0.5, 0.0]), np.array([[0.3]])
    model = _state_space(
        _Affine(np.zeros((0, 2)), np.array([1.0, -1.0]), np.array([[1.0, 0.2], [0.2, 2.0]])),
        _Affine(a, np.array([0.1, 0.2]), q),
        _Affine(c, np.array([3.0]), r),
    )
    assert model.n_states_ == 3  # one of them always 1
    steps, noise = 4, [np.zeros(2), np.array([[1.0, 0.2], [0.2, 2.0]])]
    # x = (z_0, w_1 .. w_4) B + v: each step is linear in what is drawn independently.
    rows = np.zeros((2 + 2 * steps, steps))
    mean, state = np.zeros(steps), np.array([1.0, -1.0])
    for t in range(steps):
        state = state @ a + [0.1, 0.2]
        mean[t] = (state @ c)[0] + 3.0
        rows[:2, t] = (np.linalg.matrix_power(a, t + 1) @ c)[:, 0]
        for s in range(t + 1):
            rows[2 + 2 * s : 4 + 2 * s, t] = (np.linalg.matrix_power(a, t - s) @ c)[:, 0]
    spread = np.zeros((len(rows), len(rows)))
    spread[:2, :2] = noise[1]
    for s in range(steps):
        spread[2 + 2 * s : 4 + 2 * s, 2 + 2 * s : 4 + 2 * s] = q
    x = np.random.default_rng(0).normal(size=(3, steps)) + mean
    expected = multivariate_normal(mean, rows.T @ spread @ rows + 0.3 * np.eye(steps)).logpdf(x)
    assert_allclose(model.log_prob([each[:, None] for each in x]), expected, rtol=1e-10)


def test_it_is_saved_and_stands_in_a_table(tmp_path: Any) -> None:
    model = sm.adapt.from_pyro(
        dist.GaussianHMM(
            *[normal(1, full=True), numbers(1, 1), normal(1, full=True)], *[numbers(1, 2), normal(2, full=False)]
        )
    )
    x = [numbers(n, 2).numpy() for n in (5, 9, 3, 8, 6, 7)]
    test = [numbers(n, 2).numpy() for n in (4, 6, 5, 7, 3)]
    model.save(tmp_path / "model")
    assert_allclose(sm.load(tmp_path / "model").log_prob(x), model.log_prob(x), rtol=1e-12, atol=1e-12)
    figures = model.log_prob(test)
    frame = sm.compare({"theirs": model, "hmm": sm.HMM(1, n_init=1)}, x, test=test, iid=False).frame
    assert frame.set_index("model")["n_parameters"]["theirs"] == model.n_parameters_
    assert_allclose(model.log_prob(test), figures, rtol=1e-14)  # which ``fit`` leaves as they are
    assert model.clone().set_params(max_iter=3).fit(x).log_prob(x).sum() > model.log_prob(x).sum()


def test_step_by_step_in_any_batch_and_by_samples_it_is_the_same() -> None:
    parts = [normal(2, full=True), 0.3 * numbers(2, 2), normal(2, full=True), numbers(2, 2), normal(2, full=True)]
    model = sm.adapt.from_pyro(dist.GaussianHMM(*parts))
    x = [numbers(n, 2).numpy() for n in (5, 1, 9, 3)]
    each = model.log_prob_steps(x)
    for item, steps, alone in zip(x, each, model.log_prob_steps(x[::-1])[::-1], strict=True):
        stream = model.stream()
        assert_allclose([stream.update(frame) for frame in item], steps, rtol=1e-12)
        assert_allclose(alone, steps, rtol=1e-12)
    changed = x[2].copy()
    changed[6:] += 1e3
    assert_allclose(model.log_prob_steps([changed])[0][:6], each[2][:6], rtol=1e-12)
    drawn = np.array(model.sample(4000, length=3, random_state=0))
    c = model.observation_matrix_
    mean = c @ model.initial_mean_ + model.intercept_
    covariance = c @ model.initial_covariance_ @ c.T + model.observation_covariance_
    assert_allclose(drawn[:, 0].mean(0), mean, atol=5 * float(covariance.diagonal().max() / 4000) ** 0.5)
    assert_allclose(np.cov(drawn[:, 0].T), covariance, rtol=0.15, atol=0.15 * float(covariance.diagonal().max()))


def test_what_has_no_conditionals_or_changes_with_time_is_refused() -> None:
    parts: dict[str, Any] = {
        **{"initial_dist": normal(2, full=True), "transition_matrix": numbers(2, 2)},
        **{"transition_dist": normal(2, full=True), "observation_matrix": numbers(2, 1)},
    }
    student = dist.StudentT(3.0 * torch.ones(1).double()).to_event(1)
    for make, message in (
        (
            lambda: dist.LinearHMM(**parts, observation_dist=student, duration=3),
            "noise of StudentT gives a LinearHMM no",
        ),
        (
            lambda: dist.GaussianHMM(
                **parts | {"transition_matrix": numbers(4, 2, 2)}, observation_dist=normal(1, full=True)
            ),
            r"batch axes \(4,\)",
        ),
        (
            lambda: dist.LinearHMM(
                **parts | {"transition_matrix": numbers(4, 2, 2)}, observation_dist=normal(1, full=True)
            ),
            "change with time",
        ),
        (
            lambda: dist.LinearHMM(
                **parts,
                observation_dist=dist.LogNormal(numbers(1), torch.ones(1).double()).to_event(1),
                duration=3,
            ),
            "are transformed",
        ),
        (
            lambda: dist.GaussianMRF(normal(2, full=True), normal(4, full=True), normal(3, full=True)),
            "a GaussianMRF is not known here",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            sm.adapt.from_pyro(make())
