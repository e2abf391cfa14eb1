"""ARIMA by banded products: against dense covariances, and the same figures as those of the filter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.linear_gaussian import ARIMA, LocalLevel
from seqmodels.linear_gaussian.learning.banded_arima import BandedARIMA, DifferencedData
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step
from seqmodels.linear_gaussian.learning.structural import StructuralNumbers, _by_filter
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from seqmodels.linear_gaussian.structures import Structure
from tests.linear_gaussian.dense import dense, joint

# Of p, d, q, P, D, Q and the season; missing values of each sequence, and inputs.
CASES = [
    ((1, 0, 1, 0, 0, 0, 1), (), 0),
    ((1, 1, 1, 0, 0, 0, 1), (), 0),
    ((0, 1, 1, 0, 1, 1, 4), (), 1),
    ((1, 0, 0, 1, 0, 1, 4), (3, 4, 11), 1),
    ((2, 1, 0, 1, 1, 1, 3), (0, 9, 10, 17), 0),
    ((0, 1, 1, 0, 2, 1, 2), (8,), 0),
]


def numbers_of(orders: tuple[int, ...], n_inputs: int = 0) -> StructuralNumbers:
    structure = Structure.of([ARIMA(*orders)])
    is_stationary = not structure.diffuse().any()
    form = Form("diffuse", "full", "diag", "none", is_stationary, 1e-6, structure.diffuse())
    return StructuralNumbers(structure, replace(form, observation_inputs=tuple(range(n_inputs))))


def sequences(missing: tuple[int, ...], n_inputs: int) -> SystemData:
    rng = np.random.default_rng(0)
    values = [(rng.normal(size=n).cumsum() / 3 + np.arange(n) % 4)[:, None] for n in (24, 19)]
    for each in values:
        each[list(missing)] = np.nan
    inputs = [rng.normal(size=(len(x), n_inputs)) for x in values] if n_inputs else None
    return SystemData(values, np.array([1.0, 2.0]), inputs)


def some_numbers(every: StructuralNumbers) -> np.ndarray:
    start = every.start(0, 0)
    numbers = start + 0.3 * np.random.default_rng(1).normal(size=len(start))
    numbers[every.n_of_structure - 1] = 0.8  # the deviation
    return np.asarray(numbers)


def diffuse_log_prob(p: SystemParameters, is_diffuse: np.ndarray, x: np.ndarray) -> float:
    """The limit of ``log p(x) + ½ q log κ`` for q first states of variance κ, without large numbers.

    The covariance is ``Σ + κ F F'``, with F from the difference of two covariances.
    """
    seen, q, covariances = ~np.isnan(x.ravel()), int(is_diffuse.sum()), []
    observation = np.kron(np.eye(len(x)), p.observation)
    for kappa in (1.0, 2.0):
        at = replace(p, initial_covariance=p.initial_covariance + kappa * np.diag(is_diffuse.astype(float)))
        mean, covariance = joint(at, len(x))
        whole = observation @ covariance @ observation.T + np.kron(np.eye(len(x)), p.observation_covariance)
        covariances.append(whole[np.ix_(seen, seen)])
    values, vectors = np.linalg.eigh(covariances[1] - covariances[0])
    first = len(values) - q
    F, inverse = vectors[:, first:] * np.sqrt(values[first:]), np.linalg.inv(covariances[0])
    error = (x.ravel() - observation @ mean - np.tile(p.intercept, len(x)))[seen]
    information, projected = F.T @ inverse @ F, F.T @ inverse @ error
    square = error @ inverse @ error - projected @ np.linalg.solve(information, projected)
    log_det = np.linalg.slogdet(covariances[0])[1] + np.linalg.slogdet(information)[1]
    return float(-0.5 * (square + log_det + seen.sum() * np.log(2 * np.pi)))


@pytest.mark.parametrize(("orders", "missing", "n_inputs"), CASES)
def test_the_diffuse_log_probability_is_that_of_the_dense_covariance(
    orders: tuple[int, ...], missing: tuple[int, ...], n_inputs: int
) -> None:
    every, data = numbers_of(orders, n_inputs), sequences(missing, n_inputs)
    numbers, banded = some_numbers(every), BandedARIMA.of(every.structure, every.form)
    assert banded is not None
    p, expected = every.with_start(numbers), 0.0
    for i, (x, weight) in enumerate(zip(data.values, data.weights, strict=True)):
        left = x - banded.inputs_of(data, i) @ p.observation_slopes.T
        expected += weight * diffuse_log_prob(p, every.structure.diffuse(), left)
    found, gradient = DifferencedData.of(banded, data).with_gradient(numbers)
    assert found == pytest.approx(expected, rel=1e-8)
    by_filter = _by_filter(every, data, numbers)
    assert found == pytest.approx(by_filter[0], rel=1e-11)
    np.testing.assert_allclose(gradient, by_filter[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("orders", "missing", "n_inputs"), CASES)
def test_first_states_and_steps_are_those_of_the_filter(
    orders: tuple[int, ...], missing: tuple[int, ...], n_inputs: int
) -> None:
    every, data = numbers_of(orders, n_inputs), sequences(missing, n_inputs)
    numbers, banded = some_numbers(every), BandedARIMA.of(every.structure, every.form)
    assert banded is not None
    parameters, q = every.parameters(numbers), int(every.structure.diffuse().sum())
    mean, covariance = banded.first_states(numbers, parameters, data).moments()
    expected = e_step(parameters, every.form, data).first_states.moments()
    np.testing.assert_allclose(mean[:q], expected[0][:q], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(covariance[:q, :q], expected[1][:q, :q], rtol=1e-7, atol=1e-9)
    started = every.form.learned_start(parameters, mean, covariance)
    complete = [np.nan_to_num(x) for x in data.values]
    added = [banded.inputs_of(data, i) @ parameters.observation_slopes.T for i in range(len(complete))]
    left = [x - each for x, each in zip(complete, added, strict=True)]
    steps = banded.log_prob_steps(numbers, started, [x - parameters.intercept for x in left])
    for found, x in zip(steps, left, strict=True):
        prefixes = [dense(started, x[: t + 1]).log_prob for t in range(len(x))]
        np.testing.assert_allclose(np.cumsum(found), prefixes, rtol=1e-8, atol=1e-8)


def test_only_one_arima_without_noise_is_evaluated_by_products() -> None:
    every = numbers_of((0, 1, 1, 0, 1, 1, 4))
    banded, x = BandedARIMA.of(every.structure, every.form), np.zeros((40, 1))
    assert banded is not None
    assert banded.is_faster([x])
    assert not banded.is_faster([np.where(np.arange(400)[:, None] < 200, np.zeros((400, 1)), np.nan)])
    assert not BandedARIMA(ARIMA(1, 1, 1), every.form).is_faster([x])
    long = BandedARIMA(ARIMA(12, 0, 0), every.form)  # whose gradient would take 25 products
    assert (long.is_faster([x]), long.is_faster([x], has_gradient=True)) == (True, False)
    assert BandedARIMA.of(every.structure, replace(every.form, observation_noise="diag")) is None
    assert BandedARIMA.of(Structure.of([LocalLevel(), ARIMA(1, 0, 0)]), every.form) is None
    assert BandedARIMA.of(None, every.form) is None


@pytest.mark.parametrize("n", [4, 5])
def test_a_series_no_longer_than_its_differences(n: int) -> None:
    """Five values determine the five first states, and have no density beside them; four do not."""
    every = numbers_of((0, 1, 1, 0, 1, 1, 4))
    banded, numbers = BandedARIMA.of(every.structure, every.form), some_numbers(every)
    assert banded is not None
    data = SystemData([np.arange(float(n))[:, None], sequences((), 0).values[0]], np.ones(2))
    if n == 4:
        with pytest.raises(
            ValueError, match="sequence 0 has 4 steps, which do not determine its first state, 5 numbers"
        ):
            banded.first_states(numbers, every.parameters(numbers), data)
        return
    banded.first_states(numbers, every.parameters(numbers), data)
    found, by_filter = DifferencedData.of(banded, data).with_gradient(numbers), _by_filter(every, data, numbers)
    assert found[0] == pytest.approx(by_filter[0], rel=1e-11)


def test_a_seasonal_arima_is_a_model_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y = ((np.arange(60) % 4) * 2.0 + rng.normal(size=60).cumsum() / 2)[:, None]
    make = sm.LinearGaussian.arima(0, 1, 1, seasonal=(0, 1, 1, 4), n_init=1)
    model, by_filter = make.clone().fit([y]), make.clone()
    with monkeypatch.context() as patched:
        patched.setattr(BandedARIMA, "is_faster", lambda *_, **__: False)
        by_filter.fit([y])
        expected = by_filter.log_prob_steps([y])[0]
    np.testing.assert_allclose(model.log_prob_steps([y])[0], expected, rtol=1e-5, atol=1e-5)
    assert model.diffuse_log_prob([y])[0] == pytest.approx(by_filter.diffuse_log_prob([y])[0], abs=1e-6)
    assert model.n_parameters_ == 3 + 5  # and its first states
    stream = model.stream()
    np.testing.assert_allclose([stream.update(each) for each in y], model.log_prob_steps([y])[0], rtol=1e-7, atol=1e-7)
    ahead = model.forecast([y], 4).frame["mean"].to_numpy()
    np.testing.assert_allclose(np.diff(ahead), np.full(3, 2.0), atol=1.0)
    assert model.sample(2, length=9, random_state=0)[0].shape == (9, 1)
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.log_prob([y]), model.log_prob([y]), rtol=1e-12)
    assert list(loaded.components_) == ["arima_ma1", "arima_seasonal_ma1", "arima_variance"]
    level = sm.LinearGaussian.local_level().fit([y])
    table = sm.compare(
        {"level": level, "airline": model}, [y[k : k + 12] for k in range(0, 60, 12)], baseline="level"
    ).frame.set_index("model")
    assert table.loc["airline", "score"] > table.loc["level", "score"]
