"""The diffuse log-likelihood with its exact derivatives.

The method is described by Koopman and Shephard (1992, *Exact score for time domain models in state space form*); see
Durbin and Koopman (2012, section 7.3.3). With r and N of the disturbance smoother, ``E[z_t | x] = a_t + P_t r_t`` and
``Cov[z_t | x] = P_t - P_t N_t P_t``, the derivative in Q is ``½ Σ (r rᵀ - N)``. It divides by no variance: where one is
zero, as it often is at a maximum, Fisher's identity would divide the difference of two nearly equal numbers by nearly
zero. The unknown part of first states, ``δ``, adds columns to r, the roots of what its covariance adds (as in
``diffuse``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqmodels.common.constants import LOG_2PI
from seqmodels.inference.gaussian.diffuse import UNDETERMINED
from seqmodels.inference.gaussian.kalman import SequenceGroup


@dataclass(frozen=True)
class UnivariateSystem:
    """The matrices of a linear-Gaussian system with diagonal observation noise and a diffuse start, float64.

    Attributes:
        transition: transition matrix A of the move from each step to the next, ``(G, K, K)``; the last holds for all
            later moves.
        state_covariance: noise covariance Q of the move from each step to the next, ``(G, K, K)``; the last holds for
            all later moves.
        observation: observation matrix C, ``(D, K)``.
        noise: variance of the noise of each of D features, ``(D,)``.
        initial_mean: mean of the first state z_1 for δ = 0, where δ is the unknown (diffuse) part of z_1, ``(K,)``.
        initial_covariance: covariance of z_1 for δ = 0, ``(K, K)``.
    """

    transition: np.ndarray
    state_covariance: np.ndarray
    observation: np.ndarray
    noise: np.ndarray
    initial_mean: np.ndarray
    initial_covariance: np.ndarray


@dataclass(frozen=True)
class DiffuseGradient:
    """The weighted diffuse log-likelihood of n sequences of one length T, and its derivatives.

    Attributes:
        log_prob: log-likelihood in nats.
        transition: derivatives in the m requested elements of the transition matrix of each of G moves, ``(G, m)``.
        state_covariance: derivatives in the m requested elements of the state noise's covariance of each of G moves,
            ``(G, m)``; elements below the diagonal are counted separately from those above.
        noise: derivatives in the variance of the noise of each feature, ``(D,)``.
        initial_covariance: derivatives in the covariance of the first state, ``(K, K)``.
        values: derivative in what is added to the mean of each value, ``(N, D)`` packed; it is minus the derivative in
            the value.
    """

    log_prob: float
    transition: np.ndarray
    state_covariance: np.ndarray
    noise: np.ndarray
    initial_covariance: np.ndarray
    values: np.ndarray


def diffuse_gradient(
    system: UnivariateSystem,
    group: SequenceGroup,
    weights: np.ndarray,
    directions: np.ndarray,
    moving: np.ndarray,
    disturbed: np.ndarray,
) -> DiffuseGradient:
    """Return the weighted diffuse log-likelihood of packed sequences of one length, and its exact derivatives.

    Args:
        system: matrices of the system.
        group: packed sequences of one length, without ``drive``.
        weights: weight of each sequence, ``(n,)``.
        directions: what a unit of each of q unknown (diffuse) elements δ adds to the first state, ``(q, K)``; q may be
            0.
        moving: row and column of the elements of the transition matrix whose derivatives are needed, ``(m, 2)``.
        disturbed: row and column of the elements of the state noise's covariance whose derivatives are needed, ``(m,
            2)``.
    """
    from seqmodels.inference.gaussian.compiled_gradient import filter_columns, gradient_columns  # lazily: numba

    (D, K), q, n = system.observation.shape, len(directions), len(group.numbers)
    length, S, n_kept = group.packing.n_steps, q + n, group.packing.n_steps if len(moving) else 0
    observed = np.ones((length, D), dtype=bool) if group.observed is None else group.observed
    x = np.zeros((length, D, S))
    x[:, :, q:] = group.x.reshape(length, n, D).swapaxes(1, 2)
    mean = np.concatenate([directions, np.tile(system.initial_mean, (n, 1))]).T.copy()
    transition, observation = np.ascontiguousarray(system.transition), np.ascontiguousarray(system.observation)
    errors, variances, gains = np.empty((length, D, S)), np.empty((length, D)), np.empty((length, D, K))
    covariances, means = np.empty((n_kept, K, K)), np.empty((n_kept, K, S))
    filtered = (errors, variances, gains, covariances, means)
    start = np.ascontiguousarray(system.initial_covariance)
    state_covariance = np.ascontiguousarray(system.state_covariance)
    filter_columns(transition, state_covariance, observation, system.noise, start, mean, x, observed, *filtered)

    log_det = float(np.log(variances[observed]).sum())
    known, total = weights[group.packing.order], float(weights.sum())
    white = (errors / np.sqrt(variances)[:, :, None])[observed]  # (n_seen, S)
    change, singular = np.zeros((S, S)), np.zeros(0)  # turns columns into roots and the likeliest δ
    change[q:, q:] = np.eye(n)
    if q:
        upper = np.linalg.qr(white)[1]
        left, singular, right = np.linalg.svd(upper[:q, :q])
        is_determined = singular > UNDETERMINED * singular.max(initial=0.0)
        inverse = np.where(is_determined, 1 / np.where(is_determined, singular, 1.0), 0.0)
        change[:q, :q] = right.T * inverse
        change[:q, q:] = -(right.T * inverse) @ (left.T @ upper[:q, q:])
        singular = singular[is_determined]
    squares = np.square(white @ change[:, q:]).sum(0)
    log_probs = -0.5 * (squares + LOG_2PI * observed.sum() + log_det) - np.log(singular).sum()

    n_moves = len(transition)
    by_transition, by_state_covariance = np.zeros((n_moves, len(moving))), np.zeros((n_moves, len(disturbed)))
    by_noise, by_covariance, smoothing_errors = np.zeros(D), np.empty((K, K)), np.empty_like(errors)
    # All have one type, so that numba compiles the loop only once.
    moving, disturbed = np.ascontiguousarray(moving, dtype=np.int64), np.ascontiguousarray(disturbed, dtype=np.int64)
    gradient_columns(
        *(transition, observation, errors @ change, variances, gains, covariances, means @ change, observed),
        *(np.concatenate([np.full(q, total), known]), total, moving, disturbed),
        *(smoothing_errors, by_transition, by_state_covariance, by_noise, by_covariance),
    )
    values = smoothing_errors[:, :, q:].swapaxes(1, 2).reshape(length * n, D)
    return DiffuseGradient(
        float(known @ log_probs),
        by_transition,
        by_state_covariance,
        by_noise,
        by_covariance,
        np.ascontiguousarray(values),
    )
