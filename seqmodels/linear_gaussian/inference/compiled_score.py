"""The loops over steps of ``score``, compiled by numba where it is installed.

Each value of a step is taken up by itself, which is possible where the noise of observations is diagonal (Durbin and
Koopman 2012, section 6.4). Products leave out the zeros of A: transitions of structures have few other elements. Means
are columns.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled, is_compiling


@compiled
def _product(matrix: np.ndarray, source: np.ndarray) -> np.ndarray:
    n_rows, n = matrix.shape[0], source.shape[1]
    target = np.zeros((n_rows, n))
    for i in range(n_rows):
        for j in range(matrix.shape[1]):
            a = matrix[i, j]
            if a == 1.0:
                for m in range(n):
                    target[i, m] += source[j, m]
            elif a != 0.0:
                for m in range(n):
                    target[i, m] += a * source[j, m]
    return target


def _dense_product(matrix: np.ndarray, source: np.ndarray) -> np.ndarray:
    return np.asarray(matrix @ source)


# ``matrix (I, J) @ source (J, n)``, the matrix sparse.
product = _product if is_compiling() else _dense_product


@compiled
def _add_outer(target: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    for i in range(len(left)):
        a = left[i]
        if a != 0.0:
            for j in range(len(right)):
                target[i, j] += a * right[j]


def _add_outer_at_once(target: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    target += np.outer(left, right)


# ``target (I, J) += left rightᵀ``.
add_outer = _add_outer if is_compiling() else _add_outer_at_once


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
    """The filter of several sequences at once, which miss the same values.

    Args:
        transition, state_covariance, observation: A (K, K), Q (K, K), C (D, K).
        noise: (D,) the diagonal of R.
        covariance, mean: of the first state, (K, K) and (K, S).
        x: (T, D, S).
        observed: (T, D) bool.
        errors: (T, D, S), is set to ``e = x - C z`` given the values before; 0 where missing.
        variances: (T, D), is set to those of ``e``; 1 where missing.
        gains: (T, D, K), is set to what a unit of ``e`` adds to the mean; 0 where missing.
        covariances, means: (T, K, K), (T, K, S) are set to those of z_t given x_1 .. x_t; no rows: they are not kept.
    """
    n_steps, D, n = x.shape
    covariance, mean = covariance.copy(), mean.copy()
    for t in range(n_steps):
        if t > 0:
            mean = product(transition, mean)
            half = product(transition, covariance)
            covariance = product(transition, np.ascontiguousarray(half.T)) + state_covariance
        for d in range(D):
            if not observed[t, d]:
                errors[t, d], variances[t, d], gains[t, d] = 0.0, 1.0, 0.0
                continue
            weights = observation[d]
            seen = weights @ covariance
            variance = seen @ weights + noise[d]
            variances[t, d] = variance
            gains[t, d] = seen / variance
            errors[t, d] = x[t, d] - weights @ mean
            add_outer(mean, gains[t, d], errors[t, d])
            add_outer(covariance, -gains[t, d], seen)
        if len(means):
            covariances[t], means[t] = covariance, mean


@compiled
def score_columns(
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
    """The derivatives of a weighted sum of log-probabilities, backwards from the last step.

    Args:
        transition, observation, errors, variances, gains, covariances, means, observed: of ``filter_columns``.
        weights: (S,) of the columns.
        weight: of the covariances, how many sequences they are of.
        moving, disturbed: (n, 2) rows and columns of the elements of A and of Q whose derivatives are computed.
        smoothing_errors: (T, D, S), is set to the expected noise of each value over its variance, given all.
        by_transition, by_state_covariance: (n,), are added to.
        by_noise: (D,), is added to.
        by_covariance: (K, K), of the first state, is set.
    """
    n_steps, D, n = errors.shape
    K = len(transition)
    transposed = np.ascontiguousarray(transition.T)
    r, spread = np.zeros((K, n)), np.zeros((K, K))  # of the predicted state: smoothed = mean + covariance @ r
    for t in range(n_steps - 1, -1, -1):
        if t < n_steps - 1:
            for i in range(len(disturbed)):
                a, b = disturbed[i, 0], disturbed[i, 1]
                by_state_covariance[i] += 0.5 * ((weights * r[a]) @ r[b] - weight * spread[a, b])
            moved = product(transposed, r)
            half = product(transposed, spread)
            if len(moving):
                smoothed = means[t] + covariances[t] @ moved
                across = np.ascontiguousarray(half.T) @ covariances[t]
                for i in range(len(moving)):
                    a, b = moving[i, 0], moving[i, 1]
                    by_transition[i] += (weights * r[a]) @ smoothed[b] - weight * across[a, b]
            r, spread = moved, product(transposed, np.ascontiguousarray(half.T))
        for d in range(D - 1, -1, -1):
            if not observed[t, d]:
                smoothing_errors[t, d] = 0.0
                continue
            gain, c = gains[t, d], observation[d]
            u = errors[t, d] / variances[t, d] - gain @ r
            through = gain @ spread
            precision = 1.0 / variances[t, d] + through @ gain
            smoothing_errors[t, d] = u
            by_noise[d] += 0.5 * ((weights * u) @ u - weight * precision)
            add_outer(r, c, u)
            add_outer(spread, c, precision * c - through)
            add_outer(spread, -through, c)
    by_covariance[:] = 0.5 * ((weights * r) @ r.T - weight * spread)
