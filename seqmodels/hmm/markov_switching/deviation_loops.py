"""Autoregressions of deviations as compiled loops: log-densities in every tuple of states, and frames drawn."""

from __future__ import annotations

import math

import numpy as np

from seqmodels.common.compiled import compiled

LOG_2PI = math.log(2 * math.pi)


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
    """Fill ``log_b (n, S)``, of frames ``x (n, D)`` after ``past (n, p, D)``, the oldest first, in S tuples of states.

    A missing value of a frame has no part in it. Frames with missing values in their past are the first of a sequence.

    Args:
        coefficients: (S, p, D), of the past, the oldest first; intercept, log_variance: (S, D).
        first: (2, D) mean and log-variance of the first frames of a sequence.
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
    """Fill ``x (T, n, D)``, the frames that ``states (T, n)`` emit.

    Args:
        states: of each step.
        noise: (T, n, D) standard normal numbers.
        mean: (K, D).
        coefficients: (K, p, D), of deviations one step back first.
        deviation: (K, D) standard deviations.
        first: (2, D) mean and standard deviation of frames that have fewer before them than the regression looks back.
        past: (n, p, D) the frames before, the newest first, NaN before the first; afterwards those before what follows.
        earlier: (n, p) the states of these, likewise.
        x: filled.
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
