"""The loops over steps of ``diffuse_gradient``, compiled by numba where it is installed.

Each value of a step is read by itself, which is possible because the noise of observations is diagonal (Durbin and
Koopman 2012, section 6.4). Products skip the zeros of A, because transitions of structural models have few other
elements. Means are columns.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled, is_compiling
from seqmodels.inference.gaussian.compiled_matrices import add_scaled, copy, make_symmetric, set_to_transpose


@compiled(inner=True)
def _set_to_product(matrix: np.ndarray, source: np.ndarray, target: np.ndarray) -> None:
    for i in range(matrix.shape[0]):
        for m in range(source.shape[1]):
            target[i, m] = 0.0
        for j in range(matrix.shape[1]):
            a = matrix[i, j]
            if a != 0.0:
                for m in range(source.shape[1]):
                    target[i, m] += a * source[j, m]


def _set_to_product_at_once(matrix: np.ndarray, source: np.ndarray, target: np.ndarray) -> None:
    np.matmul(matrix, source, out=target)


# Set ``target`` to ``matrix (I, J) @ source (J, n)``, where the matrix is sparse.
set_to_product = _set_to_product if is_compiling() else _set_to_product_at_once


@compiled(inner=True)
def _add_outer(target: np.ndarray, left: np.ndarray, right: np.ndarray, factor: float) -> None:
    for i in range(len(left)):
        a = factor * left[i]
        if a != 0.0:
            for j in range(len(right)):
                target[i, j] += a * right[j]


def _add_outer_at_once(target: np.ndarray, left: np.ndarray, right: np.ndarray, factor: float) -> None:
    target += np.outer(factor * left, right)


# Add ``factor * left rightᵀ`` to ``target (I, J)``.
add_outer = _add_outer if is_compiling() else _add_outer_at_once


@compiled(inner=True)
def _weighted_dot(weights: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    total = 0.0
    for i in range(len(weights)):
        total += weights[i] * left[i] * right[i]
    return total


def _weighted_dot_at_once(weights: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    return float((weights * left) @ right)


# Return ``Σ_i weights[i] left[i] right[i]``.
weighted_dot = _weighted_dot if is_compiling() else _weighted_dot_at_once


@compiled(inner=True)
def _set_to_combination(target: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> None:
    for m in range(rows.shape[1]):
        target[m] = 0.0
    for i in range(len(weights)):
        w = weights[i]
        if w != 0.0:
            for m in range(rows.shape[1]):
                target[m] += w * rows[i, m]


def _set_to_combination_at_once(target: np.ndarray, weights: np.ndarray, rows: np.ndarray) -> None:
    target[:] = weights @ rows


# Set ``target (n,)`` to ``weights (I,) @ rows (I, n)``.
set_to_combination = _set_to_combination if is_compiling() else _set_to_combination_at_once


@compiled
def filter_columns(
    transition: np.ndarray,
    state_covariance: np.ndarray,
    observation: np.ndarray,
    noise: np.ndarray,
    covariance: np.ndarray,
    mean: np.ndarray,
    x: np.ndarray,
    observed: np.ndarray,
    errors: np.ndarray,
    variances: np.ndarray,
    gains: np.ndarray,
    covariances: np.ndarray,
    means: np.ndarray,
) -> None:
    """Run the Kalman filter on S sequences at once that miss the same values, for K states and D features.

    Args:
        transition: transition matrix of the move from each step to the next, ``(G, K, K)``; the last holds for all
            later moves.
        state_covariance: noise covariance of the move from each step to the next, ``(G, K, K)``.
        observation: observation matrix, ``(D, K)``.
        noise: variance of the noise of each feature, ``(D,)``.
        covariance: covariance of the first state, ``(K, K)``.
        mean: means of the first states, ``(K, S)``.
        x: values, ``(T, D, S)``.
        observed: True where a value is observed, ``(T, D)`` bool.
        errors: result, the prediction error e of each value given the values before, ``(T, D, S)``; 0 where missing.
        variances: result, the variances of ``e``, ``(T, D)``; 1 where missing.
        gains: result, change of the mean for a unit of ``e``, ``(T, D, K)``; 0 where missing.
        covariances: result, Cov[z_t | x_1 .. x_t], ``(T, K, K)``; not stored if ``means`` has no rows.
        means: result, E[z_t | x_1 .. x_t], ``(T, K, S)``; not stored if it has no rows.
    """
    n_steps, D, n = x.shape
    K, last = transition.shape[1], len(transition) - 1
    P, z, half, other, moved = covariance.copy(), mean.copy(), np.empty((K, K)), np.empty((K, K)), np.empty((K, n))
    seen, expected = np.empty(K), np.empty(n)
    for t in range(n_steps):
        if t > 0:
            move = min(t - 1, last)
            set_to_product(transition[move], z, moved)
            set_to_product(transition[move], P, half)
            set_to_transpose(half, other)
            set_to_product(transition[move], other, P)
            make_symmetric(P)  # because asymmetric rounding errors would not be damped below
            add_scaled(1.0, state_covariance[move], P)
            z, moved = moved, z
        for d in range(D):
            if not observed[t, d]:
                errors[t, d], variances[t, d], gains[t, d] = 0.0, 1.0, 0.0
                continue
            set_to_combination(seen, observation[d], P)
            variance = noise[d]
            for k in range(K):
                variance += seen[k] * observation[d, k]
            variances[t, d] = variance
            for k in range(K):
                gains[t, d, k] = seen[k] / variance
            set_to_combination(expected, observation[d], z)
            for m in range(n):
                errors[t, d, m] = x[t, d, m] - expected[m]
            add_outer(z, gains[t, d], errors[t, d], 1.0)
            add_outer(P, gains[t, d], seen, -1.0)
        if len(means):
            copy(P, covariances[t])
            copy(z, means[t])


@compiled
def gradient_columns(
    transition: np.ndarray,
    observation: np.ndarray,
    errors: np.ndarray,
    variances: np.ndarray,
    gains: np.ndarray,
    covariances: np.ndarray,
    means: np.ndarray,
    observed: np.ndarray,
    weights: np.ndarray,
    weight: float,
    moving: np.ndarray,
    disturbed: np.ndarray,
    smoothing_errors: np.ndarray,
    by_transition: np.ndarray,
    by_state_covariance: np.ndarray,
    by_noise: np.ndarray,
    by_covariance: np.ndarray,
) -> None:
    """Compute the derivatives of a weighted sum of log-probabilities of S sequences, from the last step to the first.

    Args:
        transition, observation, observed: arguments of ``filter_columns``.
        errors, variances, gains, covariances, means: results of ``filter_columns``.
        weights: weight of each column, ``(S,)``.
        weight: weight of the covariances: the total weight of the sequences.
        moving: row and column of the elements of A whose derivatives are computed, ``(n, 2)``.
        disturbed: row and column of the elements of Q whose derivatives are computed, ``(n, 2)``.
        smoothing_errors: result, the expected noise of each value over its variance given all values, ``(T, D, S)``.
        by_transition: derivatives in elements of A of each move, ``(G, n)``, added to.
        by_state_covariance: derivatives in elements of Q of each move, ``(G, n)``, added to.
        by_noise: derivatives in the diagonal of R, ``(D,)``, added to.
        by_covariance: result, derivatives in the covariance of the first state, ``(K, K)``.
    """
    n_steps, D, n = errors.shape
    K, last, smoothed = transition.shape[1], len(transition) - 1, np.empty(n)
    r, spread = np.zeros((K, n)), np.zeros((K, K))  # smoothed = predicted mean + covariance @ r
    moved, half, other = np.empty((K, n)), np.empty((K, K)), np.empty((K, K))
    by_gain, through, transposed = np.empty(n), np.empty(K), np.empty((K, K))
    for t in range(n_steps - 1, -1, -1):
        if t < n_steps - 1:
            move = min(t, last)
            set_to_transpose(transition[move], transposed)
            for i in range(len(disturbed)):
                a, b = disturbed[i, 0], disturbed[i, 1]
                by_state_covariance[move, i] += 0.5 * (weighted_dot(weights, r[a], r[b]) - weight * spread[a, b])
            set_to_product(transposed, r, moved)
            set_to_product(transposed, spread, half)
            set_to_transpose(half, other)
            for i in range(len(moving)):
                a, b = moving[i, 0], moving[i, 1]
                set_to_combination(smoothed, covariances[t, b], moved)
                for m in range(n):
                    smoothed[m] += means[t, b, m]
                across = 0.0
                for k in range(K):
                    across += other[a, k] * covariances[t, b, k]
                by_transition[move, i] += weighted_dot(weights, r[a], smoothed) - weight * across
            set_to_product(transposed, other, spread)
            make_symmetric(spread)
            r, moved = moved, r
        for d in range(D - 1, -1, -1):
            if not observed[t, d]:
                smoothing_errors[t, d] = 0.0
                continue
            set_to_combination(by_gain, gains[t, d], r)
            u = smoothing_errors[t, d]
            for m in range(n):
                u[m] = errors[t, d, m] / variances[t, d] - by_gain[m]
            set_to_combination(through, gains[t, d], spread)
            precision = 1.0 / variances[t, d]
            for k in range(K):
                precision += through[k] * gains[t, d, k]
            by_noise[d] += 0.5 * (weighted_dot(weights, u, u) - weight * precision)
            add_outer(r, observation[d], u, 1.0)
            add_outer(spread, observation[d], through, -1.0)
            add_outer(spread, through, observation[d], -1.0)
            add_outer(spread, observation[d], observation[d], precision)
    for i in range(K):
        for j in range(K):
            by_covariance[i, j] = 0.5 * (weighted_dot(weights, r[i], r[j]) - weight * spread[i, j])
