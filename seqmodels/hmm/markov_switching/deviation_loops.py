"""Autoregressions of deviations as compiled loops: log-densities in every tuple of states, and draws of frames."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.common.constants import LOG_2PI


@compiled
def log_densities(
    x: np.ndarray,
    past: np.ndarray,
    coefficients: np.ndarray,
    intercept: np.ndarray,
    log_variance: np.ndarray,
    first: np.ndarray,
    log_b: np.ndarray,
) -> None:
    """Compute log-densities of n frames in each of S tuples of hidden states and write them into ``log_b``.

    A missing value of a frame is left out of its density. A frame that has missing values in its past counts as one of
    the first frames of a sequence.

    Args:
        x: frames, ``(n, D)``.
        past: the p frames before each frame, the oldest first, ``(n, p, D)``.
        coefficients: coefficients of the past frames, the oldest first, ``(S, p, D)``.
        intercept: intercepts, ``(S, D)``.
        log_variance: logarithms of the variances, ``(S, D)``.
        first: mean and log-variance of the first frames of a sequence, ``(2, D)``.
        log_b: is filled with log-densities in nats, ``(n, S)``.
    """
    (n, D), S, p = x.shape, len(intercept), past.shape[1]
    for row in range(n):
        is_first = False
        for k in range(p):
            for d in range(D):
                is_first |= np.isnan(past[row, k, d])
        for s in range(S):
            total = 0.0
            for d in range(D):
                if np.isnan(x[row, d]):
                    continue
                mean, level = (first[0, d], first[1, d]) if is_first else (intercept[s, d], log_variance[s, d])
                if not is_first:
                    for k in range(p):
                        mean += coefficients[s, k, d] * past[row, k, d]
                deviation = x[row, d] - mean
                total -= 0.5 * (deviation * deviation * np.exp(-level) + level + LOG_2PI)
            log_b[row, s] = total


@compiled
def draw_frames(
    states: np.ndarray,
    noise: np.ndarray,
    mean: np.ndarray,
    coefficients: np.ndarray,
    deviation: np.ndarray,
    first: np.ndarray,
    past: np.ndarray,
    earlier: np.ndarray,
    x: np.ndarray,
) -> None:
    """Draw the frames that states emit and write them into ``x``.

    ``past`` and ``earlier`` are updated, so that the next call continues after these frames.

    Args:
        states: state of each step, ``(T, n)``.
        noise: standard normal numbers, ``(T, n, D)``.
        mean: means of the states, ``(K, D)``.
        coefficients: coefficients of deviations, one step back first, ``(K, p, D)``.
        deviation: standard deviations, ``(K, D)``.
        first: mean and standard deviation of the first frames of a sequence, ``(2, D)``.
        past: the frames before, the newest first, NaN before the start of the sequence, ``(n, p, D)``.
        earlier: the states of these frames, ``(n, p)``.
        x: is filled with frames, ``(T, n, D)``.
    """
    (T, n, D), p = x.shape, past.shape[1]
    for row in range(n):
        for t in range(T):
            state, is_first = states[t, row], False
            for lag in range(p):
                for d in range(D):
                    is_first |= np.isnan(past[row, lag, d])
            for d in range(D):
                value = first[0, d] + first[1, d] * noise[t, row, d]
                if not is_first:
                    value = mean[state, d] + deviation[state, d] * noise[t, row, d]
                    for lag in range(p):
                        value += coefficients[state, lag, d] * (past[row, lag, d] - mean[earlier[row, lag], d])
                x[t, row, d] = value
            for lag in range(p - 1, 0, -1):
                earlier[row, lag] = earlier[row, lag - 1]
                for d in range(D):
                    past[row, lag, d] = past[row, lag - 1, d]
            earlier[row, 0] = state
            for d in range(D):
                past[row, 0, d] = x[t, row, d]
