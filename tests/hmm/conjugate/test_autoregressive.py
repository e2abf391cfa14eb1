"""The conjugate family of autoregressions: one state's evidence in closed form and by integration, and draws."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor

import seqmodels as sm
from seqmodels.encodings import Standardize
from seqmodels.hmm import ConjugatePrior, Frozen
from seqmodels.hmm.conjugate import conjugate_of
from seqmodels.inference.chains.scratch import Scratch
from tests.made import made

COUNT, MEAN_COUNT, MEAN, VARIANCE, RIDGE = 2.5, 0.4, 0.3, 1.7, 0.5  # of a prior
PRIOR = ConjugatePrior(count=COUNT, mean_count=MEAN_COUNT, mean=MEAN, covariance=VARIANCE, initial=1, transition=1)
TYPES: tuple[Any, ...] = ("full", "diag")


def series(n: int, length: int, d: int = 2, seed: int = 0) -> list[np.ndarray]:
    """Sequences of two regimes, which follow each other every 20 steps."""
    rng, items = np.random.default_rng(seed), []
    for _ in range(n):
        x = rng.normal(size=(length, d))
        for t in range(1, length):
            x[t] = 0.85 * x[t - 1] + 0.3 * x[t] if t // 20 % 2 else 0.5 - 0.6 * x[t - 1] + x[t]
        items.append(x)
    return items


def variational(n_states: int, observation: Any, **options: Any) -> sm.HMM:
    given = {"algorithm": "variational", "dtype": "float64", "n_init": 1, "length": "given", "encoding": Standardize()}
    return made(sm.HMM, n_states, observation=observation, **(given | options))


def regressors(x: np.ndarray, t: int, order: int, *, intercept: bool) -> np.ndarray:
    return np.append(x[t - order : t].ravel(), [1.0] if intercept else [])


# -- the evidence of one state -----------------------------------------------------------------------------------------


def first_evidence(frames: np.ndarray, kind: str) -> float:
    """First steps under the default prior of one Gaussian: each given those before it is Student's t."""
    d, mean, count, freedom = frames.shape[1], np.zeros(frames.shape[1]), 0.1, 1.0
    scatter, total = np.eye(d), 0.0
    if kind == "full":
        freedom, scatter = freedom + d - 1, scatter * (freedom + d - 1)
    for x in frames:
        total += predictive(x, mean, scatter * (1 + 1 / count), freedom, kind)
        scatter = scatter + count / (count + 1) * np.outer(x - mean, x - mean)
        mean, count, freedom = (count * mean + x) / (count + 1), count + 1, freedom + 1
    return total


def predictive(x: np.ndarray, mean: np.ndarray, scatter: np.ndarray, freedom: float, kind: str) -> float:
    """log t(x) where the precision is Wishart with these degrees of freedom, or each precision is Gamma."""
    if kind == "full":
        df = freedom - len(x) + 1
        return float(stats.multivariate_t.logpdf(x, mean, scatter / df, df))
    return float(stats.t.logpdf(x, freedom, mean, np.sqrt(scatter.diagonal() / freedom)).sum())


def evidence(sequences: list[np.ndarray], order: int, kind: str, *, intercept: bool, unit_root: float = 0.0) -> float:
    """``log p(x)``: each frame given those before it is Student's t about the regression on all frames before."""
    d = sequences[0].shape[1]
    lags = np.tile(np.eye(d), order)
    gram = np.diag(np.append(np.full(order * d, RIDGE), [MEAN_COUNT] if intercept else []))
    gram[: order * d, : order * d] += unit_root * lags.T @ lags
    cross = np.linalg.solve(gram[: order * d, : order * d], unit_root * lags.T).T
    if intercept:
        cross = np.column_stack([cross, np.full(d, MEAN)])
    cross = cross @ gram
    freedom = COUNT + (d - 1 if kind == "full" else 0)
    scatter, total = (
        freedom * VARIANCE * np.eye(d),
        first_evidence(np.concatenate([x[:order] for x in sequences]), kind),
    )
    for x in sequences:
        for t in range(order, len(x)):
            z = regressors(x, t, order, intercept=intercept)
            mean, factor = cross @ np.linalg.solve(gram, z), 1 + z @ np.linalg.solve(gram, z)
            total += predictive(x[t], mean, scatter * factor, freedom, kind)
            scatter = scatter + np.outer(x[t] - mean, x[t] - mean) / factor
            gram, cross, freedom = gram + np.outer(z, z), cross + np.outer(x[t], z), freedom + 1
    return total


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("order", "intercept", "unit_root"), [(1, True, 0.0), (2, True, 0.0), (2, False, 0.0), (2, True, 3.0)]
)
def test_of_one_state_the_bound_is_the_evidence(kind: Any, order: int, intercept: bool, unit_root: float) -> None:
    x = series(3, 12)
    observation = sm.AutoregressiveGaussian(order, kind, ridge=RIDGE, intercept=intercept, unit_root=unit_root)
    model = variational(1, observation, training__prior=PRIOR).fit(x)
    shift, scale = model.encoding_.affine()
    encoded = [(frames - shift) / scale for frames in x]
    expected = evidence(encoded, order, kind, intercept=intercept, unit_root=unit_root)
    assert model.lower_bound_ == pytest.approx(expected - 36 * np.log(scale).sum(), rel=1e-10)


def test_of_states_that_are_tied_the_bound_is_the_evidence_of_one() -> None:
    """The states then say nothing of the frames, and the frames nothing of the states; first steps count once."""
    x, held = series(3, 12), {"training__tied": [0, 0, 0], "training__frozen": ("initial", "transition")}
    model = variational(3, sm.AutoregressiveGaussian(2, ridge=RIDGE), training__prior=PRIOR, **held).fit(x)
    shift, scale = model.encoding_.affine()
    expected = evidence([(frames - shift) / scale for frames in x], 2, "full", intercept=True)
    assert model.lower_bound_ == pytest.approx(expected - 36 * np.log(scale).sum(), rel=1e-10)


@pytest.mark.parametrize("kind", TYPES)
def test_of_one_feature_the_evidence_is_an_integral(kind: Any) -> None:
    """Sums over grids of the coefficient, the intercept and the logarithm of the precision."""
    x = series(1, 9, d=1)[0]
    model = variational(1, sm.AutoregressiveGaussian(1, kind, ridge=RIDGE), training__prior=PRIOR).fit([x])
    shift, scale = model.encoding_.affine()
    x = ((x - shift) / scale)[:, 0]
    a, c, u = np.meshgrid(np.linspace(-4, 4, 81), np.linspace(-4, 4, 81), np.linspace(-5, 4, 61), indexing="ij")
    precision = np.exp(u)
    terms = stats.gamma.logpdf(precision, COUNT / 2, scale=2 / (COUNT * VARIANCE)) + u
    terms += stats.norm.logpdf(a, 0, 1 / np.sqrt(RIDGE * precision))
    terms += stats.norm.logpdf(c, MEAN, 1 / np.sqrt(MEAN_COUNT * precision))
    for before, after in itertools.pairwise(x):
        terms += stats.norm.logpdf(after, a * before + c, 1 / np.sqrt(precision))
    of_regression = logsumexp(terms) + np.log(0.1 * 0.1 * 0.15)
    mean, u = np.meshgrid(np.linspace(-40, 40, 4001), np.linspace(-12, 4, 161), indexing="ij")
    terms = stats.gamma.logpdf(np.exp(u), 0.5, scale=2) + u + stats.norm.logpdf(x[0], mean, np.exp(-u / 2))
    terms += stats.norm.logpdf(mean, 0, 1 / np.sqrt(0.1 * np.exp(u)))
    of_first = logsumexp(terms) + np.log(0.02 * 0.1)
    assert model.lower_bound_ == pytest.approx(of_regression + of_first - 9 * np.log(scale[0]), abs=0.02)


# -- the family by itself ----------------------------------------------------------------------------------------------


def past_of(x: np.ndarray, order: int) -> tuple[Tensor, Tensor]:
    padded = np.concatenate([np.full((order, x.shape[1]), np.nan), x])
    return torch.tensor(x), torch.tensor(np.stack([padded[i : i + len(x)] for i in range(order)], 1))


def posterior(observation: Any, weight: float = 1.0) -> tuple[Any, Tensor, Tensor, Tensor, Tensor]:
    """Return a family, its prior, its posterior of two states after a sequence, the frames, and their past."""
    family = conjugate_of(observation, 2)
    x, past = past_of(series(1, 25)[0], observation.order)
    prior = family.prior(PRIOR, 2)
    gamma = weight * torch.tensor([[0.8, 0.2]]).double().expand(len(x), 2)
    return family, prior, family.updated(prior, family.emission.statistics(family.mean(prior), x, past, gamma)), x, past


OBSERVATIONS = [sm.AutoregressiveGaussian(2, kind, ridge=RIDGE, intercept=kind == "full") for kind in TYPES]


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_densities_are_the_expectations_of_logarithms(observation: Any) -> None:
    (family, _, hyper, x, past), n = posterior(observation), 400
    emission, table = family.expected_emission(hyper, family.mean(hyper))
    ours = emission.evaluate(table, x, past, torch.float64, Scratch())[0].log()
    generator = torch.Generator().manual_seed(0)
    draws = [family.emission.log_prob(family.draw(hyper, generator), x, past, torch.float64) for _ in range(n)]
    errors = (ours - torch.stack(draws).mean(0)).abs() / (torch.stack(draws).std(0) / n**0.5)
    assert float(errors.max()) < 4.5


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_the_divergence_is_the_average_over_draws(observation: Any) -> None:
    (family, prior, hyper, _, _), n = posterior(observation), 400
    generator = torch.Generator().manual_seed(0)
    tables = [family.draw(hyper, generator) for _ in range(n)]
    first = slice(-4 if observation.covariance_type == "diag" else -5, None)
    assert all(torch.equal(t[0, first], t[1, first]) for t in tables)  # which the states share
    ratios = torch.stack([family.log_density(t, hyper) - family.log_density(t, prior) for t in tables])
    errors = (family.divergence(hyper, prior) - ratios.mean(0)).abs() / (ratios.std(0) / n**0.5)
    assert float(errors.max()) < 4
    assert_allclose(family.divergence(prior, prior), [0.0, 0.0], atol=1e-10)


@pytest.mark.parametrize("kind", TYPES)
def test_the_density_of_unconstrained_numbers_integrates_to_one(kind: Any) -> None:
    """Of the second state, in whose density the shared first steps do not count."""
    family = conjugate_of(sm.AutoregressiveGaussian(1, kind, ridge=RIDGE), 1)
    grid = (torch.linspace(-12, 12, 61), torch.linspace(-12, 12, 61), torch.linspace(-4, 4, 41))
    a, c, u = (each.flatten().double() for each in torch.meshgrid(*grid, indexing="ij"))
    shape = u if kind == "diag" else -0.5 * u  # log-variance, or the logarithm of a factor of the precision
    table = torch.stack([a, c, shape, torch.zeros_like(a), torch.zeros_like(a)], 1)
    table = torch.cat([table[:1], table])
    narrow = ConjugatePrior(count=6.0, mean_count=MEAN_COUNT, mean=MEAN, covariance=VARIANCE)
    hyper = family.prior(narrow, 2)[1:].expand(len(table), -1)
    density = family.log_density(table, hyper)[1:].exp().sum() * 0.4 * 0.4 * 0.2 * (1.0 if kind == "diag" else 0.5)
    assert float(density) == pytest.approx(1.0, abs=0.02)


# -- whole models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("length", ["given", "stop"])
def test_every_step_raises_the_bound(kind: Any, length: Any) -> None:
    x = series(2, 80)
    model = variational(3, sm.AutoregressiveGaussian(1, kind), length=length, max_iter=25, tol=0).fit(x)
    objective = model.history_["objective"].to_numpy()
    assert np.diff(objective).min() > -1e-10
    assert objective[-1] - objective[0] > 1e-2
    # The regimes are found: after the 20th, 40th ... step the sign of the coefficient changes.
    on_itself = np.take_along_axis(model.coefficients_[:, 0, :1].T, model.decode(x)[0][None], 1)[0]
    assert (np.sign(on_itself) == np.where(np.arange(80) // 20 % 2, 1, -1)).mean() > 0.9


def test_the_posterior_in_raw_units_is_that_of_raw_frames() -> None:
    """Sums of products of raw regressors and raw residuals, beside what is left of a prior that is nearly nothing."""
    x = [5 + 3 * frames for frames in series(2, 60)]
    weak = ConjugatePrior(count=1e-9, mean_count=1e-9, covariance=1e-9)
    model = variational(1, sm.AutoregressiveGaussian(2, ridge=1e-9), training__prior=weak).fit(x)
    z = np.array([regressors(frames, t, 2, intercept=True) for frames in x for t in range(2, 60)])
    y = np.concatenate([frames[2:] for frames in x])
    solution, *_ = np.linalg.lstsq(z, y, rcond=None)
    residual, after = y - z @ solution, model.posterior_
    assert_allclose(after["coefficients"][0], solution[:-1].T, rtol=1e-5)
    assert_allclose(after["intercepts"][0], solution[-1], rtol=1e-5)
    assert_allclose(after["regressor_precision"][0], z.T @ z, rtol=1e-6)
    assert_allclose(after["inverse_scale"][0], residual.T @ residual, rtol=1e-6, atol=1e-6)
    assert_allclose(after["degrees_of_freedom"], 116 + 1)
    firsts = np.concatenate([frames[:2] for frames in x])
    shift, _ = model.encoding_.affine()
    assert_allclose(after["first_mean"][0], (firsts.sum(0) + 0.1 * shift) / 4.1)
    diagonal = variational(1, sm.AutoregressiveGaussian(2, "diag", ridge=1e-9), training__prior=weak).fit(x)
    assert_allclose(diagonal.posterior_["precision_rate"][0], 0.5 * np.square(residual).sum(0), rtol=1e-6)
    assert_allclose(diagonal.posterior_["first_precision_shape"][0], 0.5 + 0.5 * 4)
    assert_allclose(model.covariances_[0], after["inverse_scale"][0] / 117, rtol=1e-6)


@pytest.mark.parametrize(
    "training",
    [{}, {"tied": [0, 1, 0]}, {"frozen": Frozen(emission=[0])}, {"tied": [0, 1, 1], "frozen": Frozen(emission=[1])}],
)
def test_streams_files_and_warm_starts_agree(training: dict[str, Any], tmp_path: Path) -> None:
    """The same for tied and frozen states; the Gaussian of the first steps is one, whichever state is frozen."""
    x, given = series(2, 50), {f"training__{name}": value for name, value in training.items()}
    model = variational(3, sm.AutoregressiveGaussian(1), max_iter=8, tol=0, warm_start=True, **given)
    start = model.clone().set_params(max_iter=0).fit(x)
    model.fit(x)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    assert (model.parameters_.table[:, -5:] == model.parameters_.table[:1, -5:]).all()
    if "tied" in training:
        groups = np.unique(training["tied"], return_index=True)[1][training["tied"]]
        assert_allclose(model.coefficients_, model.coefficients_[groups], rtol=1e-12)
    if "frozen" in training:
        frozen = training["frozen"].emission
        assert_allclose(model.coefficients_[frozen], start.coefficients_[frozen], rtol=1e-12)
    for one in (model, model.sample_posterior(1)[0]):
        stream = one.stream()
        assert_allclose([stream.update(frame) for frame in x[0]], one.log_prob_steps(x[:1])[0], atol=1e-9)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert isinstance(loaded, sm.HMM)
    assert_allclose(loaded.log_prob(x), model.log_prob(x), rtol=1e-12)
    for name, values in model.posterior_.items():
        assert_allclose(loaded.posterior_[name], values)
    again = loaded.set_params(max_iter=1).fit(x)
    assert again.history_["objective"].iloc[0] == pytest.approx(model.lower_bound_ / 100, rel=1e-10)


def test_the_bound_of_what_is_frozen_is_its_log_probability() -> None:
    x, frozen = series(2, 30), ("initial", "transition", "emission")
    model = variational(2, sm.AutoregressiveGaussian(2), training__frozen=frozen).fit(x)
    assert model.lower_bound_ == pytest.approx(model.log_prob(x).sum(), rel=1e-12)


@pytest.mark.parametrize("kind", ["HSMM", "ContinuousTimeHMM"])
def test_other_chains_emit_autoregressions(kind: str) -> None:
    x = series(2, 60)
    more: dict[str, Any] = {"durations": "categorical", "max_duration": 8} if kind == "HSMM" else {}
    options: dict[str, Any] = {"algorithm": "variational", "n_init": 1, "max_iter": 8, "tol": 0, "dtype": "float64"}
    X = x if kind == "HSMM" else sm.Sequences(x, times=[np.cumsum(np.ones(60)) for _ in x])
    model = getattr(sm.hmm, kind)(2, observation=sm.AutoregressiveGaussian(1, "diag"), **more, **options).fit(X)
    assert np.diff(model.history_["objective"]).min() > -1e-12


@pytest.mark.slow
def test_draws_by_nuts_are_from_the_same_posterior() -> None:
    x = series(1, 80, d=1)
    model = sm.HMM(1, observation=sm.AutoregressiveGaussian(1, intercept=False), n_init=1)
    draws = sm.hmm.PosteriorHMM(model, n_samples=40, warmup=60, max_tree_depth=4).fit(x)
    drawn = draws.draws_["coefficients"]
    exact = variational(1, sm.AutoregressiveGaussian(1, intercept=False)).fit(x).sample_posterior(400)
    ours = np.stack([one.coefficients_ for one in exact])
    assert_allclose(drawn.mean(0), ours.mean(0), atol=4 * float(ours.std(0).max()) / 40**0.5)
    assert_allclose(drawn.std(0), ours.std(0), rtol=0.6)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (sm.AutoregressiveGaussian(covariance_type="tied"), "'tied' has no conjugate prior"),
        (sm.AutoregressiveGaussian(ridge=0.0), "pass a ridge above 0"),
        (sm.Columns([(sm.AutoregressiveGaussian(), 1), (sm.Poisson(), 1)]), "among Columns"),
    ],
)
def test_what_has_no_conjugate_prior_is_refused(observation: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conjugate_of(observation, 2)


def test_missing_values_are_refused() -> None:
    x = [np.where(np.abs(frames) < 0.1, np.nan, frames) for frames in series(1, 40)]
    with pytest.raises(ValueError, match="complete frames"):
        variational(2, sm.AutoregressiveGaussian()).fit(x)
    with pytest.raises(ValueError, match="has a NaN at frame"):
        sm.hmm.PosteriorHMM(sm.HMM(2, observation=sm.AutoregressiveGaussian())).fit(x)
