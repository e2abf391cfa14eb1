"""Whole runs of variational Bayes of regressions with two states, beside a plain program from the equations.

The program sums over every path of states, and integrates over missing values a quadratic function that it reads off
its values at a few points (Bishop 2006, section 10.2; Beal 2003, chapter 3).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import digamma, logsumexp
from scipy.stats import norm
from torch.distributions import Dirichlet, Gamma, Wishart, kl_divergence

import seqmodels as sm
from seqmodels.encodings import Standardize
from seqmodels.hmm import ConjugatePrior
from tests.made import made

STEPS, LENGTH, RIDGE, MEAN_COUNT, SLOPES = 3, 8, 0.5, 0.4, 2.0
PRIOR = ConjugatePrior(
    count=2.5, mean_count=MEAN_COUNT, mean=0.3, covariance=1.7, slopes=SLOPES, initial=1.5, transition=0.7
)


@dataclass
class Regression:
    """``x = W z + e`` with ``W | Λ ~ MN(mean, Λ⁻¹, gram⁻¹)``, and Λ Wishart or diagonal with Gamma distributions.

    ``noise`` are degrees of freedom and an inverse scale matrix, or shapes and rates.
    """

    mean: np.ndarray
    gram: np.ndarray
    noise: tuple[np.ndarray, np.ndarray]
    kind: str

    def precision(self) -> tuple[np.ndarray, float]:
        """Return E Λ and E log|Λ|."""
        a, b = self.noise
        if self.kind == "diag":
            return np.diag(a / b), float((digamma(a) - np.log(b)).sum())
        d = len(b)
        log_det = digamma((a - np.arange(d)) / 2).sum() + d * np.log(2) - np.linalg.slogdet(b)[1]
        return a * np.linalg.inv(b), float(log_det)

    def log_density(self, z: np.ndarray, x: np.ndarray) -> float:
        (precision, log_det), residual, d = self.precision(), x - self.mean @ z, len(x)
        of_weights = d * z @ np.linalg.solve(self.gram, z)
        return 0.5 * (log_det - d * np.log(2 * np.pi) - residual @ precision @ residual - of_weights)

    def updated(self, moments: np.ndarray, count: float) -> Regression:
        """Return the posterior, after ``count`` frames with these sums of products of (z, x)."""
        f = self.mean.shape[1]
        gram = self.gram + moments[:f, :f]
        cross = self.mean @ self.gram + moments[f:, :f]
        mean = np.linalg.solve(gram, cross.T).T
        scatter = moments[f:, f:] + self.mean @ self.gram @ self.mean.T - mean @ gram @ mean.T
        a, b = self.noise
        if self.kind == "diag":
            return Regression(mean, gram, (a + count / 2, b + scatter.diagonal() / 2), self.kind)
        return Regression(mean, gram, (a + count, b + scatter), self.kind)

    def divergence_of_weights(self, prior: Regression) -> float:
        (d, f), moved, ratio = self.mean.shape, self.mean - prior.mean, np.linalg.solve(self.gram, prior.gram)
        of_mean = np.trace(self.precision()[0] @ moved @ prior.gram @ moved.T)
        return float(0.5 * (d * (np.trace(ratio) - f - np.linalg.slogdet(ratio)[1]) + of_mean))

    def divergence_of_noise(self, prior: Regression) -> float:
        (a, b), (a0, b0) = ((torch.as_tensor(each) for each in noise) for noise in (self.noise, prior.noise))
        if self.kind == "diag":
            return float(kl_divergence(Gamma(a, b), Gamma(a0, b0)).sum())
        return float(kl_divergence(Wishart(a, precision_matrix=b), Wishart(a0, precision_matrix=b0)).detach())


def prior_of(d: int, of_past: int, n_inputs: int, kind: str) -> Regression:
    gram = np.diag([RIDGE] * of_past + [MEAN_COUNT / SLOPES**2] * n_inputs + [MEAN_COUNT])
    mean = np.zeros((d, len(gram)))
    mean[:, -1] = 0.3
    freedom = 2.5 + d - 1
    noise = (np.array(freedom), freedom * 1.7 * np.eye(d)) if kind != "diag" else (np.full(d, 1.25), np.full(d, 2.125))
    return Regression(mean, gram, noise, kind)


def prior_of_first(d: int, kind: str) -> Regression:
    noise = (np.array(float(d)), d * np.eye(d)) if kind != "diag" else (np.full(d, 0.5), np.full(d, 0.5))
    return Regression(np.zeros((d, 1)), np.array([[0.1]]), noise, kind)


def integrated(f: Callable[[np.ndarray], float], n: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Return ``log ∫ exp f`` of a quadratic function of n numbers, and the mean and covariance of these numbers."""
    e, at_zero = np.eye(n), f(np.zeros(n))
    values = np.array([f(row) for row in e])
    gradient = np.array([(up - f(-row)) / 2 for row, up in zip(e, values, strict=True)])
    both = np.array([[f(a + b) for b in e] for a in e]).reshape(n, n)
    covariance = np.linalg.inv(values[:, None] + values[None] - both - at_zero) if n else np.zeros((0, 0))
    log_integral = at_zero + 0.5 * (gradient @ covariance @ gradient + n * np.log(2 * np.pi))
    return float(log_integral + 0.5 * np.linalg.slogdet(covariance)[1]), covariance @ gradient, covariance


@dataclass
class Frame:
    """A frame, the regressors of its own group of features, and the covariance of those that are not known.

    With probability ``w`` it is a jump from ``last``, with a variance of 10.
    """

    x: np.ndarray
    z: np.ndarray
    spread: np.ndarray
    is_first: bool
    last: np.ndarray
    w: float

    def with_jumps(self, regression: Regression) -> tuple[float, np.ndarray, float]:
        """Return the same as ``under`` of a frame that may be a jump, which has no moments and counts as no frame."""
        log_density, moments, n = self.under(regression)
        if not self.w:
            return log_density, moments, n
        jump = np.log(self.w) + np.nansum(norm.logpdf(self.x, self.last, np.sqrt(10)))
        mixed = float(np.logaddexp(np.log1p(-self.w) + log_density, jump))
        share = np.exp(np.log1p(-self.w) + log_density - mixed)
        return mixed, share * moments, share * n

    def under(self, regression: Regression) -> tuple[float, np.ndarray, float]:
        """Return the expected log-density, the expected products of (z, x), and the number of frames: 1 or 0."""
        w, n = np.append(self.z, self.x), len(self.z)
        if np.isnan(self.x).all():
            return 0.0, np.zeros((len(w), len(w))), 0.0
        unknown = np.append(self.spread.diagonal() > 0, np.isnan(self.x)).nonzero()[0]
        of_past = unknown[unknown < n]
        precision = np.linalg.inv(self.spread[np.ix_(of_past, of_past)])
        w, at = np.nan_to_num(w), np.zeros((len(w), len(unknown)))
        at[unknown, np.arange(len(unknown))] = 1.0

        def log_density(v: np.ndarray) -> float:
            there, moved = w + at @ v, v[: len(of_past)]
            of_beliefs = moved @ precision @ moved + len(of_past) * np.log(2 * np.pi)
            of_beliefs -= np.linalg.slogdet(precision)[1]
            return regression.log_density(there[:n], there[n:]) - 0.5 * float(of_beliefs)

        log_integral, mean, covariance = integrated(log_density, len(unknown))
        w = w + at @ mean
        return log_integral, np.outer(w, w) + at @ covariance @ at.T, 1.0


Group = tuple[slice, int, str]  # features, order and form of the covariance of one of ``Columns``


def frames_of(
    x: np.ndarray, group: Group, inputs: np.ndarray | None, beliefs: dict[int, tuple[np.ndarray, np.ndarray]], w: float
) -> list[Frame]:
    columns, order, _ = group
    x, frames = x[:, columns], []
    for t in range(len(x)):
        history, spread = x[max(t - order, 0) : t].ravel(), np.zeros((order * x.shape[1],) * 2)
        if t in beliefs:
            history, spread = beliefs[t]
        rest = np.append([] if inputs is None else inputs[t], 1.0)
        if t < order:
            frames.append(Frame(x[t], np.ones(1), np.zeros((1, 1)), True, np.zeros(x.shape[1]), w))
        else:
            last = history[len(history) - x.shape[1] :]
            frames.append(Frame(x[t], np.append(history, rest), np.pad(spread, (0, len(rest))), False, last, w))
    return frames


def exp_log(concentrations: np.ndarray) -> np.ndarray:
    return np.asarray(digamma(concentrations) - digamma(concentrations.sum(-1, keepdims=True)))


def divergence_of_rows(q: np.ndarray, p: np.ndarray) -> float:
    return float(kl_divergence(Dirichlet(torch.tensor(q)), Dirichlet(torch.tensor(p))).sum())


@dataclass
class Posterior:
    """What one M-step returns: concentrations, and for each group the regressions of both states and of first steps."""

    initial: np.ndarray
    transition: np.ndarray
    groups: list[list[Regression]]
    first: list[Regression]


def step(q: Posterior, prior: Posterior, data: list[list[list[Frame]]], kinds: list[str]) -> tuple[float, Posterior]:
    """Return the lower bound at q, and the posterior after the M-step. ``data``: frames of each group and sequence."""
    counts = [np.zeros(2), np.zeros((2, 2))]
    sums = [[[0.0, 0.0] for _ in range(3)] for _ in data]  # moments and counts of two states and of first steps
    bound = 0.0
    for i in range(len(data[0])):
        each = [[[f.with_jumps(q.first[g] if f.is_first else q.groups[g][k]) for f in of_group[i]] for k in (0, 1)]
                for g, of_group in enumerate(data)]  # fmt: skip
        log_b = np.array([[sum(of[k][t][0] for of in each) for k in (0, 1)] for t in range(LENGTH)])
        paths = np.array(list(itertools.product((0, 1), repeat=LENGTH)))
        log_p = exp_log(q.initial)[paths[:, 0]] + log_b[np.arange(LENGTH), paths].sum(1)
        log_p += exp_log(q.transition)[paths[:, :-1], paths[:, 1:]].sum(1)
        bound += float(logsumexp(log_p))
        weights = np.exp(log_p - logsumexp(log_p))
        np.add.at(counts[0], paths[:, 0], weights)
        for t in range(LENGTH - 1):
            np.add.at(counts[1], (paths[:, t], paths[:, t + 1]), weights)
        for g, t, k in itertools.product(range(len(data)), range(LENGTH), (0, 1)):
            gamma, (_, moments, n) = weights[paths[:, t] == k].sum(), each[g][k][t]
            into = sums[g][2 if data[g][i][t].is_first else k]
            into[0], into[1] = into[0] + gamma * moments, into[1] + gamma * n
    bound -= divergence_of_rows(q.initial, prior.initial) + divergence_of_rows(q.transition, prior.transition)
    groups, first = [], []
    for g, kind in enumerate(kinds):
        bound -= sum(a.divergence_of_weights(b) for a, b in zip(q.groups[g], prior.groups[g], strict=True))
        noises = [a.divergence_of_noise(b) for a, b in zip(q.groups[g], prior.groups[g], strict=True)]
        bound -= noises[0] if kind == "tied" else sum(noises)
        bound -= q.first[g].divergence_of_weights(prior.first[g]) + q.first[g].divergence_of_noise(prior.first[g])
        after = [a.updated(*s) if s[1] else a for a, s in zip([*prior.groups[g], prior.first[g]], sums[g], strict=True)]
        if kind == "tied":
            (a, b), (a1, b1), (a2, b2) = (each.noise for each in (prior.groups[g][0], *after[:2]))
            for each in after[:2]:
                each.noise = (a1 + a2 - a, b1 + b2 - b)
        groups.append(after[:2])
        first.append(after[2])
    return bound, Posterior(prior.initial + counts[0], prior.transition + counts[1], groups, first)


def read(model: sm.HMM, groups: list[Group]) -> Posterior:
    """Return the posterior of a fitted model, whose data are their own standardisation."""
    named, of_groups, first = model.posterior_, [], []

    def of(name: str, g: int) -> np.ndarray:
        numbered = f"{name}_{g}"
        return np.asarray(named[numbered] if numbered in named else named[name])

    for g, (columns, order, kind) in enumerate(groups):
        d = columns.stop - columns.start
        noise = ("precision_shape", "precision_rate") if kind == "diag" else ("degrees_of_freedom", "inverse_scale")
        parts = [of("coefficients", g)] if order else []
        parts += [np.asarray(named["slopes"])] if "slopes" in named else []
        means = np.concatenate([*parts, of("intercepts", g)[..., None]], 2)
        noises = [tuple(of(name, g)[k] for name in noise) for k in (0, 1)]
        of_groups.append([Regression(means[k], of("regressor_precision", g)[k], noises[k], kind) for k in (0, 1)])
        if not order:
            first.append(prior_of_first(d, kind))
            continue
        count = np.ravel(of("first_mean_count", g)[0])[:1, None]
        noise_of_first = tuple(of(f"first_{name}", g)[0] for name in noise)
        first.append(Regression(of("first_mean", g)[0][:, None], count, noise_of_first, kind))
    return Posterior(np.asarray(named["initial"]), np.asarray(named["transition"]), of_groups, first)


def numbers(q: Posterior) -> np.ndarray:
    regressions = [*itertools.chain(*q.groups), *q.first]
    each = [[r.mean, r.gram, *r.noise] for r in regressions]
    return np.concatenate([np.ravel(a) for a in [q.initial, q.transition, *itertools.chain(*each)]])


def standardised(arrays: list[np.ndarray]) -> list[np.ndarray]:
    joined = np.concatenate(arrays)
    return [(each - np.nanmean(joined, 0)) / np.nanstd(joined, 0) for each in arrays]


def data_of(*, missing: bool, early: bool, d: int = 2) -> list[np.ndarray]:
    rng, items = np.random.default_rng(3), []
    for _ in range(2):
        x = rng.normal(size=(LENGTH, d))
        for t in range(1, LENGTH):
            x[t] += (0.9 if t < 4 else -0.9) * x[t - 1]
        items.append(x)
    if missing:
        items[0][3, 0] = items[0][5] = items[1][4, 1] = items[1][7, 0] = np.nan
        if early:
            items[1][0, 1] = np.nan
    return standardised(items)


WHOLE = slice(0, 2)
GIVEN = {"input_effects__emissions": True}
CASES: dict[str, tuple[Any, list[Group], bool, bool]] = {  # observation, groups, has inputs, misses values
    "gaussian given inputs": (sm.GaussianMixture(1), [(WHOLE, 0, "diag")], True, False),
    "full gaussian given inputs": (sm.GaussianMixture(1, "full"), [(WHOLE, 0, "full")], True, True),
    "autoregression given inputs": (
        sm.AutoregressiveGaussian(1, ridge=RIDGE, background=0.0),
        [(WHOLE, 1, "full")],
        True,
        False,
    ),
    "diagonal given inputs": (
        sm.AutoregressiveGaussian(2, "diag", ridge=RIDGE, background=0.0),
        [(WHOLE, 2, "diag")],
        True,
        False,
    ),
    "missing": (sm.AutoregressiveGaussian(1, ridge=RIDGE, background=0.0), [(WHOLE, 1, "full")], False, True),
    "diagonal missing": (
        sm.AutoregressiveGaussian(2, "diag", ridge=RIDGE, background=0.0),
        [(WHOLE, 2, "diag")],
        False,
        True,
    ),
    "tied missing": (
        sm.AutoregressiveGaussian(2, "tied", ridge=RIDGE, background=0.0),
        [(WHOLE, 2, "tied")],
        False,
        True,
    ),
    "tied": (sm.AutoregressiveGaussian(1, "tied", ridge=RIDGE, background=0.0), [(WHOLE, 1, "tied")], False, False),
    "tied given inputs": (
        sm.AutoregressiveGaussian(1, "tied", ridge=RIDGE, background=0.0),
        [(WHOLE, 1, "tied")],
        True,
        False,
    ),
    "jumps": (sm.AutoregressiveGaussian(1, ridge=RIDGE, background=0.1), [(WHOLE, 1, "full")], False, False),
    "jumps given inputs": (
        sm.AutoregressiveGaussian(2, "diag", ridge=RIDGE, background=0.1),
        [(WHOLE, 2, "diag")],
        True,
        False,
    ),
    "jumps, missing": (
        sm.AutoregressiveGaussian(2, "tied", ridge=RIDGE, background=0.1),
        [(WHOLE, 2, "tied")],
        False,
        True,
    ),
    "columns": (
        sm.Columns(
            [
                (sm.AutoregressiveGaussian(2, ridge=RIDGE, background=0.0), 2),
                (sm.AutoregressiveGaussian(1, ridge=RIDGE, background=0.0), 1),
            ]
        ),
        [(WHOLE, 2, "full"), (slice(2, 3), 1, "full")],
        False,
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_step_is_that_of_the_plain_program(name: str) -> None:
    observation, groups, has_inputs, misses = CASES[name]
    # Missing first steps of a diagonal autoregression drop out, which the program does not know.
    x = data_of(missing=misses, early=groups[0][2] != "diag", d=groups[-1][0].stop)
    inputs = standardised([np.random.default_rng(1 + i).normal(size=(LENGTH, 2)) for i in range(2)])
    options = {"algorithm": "variational", "n_init": 1, "length": "given", "encoding": Standardize(), "tol": 0}
    model = made(sm.HMM, 2, observation=observation, training__prior=PRIOR, dtype="float64", **options)
    model.set_params(**(GIVEN if has_inputs else {}))
    X = sm.Sequences(x, inputs=inputs) if has_inputs else x
    q = read(model.clone().set_params(max_iter=0).fit(X), groups)
    model.set_params(max_iter=STEPS).fit(X)
    order, n_inputs, beliefs = groups[0][1], 2 if has_inputs else 0, [dict[int, Any](), dict[int, Any]()]
    if misses and order:
        for known, of_x in zip(model._past_filter().beliefs(x), beliefs, strict=True):
            for t, past in zip(known.steps, known.past.numpy(), strict=True):
                of_x[int(t)] = past[:order].ravel(), past[order:].reshape(2 * order, 2 * order)
    sizes = [columns.stop - columns.start for columns, _, _ in groups]
    prior = Posterior(
        np.full(2, 1.5),
        np.full((2, 2), 0.7),
        [[prior_of(d, d * p, n_inputs, kind) for _ in (0, 1)] for d, (_, p, kind) in zip(sizes, groups, strict=True)],
        [prior_of_first(d, kind) for d, (_, _, kind) in zip(sizes, groups, strict=True)],
    )
    w = getattr(observation, "background", 0.0)
    data = [
        [frames_of(x[i], group, inputs[i] if has_inputs else None, beliefs[i], w) for i in range(2)] for group in groups
    ]
    bounds = []
    for _ in range(STEPS + 1):
        bound, after = step(q, prior, data, [kind for _, _, kind in groups])
        bounds.append(bound)
        last, q = q, after
    assert_allclose(model.history_["objective"] * 2 * LENGTH, bounds, rtol=1e-11)
    assert_allclose(numbers(read(model, groups)), numbers(last), rtol=1e-9, atol=1e-11)
    assert np.diff(bounds).min() > 1e-4  # or the run says nothing
