"""Features that have not all reals as their values, as reals: ``x = T(v)``, so that ``p(v) = p(T(v)) T'(v)``.

- above 0: ``x = e^v``; between 0 and 1: ``x = 1 / (1 + e^-v)``; angles: ``x = π tanh(v / 2)``; all others as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqmodels.sequences.measure import Values

LARGEST = 1e100  # of a positive value, and the inverse of the smallest
FARTHEST, NEAREST = 1e6, 1e-30  # times the largest and the median of positive values: where an integral ends
SMALLEST_PROPORTION = 1e-37  # that float32 holds to all its digits
EDGE = float(np.finfo(np.float64).eps) / 2  # below 1: the nearest that float64 holds
WHOLE: tuple[Values, ...] = ("bits", "counts", "rounded")  # what has a probability


def to_reals(x: np.ndarray, values: Sequence[Values]) -> np.ndarray:
    """``(N, D)`` v of values ``x (N, D)``, of which each feature is of one of ``values``."""
    v = x.astype(np.float64)
    for d, kind in enumerate(values):
        column = v[:, d]
        if kind == "positive":
            v[:, d] = np.log(np.clip(column, 1 / LARGEST, LARGEST))
        elif kind == "proportions":
            clipped = np.clip(column, 1 / LARGEST, 1 - EDGE)
            v[:, d] = np.log(clipped) - np.log1p(-clipped)
        elif kind == "angles":
            v[:, d] = 2 * np.arctanh(np.clip(column / np.pi, EDGE - 1, 1 - EDGE))
    return v


def from_reals(v: np.ndarray, values: Sequence[Values]) -> np.ndarray:
    """The inverse of ``to_reals``, within what the features may be: what rounds to an end is the nearest inside."""
    x = v.astype(np.float64)
    for d, kind in enumerate(values):
        column = x[:, d]
        if kind == "positive":
            x[:, d] = np.clip(np.exp(np.clip(column, -np.log(LARGEST), np.log(LARGEST))), 1 / LARGEST, LARGEST)
        elif kind == "proportions":
            x[:, d] = np.clip(_logistic(column), 1 / LARGEST, 1 - EDGE)
        elif kind == "angles":
            x[:, d] = np.pi * np.tanh(column / 2)
    return x


def log_derivative(v: np.ndarray, values: Sequence[Values]) -> np.ndarray:
    """``(N,)`` log T'(v) of all features together."""
    total = np.zeros(len(v))
    for d, kind in enumerate(values):
        column = v[:, d]
        if kind == "positive":
            total += column
        elif kind in ("proportions", "angles"):  # σ(v) σ(-v), and 2π of it
            total -= np.abs(column) + 2 * np.log1p(np.exp(-np.abs(column)))
            total += np.log(2 * np.pi) if kind == "angles" else 0.0
    return total


def limits(x: np.ndarray, kind: Values) -> tuple[float, float]:
    """The ends of an integral over v, beyond which a density around values ``x (N,)`` is taken to have nothing."""
    if kind == "positive":
        return float(np.log(NEAREST * np.median(x))), float(np.log(FARTHEST * x.max()))
    if kind == "proportions":
        return float(np.log(SMALLEST_PROPORTION)), float(-np.log(EDGE))
    return -np.inf, np.inf


def _logistic(v: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(v))
    return np.asarray(np.where(v >= 0, 1.0, small) / (1 + small))
