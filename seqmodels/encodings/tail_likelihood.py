"""Log-probabilities of the second half of a series several steps ahead, as levels, logarithms or differences.

An autoregression of order 0, 1 or 2 (chosen by BIC) is used in the place of a model. Fitted to differences, it is an
AR(m) of the values or logarithms y, ``y_t = c + Σ_j φ_j y_t-j + e_t``, whose forecasts h steps ahead have variance ``σ²
(ψ_0² + ... + ψ_h-1²)`` (Box and Jenkins 1970). The forecast density is a t with 4 degrees of freedom, so that a few
frames of a series with changing spread do not decide. The autoregression is fitted to the first half and refitted on
the way, ``N_FITS`` times in all (Dawid 1984, *Present position and potential developments*). All densities are of raw
values, so that the densities of different transformations are comparable.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

N_FITS = 4  # number of fits of the autoregression, at equal distances in the second half
FEWEST_TO_FIT = 8  # steps
DEGREES_OF_FREEDOM = 4.0
LOG_T4_CONSTANT = float(np.log(3 / 8))  # log-normaliser of a t density with four degrees of freedom


def tail_log_probs(
    x: np.ndarray,
    *,
    log: bool,
    order: int,
    season: int | None,
    n_ahead: int,
    largest_order: int = 1,
    is_missing: np.ndarray | None = None,
) -> np.ndarray:
    """Return log-probabilities of the second half of a series under an autoregression of its differences, in nats.

    They are ``log p(x_t+h | x_<t)``, ``(T - T // 2, n_ahead)``. Rows are the times t, columns h = 0, 1, ... An entry is
    NaN if t + h is beyond the end of the series. All are -inf if there are too few steps, or steps so regular that a
    density would be unbounded.

    Args:
        x: values, ``(T,)``; positive if ``log`` is True.
        log: True if the autoregression is fitted to differences of logarithms.
        order: number of times the change from the frame before is taken.
        season: number of frames in the season whose change is taken; None for no season.
        n_ahead: number of steps ahead.
        largest_order: largest order of the autoregression.
        is_missing: mask of values that replace missing ones, ``(T,)``; None if there are none. They are not predicted,
            and nothing is predicted from a past that ends with one, because it may have been filled in from later
            values.

    >>> walk = np.cumsum(np.random.default_rng(0).normal(size=200))
    >>> tail_log_probs(walk, log=False, order=1, season=None, n_ahead=2).shape
    (100, 2)
    """
    y, start, n_frames = np.log(x) if log else x, len(x) // 2, len(x)
    difference = difference_polynomial(order, season)
    n_initial = len(difference) - 1
    steps = np.convolve(y, difference, "valid")  # (T - n_initial,)
    slope = -y if log else np.zeros(n_frames)  # log |dy/dx|
    result = np.full((n_frames - start, n_ahead), -np.inf)
    edges = np.linspace(start, n_frames, N_FITS + 1).astype(int).tolist()
    for first, last in pairwise(edges):
        fitted = autoregression(steps[: max(0, first - n_initial)], largest_order)
        if fitted is None:
            return np.full_like(result, -np.inf)
        constant, coefficients, variance = fitted
        past_weights = -np.convolve([1.0, *-coefficients], difference)[1:]  # (m,) φ
        origins = np.arange(first, last)
        past = y[origins[:, None] - 1 - np.arange(len(past_weights))]  # (n, m), the latest first
        variances = variance * np.cumsum(impulse_responses(past_weights, n_ahead) ** 2)
        for h in range(n_ahead):
            mean, at = constant + past @ past_weights, np.minimum(origins + h, n_frames - 1)
            log_prob = t_log_density(y[at] - mean, variances[h]) + slope[at]
            result[origins - start, h] = np.where(origins + h < n_frames, log_prob, np.nan)
            past = np.concatenate([mean[:, None], past], axis=1)[:, : len(past_weights)]
    if is_missing is not None:
        targets = np.minimum(np.arange(start, n_frames)[:, None] + np.arange(n_ahead), n_frames - 1)
        result[is_missing[targets] | is_missing[start - 1 : n_frames - 1, None]] = np.nan
    return result


def t_log_density(errors: np.ndarray, variance: float) -> np.ndarray:
    """Return the log-density in nats of errors under a Student t with 4 degrees of freedom and mean 0, elementwise.

    Args:
        errors: the values.
        variance: variance of the density.
    """
    squared_scale = variance * (1 - 2 / DEGREES_OF_FREEDOM)
    tail = 0.5 * (DEGREES_OF_FREEDOM + 1) * np.log1p(errors**2 / (DEGREES_OF_FREEDOM * squared_scale))
    return np.asarray(LOG_T4_CONSTANT - 0.5 * np.log(squared_scale) - tail)


def difference_polynomial(order: int, season: int | None) -> np.ndarray:
    """Return the coefficients of ``(1 - B)^order (1 - B^season)`` by power of the lag operator B, from ``B^0`` on.

    Args:
        order: number of times the change from the frame before is taken.
        season: number of frames in the season whose change is taken; None for no season.

    >>> difference_polynomial(1, 3).tolist()
    [1.0, -1.0, 0.0, -1.0, 1.0]
    """
    result = np.ones(1)
    for _ in range(order):
        result = np.convolve(result, [1.0, -1.0])
    return result if season is None else np.convolve(result, [1.0, *[0.0] * (season - 1), -1.0])


def autoregression(steps: np.ndarray, largest_order: int = 1) -> tuple[float, np.ndarray, float] | None:
    """Fit an autoregression to a series; return its constant, its coefficients ``(p,)`` and its error variance.

    The order p is chosen by BIC. Return None if there are too few steps or the errors are zero.

    Args:
        steps: the series, ``(N,)``.
        largest_order: largest order p.
    """
    n = len(steps) - largest_order
    if n < FEWEST_TO_FIT:
        return None
    mean = float(steps.mean())
    centred = steps - mean
    target, best, least = centred[largest_order:], None, np.inf
    for p in range(largest_order + 1):
        lagged = [centred[largest_order - j : len(steps) - j] for j in range(1, p + 1)]
        design = np.stack([np.ones(n), *lagged], axis=1)
        coefficients, *_ = np.linalg.lstsq(design, target, rcond=None)
        squares = float(((target - design @ coefficients) ** 2).sum())
        if squares <= 1e-18 * float((target**2).sum()):
            return None
        bic = n * np.log(squares) + (p + 1) * np.log(n)
        if bic < least:
            constant = float(coefficients[0] + mean * (1 - coefficients[1:].sum()))
            best, least = (constant, coefficients[1:], squares / (n - p - 1)), bic
    return best


def impulse_responses(past_weights: np.ndarray, n: int) -> np.ndarray:
    """Return the responses of an autoregression 0, 1, ..., n - 1 steps after a unit error, ``(n,)``.

    Args:
        past_weights: its coefficients, from lag 1 on, ``(m,)``.
        n: number of steps.
    """
    result = np.zeros(n)
    result[0] = 1.0
    for h in range(1, n):
        known = min(h, len(past_weights))
        result[h] = past_weights[:known] @ result[h - 1 :: -1][:known]
    return result
