"""Weights of models by fixed share: ``p(x_t | x_<t) = Σ_k w_t(k) p_k(x_t | x_<t)``.

With the posterior ``v_t(k) ∝ w_t(k) p_k(x_t | x_<t)`` and a prior π, ``w_1 = π`` and ``w_{t+1} = (1 - α) v_t + α π``.
This is the forward pass of a hidden Markov chain over models, which at every step stays with probability 1 - α and else
draws its model anew (Herbster and Warmuth 1998, *Tracking the best expert*).

- α = 1: weights stay π, a mixture at every step.
- α = 0: Bayes over models, ``p(x) = Σ_k π_k p_k(x)``, a mixture of whole sequences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EM_STEPS = 1_000  # largest number of EM steps
EM_TOLERANCE = 1e-9  # change in nats per step at which EM stops
SMALLEST_RATE, RATES_TRIED = 1e-6, 25  # smallest switching rate, and number of rates tried


class Weights(ABC):
    """A base class of rules for the weights of K models in a mixture, which follow each model's log-probabilities.

    To add one, define its state, a row of S numbers for each sequence, and how a step changes it. ``are_fixed`` is True
    if the weights never change.
    """

    are_fixed: bool = False

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """The number of free parameters that were learned."""

    @abstractmethod
    def start(self, n: int) -> np.ndarray:
        """Return the state (S numbers that determine the weights) before the first step of n sequences, ``(n, S)``."""

    @abstractmethod
    def log_weights(self, state: np.ndarray) -> np.ndarray:
        """Return the normalised log-weights of K models at the next step, ``(n, K)``.

        Args:
            state: state of n sequences, ``(n, S)``.
        """

    @abstractmethod
    def after(self, state: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        """Return the state after one more step, ``(n, S)``.

        Args:
            state: state of n sequences before it, ``(n, S)``.
            log_p: log-probability of the step under each of K models, ``(n, K)`` nats.
        """

    @abstractmethod
    def steps(self, log_p: np.ndarray) -> np.ndarray:
        """Return the log-probability of each step of one sequence under the mixture, ``(T,)`` nats.

        Args:
            log_p: log-probability of each of T steps under each of K models, ``(T, K)`` nats.
        """


@dataclass(frozen=True)
class FixedShare(Weights):
    """Fixed-share weights of K models, ``w_{t+1} = (1 - α) v_t + α π``, where v_t is the posterior after step t.

    The state is ``log w_t``. With α = 1 the weights stay π; with α = 0 they are the posterior.

    Attributes:
        prior: π, the weights of K models at the first step, ``(K,)``, summing to one.
        rate: switching rate α, from 0 to 1.
    """

    prior: np.ndarray
    rate: float

    @property
    def are_fixed(self) -> bool:  # type: ignore[override]
        return self.rate == 1

    @property
    def n_parameters(self) -> int:
        return len(self.prior) - 1 + (0 < self.rate < 1)

    @property
    def log_prior(self) -> np.ndarray:
        """The logarithm of the weights of K models at the first step, ``(K,)``; -inf where a weight is zero."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.prior))

    def start(self, n: int) -> np.ndarray:
        return np.tile(self.log_prior, (n, 1))

    def log_weights(self, state: np.ndarray) -> np.ndarray:
        return state

    def after(self, state: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        if self.are_fixed:
            return state
        joint = state + log_p
        total = log_sum_exp(joint)[:, None]
        impossible = np.isneginf(total)  # impossible under every model: the weights are the prior again
        with np.errstate(divide="ignore"):
            stays = np.log1p(-self.rate) + joint - np.where(impossible, 0.0, total)
            restarts = np.log(self.rate) + self.log_prior
        return np.where(impossible, self.log_prior, np.logaddexp(stays, restarts))

    def steps(self, log_p: np.ndarray) -> np.ndarray:
        if self.are_fixed:
            return log_sum_exp(self.log_prior + log_p)
        # Imported here because numba takes a while to load.
        from seqmodels.wrappers.mixture.kernels import fixed_share_steps

        return fixed_share_steps(np.ascontiguousarray(log_p, np.float64), self.log_prior, float(self.rate))


def log_sum_exp(values: np.ndarray) -> np.ndarray:
    """Return ``log Σ exp(values)`` over the last axis, without that axis; -inf where all values are -inf."""
    largest = values.max(-1)
    shift = np.where(np.isneginf(largest), 0.0, largest)
    with np.errstate(divide="ignore"):
        return np.asarray(shift + np.log(np.exp(values - shift[..., None]).sum(-1)))


def fit_prior(log_p: Sequence[np.ndarray], sample_weight: Sequence[float], n_models: int) -> np.ndarray:
    """Estimate the static weights of the mixture, ``(K,)``, by EM, which begins with equal weights.

    A Dirichlet prior counts each model as right once more than it was, so that no weight becomes zero. All weights are
    equal if there are no steps to learn from.

    Args:
        log_p: log-probability of each step under each model, ``(T, K)`` nats for each sequence. Steps that are
            impossible under every model are left out.
        sample_weight: weight of each sequence.
        n_models: number K of models.
    """
    if not len(log_p):
        return np.full(n_models, 1 / n_models)
    joined = np.concatenate(list(log_p))
    weight = np.repeat(np.asarray(sample_weight, dtype=np.float64), [len(each) for each in log_p])
    usable = ~np.isneginf(joined).all(1) & (weight > 0)
    if not usable.any():
        return np.full(n_models, 1 / n_models)
    joined, weight = joined[usable], weight[usable]
    p = np.exp(joined - joined.max(1, keepdims=True))  # (N, K): scaling a row changes no weight
    prior, before = np.full(n_models, 1 / n_models), -np.inf
    for _ in range(EM_STEPS):
        total = p @ prior
        objective = float(weight @ np.log(total))
        prior = 1.0 + prior * (p.T @ (weight / total))
        prior /= prior.sum()
        if objective - before < EM_TOLERANCE * weight.sum():
            break
        before = objective
    return prior


def fit_rate(prior: np.ndarray, log_p: Sequence[np.ndarray], sample_weight: Sequence[float]) -> float:
    """Return the switching rate α of a fixed-share mixture with the highest log-probability of held-out sequences.

    At each step the mixture draws its model anew with probability α. The rate is searched on a logarithmic grid, and
    then refined.

    Args:
        prior: static weights of K models, ``(K,)``.
        log_p: log-probability of each step under each model, ``(T, K)`` nats for each sequence.
        sample_weight: weight of each sequence.
    """
    from scipy.optimize import minimize_scalar

    def loss(log_rate: float) -> float:
        weights = FixedShare(prior, float(np.exp(log_rate)))
        nats = [w * _finite_sum(weights.steps(each)) for each, w in zip(log_p, sample_weight, strict=True)]
        return -float(np.sum(nats))

    grid = np.linspace(np.log(SMALLEST_RATE), 0.0, RATES_TRIED)
    losses = [loss(each) for each in grid]
    best = int(np.argmin(losses))
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    refined = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 0.02})
    return float(np.exp(refined.x if refined.fun < losses[best] else grid[best]))


def _finite_sum(steps: np.ndarray) -> float:
    """Sum the log-probabilities of steps, without those that are impossible under every model (-inf)."""
    return float(steps[np.isfinite(steps)].sum())
