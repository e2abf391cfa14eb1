"""M-steps of durations given inputs, against a general optimiser of the plain log-likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammaln

from seqmodels.hmm.semi_markov import durations
from seqmodels.hmm.semi_markov.duration_regression import DurationRegression
from seqmodels.hmm.semi_markov.durations import CategoricalDurations, DurationFamily, duration_family

Array = NDArray[np.float64]
LONGEST, R = 7, 40
D = np.arange(1.0, LONGEST + 1)


def counted(seed: int, *, biased: bool) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Counts ``(R, D)`` of segments by first step, the inputs ``(R, 2)``, and which had begun before."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(R, 2))
    weights = 4.0 ** (D - 1) / np.exp(gammaln(D)) * np.exp((u @ [0.5, -0.3])[:, None] * (D - 1))
    counts = rng.gamma(1.0, size=(R, 1)) * weights / weights.sum(1, keepdims=True) * rng.uniform(0.2, 1.8, (R, LONGEST))
    return counts, u, (np.arange(R) < 15) & biased


def regression(counts: Array, u: Array, biased: NDArray[np.bool_], ridge: float) -> DurationRegression:
    t = torch.from_numpy
    return DurationRegression(
        t(counts.sum(0)), t(u), t(counts.sum(1)), t(counts @ (D - 1)), torch.from_numpy(biased), ridge
    )


def log_weights(name: str, numbers: Array) -> Array:
    """log h(d) of a family, with the numbers of its table."""
    if name == "poisson":
        return np.asarray(numbers[0] * (D - 1) - gammaln(D))
    if name == "logarithmic":
        return np.asarray(numbers[0] * D - np.log(D))
    if name == "negative-binomial":
        r = np.exp(numbers[0])
        return np.asarray(gammaln(D - 1 + r) - gammaln(r) - gammaln(D) + numbers[1] * (D - 1))
    return numbers


def objective(
    name: str, numbers: Array, w: Array, data: tuple[Array, Array, NDArray[np.bool_]], ridge: float, pseudocount: float
) -> float:
    """Σ counts log p(d | u), less log E[d | u] of each biased segment, plus the log-prior: a loop over first steps."""
    total = -0.5 * ridge * w @ w
    for counts, u, is_biased in zip(*data, strict=True):
        p = np.exp(log_weights(name, numbers) + (w @ u) * (D - 1))
        p = p / p.sum()
        total += counts @ np.log(p) - is_biased * counts.sum() * np.log(p @ D)
    at_zero = np.exp(log_weights(name, numbers))
    return float(total + pseudocount * np.log(at_zero / at_zero.sum()).sum())


START: dict[str, list[float]] = {
    "poisson": [0.0],
    "logarithmic": [-1.0],
    "negative-binomial": [0.0, -1.0],
    "categorical": [0.0] * LONGEST,
}


@pytest.mark.parametrize("name", START)
@pytest.mark.parametrize(("biased", "ridge"), [(False, 0.0), (True, 0.7)])
def test_the_m_step_is_the_maximum_of_the_plain_log_likelihood(name: Any, biased: bool, ridge: float) -> None:
    data, pseudocount = counted(1, biased=biased), 0.3 if name == "categorical" else 0.0
    if name == "logarithmic":  # which wants more segments of one step
        data = (data[0] * 0.2 ** (D - 1), *data[1:])
    family, start = duration_family(name, LONGEST, 0.3), START[name]
    row = torch.tensor(start, dtype=torch.float64)
    row = row.softmax(0) if name == "categorical" else row
    found, w = family.maximise_given_inputs(regression(*data, ridge), row, torch.zeros(2, dtype=torch.float64))
    numbers = found.log() if name == "categorical" else found

    def loss(at: Array) -> float:
        return -objective(name, at[:-2], at[-2:], data, ridge, pseudocount)

    best = minimize(loss, np.array([*start, 0.0, 0.0]), method="BFGS", options={"gtol": 1e-8})
    assert -loss(np.array([*numbers, *w])) >= -best.fun - 1e-9
    assert_allclose(w, best.x[-2:], atol=2e-5)
    if name == "categorical":
        assert_allclose(found, np.exp(best.x[:-2]) / np.exp(best.x[:-2]).sum(), atol=2e-5)
    else:
        assert_allclose(found, best.x[:-2], rtol=2e-4)


@pytest.mark.parametrize("name", START)
@pytest.mark.parametrize("biased", [False, True])
def test_without_slopes_it_is_the_m_step_without_inputs(name: Any, biased: bool) -> None:
    """Where all inputs are zero, so that the slopes stay; free counts of zero give probabilities of zero."""
    counts, u, is_biased = counted(2, biased=biased)
    counts[:, 2] = 0.0
    family = duration_family(name, LONGEST, 0.0)
    table = family.with_mean(torch.tensor([2.5]))
    of_all = torch.from_numpy(counts.sum(0))[None], torch.tensor([counts[is_biased].sum()])
    expected = family.maximise(*of_all, table)[0]
    found, w = family.maximise_given_inputs(
        regression(counts, 0 * u, is_biased, 0.0), table[0], torch.zeros(2).double()
    )
    assert_allclose(w, 0.0)
    assert_allclose(family.log_pmf(found[None]).exp(), family.log_pmf(expected[None]).exp(), atol=3e-6)


def test_what_leaves_its_range_stands_at_its_end() -> None:
    """All segments of one step: the rate falls to the end of its range, and nothing is worse than before."""
    counts = np.zeros((R, LONGEST))
    counts[:, 0] = 1.0
    data = (counts, counted(3, biased=False)[1], np.zeros(R, bool))
    makes: list[Callable[[], tuple[DurationFamily, list[float]]]] = [
        lambda: (duration_family("poisson", LONGEST, 0.0), [1.0]),
        lambda: (duration_family("negative-binomial", LONGEST, 0.0), [0.5, -0.5]),
    ]
    for make in makes:
        family, start = make()
        row, zero = torch.tensor(start, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
        found, w = family.maximise_given_inputs(regression(*data, 0.1), row, zero)
        assert bool(torch.isfinite(found).all() and torch.isfinite(w).all())
        assert float(family.log_pmf(found[None])[0, 0]) > float(family.log_pmf(row[None])[0, 0])
        assert found.tolist() != start
    (p, w) = CategoricalDurations(LONGEST, 0.0).maximise_given_inputs(
        regression(*data, 0.1), torch.full((LONGEST,), 1 / LONGEST).double(), torch.zeros(2).double()
    )
    assert p.tolist() == [1.0] + [0.0] * (LONGEST - 1)
    assert bool(torch.isfinite(w).all())


@pytest.mark.parametrize("biased", [False, True])
def test_derivatives_are_differences(biased: bool) -> None:
    """Of negative binomial weights, by log r, log q and two slopes."""
    problem, seen = regression(*counted(4, biased=biased), 0.4), []
    family = duration_family("negative-binomial", LONGEST, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durations, "maximised_numbers", lambda problem, derivatives, *rest: seen.append(derivatives))
        family.maximise_given_inputs(problem, torch.zeros(2), torch.zeros(2))
    at, eye = torch.tensor([0.3, -0.7, 0.2, -0.4], dtype=torch.float64), 1e-5 * torch.eye(4, dtype=torch.float64)

    def terms(at: torch.Tensor) -> tuple[float, torch.Tensor, torch.Tensor]:
        return problem.terms(*seen[0](at[:2]), at[2:])

    _, gradient, curvature = terms(at)
    up, down = [terms(at + e) for e in eye], [terms(at - e) for e in eye]
    assert_allclose(gradient, [(a[0] - b[0]) / 2e-5 for a, b in zip(up, down, strict=True)], rtol=1e-6, atol=1e-6)
    rows = torch.stack([(b[1] - a[1]) / 2e-5 for a, b in zip(up, down, strict=True)])
    assert_allclose(curvature, rows, rtol=1e-6, atol=1e-6)
