"""The E-step of sequences that miss different values, as compiled loops whose innermost runs over the sequences.

The noise of observations is diagonal, so that each value of a step is read by itself (Durbin and Koopman 2012, section
6.4), and a missing value is left out. Factors u of covariances, ``P = uᵀu``, are updated by Potter's formula (Kailath,
Sayed and Hassibi 2000, section 12.1) and by Householder reflections. The last axis of an array runs over the m
sequences; shorter sequences have steps at their end in which everything is missing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.common.constants import LOG_2PI
from seqmodels.inference.gaussian.compiled_sums import add_gram, add_product

NEGLIGIBLE = 1e-280  # smaller sums of squares lose digits to underflow
Arrays = tuple[np.ndarray, ...]  # numba takes several times as long to read the type of a NamedTuple


class FilteredBlock(NamedTuple):
    """The results of the Kalman filter for m sequences of T steps, each with covariances of its own.

    Attributes:
        log_prob: log-probability of each step given those before, in nats, ``(T, m)``. There are D features and K
            states.
        errors: the prediction error ``e`` of each value over its variance, and 1 over its variance, ``(T, D, 2, m)``; 0
            where missing.
        gains: what a unit of ``e`` adds to the mean of the state, ``(T, D, K, m)``; 0 where missing.
        means, covariances: mean and covariance of z_t given x_1 .. x_t, ``(T, K, m)`` and ``(T, K, K, m)``; arrays
            without rows mean that they are not kept.
    """

    log_prob: np.ndarray
    errors: np.ndarray
    gains: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class SumsOfBlock(NamedTuple):
    """Weighted sums of smoothed moments of the states z of m sequences, which ``smooth_apart`` computes.

    K is the number of states, D of features. S is D + 2, one for each of the weights ``rows`` of ``MissingBlock``.

    Attributes:
        first: E[z_1] and E[z_1 z_1ᵀ] of each sequence, without weights, ``(K + K K, m)``; the array is overwritten, and
            all others are added to.
        state_state: sums of E[z zᵀ] by each of the weights, ``(S, K K)``.
        state_sum: sums of E[z] by each of the weights, ``(S, K)``.
        seen_state: sums of ``x E[z]ᵀ``, ``(D, K)``.
        noise_state: sums of ``r_t+1 E[z_t]ᵀ - N A P``, ``(K, K)``, with r and N the adjoints of the filter: E[w_t+1
            z_tᵀ] is Q times this.
    """

    first: np.ndarray
    state_state: np.ndarray
    state_sum: np.ndarray
    seen_state: np.ndarray
    noise_state: np.ndarray


@compiled(any_order=True, inner=True)
def _copy(source: np.ndarray, target: np.ndarray) -> None:
    """Copy ``source (I, m)`` to ``target`` in a loop, which numba compiles ten times faster than assigning a slice."""
    for i in range(target.shape[0]):
        for m in range(target.shape[1]):
            target[i, m] = source[i, m]


@compiled(any_order=True, inner=True)
def _copy_to_upper(matrix: np.ndarray) -> None:
    for i in range(len(matrix)):
        for j in range(i):
            source, target = matrix[i, j], matrix[j, i]
            for m in range(len(source)):
                target[m] = source[m]


@compiled(any_order=True)
def _add_products(left: np.ndarray, right: np.ndarray, target: np.ndarray) -> None:
    """Add the matrix product ``left (I, J, m) @ right (J, L, m)`` of each of m sequences to ``target (I, L, m)``."""
    n_rows, J, n = left.shape
    whole = J - J % 4
    for i in range(n_rows):
        for k in range(right.shape[1]):
            out = target[i, k]
            for j in range(0, whole, 4):
                a, b, c, d = left[i, j], left[i, j + 1], left[i, j + 2], left[i, j + 3]
                p, q, r, s = right[j, k], right[j + 1, k], right[j + 2, k], right[j + 3, k]
                for m in range(n):
                    out[m] += a[m] * p[m] + b[m] * q[m] + c[m] * r[m] + d[m] * s[m]
            for j in range(whole, J):
                a, p = left[i, j], right[j, k]
                for m in range(n):
                    out[m] += a[m] * p[m]


@compiled(any_order=True, inner=True)
def _triangular(block: np.ndarray) -> None:
    """Replace the first n rows of each of m matrices by the triangular u with ``uᵀu = blockᵀ block``.

    The matrices are ``block (I, n, m)``. Householder reflections are used.
    """
    n_rows, n_columns, n = block.shape
    alpha, beta, product = np.empty(n), np.empty(n), np.empty((n_columns, n))
    for j in range(n_columns):
        below = np.zeros(n)
        for i in range(j + 1, n_rows):
            v = block[i, j]
            for m in range(n):
                below[m] += v[m] * v[m]
        head = block[j, j]
        for m in range(n):
            square = head[m] * head[m] + below[m]
            norm = np.sqrt(square)
            alpha[m] = -norm if head[m] > 0 else norm
            beta[m] = 1.0 / max(square - alpha[m] * head[m], NEGLIGIBLE)
            if below[m] < NEGLIGIBLE:
                alpha[m], beta[m] = head[m], 0.0
            head[m] -= alpha[m]
        product[j + 1 :] = 0.0
        for i in range(j, n_rows):
            v = block[i, j]
            for k in range(j + 1, n_columns):
                w, out = block[i, k], product[k]
                for m in range(n):
                    out[m] += v[m] * w[m]
        for k in range(j + 1, n_columns):
            out = product[k]
            for m in range(n):
                out[m] *= beta[m]
        for i in range(j, n_rows):
            v = block[i, j]
            for k in range(j + 1, n_columns):
                w, out = block[i, k], product[k]
                for m in range(n):
                    w[m] -= v[m] * out[m]
        for m in range(n):
            head[m] = alpha[m]
        for i in range(j + 1, n_rows):
            block[i, j] = 0.0


@compiled(any_order=True)
def filter_apart(system: Arrays, observed: Arrays, filtered: Arrays) -> None:
    """Run the Kalman filter over m sequences, each with covariances of its own, and set the arrays of ``filtered``.

    Args:
        system: ``transition`` A, ``(K, K)``; ``state_factor``, the factor u of the covariance ``Q = uᵀu`` of the state
            noise, ``(I, K)``; ``observation`` C, ``(D, K)``; ``intercept`` d, ``(D,)``; ``noise``, the diagonal of R,
            ``(D,)``; ``mean`` of the first state, ``(K,)``; and ``factor`` of its covariance, ``(K, K)``.
        observed: arrays ``x``, ``seen``, ``reaches`` and ``rows`` of a ``MissingBlock``: values, where they are
            observed, which sequences have each step, and weights.
        filtered: results: the arrays of a ``FilteredBlock`` as a plain tuple.
    """
    transition, state_factor, observation, intercept, noise, mean, factor = system
    x, seen, reaches, _ = observed
    log_prob, errors, gains, means, covariances = filtered
    (n_steps, D, n), K, n_noise = x.shape, len(transition), len(state_factor)
    u, block, z, moved = np.empty((K, K, n)), np.empty((K + n_noise, K, n)), np.empty((K, n)), np.empty((K, n))
    f, h, variance, determinant = np.empty((K, n)), np.empty((K, n)), np.empty(n), np.empty(n)
    shrink, e = np.empty(n), np.empty(n)
    for i in range(K):
        for m in range(n):
            z[i, m] = mean[i]
        for k in range(K):
            for m in range(n):
                u[i, k, m] = factor[i, k]
    for t in range(n_steps):
        if t > 0:
            moved[:] = 0.0
            add_product(transition, z, moved, n)
            z, moved = moved, z
            block[:K] = 0.0
            for i in range(K):
                add_product(transition, u[i], block[i], n)
            for i in range(n_noise):
                for k in range(K):
                    for m in range(n):
                        block[K + i, k, m] = state_factor[i, k]
            _triangular(block)
            for i in range(K):
                p = z[i]
                for m in range(n):
                    p[m] *= reaches[t, m]
                for k in range(K):
                    p, out = block[i, k], u[i, k]
                    for m in range(n):
                        out[m] = reaches[t, m] * p[m]
        for m in range(n):
            log_prob[t, m] = 0.0
            determinant[m] = 1.0
        for d in range(D):
            is_seen, c, gain = seen[t, d], observation[d], gains[t, d]
            for m in range(n):
                e[m] = x[t, d, m] - intercept[d]
                variance[m] = noise[d]
            for k in range(K):
                a, p = c[k], z[k]
                for m in range(n):
                    e[m] -= a * p[m]
                h[k] = 0.0
            for i in range(K):
                out = f[i]
                for m in range(n):
                    out[m] = 0.0
                for k in range(K):
                    a, p = c[k], u[i, k]
                    for m in range(n):
                        out[m] += a * p[m]
                for m in range(n):
                    variance[m] += out[m] * out[m]
                for k in range(K):
                    p, to = u[i, k], h[k]
                    for m in range(n):
                        to[m] += out[m] * p[m]
            by_error, precision = errors[t, d, 0], errors[t, d, 1]
            for m in range(n):
                precision[m] = is_seen[m] / variance[m]
                by_error[m] = e[m] * precision[m]
                shrink[m] = precision[m] / (1.0 + np.sqrt(noise[d] / variance[m]))
                log_prob[t, m] -= 0.5 * (e[m] * by_error[m] + LOG_2PI * is_seen[m])
                determinant[m] *= is_seen[m] * variance[m] + (1.0 - is_seen[m])
            for k in range(K):
                p, out, to = h[k], gain[k], z[k]
                for m in range(n):
                    out[m] = p[m] * precision[m]
                    to[m] += p[m] * by_error[m]
            for i in range(K):
                p = f[i]
                for m in range(n):
                    e[m] = p[m] * shrink[m]
                for k in range(K):
                    q, out = h[k], u[i, k]
                    for m in range(n):
                        out[m] -= e[m] * q[m]
            if d % 8 == 7 or d == D - 1:  # before a product of variances can leave the range of float64
                for m in range(n):
                    log_prob[t, m] -= 0.5 * np.log(determinant[m])
                    determinant[m] = 1.0
        if len(means):
            _copy(z, means[t])
            for k in range(K):
                for j in range(k + 1):
                    out = covariances[t, k, j]
                    for m in range(n):
                        out[m] = 0.0
                    for i in range(K):
                        p, q = u[i, k], u[i, j]
                        for m in range(n):
                            out[m] += p[m] * q[m]
            _copy_to_upper(covariances[t])


@compiled(any_order=True)
def smooth_apart(system: Arrays, observed: Arrays, filtered: Arrays, sums: Arrays) -> None:
    """Add up weighted expectations of the states given all of each sequence, by the adjoints of the filter.

    Args:
        system, observed: arguments of ``filter_apart``.
        filtered: results of ``filter_apart``, with means and covariances of every step.
        sums: results: the arrays of a ``SumsOfBlock`` as a plain tuple.
    """
    transition, _, observation, _, _, _, _ = system
    x, _, _, rows = observed
    _, errors, gains, means, covariances = filtered
    first, state_state, state_sum, seen_state, noise_state = sums
    (n_steps, D, n), K = x.shape, len(transition)
    transposed = np.ascontiguousarray(transition.T)
    r, spread, z = np.zeros((K, n)), np.zeros((K, K, n)), np.empty((K, n))
    moved, half, other = np.empty((K, n)), np.empty((K, K, n)), np.empty((K, K, n))
    forward, product, expected = np.empty((K, K, n)), np.empty((K, K, n)), np.empty((K, K, n))
    error, precision, through, weighted = np.empty(n), np.empty(n), np.empty((K, n)), np.empty((K, n))
    values, going_on = np.empty((D, n)), np.empty((1, n))
    for t in range(n_steps - 1, -1, -1):
        _copy(covariances[t].reshape(K * K, n), expected.reshape(K * K, n))
        _copy(means[t], z)
        if t < n_steps - 1:
            P = covariances[t]
            forward[:], product[:], half[:], moved[:] = 0.0, 0.0, 0.0, 0.0
            add_product(transition, P.reshape(K, K * n), forward.reshape(K, K * n), K * n)
            _add_products(spread, forward, product)  # N A P
            for i in range(K):
                for j in range(i + 1):
                    out = expected[i, j]
                    for k in range(K):
                        p, q = forward[k, i], product[k, j]
                        for m in range(n):
                            out[m] -= p[m] * q[m]
            _copy_to_upper(expected)
            add_product(transposed, r, moved, n)
            for k in range(K):
                out = z[k]
                for i in range(K):
                    p, q = P[k, i], moved[i]
                    for m in range(n):
                        out[m] += p[m] * q[m]
                for m in range(n):
                    weighted[k, m] = rows[t, D + 1, m] * out[m]
            for m in range(n):
                going_on[0, m] = -rows[t, D + 1, m]
            add_gram(going_on, product.reshape(K * K, n), noise_state.reshape(1, K * K), n)
            add_gram(r, weighted, noise_state, n)
            r, moved = moved, r
            add_product(transposed, spread.reshape(K, K * n), half.reshape(K, K * n), K * n)
            for i in range(K):
                _copy(half[i], other[:, i])
            spread[:] = 0.0
            add_product(transposed, other.reshape(K, K * n), spread.reshape(K, K * n), K * n)
            _copy_to_upper(spread)  # because asymmetric rounding errors would not be damped below
        for i in range(K):
            for j in range(K):
                p, q, out = z[i], z[j], expected[i, j]
                for m in range(n):
                    out[m] += p[m] * q[m]
        for d in range(D):
            for m in range(n):
                values[d, m] = rows[t, d, m] * x[t, d, m]
        add_gram(values, z, seen_state, n)
        add_gram(rows[t], z, state_sum, n)
        add_gram(rows[t], expected.reshape(K * K, n), state_state, n)
        for d in range(D - 1, -1, -1):
            c, gain = observation[d], gains[t, d]
            for m in range(n):
                error[m] = errors[t, d, 0, m]
                precision[m] = errors[t, d, 1, m]
            for k in range(K):
                p, q = gain[k], r[k]
                for m in range(n):
                    error[m] -= p[m] * q[m]
                out = through[k]
                for m in range(n):
                    out[m] = 0.0
                for i in range(K):
                    p, q = gain[i], spread[i, k]
                    for m in range(n):
                        out[m] += p[m] * q[m]
                q = gain[k]
                for m in range(n):
                    precision[m] += out[m] * q[m]
            for k in range(K):
                a, to, out = c[k], r[k], through[k]
                for m in range(n):
                    to[m] += a * error[m]
                    out[m] = 0.5 * a * precision[m] - out[m]
            for i in range(K):
                a, p = c[i], through[i]
                for k in range(K):
                    b, q, out = c[k], through[k], spread[i, k]
                    for m in range(n):
                        out[m] += a * q[m] + b * p[m]
    _copy(z, first[:K])
    _copy(expected.reshape(K * K, n), first[K:])
