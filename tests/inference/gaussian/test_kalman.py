"""The filter and the smoother against the one Gaussian that all steps are, and where numbers are hard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seqmodels.common.compiled import is_compiling
from seqmodels.inference.gaussian import compiled_kalman, kalman
from seqmodels.inference.gaussian.diffuse import split_by_length
from seqmodels.inference.gaussian.kalman import (
    Gains,
    System,
    covariances_by_adjoints,
    factor_of,
    factors_of,
    filter_group,
    grouped,
    smooth_group,
    smooth_group_by_adjoints,
    summed_covariances,
)
from seqmodels.inference.gaussian.packing import StepPacking
from tests.linear_gaussian.dense import dense, diagonal, random_parameters

LENGTHS = (7, 1, 9, 5, 7)
CASES = [
    (3, 2, None, False),
    (2, 4, None, False),
    (3, 2, 1, False),
    (3, 2, None, True),
    (4, 1, 1, True),
    (2, 5, None, True),
]


def sequences(seed: int, n_features: int, *, missing: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    each = [3 * rng.normal(size=(n, n_features)) for n in LENGTHS]
    for x in each:
        x[rng.random(x.shape) < (0.4 if missing else 0.0)] = np.nan
    return each


@pytest.mark.parametrize(("n_states", "n_features", "rank", "missing"), CASES)
def test_all_is_that_of_the_joint_gaussian(n_states: int, n_features: int, rank: int | None, missing: bool) -> None:
    parameters = random_parameters(1, n_states, n_features, rank)
    if n_features == 5:  # noise that is not correlated has a shorter way
        parameters = diagonal(parameters)
    x, weights = sequences(2, n_features, missing=missing), np.array([0.5, 2.0, 1.0, 3.0, 0.1])
    system, seen = parameters.system, []
    for group in grouped([each - parameters.intercept for each in x]):
        gains = Gains.of(system, group.packing.n_steps, group.observed, smooths=True)
        filtered = filter_group(system, gains, group)
        lengths = [len(x[i]) for i in group.numbers]
        log_probs = group.packing.unpack(filtered.log_prob, lengths)
        means = group.packing.unpack(smooth_group(gains, group, filtered), lengths)
        sums = summed_covariances(gains, group.packing, weights[group.numbers])
        now, across, before = 0.0 * sums.now, 0.0 * sums.across, 0.0 * sums.before
        for i, log_prob, mean in zip(group.numbers, log_probs, means, strict=True):
            expected = dense(parameters, x[i])
            seen.append(int(i))
            assert log_prob.sum() == pytest.approx(expected.log_prob, rel=1e-10, abs=1e-10)
            np.testing.assert_allclose(mean, expected.means, rtol=1e-10, atol=1e-10)
            for t in range(len(mean)):
                now[t] += weights[i] * expected.covariances[t, :, t]
                if t + 1 < len(mean):
                    across[t] += weights[i] * expected.covariances[t + 1, :, t]
                    before += weights[i] * expected.covariances[t, :, t]
        for ours, theirs in ((sums.now, now), (sums.across, across), (sums.before, before)):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)
    assert sorted(seen) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("n_states", "n_features", "rank", "missing"), CASES)
def test_adjoints_smooth_alike(n_states: int, n_features: int, rank: int | None, missing: bool) -> None:
    parameters = random_parameters(1, n_states, n_features, rank)
    x = sequences(2, n_features, missing=missing)
    for whole in grouped([each - parameters.intercept for each in x]):
        gains = Gains.of(parameters.system, whole.packing.n_steps, whole.observed)
        filtered = filter_group(parameters.system, gains, whole)
        lengths = [len(x[i]) for i in whole.numbers]
        means = smooth_group_by_adjoints(parameters.system, gains, whole, filtered)
        for i, mean in zip(whole.numbers, whole.packing.unpack(means, lengths), strict=True):
            np.testing.assert_allclose(mean, dense(parameters, x[i]).means, rtol=1e-9, atol=1e-9)
        for group in split_by_length(whole):
            sums = covariances_by_adjoints(parameters.system, gains, group)
            covariances = dense(parameters, x[group.numbers[0]]).covariances
            n_steps = group.packing.n_steps
            for t in range(n_steps):
                np.testing.assert_allclose(sums.now[t], covariances[t, :, t], rtol=1e-9, atol=1e-9)
                if t + 1 < n_steps:
                    np.testing.assert_allclose(sums.across[t], covariances[t + 1, :, t], rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(sums.before, sums.now[:-1].sum(0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_a_predicted_state_may_be_singular(scale: float) -> None:
    """Noise and transitions lead along one direction, whatever the units of the states."""
    rng, units = np.random.default_rng(0), np.array([1.0, scale, 1.0])
    direction, weights = units * rng.normal(size=3), rng.normal(size=3) / units
    parameters = replace(
        random_parameters(0, 3, 1),
        transition=0.8 * np.outer(direction, weights) / (weights @ direction),
        state_covariance=np.outer(direction, direction),
        initial_covariance=np.outer(units, units) * random_parameters(0, 3, 1).initial_covariance,
        observation=rng.normal(size=(1, 3)) / units,
    )
    x = rng.normal(size=(8, 1))
    (group,) = grouped([x - parameters.intercept])
    gains = Gains.of(parameters.system, 8, smooths=True)
    means = smooth_group(gains, group, filter_group(parameters.system, gains, group))
    sums, expected = summed_covariances(gains, group.packing, np.ones(1)), dense(parameters, x)
    now, across = (np.stack([expected.covariances[t + h, :, t] for t in range(8 - h)]) for h in (0, 1))
    np.testing.assert_allclose(means / units, expected.means / units, atol=1e-9)
    np.testing.assert_allclose(sums.now / np.outer(units, units), now / np.outer(units, units), atol=1e-9)
    np.testing.assert_allclose(sums.across[:-1] / np.outer(units, units), across / np.outer(units, units), atol=1e-9)


@pytest.mark.parametrize("missing", [False, True])
def test_plain_python_gives_the_same_figures(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = random_parameters(1, 3, 2)
    (group, *_) = grouped(sequences(2, 2, missing=missing))

    def figures() -> list[np.ndarray]:
        gains = Gains.of(parameters.system, group.packing.n_steps, group.observed, smooths=True)
        filtered = filter_group(parameters.system, gains, group)
        sums = summed_covariances(gains, group.packing, np.ones(len(group.numbers)))
        return [filtered.log_prob, smooth_group(gains, group, filtered), sums.now, sums.across, sums.before]

    compiled, calls = figures(), []

    def plain(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            calls.append(function.__name__)
            return function(*arguments)

        return called

    of_one = "_of_one" if len(group.numbers) == 1 and is_compiling() else ""
    names = {"covariances", f"filter_means{of_one}", f"smooth_means{of_one}", "smooth_covariances"}
    for name in names:
        function = getattr(compiled_kalman, name)
        monkeypatch.setattr(compiled_kalman, name, plain(getattr(function, "py_func", function)))
    for ours, theirs in zip(compiled, figures(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert set(calls) == names


# -- covariances that no longer change -------------------------------------------------------------------------------


def long_sequence(n_steps: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.cumsum(rng.normal(size=(n_steps, 1)), 0) + rng.normal(size=(n_steps, 1))


def system_of(
    transition: Any, state_covariance: Any, noise: float, mean: Any, covariance: Any, observation: Any = ((1.0, 0.0),)
) -> System:
    return System(
        np.array(transition, dtype=float),
        factor_of(np.array(state_covariance, dtype=float)),
        np.array(observation),
        np.array([[np.sqrt(noise)]]),
        np.array(mean, dtype=float),
        factor_of(np.array(covariance, dtype=float)),
    )


def test_covariances_stop_where_they_stay_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    x = long_sequence(3_000)
    (group,) = grouped([x])
    for phi, least in ((0.5, 64), (0.9999, 64)):
        system = system_of([[1.0, 1.0], [0.0, phi]], np.diag([0.1, 1e-3]), 1.0, [0, 0], np.eye(2))
        short = Gains.of(system, len(x), smooths=True)
        assert least <= len(short.white) < len(x)
        with monkeypatch.context() as patched:
            patched.setattr(kalman, "UNCHANGED", -1.0)
            whole = Gains.of(system, len(x), smooths=True)
        assert len(whole.white) == len(x)
        for name in ("white", "gain", "filtered", "backward", "rest"):
            last, every = getattr(short, name)[-1], getattr(whole, name)[len(short.white) - 1 :]
            # Signs of rows of a factor are free, so that those of white and gain are taken together.
            if name == "gain":
                last, every = short.white[-1] @ last, whole.white[len(short.white) - 1 :] @ every
            if name == "white":
                last, every = last @ last.T, every @ every.swapaxes(1, 2)
            np.testing.assert_allclose(every - last, 0, atol=1e-14 * max(1.0, np.abs(last).max()))
        ours = filter_group(system, short, group).log_prob.sum()
        assert ours == pytest.approx(filter_group(system, whole, group).log_prob.sum(), rel=1e-14)


def test_covariances_go_on_where_the_data_never_determine_a_constant() -> None:
    gains = Gains.of(system_of(np.eye(2), np.zeros((2, 2)), 1.0, [0, 0], np.eye(2)), 1_000)
    assert len(gains.white) == 1_000
    assert gains.filtered[-1, 0, 0] == pytest.approx(1 / 1_001, rel=1e-12)


# -- hard numbers ----------------------------------------------------------------------------------------------------


def in_extended_precision(system: System, x: np.ndarray) -> np.longdouble:
    """log p(x) of one feature by the filter of covariances (Joseph's form), with 64 bits of mantissa."""
    A, c, m = (
        np.asarray(a, dtype=np.longdouble) for a in (system.transition, system.observation[0], system.initial_mean)
    )
    q, p = (np.asarray(a, dtype=np.longdouble) for a in (system.state_factor, system.initial_factor))
    Q, P, R = q.T @ q, p.T @ p, np.longdouble(system.noise_factor[0, 0]) ** 2
    total, unit = np.longdouble(0), np.eye(len(A), dtype=np.longdouble)
    for value in np.asarray(x[:, 0], dtype=np.longdouble):
        s, e = c @ P @ c + R, value - c @ m
        total -= (np.log(2 * np.pi * s) + e * e / s) / 2
        k = P @ c / s
        m, rest = m + k * e, unit - np.outer(k, c)
        P = rest @ P @ rest.T + np.outer(k, k) * R
        m, P = A @ m, A @ P @ A.T + Q
    return total


TREND = [[1.0, 1.0], [0.0, 1.0]]
HARD = {
    "little noise": (system_of(TREND, np.diag([0.1, 1.0]), 1e-12, [0, 0], np.eye(2)), 0.0),
    "a state without noise": (system_of(TREND, np.diag([0.0, 1.0]), 1.0, [0, 0], np.eye(2)), 0.0),
    "noise of rank one": (system_of([[0.5, 1], [0, 0]], np.outer([1, 0.4], [1, 0.4]), 1e-9, [0, 0], np.eye(2)), 0.0),
    "states that are known": (
        system_of([[0.5, 1], [0, 0]], np.outer([1, 0.4], [1, 0.4]), 1e-300, [0, 0], np.eye(2)),
        0.0,
    ),
    "no noise of states": (system_of(TREND, np.zeros((2, 2)), 1.0, [0, 0], 1e8 * np.eye(2)), 0.0),
    "hardly any noise of states": (system_of(TREND, np.diag([1e-10, 1e-14]), 1.0, [0, 0], 1e8 * np.eye(2)), 0.0),
    "little known of the start": (system_of(TREND, np.diag([0.1, 1.0]), 1.0, [0, 0], 1e12 * np.eye(2)), 0.0),
    "large values": (system_of(TREND, np.diag([0.1, 1.0]), 1.0, [1e8, 0], 1e6 * np.eye(2)), 1e8),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_numbers_keep_their_digits(name: str) -> None:
    system, offset = HARD[name]
    x = long_sequence(2_000) + offset
    (group,) = grouped([x])
    gains = Gains.of(system, len(x), smooths=True)
    filtered = filter_group(system, gains, group)
    expected = float(in_extended_precision(system, x))
    assert filtered.log_prob.sum() == pytest.approx(expected, rel=1e-10)
    assert np.isfinite(smooth_group(gains, group, filtered)).all()
    sums = summed_covariances(gains, group.packing, np.ones(1))
    eigenvalues = np.linalg.eigvalsh(sums.now)
    assert (eigenvalues >= -1e-15 * eigenvalues.max()).all()
    steps = np.minimum(np.arange(len(x)), len(gains.filtered) - 1)
    # Given more, a variance is no larger, but for rounding beside the largest.
    before = np.diagonal(gains.filtered[steps], axis1=1, axis2=2)
    assert (np.diagonal(sums.now, axis1=1, axis2=2) <= before * (1 + 1e-9) + 1e-13 * before.max()).all()


@pytest.mark.parametrize("missing", [False, True])
def test_one_sequence_alone_has_the_means_of_one_among_others(missing: bool) -> None:
    parameters, rng = random_parameters(5, 3, 4), np.random.default_rng(0)
    x, drive = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    x[rng.random(x.shape) < (0.3 if missing else 0.0)] = np.nan
    results = []
    for n in (1, 2):
        (group,) = grouped([x] * n, [drive] * n)
        gains = Gains.of(parameters.system, 50, group.observed, smooths=True)
        filtered = filter_group(parameters.system, gains, group)
        arrays = [filtered.log_prob, filtered.predicted, filtered.filtered, smooth_group(gains, group, filtered)]
        results.append([group.packing.unpack(each, [50] * n)[-1] for each in arrays])
    for alone, beside in zip(*results, strict=True):
        np.testing.assert_allclose(alone, beside, rtol=1e-12, atol=1e-12)


def test_sums_of_covariances_that_stay_are_those_of_every_step() -> None:
    parameters, lengths, weights = random_parameters(4, 3, 2), [700, 400, 700, 5], np.array([0.5, 2.0, 1.0, 3.0])
    system, packing = parameters.system, StepPacking.of(lengths)
    gains = Gains.of(system, 700, smooths=True)
    assert len(gains.gain) < 100
    sums, before = summed_covariances(gains, packing, weights), np.zeros((3, 3))
    now, across = np.zeros_like(sums.now), np.zeros_like(sums.across)
    for length, weight in zip(lengths, weights, strict=True):
        here = gains.filtered[min(length, len(gains.gain)) - 1]
        now[length - 1] += weight * here
        for t in range(length - 2, -1, -1):
            g = min(t, len(gains.gain) - 1)
            across[t] += weight * here @ gains.backward[g]
            here = gains.rest[g] + gains.backward[g].T @ here @ gains.backward[g]
            now[t] += weight * here
            before += weight * here
    for ours, theirs in ((sums.now, now), (sums.across, across), (sums.before, before)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert len(np.unique(sums.now, axis=0)) < 500  # of 700 steps: it stopped


def test_a_long_sequence_ends_where_it_began() -> None:
    """1e5 steps: what is smoothed in the middle is what is smoothed of the steps around it."""
    x = long_sequence(100_000)
    system = system_of([[1.0, 0.2], [0.0, 0.7]], np.diag([0.5, 0.1]), 1.0, [0, 0], np.eye(2))

    def smoothed(part: np.ndarray, first: System) -> np.ndarray:
        (group,) = grouped([part])
        gains = Gains.of(first, len(part), smooths=True)
        return smooth_group(gains, group, filter_group(first, gains, group))

    middle = slice(50_000, 50_400)
    around = smoothed(x[middle], replace(system, initial_factor=100 * np.eye(2)))
    np.testing.assert_allclose(smoothed(x, system)[middle][150:250], around[150:250], rtol=1e-10, atol=1e-10)


def test_a_factor_is_one_of_a_singular_covariance_in_its_own_units() -> None:
    direction = np.array([1e-9, 1.0, 1e6])
    covariance = np.outer(direction, direction)
    factor = factor_of(covariance)
    np.testing.assert_allclose(factor.T @ factor, covariance, rtol=1e-12)
    np.testing.assert_array_equal(factor_of(np.diag([4.0, 0.0])), np.diag([2.0, 0.0]))


def test_factors_of_several_covariances_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(4, 2, 3))  # singular
    roots[1] *= [1e-6, 1.0, 1e6]
    roots[2] = 0.0
    covariances = roots.swapaxes(1, 2) @ roots
    factors = factors_of(covariances)
    np.testing.assert_allclose(factors.swapaxes(1, 2) @ factors, covariances, rtol=1e-9, atol=1e-14)
    np.testing.assert_array_equal(factors[2], 0.0)
