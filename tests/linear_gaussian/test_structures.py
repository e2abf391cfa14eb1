"""Components of time series: their matrices against their equations."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.linear_gaussian import ARIMA, Cycle, LocalLevel, OrnsteinUhlenbeck, Seasonal, SmoothTrend, Trend
from seqmodels.linear_gaussian.parameters import stationary_covariance
from seqmodels.linear_gaussian.structures import Component, Structure, discretised, stationary_coefficients


def drawn(component: Component, numbers: np.ndarray, noise: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The series of a component whose first noisy state is moved by ``noise (T,)``."""
    z, series = first, []
    for t, each in enumerate(noise):
        if t:
            z = component.transition(numbers) @ z + each * np.linalg.eigh(component.state_covariance(numbers))[1][:, -1]
        series.append(component.observation() @ z)
    return np.array(series)


def test_seasons_repeat_and_sum_to_zero() -> None:
    component = Seasonal(4)
    series = drawn(component, component.start(), np.zeros(12), np.array([1.0, -2.0, 0.5]))
    np.testing.assert_allclose(series[:4].sum(), 0, atol=1e-12)
    np.testing.assert_allclose(series[4:8], series[:4])
    assert component.state_covariance(np.array([0.5]))[0, 0] == 0.25


def test_a_trend_goes_on_and_a_level_stays() -> None:
    trend = Trend()
    np.testing.assert_allclose(drawn(trend, trend.start(), np.zeros(4), np.array([1.0, 2.0])), [1, 3, 5, 7])
    assert drawn(LocalLevel(), np.ones(1), np.array([0.0, 1.0, 2.0]), np.zeros(1)).tolist() in ([0, 1, 3], [0, -1, -3])


@pytest.mark.parametrize(("p", "q"), [(1, 0), (0, 2), (2, 1), (3, 3)])
def test_an_arma_has_the_autocovariances_of_its_moving_average(p: int, q: int) -> None:
    component = ARIMA(p, 0, q)
    numbers = np.append(np.random.default_rng(0).normal(size=p + q), 1.3)
    named = component.named(numbers, 2.0)
    ar, ma = ([named[f"{kind}{i + 1}"] for i in range(n)] for kind, n in (("ar", p), ("ma", q)))
    weights = np.zeros(3_000)
    for j in range(len(weights)):
        weights[j] = (1.0 if j == 0 else ma[j - 1] if j <= q else 0.0) + sum(
            phi * weights[j - i - 1] for i, phi in enumerate(ar) if j > i
        )
    transition, covariance = component.transition(numbers), component.state_covariance(numbers)
    state, c = stationary_covariance(transition, covariance), component.observation()
    for lag in range(5):
        expected = 1.3**2 * weights[lag:] @ weights[: len(weights) - lag]
        assert c @ np.linalg.matrix_power(transition, lag) @ state @ c == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert named["variance"] == pytest.approx((2.0 * 1.3) ** 2)


@pytest.mark.parametrize("d", [1, 2])
def test_differences_of_an_arima_are_its_arma(d: int) -> None:
    integrated, plain = ARIMA(1, d, 1), ARIMA(1, 0, 1)
    numbers, rng = np.array([0.5, -0.3, 1.0]), np.random.default_rng(0)
    root = np.linalg.cholesky(integrated.state_covariance(numbers)[d:, d:] + 1e-14 * np.eye(2))
    z, a, y, arma = rng.normal(size=d + 2), None, [], []
    a = z[d:].copy()
    for _ in range(20):
        y.append(integrated.observation() @ z)
        arma.append(plain.observation() @ a)
        noise = root @ rng.normal(size=2)
        z = integrated.transition(numbers) @ z + np.append(np.zeros(d), noise)
        a = plain.transition(numbers) @ a + noise
    np.testing.assert_allclose(np.diff(y, d), arma[d:], atol=1e-9)


@pytest.mark.parametrize("seasonal", [(0, 1, 0), (1, 2, 1)])
def test_seasonal_differences_of_an_arima_are_its_multiplied_arma(seasonal: tuple[int, int, int]) -> None:
    """``(1 - B) (1 - B^3)^D y`` without any but the first innovation, against the equation of Box and Jenkins."""
    (P, D, Q), rng = seasonal, np.random.default_rng(0)
    component = ARIMA(1, 1, 1, *seasonal, season=3)
    numbers = np.append(0.4 * rng.normal(size=2 + P + Q), 1.0)
    named = component.named(numbers, 1.0)
    z, y = np.zeros(len(component.observation())), []
    z[component.n_differenced :] = component.state_covariance(numbers)[
        component.n_differenced, component.n_differenced :
    ]
    for _ in range(30):
        y.append(component.observation() @ z)
        z = component.transition(numbers) @ z
    ar, ma = ([1.0, sign * named[f"{kind}1"]] for kind, sign in (("ar", -1), ("ma", 1)))
    seasonal_ar = [1.0, 0, 0, -named["seasonal_ar1"]] if P else [1.0]
    seasonal_ma = [1.0, 0, 0, named["seasonal_ma1"]] if Q else [1.0]
    polynomial = np.convolve(np.convolve(ar, seasonal_ar), [1.0, -1.0])
    for _ in range(D):
        polynomial = np.convolve(polynomial, [1.0, 0, 0, -1.0])
    innovations = np.convolve(np.concatenate([np.zeros(len(polynomial) - 1), y]), polynomial, "valid")
    np.testing.assert_allclose(innovations, np.append(np.convolve(ma, seasonal_ma), np.zeros(30))[:30], atol=1e-9)
    for found, expected in zip(component.polynomials(numbers), ((ar, seasonal_ar), (ma, seasonal_ma)), strict=True):
        np.testing.assert_allclose(found, np.convolve(*expected), atol=1e-14)


def test_coefficients_are_stationary_whatever_the_numbers() -> None:
    rng = np.random.default_rng(0)
    for p in (1, 2, 5):
        for _ in range(20):
            coefficients = stationary_coefficients(2 * rng.normal(size=p))
            assert np.abs(np.roots([1.0, *(-coefficients)])).max() < 1
    np.testing.assert_allclose(stationary_coefficients(np.arctanh([0.5, 0.2])), [0.5 - 0.2 * 0.5, 0.2])


def test_a_sum_has_the_matrices_of_its_parts_on_the_diagonal() -> None:
    parts = [Trend(), Seasonal(3), ARIMA(1, 0, 0), Seasonal(4)]
    structure = Structure.of(parts)
    numbers = structure.start()
    transition, covariance = structure.matrices(numbers)
    for part, here, which in zip(parts, structure.states, structure.numbers, strict=True):
        np.testing.assert_array_equal(transition[here, here], part.transition(numbers[which]))
        np.testing.assert_array_equal(covariance[here, here], part.state_covariance(numbers[which]))
        transition[here, here] = 0
    assert not transition.any()
    assert structure.n_states == 2 + 2 + 1 + 3
    assert structure.names == ["trend", "seasonal", "arima", "seasonal2"]
    assert structure.diffuse().tolist() == [True] * 4 + [False] + [True] * 3
    assert list(structure.named(numbers, 1.0)) == [
        "trend_level_variance",
        "trend_slope_variance",
        "seasonal_variance",
        "arima_ar1",
        "arima_variance",
        "seasonal2_variance",
    ]


@pytest.mark.parametrize(
    "component",
    [
        *(Seasonal(1), ARIMA(-1, 0, 0), Cycle(0.0), ARIMA(seasonal_q=-1, season=4)),
        *(ARIMA(seasonal_d=1), ARIMA(seasonal_p=1000, season=1000)),
    ],
)
def test_what_cannot_be_is_refused(component: Component) -> None:
    with pytest.raises(
        ValueError, match=r"pass (2 steps or more|0 or more|a number of steps above 0|a smaller season)"
    ):
        component.check()


def test_a_diffusion_of_many_steps_is_that_of_their_time() -> None:
    rng = np.random.default_rng(0)
    for K in (1, 2, 4):
        root, drift = rng.normal(size=(K, K)), 0.4 * rng.normal(size=(K, K))
        one, seven = (discretised(drift, root @ root.T, time) for time in (0.5, 3.5))
        powers = [np.linalg.matrix_power(one[0], i) for i in range(8)]
        np.testing.assert_allclose(seven[0], powers[7], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(seven[1], sum(a @ one[1] @ a.T for a in powers[:7]), rtol=1e-12, atol=1e-12)


def test_diffusions_are_those_of_their_equations() -> None:
    trend, process = SmoothTrend(), OrnsteinUhlenbeck()
    np.testing.assert_allclose(trend.transition(np.array([0.3])), [[1, 1], [0, 1]], atol=1e-15)
    np.testing.assert_allclose(trend.state_covariance(np.array([0.3])), 0.09 * np.array([[1 / 3, 0.5], [0.5, 1]]))
    numbers = np.array([np.log(0.2), 1.5])
    np.testing.assert_allclose(process.transition(numbers), [[np.exp(-0.2)]])
    np.testing.assert_allclose(process.state_covariance(numbers), [[1.5**2 * (1 - np.exp(-0.4))]])
    assert process.named(numbers, 2.0) == {"rate": pytest.approx(0.2), "variance": pytest.approx(9.0)}


@pytest.mark.parametrize("time_step", [1.0, 0.25])
def test_over_gaps_a_sum_of_diffusions_is_the_gaussian_of_its_kernels(time_step: float) -> None:
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.integers(1, 6, 40)).astype(float)
    x = (0.05 * times + np.sin(times / 5) + 0.3 * rng.normal(size=40))[:, None]
    X = sm.Sequences([x], times=[times])
    model = sm.LinearGaussian.smooth_trend(time_step=time_step, max_iter=15) + sm.LinearGaussian.ornstein_uhlenbeck()
    model.fit(X)
    found, t = model.components_, (times - times[0]) / time_step
    first, lag = np.minimum(t, t[:, None]), np.abs(t - t[:, None])
    design = np.stack([np.ones(40), t], 1)
    covariance = (
        design @ model.initial_covariance_[:2, :2] @ design.T
        + found["smooth_trend_variance"] * (first**3 / 3 + first**2 * lag / 2)
        + found["ornstein_uhlenbeck_variance"] * np.exp(-found["ornstein_uhlenbeck_rate"] * lag)
        + found["noise_variance"] * np.eye(40)
    )
    mean = model.intercept_ + design @ model.initial_mean_[:2]
    left = np.linalg.solve(np.linalg.cholesky(covariance), x[:, 0] - mean)
    log_det = np.linalg.slogdet(covariance)[1]
    assert model.log_prob(X)[0] == pytest.approx(-0.5 * (left @ left + log_det + 40 * np.log(2 * np.pi)), rel=1e-10)


def test_a_finer_grid_finds_the_same_process() -> None:
    rng, z, x = np.random.default_rng(3), 0.0, []
    times = np.cumsum(rng.integers(1, 4, 400)).astype(float)
    for gap in np.diff(times, prepend=times[0]):
        z = np.exp(-0.15 * gap) * z + np.sqrt(1 - np.exp(-0.3 * gap)) * rng.normal()
        x.append([z + 0.1 * rng.normal()])
    X = sm.Sequences([np.array(x)], times=[times])
    coarse, fine = (sm.LinearGaussian.ornstein_uhlenbeck(time_step=step).fit(X) for step in (1.0, 0.5))
    assert coarse.components_["ornstein_uhlenbeck_rate"] == pytest.approx(0.15, abs=0.04)
    assert fine.components_["ornstein_uhlenbeck_rate"] == pytest.approx(
        coarse.components_["ornstein_uhlenbeck_rate"] / 2, rel=1e-3
    )
    assert fine.score(X) == pytest.approx(coarse.score(X), abs=1e-6)
