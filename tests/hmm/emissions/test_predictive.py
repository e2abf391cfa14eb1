"""Autoregressions of one state whose coefficients and covariance are integrated over their posterior."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

import seqmodels as sm
from seqmodels.generation.predicted_features import feature_distributions
from seqmodels.hmm.cursor import gaussian_steps
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.observations import AutoregressiveGaussian, Columns, gaussian

RIDGE = 1e-3


def simulated(n: int, size: int = 1, seed: int = 0, burn: int = 50) -> np.ndarray:
    rng = np.random.default_rng(seed)
    first = 0.4 * np.eye(size) + 0.1
    x = np.zeros((n + burn, size))
    for t in range(2, len(x)):
        x[t] = first @ x[t - 1] + 0.2 * x[t - 2] + rng.normal(size=size) @ (np.eye(size) + 0.5)
    return 3 * x[burn:] + 100


def fitted(X: Any, n_states: int = 1, order: int = 2, **options: Any) -> sm.HMM:
    return sm.HMM(n_states, observation=AutoregressiveGaussian(order, **options)).fit(X)


def regressors(x: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows ``(x_{t-p}, .., x_{t-1}, 1)``, and the steps after them."""
    rows = [np.append(x[t - order : t], 1.0) for t in range(order, len(x))]
    return np.array(rows), x[order:]


def log_evidence(z: np.ndarray, y: np.ndarray, *, intercept: bool, unit_root: float) -> float:
    """Log of ``∫ p(y | B, Σ) p(B, Σ) dB dΣ`` up to a constant, under the prior ``|Σ|^(-(D+1)/2) exp(log_prior)``."""
    (n, width), size = z.shape, y.shape[1]
    ridge = RIDGE * np.diag(np.append(np.ones(width - 1), 0.0))
    ones = np.hstack([np.tile(np.eye(size), (width - 1) // size), np.zeros((size, 1))])
    z_all, y_all = np.vstack([z, np.sqrt(unit_root) * ones]), np.vstack([y, np.sqrt(unit_root) * np.eye(size)])
    if not intercept:
        z_all, ridge, width = z_all[:, :-1], ridge[:-1, :-1], width - 1
    gram = z_all.T @ z_all + ridge
    b = np.linalg.solve(gram, z_all.T @ y_all)
    scatter = (y_all - z_all @ b).T @ (y_all - z_all @ b) + b.T @ ridge @ b
    degrees = n - width
    log_dets = size * np.linalg.slogdet(gram)[1] + degrees * np.linalg.slogdet(scatter)[1]
    constant = special.multigammaln(degrees / 2, size) - 0.5 * degrees * size * np.log(np.pi)
    return float(constant - 0.5 * log_dets)


@pytest.fixture
def uncorrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Posteriors as they are under Gaussian innovations, before the frames that are left out correct them."""
    monkeypatch.setattr(AutoregressiveEmission, "with_tails", lambda self, integrated, frames: integrated)


CASES = [("full", True, 0.0), ("tied", True, 0.0), ("full", False, 0.0), ("full", True, 2.0), ("diag", True, 0.0)]


@pytest.mark.usefixtures("uncorrected")
@pytest.mark.parametrize(("kind", "intercept", "unit_root"), CASES)
def test_a_step_has_the_ratio_of_two_evidences(kind: Any, intercept: bool, unit_root: float) -> None:
    order, size = 2, 2
    train, test = [simulated(14, size, 1), simulated(12, size, 2)], simulated(8, size, 3) + 5
    options = {"covariance_type": kind, "intercept": intercept, "unit_root": unit_root, "background": 0.0}
    model = fitted(train, order=order, ridge=RIDGE, **options)
    assert model.observation_.predictive == "posterior"
    parts = [regressors(model.encoding_.encode(x), order) for x in train]
    z, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    z_new, y_new = regressors(model.encoding_.encode(test), order)
    groups = [[d] for d in range(size)] if kind == "diag" else [list(range(size))]
    given = {"intercept": intercept, "unit_root": unit_root}
    if kind == "diag":
        # The regressors of a feature are all features; only its own steps are integrated.
        given["unit_root"] = 0.0
    expected = [
        sum(
            log_evidence(np.vstack([z, a[None]]), np.vstack([y, b[None]])[:, g], **given)
            - log_evidence(z, y[:, g], **given)
            for g in groups
        )
        for a, b in zip(z_new, y_new, strict=True)
    ]
    steps = model.log_prob_steps([test])[0]
    log_det = np.log(model.encoding_.affine()[1]).sum()
    np.testing.assert_allclose(steps[order:] + log_det, expected, rtol=1e-9)
    # The first steps have no past, and are as they were.
    plug_in = fitted(train, order=order, ridge=RIDGE, predictive="plug-in", **options)
    np.testing.assert_allclose(steps[:order], plug_in.log_prob_steps([test])[0][:order], rtol=1e-12)
    stream = model.stream()
    np.testing.assert_allclose([stream.update(x) for x in test], steps, rtol=1e-12)


@pytest.mark.usefixtures("uncorrected")
def test_a_step_has_the_integral_over_coefficients_and_variance() -> None:
    x = simulated(9, seed=4)
    model = fitted([x], order=1, intercept=False, background=0.0, ridge=RIDGE)
    (before, *_), (step, *_) = (model.encoding_.encode(each)[:, 0] for each in (x[-1:], x[-1:] + 4))
    z, y = (each[:, 0] for each in regressors(model.encoding_.encode(x), 1))

    # Sums over a grid; 1 / variance is the prior, and d variance = variance d log_variance.
    a, log_variance = np.meshgrid(np.linspace(-6, 6, 1201), np.linspace(-7, 9, 801))

    def log_integral(z: np.ndarray, y: np.ndarray) -> float:
        squares = ((y - a[..., None] * z) ** 2).sum(-1) + RIDGE * a**2
        log_joint = -0.5 * (len(y) * (np.log(2 * np.pi) + log_variance) + squares * np.exp(-log_variance))
        return float(special.logsumexp(log_joint))

    expected = log_integral(np.append(z, before), np.append(y, step)) - log_integral(z, y)
    found = model.log_prob_steps([np.concatenate([x, x[-1:] + 4])])[0][-1]
    np.testing.assert_allclose(found + np.log(model.encoding_.affine()[1][0]), expected, rtol=1e-6)


@pytest.mark.parametrize(("size", "n"), [(1, 25), (2, 25), (1, 50)])
def test_bands_hold_what_they_say_after_few_frames(size: int, n: int) -> None:
    within: dict[str, list[np.ndarray]] = {"auto": [], "plug-in": []}
    for seed in range(25):
        x = simulated(n + 40, size, seed)
        for predictive, inside in within.items():
            model = fitted([x[:n]], predictive=predictive, background=0.0)
            observation = model.observation_
            assert isinstance(observation, AutoregressiveGaussian)
            z = torch.as_tensor(model.encoding_.encode(x)).double()
            past = z.unfold(0, 2, 1)[n - 2 : -1].transpose(-1, -2)  # (40, 2, D)
            mean, shape, _, spread = observation._conditional(model.parameters_.table[0], size, past)
            covariance = gaussian.covariance_of_shape(shape, size, 1e-6).expand(len(past), -1, -1)
            scale, quantile = covariance.diagonal(dim1=-2, dim2=-1).sqrt(), float(stats.norm.ppf(0.95))
            if spread is not None:
                scale, quantile = scale * spread.factor.sqrt()[:, None], float(stats.t(float(spread.degrees)).ppf(0.95))
            inside.append(((z[n:] - mean).abs() <= quantile * scale).numpy())
    held = {name: np.mean(inside) for name, inside in within.items()}
    assert 0.85 < held["auto"] < 0.95
    assert held["plug-in"] < held["auto"] - 0.01


def test_criteria_errors_and_attributes_are_those_of_the_estimates() -> None:
    X = [simulated(30)]
    model, plug_in = (fitted(X, unit_root=2.0, predictive=each) for each in ("auto", "plug-in"))
    assert model.score(X) != plug_in.score(X)
    assert (model.aic(X), model.bic(X), model.n_parameters_) == (plug_in.aic(X), plug_in.bic(X), plug_in.n_parameters_)
    for name in ("coefficients_", "intercepts_", "covariances_", "first_mean_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(plug_in, name))
    assert model.history_["log_prob"].iloc[-1] == plug_in.history_["log_prob"].iloc[-1]
    assert model.standard_errors(X).equals(plug_in.standard_errors(X))
    ends = (each.profile_interval(X, "intercepts", 0, 0) for each in (model, plug_in))
    np.testing.assert_array_equal(*ends)
    np.testing.assert_array_equal(model.forecast_states(X, 3)[0].mean, plug_in.forecast_states(X, 3)[0].mean)


def test_one_state_and_few_frames_are_integrated_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    X = [simulated(30)]

    def predictive(model: Any) -> str:
        return str(model.observation_.predictive)

    assert predictive(fitted(X)) == "posterior"
    assert predictive(fitted(X, predictive="posterior")) == "posterior"
    assert predictive(fitted(X, n_states=2)) == predictive(fitted(X, predictive="posterior", n_states=2)) == "auto"
    assert predictive(fitted(X, predictive="plug-in")) == "plug-in"
    assert predictive(sm.hmm.HSMM(1, observation=AutoregressiveGaussian(1)).fit(X)) == "auto"
    for options in ({"algorithm": "gradient", "max_iter": 2}, {"algorithm": "stepwise", "max_iter": 2}):
        assert predictive(sm.HMM(1, observation=AutoregressiveGaussian(1), **options).fit(X)) == "auto"
    # The least number of frames has 3 degrees of freedom.
    assert predictive(fitted([X[0][:8]])) == "posterior"
    assert predictive(fitted([X[0][:7]])) == "auto"
    # 2 coefficients, an intercept and a feature, so that 28 frames are few and 30 are many.
    monkeypatch.setattr("seqmodels.hmm.hidden_chain.FRAMES_PER_COEFFICIENT", 7)
    few, many = fitted([X[0][:28]]), fitted(X)
    assert (predictive(few), predictive(many)) == ("posterior", "auto")
    plug_in = fitted(X, predictive="plug-in")
    np.testing.assert_array_equal(many.log_prob(X), plug_in.log_prob(X))
    with pytest.raises(ValueError, match="a network has none"):
        sm.LSTM(observation=AutoregressiveGaussian(1, predictive="posterior"), max_steps=2).fit(X)
    both = Columns([(few.observation_, 1), (sm.GaussianMixture(1), 1)])
    with pytest.raises(ValueError, match="group 0"):
        sm.HMM(2, observation=both).fit([simulated(30, 2)])
    again = sm.HMM(2, observation=few.observation_).fit(X)
    np.testing.assert_array_equal(again.coefficients_, fitted(X, n_states=2).coefficients_)


@pytest.mark.parametrize("background", [0.0, 0.05])
def test_predictions_draws_bands_and_pyro_agree(background: float) -> None:
    x = simulated(20, 2)
    model = fitted([x], background=background)
    prediction = model.predict_next(x)
    value = torch.as_tensor(x[-1] + [20.0, -1.0])
    stream = model.stream()
    for each in x:
        stream.update(each)
    np.testing.assert_allclose(prediction.log_prob(value), stream.update(value.numpy()), rtol=1e-10)
    torch.manual_seed(0)
    drawn = prediction.sample([2000]).numpy()
    paths = np.array([each[-1] for each in model.sample(3000, prefix=x, length=1, random_state=0)])
    cursor, encoded = model.cursor(), torch.as_tensor(model.encoding_.encode(x)).unsqueeze(0)
    shift, scale = (torch.as_tensor(each) for each in model.encoding_.affine())
    distribution = cursor.distribution(cursor.read(cursor.start(), encoded))
    features = feature_distributions(distribution, slice(0, 1), np.ones(1), shift, scale)
    assert features is not None
    np.testing.assert_allclose(features.mean, prediction.mean, rtol=1e-10)
    for d in range(2):

        def cdf(values: np.ndarray, d: int = d) -> np.ndarray:
            return features.cdf(np.repeat(values[:, None], 2, 1))[:, d]  # type: ignore[union-attr]

        assert stats.kstest(drawn[:, d], cdf).pvalue > 0.01
        assert stats.kstest(paths[:, d], cdf).pvalue > 0.01
    np.testing.assert_allclose(prediction.variance, drawn.var(0), rtol=0.2)


@pytest.mark.usefixtures("uncorrected")  # whose draws have fourth moments
@pytest.mark.parametrize("background", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["full", "diag"])
def test_steps_ahead_have_the_mean_and_covariance_of_drawn_paths(background: float, kind: Any) -> None:
    n, k, x = 100_000, 3, simulated(22, 2)
    model = fitted([x], background=background, covariance_type=kind)
    assert isinstance(model.observation_, AutoregressiveGaussian)
    table, generator = model.parameters_.table, torch.Generator().manual_seed(0)
    past = torch.as_tensor(model.encoding_.encode(x)[-2:]).double().unsqueeze(0)
    steps = gaussian_steps(model.observation_, table[0], past, k)
    paths = past.expand(n, -1, -1)
    for step in steps:
        drawn = model.observation_.sample(table.expand(n, -1), paths, generator)
        paths = torch.cat([paths[:, 1:], drawn.unsqueeze(1)], 1)
        w = step.log_weights[0].exp()
        mean = w @ step.means[0]
        apart = step.means[0] - mean
        covariance = torch.einsum("m,mde->de", w, step.covariances[0] + apart.unsqueeze(-1) * apart.unsqueeze(-2))
        np.testing.assert_allclose(drawn.mean(0), mean, atol=0.02)
        np.testing.assert_allclose(torch.cov(drawn.T), covariance, atol=0.02 * float(covariance.max()) + 0.01)


def test_uncertain_pasts_widen_the_density_and_known_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    x = simulated(25, 2)
    model = fitted([x], background=0.0)
    observation, table = model.observation_, model.parameters_.table[0]
    assert isinstance(observation, AutoregressiveGaussian)
    z = torch.as_tensor(model.encoding_.encode(x)).double()
    past, following = z[-3:-1], z[-1]
    nothing = torch.zeros(4, 4, dtype=torch.float64)
    known = observation.join_past(past.flatten(), nothing)
    of_known = observation.log_prob(table, following, past)
    np.testing.assert_allclose(observation.log_prob(table, following, known), of_known, rtol=1e-9)
    unsure = observation.join_past(past.flatten(), 0.5 * torch.eye(4, dtype=torch.float64))
    far = following + 3
    assert observation.log_prob(table, far, unsure) > observation.log_prob(table, far, past)
    gap = x.copy()
    gap[10, 0], gap[15] = np.nan, np.nan
    steps = model.log_prob_steps([gap])[0]
    stream = model.stream()
    np.testing.assert_allclose([stream.update(each) for each in gap], steps, rtol=1e-9, atol=1e-12)
    # Frames with a missing value in themselves or in the two before do not count as frames of the posterior.
    monkeypatch.setattr(AutoregressiveEmission, "with_tails", lambda self, integrated, frames: integrated)
    n, *_ = fitted([gap]).observation_.posterior(fitted([gap]).parameters_.table, 2)  # type: ignore[attr-defined]
    assert n.item() == pytest.approx(25 - 2 - 3 - 3, abs=0.1)


def test_a_temperature_is_a_power_of_the_density() -> None:
    model = fitted([simulated(20, 2)], background=0.0)
    observation, table = model.observation_, model.parameters_.table[0]
    past, x = torch.zeros(2, 2, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    for temperature in (0.5, 2.0):
        cooled = observation.log_prob(observation.tempered(table, temperature), x, past)
        ratio = cooled - observation.log_prob(table, x, past) / temperature
        np.testing.assert_allclose(ratio, ratio[0].expand(6), rtol=1e-9)
    with pytest.raises(ValueError, match="without degrees of freedom"):
        observation.tempered(table, 20.0)


def test_saved_loaded_refitted_and_wrapped_models_agree(tmp_path: Path) -> None:
    X, y = [simulated(30), simulated(20, seed=1)], [simulated(15, seed=2)]
    model = fitted(X)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.log_prob(y), model.log_prob(y))
    assert loaded.observation_.predictive == "posterior"
    # EM continues from the estimates; then the posterior is that of the new data.
    warm = model.set_params(warm_start=True, tol=1e-9).fit(X)
    np.testing.assert_allclose(warm.log_prob(y), loaded.log_prob(y), rtol=1e-3)
    assert model.partial_fit(X).observation_.predictive == "auto"
    members = [sm.HMM(1, observation=AutoregressiveGaussian(p)) for p in (1, 2)]
    mixture = sm.Mixture(members, dtype="float64").fit([*X, *y])
    mixture.save(tmp_path / "mixture.safetensors")
    steps = mixture.log_prob_steps(y)[0]
    np.testing.assert_array_equal(sm.load(tmp_path / "mixture.safetensors").log_prob_steps(y)[0], steps)
    stream = mixture.stream()
    np.testing.assert_allclose([stream.update(each) for each in y[0]], steps, rtol=1e-9)
    predicted = mixture.predict_next(y[0]).log_prob(torch.as_tensor(y[0][-1] + 9))
    np.testing.assert_allclose(predicted, stream.update(y[0][-1] + 9), rtol=1e-9)


def test_levels_floors_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    x = simulated(30)
    model, y = fitted([x]), simulated(10, seed=1)
    large = fitted([1e9 + 1024 * x])
    np.testing.assert_allclose(
        large.log_prob_steps([1e9 + 1024 * y])[0], model.log_prob_steps([y])[0] - np.log(1024), rtol=1e-5
    )
    floored = model._with_floor(10.0)
    assert floored.parameters_.table.shape == model.parameters_.table.shape
    np.testing.assert_allclose(floored.log_prob([y]), model.log_prob([y]), rtol=1e-12)
    monkeypatch.setattr(AutoregressiveEmission, "with_tails", lambda self, integrated, frames: integrated)
    weighted = sm.HMM(1, observation=AutoregressiveGaussian(2)).fit([x], sample_weight=[2.0])
    n, degrees, _ = weighted.observation_.posterior(weighted.parameters_.table, 1)  # type: ignore[attr-defined]
    np.testing.assert_allclose([n.item(), degrees.item()], [2 * 28, 2 * 28 - 3], atol=0.1)
    assert replace(AutoregressiveGaussian(2), predictive="plug-in").at_estimates().predictive == "plug-in"
