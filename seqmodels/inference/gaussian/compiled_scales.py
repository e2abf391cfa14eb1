"""The scale of innovations that follows their past, as a compiled loop over steps.

The logarithm of the scale moves by the score of a Student t density (Harvey and Chakravarty 2008; Creal, Koopman and
Lucas 2013): up after an innovation that is larger than expected, by a bounded amount, and down after a smaller one.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled


@compiled
def follow_scales(
    squares: np.ndarray,
    n_observed: np.ndarray,
    lengths: np.ndarray,
    degrees: float,
    first: float,
    gain: float,
    least: float,
    log_scales: np.ndarray,
) -> None:
    """Fill ``log_scales`` with the logarithm of the scale before each step of sequences that stand one after another.

    With ``b = q / (q + ν e^2λ)`` the logarithm λ of the scale moves to ``λ + gain ((ν + n) b - n)``, where q is the
    square of the standardised innovation and n the number of observed features.

    Args:
        squares: q of each step, ``(N,)``.
        n_observed: n of each step, ``(N,)``.
        lengths: number of steps of each sequence, whose sum is N.
        degrees: degrees of freedom ν.
        first: λ at the first step of each sequence.
        gain: size of the moves.
        least: lower bound of λ.
        log_scales: result, ``(N,)``.
    """
    t = 0
    for length in lengths:
        log_scale = first
        for _ in range(length):
            log_scales[t] = log_scale
            share = squares[t] / (squares[t] + degrees * np.exp(2.0 * log_scale))
            log_scale = max(log_scale + gain * ((degrees + n_observed[t]) * share - n_observed[t]), least)
            t += 1
