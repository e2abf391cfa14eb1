"""A linear-Gaussian system written out as one Gaussian of all states and all observations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from seqmodels.linear_gaussian.parameters import SystemParameters


@dataclass(frozen=True)
class Dense:
    """Of one sequence: log p(x), and mean ``(T, K)`` and covariance ``(T, K, T, K)`` of its states given x."""

    log_prob: float
    means: np.ndarray
    covariances: np.ndarray


def random_parameters(seed: int, n_states: int, n_features: int, rank: int | None = None) -> SystemParameters:
    """Full matrices; Q of this rank."""
    rng = np.random.default_rng(seed)
    K, D = n_states, n_features
    transition = rng.normal(size=(K, K))
    transition *= 0.9 / np.abs(np.linalg.eigvals(transition)).max()
    q, r, p = rng.normal(size=(rank or K, K)), rng.normal(size=(D, D)), rng.normal(size=(K, K))
    return SystemParameters(
        *(transition, q.T @ q, rng.normal(size=(D, K)), rng.normal(size=D), r.T @ r + 0.1 * np.eye(D)),
        *(rng.normal(size=K), p.T @ p, np.zeros((K, 0)), np.zeros((D, 0))),
    )


def diagonal(parameters: SystemParameters) -> SystemParameters:
    """With uncorrelated noise of observations."""
    variances = np.diagonal(parameters.observation_covariance)
    return replace(parameters, observation_covariance=np.diag(variances))


def joint(parameters: SystemParameters, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean ``(T K,)`` and covariance ``(T K, T K)`` of the states."""
    p, K = parameters, len(parameters.transition)
    # z = M (z_1, w_2, .. w_T), which are independent.
    spread = np.zeros((n_steps * K, n_steps * K))
    for t in range(n_steps):
        for s in range(t + 1):
            rows, columns = slice(t * K, (t + 1) * K), slice(s * K, (s + 1) * K)
            spread[rows, columns] = np.linalg.matrix_power(p.transition, t - s)
    noise = block_diag(p.initial_covariance, *[p.state_covariance] * (n_steps - 1))
    return spread[:, :K] @ p.initial_mean, spread @ noise @ spread.T


def dense(parameters: SystemParameters, x: np.ndarray) -> Dense:
    """Of ``x (T, D)``, NaN where a value is missing."""
    p, n_steps = parameters, len(x)
    mean, covariance = joint(p, n_steps)
    observation = np.kron(np.eye(n_steps), p.observation)
    seen = ~np.isnan(x.reshape(-1))
    marginal = observation @ covariance @ observation.T + np.kron(np.eye(n_steps), p.observation_covariance)
    marginal, cross = marginal[np.ix_(seen, seen)], covariance @ observation[seen].T
    error = (x.reshape(-1) - observation @ mean - np.tile(p.intercept, n_steps))[seen]
    gain = np.linalg.solve(marginal, cross.T).T
    log_det = np.linalg.slogdet(marginal)[1]
    log_prob = -0.5 * (error @ np.linalg.solve(marginal, error) + log_det + seen.sum() * np.log(2 * np.pi))
    K = len(p.transition)
    left = (covariance - gain @ cross.T).reshape(n_steps, K, n_steps, K)
    return Dense(float(log_prob), (mean + gain @ error).reshape(n_steps, K), left)
