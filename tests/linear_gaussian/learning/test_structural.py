"""The maximum of a structure's diffuse likelihood."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.inference.gaussian.diffuse import diffuse_moments
from seqmodels.linear_gaussian import ARIMA, LocalLevel, Seasonal, Trend
from seqmodels.linear_gaussian.learning.em import SystemObjective
from seqmodels.linear_gaussian.learning.statistics import SystemData, e_step
from seqmodels.linear_gaussian.learning.structural import (
    StructuralNumbers,
    diffuse_log_prob,
    likelihood_of,
    run_structural,
)
from seqmodels.linear_gaussian.parameters import Form, SystemParameters
from seqmodels.linear_gaussian.structures import Component, Structure
from seqmodels.training import FitResult, StopRule


def numbers_of(
    *components: Component, noise: str = "diag", intercept: bool = False, n_inputs: int = 0
) -> StructuralNumbers:
    structure = Structure.of(components)
    form = Form(
        *("diffuse", "full", "diag", noise, intercept, 1e-6, structure.diffuse()),  # type: ignore[arg-type]
        observation_inputs=tuple(range(n_inputs)),
    )
    return StructuralNumbers(structure, form)


def series(n: int = 80, n_inputs: int = 0) -> SystemData:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(m, 1)).cumsum(0) / 4 + 0.5 * rng.normal(size=(m, 1)) for m in (n, n // 2)]
    inputs = [rng.normal(size=(len(x), n_inputs)) for x in values] if n_inputs else None
    if inputs is not None:
        values = [x + 2.0 * u[:, :1] for x, u in zip(values, inputs, strict=True)]
    return SystemData(values, np.array([1.0, 2.0]), inputs)


CASES = [
    (numbers_of(LocalLevel()), 0),
    (numbers_of(Trend(), Seasonal(3)), 0),
    (numbers_of(ARIMA(2, 1, 1), noise="none"), 0),
    (numbers_of(ARIMA(1, 0, 1), noise="none", intercept=True), 0),
    (numbers_of(LocalLevel(), n_inputs=1), 1),
]


def numbers_at_end(fit: FitResult[SystemParameters]) -> np.ndarray:
    assert fit.kept is not None
    return np.asarray(fit.kept)


@pytest.mark.parametrize(("every", "n_inputs"), CASES)
def test_a_fit_rises_and_ends_where_the_gradient_is_zero(every: StructuralNumbers, n_inputs: int) -> None:
    data = series(n_inputs=n_inputs)
    rules = (SystemObjective(every.form, 160.0, 0.0), data, StopRule(200, 1e-13), lambda row: None)
    fit = run_structural(every, every.start(0, 0), *rules)
    numbers = numbers_at_end(fit)
    objectives = np.array([row["objective"] for row in fit.rows])
    assert (np.diff(objectives) >= -1e-12).all()
    assert objectives[-1] > objectives[0]
    log_prob, gradient = likelihood_of(every, data)(numbers)
    assert log_prob / 160.0 == pytest.approx(objectives[-1], abs=1e-9)
    low, high = np.array(every.bounds()).T
    inside = (numbers > low + 1e-6) & (numbers < high - 1e-6)
    assert np.abs(gradient[inside]).max() < 0.02
    assert (gradient[numbers <= low + 1e-6] < 0.02).all()
    assert fit.converged
    if n_inputs:
        assert numbers[-1] == pytest.approx(2.0, abs=0.2)


def test_the_log_probability_is_that_of_the_e_step() -> None:
    every, data = numbers_of(Trend(), ARIMA(1, 0, 1)), series(20)
    parameters = every.parameters(every.start(1, 0))
    assert diffuse_log_prob(parameters, every.form, data) == pytest.approx(
        float(e_step(parameters, every.form, data).log_prob), rel=1e-10
    )


def test_the_gradient_is_fishers() -> None:
    """Of logarithms of variances half of what is expected over what they are, less how often."""
    every, data = numbers_of(Trend()), series()
    numbers = np.array([0.4, 0.2, 0.6])
    p, s = every.parameters(numbers), e_step(every.parameters(numbers), every.form, data)
    cross = p.transition @ s.now_before.T
    moved = np.diagonal(s.now_now - cross - cross.T + p.transition @ s.before_before @ p.transition.T)
    c = p.observation[0]
    error = s.seen_seen[0, 0] - 2 * c @ s.seen_state[0, :2] + c @ s.state_state[0, :2, :2] @ c
    by_logarithm = 0.5 * np.append(moved / numbers[:2] ** 2 - s.n_moves, error / numbers[2] ** 2 - s.n_seen[0])
    np.testing.assert_allclose(likelihood_of(every, data)(numbers)[1], 2 * by_logarithm / numbers, rtol=1e-5)


def test_a_cycle_of_no_variance_is_left_where_it_rises_at_another_rate() -> None:
    """At variance 0 the likelihood says nothing of the rate, and at the one that the search left it there it falls."""
    rng = np.random.default_rng(2)
    times = np.cumsum(rng.exponential(0.7, 40))
    x = sm.Sequences([(np.sin(times / 5) + 0.3 * rng.normal(size=40) + 2)[:, None]], times=[times])
    model = sm.LinearGaussian.cycle(7.0, time_step=1.0).fit(x)
    assert model.log_prob(x)[0] == pytest.approx(-36.009187, abs=1e-4)
    assert model.components_["cycle_variance"] > 0.4


def test_a_deviation_of_zero_is_left_where_the_likelihood_rises() -> None:
    """There the derivative in the deviation is zero, so that the search alone would stay."""
    every, rng = numbers_of(LocalLevel(), Seasonal(4)), np.random.default_rng(2)
    level, season = rng.normal(size=120).cumsum(), 3 * rng.normal(size=(30, 4)).cumsum(0)
    data = SystemData([(level + season.reshape(-1) + rng.normal(size=120))[:, None] / 10], np.ones(1))
    objective, stop = SystemObjective(every.form, 120.0, 0.0), StopRule(300, 1e-13)
    free = run_structural(every, every.start(0, 0), objective, data, stop, lambda row: None)
    start = np.array([0.3, 0.0, 0.5])
    fit = run_structural(every, start, objective, data, stop, lambda row: None)
    np.testing.assert_allclose(numbers_at_end(fit), numbers_at_end(free), rtol=1e-3)
    objectives = np.array([row["objective"] for row in fit.rows])
    assert (np.diff(objectives) >= -1e-12).all()
    assert objectives[-1] == pytest.approx(free.rows[-1]["objective"], abs=1e-8)
    few = run_structural(every, start, objective, data, StopRule(3, 1e-13), lambda row: None)
    assert (len(few.rows), few.converged) == (4, False)


def test_without_noise_what_is_smoothed_is_the_series() -> None:
    """A covariance of predicted states is singular, and that of first states is found through all steps."""
    every, rng = numbers_of(ARIMA(2, 1, 1), noise="none"), np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(600, 1)), 0) / 10
    for theta in np.linspace(-1.5, 1.5, 25):
        p = every.parameters(np.array([0.2, 0.3, theta, 0.1]))
        (group,) = SystemData([x], np.ones(1)).groups(p, every.form)[0][:1]
        moments = diffuse_moments(every.form.without_start(p).system, group, every.form.directions(3))
        np.testing.assert_allclose(moments.means @ p.observation[0], x[:, 0], atol=1e-9)
        assert np.abs(moments.covariances.now @ p.observation[0]).max() < 1e-9
        assert np.isfinite(moments.covariances.across).all()


def test_starts_are_within_bounds_and_the_floor_is_noticed() -> None:
    every = numbers_of(LocalLevel(), Seasonal(4))
    low, high = np.array(every.bounds()).T
    for number in range(5):
        start = every.start(number, 1)
        assert ((start >= low) & (start <= high)).all()
        np.testing.assert_array_equal(start, every.start(number, 1))
    assert (every.start(1, 1) != every.start(2, 1)).any()
    assert every.floor_hits(np.array([0.1, 0.1, 1e-3])) == 1
    assert every.floor_hits(np.array([0.0, 0.0, 0.1])) == 0
    arma = numbers_of(ARIMA(1, 0, 0), noise="none")
    assert arma.bounds()[-1][0] == pytest.approx(1e-3)
    assert arma.floor_hits(np.array([0.5, 1e-3])) == 1


def test_two_levels_are_refused_before_any_step() -> None:
    every = numbers_of(Trend(), ARIMA(1, 1, 1))
    rows: list[dict[str, float]] = []
    with pytest.raises(ValueError, match="components that are the same in part"):
        run_structural(
            every, every.start(0, 0), SystemObjective(every.form, 1.0, 0.0), series(), StopRule(5, 0.0), rows.append
        )
    assert not rows


def test_time_ends_a_fit_after_a_step() -> None:
    every, rows = numbers_of(LocalLevel()), []
    stop = StopRule(100, 0.0, 1e-9)
    fit = run_structural(every, every.start(0, 0), SystemObjective(every.form, 1.0, 0.0), series(), stop, rows.append)
    assert (len(rows), fit.converged) == (1, False)
    np.testing.assert_array_equal(numbers_at_end(fit), every.start(0, 0))
