"""Linear processes: densities and forecasts against those of state-space models and of whole covariances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from seqmodels import LinearGaussian
from seqmodels.evaluation.forecasting.linear_process import (
    VALUES_FOR_ONE,
    Autoregression,
    FittedProcess,
    Process,
    SeasonalARIMA,
    StructuralProcess,
    _Series,
    fit_process,
    likely_orders,
)
from seqmodels.linear_gaussian.structures import Seasonal, Structure, Trend


def seasonal_series(n: int = 60, season: int = 4, noise: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=n).cumsum() + np.arange(n) * 3.0 % season + noise * rng.normal(size=n)


def test_structural_forecasts_are_those_of_the_state_space_model() -> None:
    """Of a first state of which next to nothing is known."""
    y = seasonal_series(noise=2.0)
    variances = {"level": 0.5, "slope": 0.01, "season": 0.1}
    structure = Structure.of([Trend(), Seasonal(4)])
    transition, covariance = structure.matrices(np.sqrt([*variances.values()]))
    model = LinearGaussian.from_parameters(
        *(transition, covariance, structure.observation(), [[1.0]]), np.zeros(5), 1e10 * np.eye(5)
    )
    frame = model.forecast([y[:, None]], 8, quantiles=(0.5, 0.95)).frame
    fitted = FittedProcess(StructuralProcess("walk", 4), np.log([*variances.values()]), np.zeros(0))
    ahead = fitted.ahead(y, 8)
    np.testing.assert_allclose(ahead.mean, frame["mean"], rtol=1e-6)
    deviations = (frame["95%"] - frame["50%"]).to_numpy()
    np.testing.assert_allclose(ahead.deviation / ahead.deviation[0], deviations / deviations[0], rtol=1e-6)


def test_the_likelihood_is_largest_where_the_diffuse_one_is() -> None:
    y = seasonal_series(noise=2.0)
    model = (LinearGaussian.local_level() + LinearGaussian.seasonal(4)).fit([y[:, None]])
    numbers = fit_process(StructuralProcess(season=4), y).numbers
    expected = [
        model.components_[name] / model.components_["noise_variance"]
        for name in ("level_variance", "seasonal_variance")
    ]
    np.testing.assert_allclose(np.exp(numbers), expected, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize(
    "process",
    [
        StructuralProcess(),
        StructuralProcess("fixed", 4),
        StructuralProcess("damped"),
        SeasonalARIMA((1, 1, 1), (0, 1, 1), 4),
        SeasonalARIMA((2, 0, 1), has_constant=True),
        Autoregression(2, 4, has_slope=True),
        Autoregression(3, of_changes=True),
    ],
    ids=lambda process: process.name,
)
def test_one_step_densities_are_those_of_forecasts(process: Process) -> None:
    """``log p(y_t | y_<t)`` by the factor is the density of the forecast of one step, but for β and σ², which are
    learned from all of y.
    """
    y = seasonal_series(400)
    fitted = fit_process(process, y)
    by_forecast = []
    for t in range(300, 400):
        ahead = fitted.ahead(y[:t], 1)
        by_forecast.append(stats.norm.logpdf(y[t], ahead.mean[0], ahead.deviation[0]))
    assert np.mean(by_forecast) == pytest.approx(np.mean(fitted.log_probs[300:]), abs=0.02)


@pytest.mark.parametrize("n_missing", [0, 3])
@pytest.mark.parametrize(
    "process",
    [
        StructuralProcess("damped", 4),
        SeasonalARIMA((1, 1, 1), (0, 1, 1), 4),
        SeasonalARIMA((2, 0, 1), has_constant=True),
        Autoregression(2, 4, has_slope=True),
    ],
    ids=lambda process: process.name,
)
def test_forecasts_from_several_origins_are_those_of_each(process: Process, n_missing: int) -> None:
    """Missing values before an origin are among those that its forecast estimates, and later ones are not."""
    y, inputs = seasonal_series(120), np.random.default_rng(3).normal(size=(130, 1))
    y[[59, 80, 99][:n_missing]] = np.nan
    fitted = fit_process(process, y[:90], inputs[:90])
    origins = [60, 81, 100, 120]
    for t, ahead in zip(origins, fitted.ahead_from(y, origins, 5, inputs), strict=True):
        expected = fitted.ahead(y[:t], 5, inputs[: t + 5])
        np.testing.assert_allclose(ahead.mean, expected.mean, rtol=1e-7)
        np.testing.assert_allclose(ahead.deviation, expected.deviation, rtol=1e-7)


def test_steps_ahead_have_the_covariance_of_the_gaussian() -> None:
    """Under a random walk with noise, by the inverse of the covariance of all values."""
    y = np.random.default_rng(1).normal(size=30).cumsum()
    fitted = FittedProcess(StructuralProcess(), np.zeros(1), np.zeros(0))  # level and noise of equal variance
    t = np.arange(34)
    covariance = np.minimum.outer(t, t) + np.eye(34) + 1e7  # of a level of which nothing is known at first
    left = covariance[30:, 30:] - covariance[30:, :30] @ np.linalg.solve(covariance[:30, :30], covariance[:30, 30:])
    ahead = fitted.ahead(y, 4)
    joint = ahead.root @ ahead.root.T
    np.testing.assert_allclose(joint / joint[0, 0], left / left[0, 0], rtol=1e-4)
    np.testing.assert_allclose(np.diag(joint), ahead.deviation**2)


@pytest.mark.parametrize("n_missing", [0, 2])
@pytest.mark.parametrize(
    "process",
    [
        StructuralProcess(),
        StructuralProcess("fixed", 4),
        StructuralProcess("walk", 4),
        StructuralProcess("damped", 4),
        SeasonalARIMA((0, 2, 1)),
        SeasonalARIMA((2, 1, 2)),
        SeasonalARIMA((2, 0, 1), (1, 0, 1), 4, has_constant=True),
        SeasonalARIMA((0, 1, 1), (0, 1, 1), 4),
        SeasonalARIMA((3, 0, 0), (1, 1, 0), 4, has_constant=True),
    ],
    ids=lambda process: process.name,
)
def test_the_search_ends_where_the_likelihood_is_flat(process: Process, n_missing: int) -> None:
    """The readable form of the likelihood is higher than at the start, and SciPy's search does not find much more."""
    y, inputs = seasonal_series(100, noise=1.0), np.random.default_rng(3).normal(size=(100, 1))
    y[[20, 77][:n_missing]] = np.nan
    assert isinstance(process, SeasonalARIMA | StructuralProcess)

    def loss(numbers: np.ndarray) -> float:
        return -_Series.of(process, y, inputs).whitened(process.polynomials(numbers)).log_prob

    numbers = fit_process(process, y, inputs).numbers
    bounds = np.array(process.bounds())
    assert ((bounds[:, 0] <= numbers) & (numbers <= bounds[:, 1])).all()
    assert loss(numbers) < loss(process.start())
    better = optimize.minimize(loss, numbers, method="L-BFGS-B", bounds=bounds)
    assert loss(numbers) - better.fun < 0.2


def test_a_search_that_begins_elsewhere_ends_at_the_same_place() -> None:
    y, process = seasonal_series(200), SeasonalARIMA((1, 1, 1))
    numbers = fit_process(process, y).numbers
    np.testing.assert_allclose(fit_process(process, y, start=np.array([-1.0, 1.5])).numbers, numbers, atol=0.01)
    level = fit_process(StructuralProcess(), y).numbers
    at_bound = fit_process(StructuralProcess(), y, start=np.array([-16.0])).numbers  # where the likelihood is flat
    np.testing.assert_allclose(at_bound, level, atol=0.01)


@pytest.mark.parametrize(("season", "of_changes"), [(None, False), (4, False), (None, True)])
def test_the_likely_orders_have_the_best_one_among_them(season: int | None, of_changes: bool) -> None:
    y = seasonal_series(90, noise=0.1)
    processes = [Autoregression(p, season, of_changes=of_changes) for p in range(1, 11)]
    fitted = {process: fit_process(process, y) for process in processes}
    by_criterion = sorted(processes, key=lambda process: fitted[process].criterion(processes[-1].n_lost))
    assert likely_orders(processes, y, None)[0] == by_criterion[0]
    assert len(likely_orders(processes, y, None)) == VALUES_FOR_ONE // 90
    too_long = [*processes, Autoregression(60, season, of_changes=of_changes)]
    assert likely_orders(too_long, y, None) == likely_orders(processes, y, None)
    y[40] = np.nan
    assert by_criterion[0] in likely_orders(processes, y, None)
    assert likely_orders(processes, y, np.zeros((90, 1))) == processes


def test_forecasts_of_an_autoregression_are_in_closed_form() -> None:
    fitted = FittedProcess(Autoregression(1), np.array([0.5]), np.zeros(0))
    y = np.random.default_rng(0).normal(size=5000)
    for t in range(1, len(y)):
        y[t] += 0.5 * y[t - 1]
    ahead = fitted.ahead(y, 3)
    c = np.mean(y[1:] - 0.5 * y[:-1])
    np.testing.assert_allclose(ahead.mean, [c + 0.5 * y[-1], 1.5 * c + 0.25 * y[-1], 1.75 * c + 0.125 * y[-1]])
    np.testing.assert_allclose(ahead.deviation, np.sqrt([1, 1.25, 1.3125]), rtol=0.03)


def test_missing_values_are_what_the_gaussian_expects() -> None:
    """Under a random walk with noise, by the inverse of the covariance of all values."""
    y, missing = np.random.default_rng(1).normal(size=30).cumsum(), [7, 8, 20, 29]
    y[missing] = np.nan
    fitted = FittedProcess(StructuralProcess(), np.zeros(1), np.zeros(0))  # level and noise of equal variance
    t = np.arange(33)
    covariance = np.minimum.outer(t, t) + np.eye(33) + 1e7  # of a level of which nothing is known at first
    known = np.flatnonzero(~np.isnan(y))
    gain = np.linalg.solve(covariance[np.ix_(known, known)], covariance[known]).T
    expected = gain @ y[known]
    np.testing.assert_allclose(fitted.filled(y)[missing], expected[missing], atol=1e-4)
    ahead = fitted.ahead(y, 3)
    np.testing.assert_allclose(ahead.mean, expected[30:], atol=1e-4)
    left = np.diag(covariance - gain @ covariance[known])[30:]
    np.testing.assert_allclose(ahead.deviation**2 / ahead.deviation[0] ** 2, left / left[0], rtol=1e-4)


def test_estimates_find_what_was_drawn() -> None:
    rng = np.random.default_rng(2)
    e = rng.normal(size=2001)
    y = (e[1:] + 0.6 * e[:-1]).cumsum()
    fitted = fit_process(SeasonalARIMA((0, 1, 1)), y)
    theta = np.tanh(-fitted.numbers[0])
    assert theta == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize("process", [SeasonalARIMA((1, 0, 0), (0, 1, 1), 12), Autoregression(3)])
def test_too_short_a_series_is_refused(process: Process) -> None:
    with pytest.raises(ValueError, match="numbers to fit, and the series only"):
        fit_process(process, np.arange(8.0))


PROCESSES = [
    StructuralProcess("fixed", 4),
    SeasonalARIMA((1, 0, 1), has_constant=True),
    SeasonalARIMA((0, 1, 1), (0, 1, 1), 4),
    Autoregression(2, 4, has_slope=True),
]


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_forecasts_depend_neither_on_the_level_nor_on_the_unit(process: Process) -> None:
    y = seasonal_series()
    y[[20, 21, 50]] = np.nan
    expected = fit_process(process, y).ahead(y, 3)
    for level, scale in ((1e3, 1.0), (-1e6, 1.0), (1e9, 1.0), (0.0, 1e-9), (0.0, 1e9)):
        ahead = fit_process(process, y * scale + level).ahead(y * scale + level, 3)
        np.testing.assert_allclose((ahead.mean - level) / scale, expected.mean, atol=1e-4, err_msg=f"{level} {scale}")
        np.testing.assert_allclose(ahead.deviation / scale, expected.deviation, rtol=1e-4, err_msg=f"{level} {scale}")


def test_the_criterion_is_corrected_for_few_values() -> None:
    """``-2 log p + 2 n N / (N - n - 1)``, n numbers and N values that have a density, from a step on."""
    log_probs = np.array([np.nan, np.nan, *np.linspace(-2.0, -1.0, 9), np.nan])
    fitted = FittedProcess(Autoregression(1), np.zeros(1), log_probs)  # φ, c and σ²
    assert fitted.n_parameters == 3
    assert fitted.criterion(0) == pytest.approx(2 * 13.5 + 2 * 3 * 9 / 5)
    assert fitted.criterion(4) == pytest.approx(-2 * log_probs[4:11].sum() + 2 * 3 * 7 / 3)
    assert fitted.criterion(8) == pytest.approx(-2 * log_probs[8:11].sum() + 2 * 3 * 3 / 0.5)  # as few as numbers


def test_inputs_are_coefficients_of_generalised_least_squares() -> None:
    """``y = z δ + n``, n a random walk with noise: by the inverse of the covariance of all values."""
    rng, n = np.random.default_rng(3), 40
    z = (rng.random((n + 3, 2)) < 0.3).astype(float)
    y = z[:n] @ [5.0, -3.0] + rng.normal(size=n).cumsum() + rng.normal(size=n)
    fitted = FittedProcess(StructuralProcess(), np.zeros(1), np.zeros(0), 2)  # level and noise of equal variance
    t = np.arange(n + 3)
    covariance = np.minimum.outer(t, t) + np.eye(n + 3) + 1e5  # of a level of which next to nothing is known
    precision = np.linalg.inv(covariance[:n, :n])
    of_effects = np.linalg.inv(z[:n].T @ precision @ z[:n])
    delta = of_effects @ z[:n].T @ precision @ y
    residuals = y - z[:n] @ delta
    variance = residuals @ precision @ residuals / (n - 3)
    effects = fitted.effects(y, z[:n])
    np.testing.assert_allclose(effects.mean, delta, atol=1e-3)
    np.testing.assert_allclose(effects.deviation, np.sqrt(variance * np.diag(of_effects)), rtol=0.03)
    ahead, gain = fitted.ahead(y, 3, z), covariance[n:, :n] @ precision
    np.testing.assert_allclose(ahead.mean, z[n:] @ delta + gain @ residuals, atol=1e-3)
    slopes = z[n:] - gain @ z[:n]
    left = np.diag(covariance[n:, n:] - gain @ covariance[:n, n:] + slopes @ of_effects @ slopes.T)
    np.testing.assert_allclose(ahead.deviation**2 / ahead.deviation[0] ** 2, left / left[0], rtol=1e-3)


@pytest.mark.parametrize("process", [Autoregression(1), SeasonalARIMA((1, 0, 0), has_constant=True)], ids=str)
def test_an_autoregression_is_estimated_beside_inputs(process: Process) -> None:
    rng, n = np.random.default_rng(4), 400
    noise, z = np.zeros(n), (rng.random((n, 1)) < 0.2).astype(float)
    for t in range(1, n):
        noise[t] = 0.8 * noise[t - 1] + rng.normal()
    fitted = fit_process(process, 10 + noise + 20 * z[:, 0], z)
    effects = fitted.effects(10 + noise + 20 * z[:, 0], z)
    assert -fitted.process.polynomials(fitted.numbers).a[1] == pytest.approx(0.8, abs=0.06)
    assert abs(effects.mean[0] - 20) < 3 * effects.deviation[0] < 0.5


def test_an_input_that_has_not_changed_yet_is_worth_nothing_that_is_known() -> None:
    """Its changes are rounding, of which a coefficient would be without bound."""
    rng, z = np.random.default_rng(0), np.where(np.arange(54) == 50, 1.0, -0.07)[:, None]
    y = 100 + rng.normal(size=50).cumsum()
    for process in (StructuralProcess("damped"), SeasonalARIMA((1, 1, 1))):
        fitted = fit_process(process, y, z[:50])
        assert fitted.effects(y, z[:50]).mean == [0.0]
        ahead, without = fitted.ahead(y, 4, z), fit_process(process, y).ahead(y, 4)
        np.testing.assert_allclose(ahead.mean, without.mean, atol=1e-6)
        assert np.std(y) < ahead.deviation[0] < 10 * np.std(y)  # of what the input may be worth


def test_a_phase_that_was_never_seen_is_at_the_level_and_as_wide_as_the_series() -> None:
    y = 90 + np.tile([0.0, 10.0, -5.0, -5.0], 15) + 0.5 * np.random.default_rng(0).normal(size=60)
    y[3::4] = np.nan
    for process in (Autoregression(1, 4), StructuralProcess("none", 4)):
        ahead = fit_process(process, y).ahead(y, 4)
        assert abs(ahead.mean[3] - np.nanmean(y)) < 8
        assert ahead.deviation[3] > 0.5 * np.nanstd(y)
        np.testing.assert_allclose(ahead.mean[:3], [90, 100, 85], atol=1.0)
        assert ahead.deviation[:3].max() < 1.0


def test_a_forecast_is_no_more_certain_than_rounding() -> None:
    y = np.tile([0.1, 0.2, 0.7], 20)
    ahead = fit_process(Autoregression(4, 3), y).ahead(y, 3)
    assert (np.abs(ahead.mean - y[:3]) < 2 * ahead.deviation).all()


@pytest.mark.parametrize("process", [StructuralProcess("walk", 4), SeasonalARIMA((0, 1, 1), (0, 1, 1), 4)], ids=str)
def test_a_series_without_noise_is_refused_in_silence(process: Process, capfd: pytest.CaptureFixture[str]) -> None:
    """LAPACK prints a line for each NaN that it is given, past Python."""
    y = np.tile([1.0, 4.0, 2.0, np.nan], 15)[:-1]
    with pytest.raises(ValueError, match="leaves no noise"):
        fit_process(process, y)
    assert capfd.readouterr() == ("", "")
