"""Transition probabilities over gaps, ``exp(Q Δ)``, as compiled loops for few states on a CPU.

``continuous_time`` explains the method.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.compiled_log_sum import log_dot


@compiled(inner=True)
def _over(rate: float, powers: np.ndarray, gap: float, longest: float, square: np.ndarray, p: np.ndarray) -> None:
    """Fill ``p (K, K)`` with the transition probabilities of a Markov jump process over a time ``gap``.

    Args:
        rate: λ, the uniformization rate of the process.
        powers: powers of the uniformized transition matrix, ``(N + 1, K, K)``.
        gap: length of time.
        longest: largest product of a gap and the rate for which the series is used; a longer gap is halved first.
        square: buffer, ``(K, K)``.
        p: result.
    """
    K, step, n_doublings = len(p), gap, 0
    while rate * step > longest:
        step, n_doublings = 0.5 * step, n_doublings + 1
    x, coefficient = rate * step, np.exp(-rate * step)
    for i in range(K):
        for j in range(K):
            p[i, j] = 0.0
    for n in range(len(powers)):
        for i in range(K):
            for j in range(K):
                p[i, j] += coefficient * powers[n, i, j]
        coefficient *= x / (n + 1)
    for doubling in range(n_doublings + 1):
        for i in range(K):
            total = 0.0
            for j in range(K):
                total += p[i, j]
            for j in range(K):
                p[i, j] /= total
        if doubling < n_doublings:
            for i in range(K):
                for j in range(K):
                    square[i, j] = 0.0
                for k in range(K):
                    for j in range(K):
                        square[i, j] += p[i, k] * p[k, j]
            for i in range(K):
                for j in range(K):
                    p[i, j] = square[i, j]


@compiled
def probabilities_over(rate: float, powers: np.ndarray, gaps: np.ndarray, longest: float, result: np.ndarray) -> None:
    """Fill ``result`` with the transition probabilities of a Markov jump process over each of G gaps of time.

    Args:
        rate: λ, the uniformization rate of the process.
        powers: powers 0 .. N of the uniformized transition matrix ``Q / λ + I``, with Q the generator,
            ``(N + 1, K, K)``.
        gaps: lengths of the gaps, ``(G,)``.
        longest: largest product of a gap and the rate for which the series is used. A longer gap is halved until it is
            short enough, and its transition matrix is squared as often.
        result: array to fill, ``(G, K, K)``.
    """
    square = np.empty(powers.shape[1:])
    for g in range(len(gaps)):
        _over(rate, powers, gaps[g], longest, square, result[g])


@compiled
def beliefs_over(
    rate: float, powers: np.ndarray, gaps: np.ndarray, longest: float, log_alpha: np.ndarray, result: np.ndarray
) -> None:
    """Fill ``result`` with the log-probabilities of the states of n sequences after gaps of time.

    Args:
        rate, powers, longest: uniformization rate, powers and longest step, as ``probabilities_over`` takes them.
        gaps: length of the gap of each of n sequences, ``(n,)``.
        log_alpha: log-probabilities of the states before the gap, ``(n, K)``.
        result: array to fill, ``(n, K)``.
    """
    K = log_alpha.shape[1]
    square, p, log_into = np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    for row in range(len(gaps)):
        _over(rate, powers, gaps[row], longest, square, p)
        for i in range(K):
            for j in range(K):
                log_into[j, i] = np.log(p[i, j])
        for j in range(K):
            result[row, j] = log_dot(log_alpha[row], log_into[j])
