"""Logarithms of sums and of dot products, for use in compiled loops in log space."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled


@compiled
def log_sum(terms: np.ndarray) -> float:
    """Return ``log Σ exp(terms)`` of a one-dimensional array; -inf if all terms are -inf or there are none.

    >>> round(log_sum(np.log([0.25, 0.5])), 12) == round(float(np.log(0.75)), 12)
    True
    >>> log_sum(np.array([-np.inf, -np.inf])), log_sum(np.array([np.nan, np.nan]))
    (-inf, nan)
    """
    peak = -np.inf
    for c in range(len(terms)):
        peak = terms[c] if not terms[c] <= peak else peak  # NaN, where all are
    if peak == -np.inf:
        return peak
    total = 0.0
    for c in range(len(terms)):
        total += np.exp(terms[c] - peak)
    return float(peak + np.log(total))


@compiled(inner=True)
def log_dot(log_a: np.ndarray, log_b: np.ndarray) -> float:
    """Return ``log Σ_c exp(log_a[c] + log_b[c])`` of two arrays ``(C,)``; -inf if all terms are -inf.

    >>> round(log_dot(np.log([0.5, 0.5]), np.log([0.25, 0.75])), 12) == round(float(np.log(0.5)), 12)
    True
    """
    peak = -np.inf
    for c in range(len(log_a)):
        term = log_a[c] + log_b[c]
        peak = term if not term <= peak else peak
    if peak == -np.inf:
        return peak
    total = 0.0
    for c in range(len(log_a)):
        total += np.exp(log_a[c] + log_b[c] - peak)
    return float(peak + np.log(total))
