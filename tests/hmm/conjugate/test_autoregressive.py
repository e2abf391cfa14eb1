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
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.missing_past import fitted_filter
from seqmodels.inference.chains.scratch import Scratch
from tests.hmm.conjugate.test_families import negative_binomial_evidence, student_evidence
from tests.made import made

COUNT, MEAN_COUNT, MEAN, VARIANCE, RIDGE, SLOPES = 2.5, 0.4, 0.3, 1.7, 0.5, 2.0  # of a prior
PRIOR = ConjugatePrior(
    count=COUNT, mean_count=MEAN_COUNT, mean=MEAN, covariance=VARIANCE, slopes=SLOPES, initial=1, transition=1
)
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


def regressors(x: np.ndarray, t: int, order: int, *, intercept: bool, inputs: np.ndarray | None = None) -> np.ndarray:
    given = [] if inputs is None else inputs[t]
    return np.concatenate([x[t - order : t].ravel(), given, [1.0] if intercept else []])


def with_inputs(x: list[np.ndarray]) -> sm.Sequences:
    """Sequences with two inputs, in units of their own, to which their features respond."""
    rng = np.random.default_rng(7)
    inputs = [5 + 3 * rng.normal(size=(len(frames), 2)) for frames in x]
    weights = np.array([[0.5, -0.2], [0.1, 0.3]])[:, : x[0].shape[1]]
    return sm.Sequences([frames + u @ weights for frames, u in zip(x, inputs, strict=True)], inputs=inputs)


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


def evidence(
    sequences: list[np.ndarray],
    order: int,
    kind: str,
    *,
    intercept: bool = True,
    unit_root: float = 0.0,
    inputs: list[np.ndarray] | None = None,
) -> float:
    """``log p(x)``: each frame given those before it is Student's t about the regression on all frames before."""
    d = sequences[0].shape[1]
    lags = np.tile(np.eye(d), order)
    of_inputs = np.full(0 if inputs is None else inputs[0].shape[1], MEAN_COUNT / SLOPES**2)
    gram = np.diag(np.concatenate([np.full(order * d, RIDGE), of_inputs, [MEAN_COUNT] if intercept else []]))
    gram[: order * d, : order * d] += unit_root * lags.T @ lags
    cross = np.zeros((d, len(gram)))
    cross[:, : order * d] = np.linalg.solve(gram[: order * d, : order * d], unit_root * lags.T).T
    if intercept:
        cross[:, -1] = MEAN
    cross = cross @ gram
    freedom = COUNT + (d - 1 if kind == "full" else 0)
    scatter, total = (
        freedom * VARIANCE * np.eye(d),
        first_evidence(np.concatenate([x[:order] for x in sequences]), kind),
    )
    for i, x in enumerate(sequences):
        for t in range(order, len(x)):
            z = regressors(x, t, order, intercept=intercept, inputs=None if inputs is None else inputs[i])
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
    observation = sm.AutoregressiveGaussian(
        order, kind, ridge=RIDGE, intercept=intercept, unit_root=unit_root, background=0.0
    )
    model = variational(1, observation, training__prior=PRIOR).fit(x)
    shift, scale = model.encoding_.affine()
    encoded = [(frames - shift) / scale for frames in x]
    expected = evidence(encoded, order, kind, intercept=intercept, unit_root=unit_root)
    assert model.lower_bound_ == pytest.approx(expected - 36 * np.log(scale).sum(), rel=1e-10)


GAUSSIANS = [sm.GaussianMixture(1, kind) for kind in TYPES]
REGRESSIONS = [
    *GAUSSIANS,
    sm.AutoregressiveGaussian(2, "full", ridge=RIDGE, unit_root=3.0, background=0.0),
    sm.AutoregressiveGaussian(1, "diag", ridge=RIDGE, intercept=False, background=0.0),
    sm.AutoregressiveGaussian(1, "tied", ridge=RIDGE, background=0.0),
]


@pytest.mark.parametrize("observation", REGRESSIONS)
def test_given_inputs_the_bound_of_one_state_is_the_evidence(observation: Any) -> None:
    X = with_inputs(series(3, 12))
    model = variational(1, observation, training__prior=PRIOR, input_effects__emissions=True).fit(X)
    (shift, scale), scaling = model.encoding_.affine(), model.input_scaling_
    encoded = [(frames - shift) / scale for frames in X.items]
    inputs = [(u - scaling.mean) / scaling.scale for u in X.inputs]
    kind = "diag" if observation.covariance_type == "diag" else "full"
    of_past = {"intercept": observation.intercept, "unit_root": observation.unit_root} if observation.n_past else {}
    expected = evidence(encoded, observation.n_past, kind, inputs=inputs, **of_past)
    assert model.lower_bound_ == pytest.approx(expected - 36 * np.log(scale).sum(), rel=1e-10)


def test_only_the_inputs_that_emissions_read_are_regressors() -> None:
    X = with_inputs(series(2, 20))
    one = sm.Sequences(X.items, inputs=[u[:, 1:] for u in X.inputs], input_names=["b"])
    both = sm.Sequences(X.items, inputs=X.inputs, input_names=["a", "b"])
    models = [
        variational(2, sm.AutoregressiveGaussian(), input_effects__emissions=["b"], max_iter=5).fit(data)
        for data in (one, both)
    ]
    assert models[0].lower_bound_ == pytest.approx(models[1].lower_bound_, rel=1e-12)
    assert models[1].emission_slopes_.shape == (2, 2, 1)
    in_order, reversed_ = (
        variational(2, sm.GaussianMixture(1), input_effects__emissions=list(names), max_iter=5).fit(both)
        for names in ("ab", "ba")
    )
    assert in_order.lower_bound_ == pytest.approx(reversed_.lower_bound_, rel=1e-12)
    assert_allclose(in_order.emission_slopes_, reversed_.emission_slopes_, rtol=1e-9)
    assert_allclose(reversed_.posterior_["slopes"], reversed_.emission_slopes_, rtol=1e-12)


def test_frames_that_are_missing_at_the_end_say_nothing() -> None:
    """Nothing observed depends on them, so that the bound of one state is the evidence of what comes before."""
    x, observation = series(3, 12), sm.AutoregressiveGaussian(2, ridge=RIDGE, background=0.0)
    shorter = [x[0], x[1][:9], x[2][:11]]
    longer = [np.concatenate([frames, np.full((12 - len(frames), 2), np.nan)]) for frames in shorter]
    model = variational(1, observation, training__prior=PRIOR).fit(longer)
    shift, scale = model.encoding_.affine()
    expected = evidence([(frames - shift) / scale for frames in shorter], 2, "full")
    assert model.lower_bound_ == pytest.approx(expected - 32 * np.log(scale).sum(), rel=1e-10)


def test_of_a_gap_the_bound_is_below_the_evidence_given_the_beliefs() -> None:
    """Sums over a grid of coefficient, intercept and log-precision; after the gap a variance is that of the beliefs."""
    x = series(1, 12, d=1)[0]
    x[5] = np.nan
    observation = sm.AutoregressiveGaussian(1, ridge=RIDGE, background=0.0)
    model = variational(1, observation, training__prior=PRIOR, max_iter=60, tol=0).fit([x])
    shift, scale = model.encoding_.affine()
    encoded = (x - shift) / scale
    emission = emission_of(observation, 1)
    assert isinstance(emission, AutoregressiveEmission)
    (known,) = fitted_filter(emission, [encoded]).beliefs([encoded])
    assert known is not None
    assert known.steps.tolist() == [6]
    mean, variance = known.past[0].flatten().tolist()
    a, c, u = np.meshgrid(np.linspace(-4, 4, 121), np.linspace(-4, 4, 121), np.linspace(-5, 4, 91), indexing="ij")
    terms = stats.gamma.logpdf(np.exp(u), COUNT / 2, scale=2 / (COUNT * VARIANCE)) + u
    terms += stats.norm.logpdf(a, 0, np.exp(-u / 2) / np.sqrt(RIDGE))
    terms += stats.norm.logpdf(c, MEAN, np.exp(-u / 2) / np.sqrt(MEAN_COUNT))
    for t in (1, 2, 3, 4, 7, 8, 9, 10, 11):
        terms += stats.norm.logpdf(encoded[t, 0], a * encoded[t - 1, 0] + c, np.exp(-u / 2))
    terms += stats.norm.logpdf(encoded[6, 0], a * mean + c, np.sqrt(np.exp(-u) + a**2 * variance))
    exact = logsumexp(terms) + np.log((8 / 120) ** 2 * 0.1) + first_evidence(encoded[:1], "full")
    assert 0.001 < exact - 11 * np.log(scale[0]) - model.lower_bound_ < 0.2


def test_of_tied_covariances_the_bound_with_known_states_is_the_evidence() -> None:
    """Two regressions of frames whose states are known, of which one alone is Student's t given all others."""
    x, frozen = series(2, 24), ("initial", "transition")
    states = [np.arange(24) // 6 % 2 for _ in x]
    model = variational(2, sm.AutoregressiveGaussian(1, "tied", ridge=RIDGE, background=0.0), training__prior=PRIOR,
                        training__frozen=frozen, max_iter=3, tol=0).fit(x, states=states)  # fmt: skip
    shift, scale = model.encoding_.affine()
    x = [(frames - shift) / scale for frames in x]
    gram, cross = np.array([np.diag([RIDGE, RIDGE, MEAN_COUNT])] * 2), np.zeros((2, 2, 3))
    cross[..., -1] = MEAN_COUNT * MEAN
    freedom, scatter = COUNT + 1, (COUNT + 1) * VARIANCE * np.eye(2)
    total = first_evidence(np.array([frames[0] for frames in x]), "full")
    for frames, k in zip(x, states, strict=True):
        total += np.log(model.initial_[k[0]]) + np.log(model.transition_[k[:-1], k[1:]]).sum()
        for t in range(1, 24):
            z = np.append(frames[t - 1], 1.0)
            mean, factor = cross[k[t]] @ np.linalg.solve(gram[k[t]], z), 1 + z @ np.linalg.solve(gram[k[t]], z)
            total += predictive(frames[t], mean, scatter * factor, freedom, "full")
            scatter, freedom = scatter + np.outer(frames[t] - mean, frames[t] - mean) / factor, freedom + 1
            gram[k[t]] += np.outer(z, z)
            cross[k[t]] += np.outer(frames[t], z)
    assert model.lower_bound_ == pytest.approx(total - 48 * np.log(scale).sum(), rel=1e-10)


def test_of_states_that_are_tied_the_bound_is_the_evidence_of_one() -> None:
    """The states then say nothing of the frames, and the frames nothing of the states; first steps count once."""
    x, held = series(3, 12), {"training__tied": [0, 0, 0], "training__frozen": ("initial", "transition")}
    model = variational(
        3, sm.AutoregressiveGaussian(2, ridge=RIDGE, background=0.0), training__prior=PRIOR, **held
    ).fit(x)
    shift, scale = model.encoding_.affine()
    expected = evidence([(frames - shift) / scale for frames in x], 2, "full", intercept=True)
    assert model.lower_bound_ == pytest.approx(expected - 36 * np.log(scale).sum(), rel=1e-10)


@pytest.mark.parametrize("kind", TYPES)
def test_of_one_feature_the_evidence_is_an_integral(kind: Any) -> None:
    """Sums over grids of the coefficient, the intercept and the logarithm of the precision."""
    x = series(1, 9, d=1)[0]
    model = variational(1, sm.AutoregressiveGaussian(1, kind, ridge=RIDGE, background=0.0), training__prior=PRIOR).fit(
        [x]
    )
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
OBSERVATIONS.append(sm.AutoregressiveGaussian(1, "tied", ridge=RIDGE))


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
    # The states share first steps, and a tied covariance.
    first = slice({"diag": -4, "full": -5, "tied": -8}[observation.covariance_type], None)
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
    model = variational(1, sm.AutoregressiveGaussian(2, ridge=1e-9, background=0.0), training__prior=weak).fit(x)
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
    diagonal = variational(
        1, sm.AutoregressiveGaussian(2, "diag", ridge=1e-9, background=0.0), training__prior=weak
    ).fit(x)
    assert_allclose(diagonal.posterior_["precision_rate"][0], 0.5 * np.square(residual).sum(0), rtol=1e-6)
    assert_allclose(diagonal.posterior_["first_precision_shape"][0], 0.5 + 0.5 * 4)
    assert_allclose(model.covariances_[0], after["inverse_scale"][0] / 117, rtol=1e-6)


def test_the_posterior_of_slopes_is_that_of_raw_inputs() -> None:
    X, weak = with_inputs(series(2, 60)), ConjugatePrior(count=1e-9, mean_count=1e-9, covariance=1e-9)
    model = variational(
        1, sm.AutoregressiveGaussian(1, ridge=1e-9, background=0.0), training__prior=weak, input_effects__emissions=True
    )
    after = model.fit(X).posterior_
    centred = [u - model.input_scaling_.mean for u in X.inputs]
    z = np.array([regressors(x, t, 1, intercept=True, inputs=u)
                  for x, u in zip(X.items, centred, strict=True) for t in range(1, 60)])  # fmt: skip
    y = np.concatenate([x[1:] for x in X.items])
    solution, *_ = np.linalg.lstsq(z, y, rcond=None)
    residual = y - z @ solution
    assert_allclose(after["coefficients"][0], solution[:2].T, rtol=1e-5)
    assert_allclose(after["slopes"][0], solution[2:4].T, rtol=1e-5)
    assert_allclose(model.emission_slopes_[0], solution[2:4].T, rtol=1e-5)
    assert_allclose(after["intercepts"][0], solution[-1], rtol=1e-5)
    assert_allclose(after["regressor_precision"][0], z.T @ z, rtol=1e-6, atol=1e-6)
    assert_allclose(after["inverse_scale"][0], residual.T @ residual, rtol=1e-6, atol=1e-6)
    # Credible quantities: a slope is Student's t about its mean.
    slopes = np.array([one.emission_slopes_[0, 1, 0] for one in model.sample_posterior(2000)])
    freedom = after["degrees_of_freedom"][0] - 1
    variance = np.linalg.inv(z.T @ z)[2, 2] * (residual.T @ residual)[1, 1] / freedom
    assert stats.kstest(slopes, stats.t(freedom, solution[2, 1], np.sqrt(variance)).cdf).pvalue > 0.01


@pytest.mark.parametrize("observation", [sm.GaussianMixture(1, "full"), sm.AutoregressiveGaussian(2, "diag")])
@pytest.mark.parametrize("training", [{}, {"tied": [0, 1, 1], "frozen": Frozen(emission=[1])}])
def test_with_inputs_streams_files_and_warm_starts_agree(
    observation: Any, training: dict[str, Any], tmp_path: Path
) -> None:
    X, given = with_inputs(series(2, 50)), {f"training__{name}": value for name, value in training.items()}
    options = {"input_effects__emissions": True, "max_iter": 6, "tol": 0, "warm_start": True}
    model = variational(3, observation, **options, **given).fit(X)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    if training:
        assert_allclose(model.emission_slopes_[1:], 0.0)  # a frozen state has those of the start
        assert np.abs(model.emission_slopes_[0]).min() > 0.01
    drawn = model.sample_posterior(1)[0]
    for one in (model, drawn):
        stream = one.stream()
        steps = [stream.update(x, inputs=u) for x, u in zip(X.items[0], X.inputs[0], strict=True)]
        assert_allclose(steps, one.log_prob_steps(X[:1])[0], atol=1e-9)
    ahead = [{"x0": [0.0, 1.0], "x1": [2.0, 3.0]}] * 2
    names = X.input_names or ("x0", "x1")
    forecast = model.forecast_states(X, 2, inputs=[dict(zip(names, row.values(), strict=True)) for row in ahead])
    assert_allclose(forecast[0].states.sum(1), 1.0)
    assert model.history_["log_prob"].iloc[-1] == pytest.approx(model.score(X), rel=1e-12)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert isinstance(loaded, sm.HMM)
    assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-12)
    for name, values in model.posterior_.items():
        assert_allclose(loaded.posterior_[name], values)
    again = loaded.set_params(max_iter=1).fit(X)
    assert again.history_["objective"].iloc[0] == pytest.approx(model.lower_bound_ / 100, rel=1e-10)
    order = [2, 0, 1]
    assert_allclose(model.reorder(order).posterior_["slopes"], model.posterior_["slopes"][order])


def test_a_fit_by_em_is_a_start_with_its_slopes() -> None:
    X = with_inputs(series(2, 50))
    model = variational(2, sm.GaussianMixture(1), input_effects__emissions=True, algorithm="em", warm_start=True)
    slopes = model.fit(X).emission_slopes_
    frozen = ("initial", "transition", "emission")
    model.set_params(algorithm="variational", training__frozen=frozen).fit(X)
    assert_allclose(model.emission_slopes_, slopes, rtol=1e-10)
    assert model.lower_bound_ == pytest.approx(model.log_prob(X).sum(), rel=1e-12)


@pytest.mark.parametrize("observation", [sm.AutoregressiveGaussian(1, "diag"), sm.AutoregressiveGaussian(2, "tied")])
@pytest.mark.parametrize("n_states", [1, 2])
def test_with_missing_values_files_draws_and_scores_agree(n_states: int, observation: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = [np.where(rng.random(frames.shape) < 0.15, np.nan, frames) for frames in series(2, 60)]
    x[0][30:33] = np.nan
    model = variational(n_states, observation, max_iter=10, tol=0, warm_start=True).fit(x)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    assert model.history_["log_prob"].iloc[-1] == pytest.approx(model.score(x), rel=1e-12)
    drawn = model.sample_posterior(1)[0]
    stream = drawn.stream()
    assert_allclose([stream.update(frame) for frame in x[0]], drawn.log_prob_steps(x[:1])[0], atol=1e-9)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert_allclose(loaded.log_prob(x), model.log_prob(x), rtol=1e-12)
    if n_states > 1:
        again = loaded.set_params(max_iter=1).fit(x)
        assert again.history_["objective"].iloc[0] == pytest.approx(model.history_["objective"].iloc[-1], rel=1e-10)


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


BESIDE = sm.Columns([(sm.AutoregressiveGaussian(2, ridge=RIDGE, background=0.0), 1), (sm.GaussianMixture(1), 1)])


@pytest.mark.parametrize("observation", [sm.AutoregressiveGaussian(2), sm.AutoregressiveGaussian(1, "tied"), BESIDE])
@pytest.mark.parametrize("misses", [False, True])
def test_the_bound_of_what_is_frozen_is_its_log_probability(observation: Any, misses: bool) -> None:
    x, frozen = series(2, 30), ("initial", "transition", "emission")
    if misses and observation is not BESIDE:
        x[0][[4, 9, 9], [0, 0, 1]] = x[1][0, 1] = np.nan
    model = variational(2, observation, training__frozen=frozen).fit(x)
    assert model.lower_bound_ == pytest.approx(model.log_prob(x).sum(), rel=1e-12)


def test_among_columns_the_bound_of_one_state_is_the_sum_of_evidences() -> None:
    x = series(3, 12)
    observation = sm.Columns([(sm.Poisson(), 1), *BESIDE.groups])
    counts = [np.random.default_rng(0).poisson(3.0, (12, 1)).astype(float) for _ in x]
    prior = PRIOR.clone().set_params(mean=MEAN)
    model = variational(1, observation, training__prior=prior, encoding="auto")
    model.fit([np.hstack(both) for both in zip(counts, x, strict=True)])
    shift, scale = (each[1:] for each in model.encoding_.affine())
    encoded = [(frames - shift) / scale for frames in x]
    expected = evidence([frames[:, :1] for frames in encoded], 2, "full")
    expected += student_evidence(np.concatenate(encoded)[:, 1:]) + negative_binomial_evidence(np.concatenate(counts))
    assert model.lower_bound_ == pytest.approx(expected - 36 * np.log(scale).sum(), rel=1e-10)


@pytest.mark.parametrize("training", [{"frozen": Frozen(emission=[0])}, {"tied": [0, 1, 1]}])
def test_among_columns_streams_and_files_agree(training: dict[str, Any], tmp_path: Path) -> None:
    x, given = series(2, 50), {f"training__{name}": value for name, value in training.items()}
    model = variational(3, BESIDE, max_iter=6, tol=0, **given).fit(x)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    first = slice(4, 6)  # the Gaussian of the first steps, behind two coefficients, an intercept and a covariance
    assert (model.parameters_.table[:, first] == model.parameters_.table[:1, first]).all()
    for one in (model, model.sample_posterior(1)[0]):
        stream = one.stream()
        assert_allclose([stream.update(frame) for frame in x[0]], one.log_prob_steps(x[:1])[0], atol=1e-9)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert_allclose(loaded.log_prob(x), model.log_prob(x), rtol=1e-12)
    hsmm = made(sm.hmm.HSMM, 2, observation=BESIDE, algorithm="variational", durations="categorical",
                max_duration=8, n_init=1, max_iter=5, tol=0).fit(x)  # fmt: skip
    assert np.diff(hsmm.history_["objective"]).min() > -1e-12


@pytest.mark.parametrize("kind", ["HSMM", "ContinuousTimeHMM"])
def test_other_chains_emit_autoregressions(kind: str) -> None:
    x = series(2, 60)
    more: dict[str, Any] = {"durations": "categorical", "max_duration": 8} if kind == "HSMM" else {}
    options: dict[str, Any] = {"algorithm": "variational", "n_init": 1, "max_iter": 8, "tol": 0, "dtype": "float64"}
    times = None if kind == "HSMM" else [np.cumsum(np.ones(60)) for _ in x]
    model = getattr(sm.hmm, kind)(2, observation=sm.AutoregressiveGaussian(1, "diag"), **more, **options)
    model.fit(sm.Sequences(x, times=times))
    assert np.diff(model.history_["objective"]).min() > -1e-12
    given = with_inputs(x)
    X, effects = sm.Sequences(given.items, inputs=given.inputs, times=times), {"input_effects__emissions": True}
    model.set_params(**effects, **({"durations": "geometric"} if kind == "HSMM" else {})).fit(X)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    assert model.posterior_["slopes"].shape == model.emission_slopes_.shape
    assert model.sample_posterior(1)[0].score(X) < model.score(X)
    if kind == "HSMM":  # the bound of an HMM, from its posterior on
        hmm = variational(2, model.observation, **effects, max_iter=1).fit(X)
        model.set_params(max_iter=0, length="given").fit(X)
        model._posterior, model.parameters_ = hmm._posterior, hmm.parameters_
        bounds = [one.set_params(warm_start=True, max_iter=1).fit(X).lower_bound_ for one in (hmm, model)]
        assert bounds[1] == pytest.approx(bounds[0], rel=1e-12)


ALONE = sm.AutoregressiveGaussian(1, intercept=False)


@pytest.mark.slow
@pytest.mark.parametrize("observation", [ALONE, sm.AutoregressiveGaussian(1, "tied"), sm.Columns([(ALONE, 1)])])
def test_draws_by_nuts_are_from_the_same_posterior(observation: Any) -> None:
    x = series(1, 80, d=1)
    model = sm.HMM(1, observation=observation, n_init=1)
    draws = sm.hmm.PosteriorHMM(model, n_samples=40, warmup=60, max_tree_depth=4).fit(x)
    drawn = draws.draws_["coefficients"]
    exact = variational(1, observation).fit(x).sample_posterior(400)
    ours = np.stack([one.coefficients_ for one in exact])
    assert_allclose(drawn.mean(0), ours.mean(0), atol=4 * float(ours.std(0).max()) / 40**0.5)
    assert_allclose(drawn.std(0), ours.std(0), rtol=0.6)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (sm.AutoregressiveGaussian(ridge=0.0), "pass a ridge above 0"),
        (sm.Columns([(sm.AutoregressiveGaussian(ridge=0.0), 1), (sm.Poisson(), 1)]), "pass a ridge above 0"),
    ],
)
def test_what_has_no_conjugate_prior_is_refused(observation: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conjugate_of(observation, 2)


@pytest.mark.parametrize("observation", [sm.GaussianMixture(2), sm.Categorical(), sm.Poisson()])
def test_what_has_no_conjugate_prior_given_inputs_is_refused(observation: Any) -> None:
    items = [np.array([0, 1, 1, 0, 1])] if isinstance(observation, sm.Categorical) else [np.arange(10.0).reshape(5, 2)]
    X = sm.Sequences(items, inputs=[np.arange(5.0)[:, None]])
    with pytest.raises(ValueError, match="given inputs has no conjugate prior here"):
        made(sm.HMM, 2, observation=observation, algorithm="variational", input_effects__emissions=True,
             length="given").fit(X)  # fmt: skip


def test_missing_values_are_refused_where_no_beliefs_are() -> None:
    x = [np.where(np.abs(frames) < 0.1, np.nan, frames) for frames in series(1, 40)]
    X = sm.Sequences(x, inputs=[np.arange(40.0)[:, None]])
    with pytest.raises(ValueError, match="fill them in"):
        variational(2, sm.AutoregressiveGaussian(), input_effects__emissions=True).fit(X)
    with pytest.raises(ValueError, match="has a NaN at frame"):
        sm.hmm.PosteriorHMM(sm.HMM(2, observation=sm.AutoregressiveGaussian())).fit(x)
