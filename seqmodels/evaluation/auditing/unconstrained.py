"""Unconstrained coordinates of features whose values are not all reals: ``x = T(v)``, so that ``p(v) = p(T(v)) T'(v)``.

Values above 0: ``x = e^v``; values between 0 and 1: ``x = 1 / (1 + e^-v)``; angles: ``x = π tanh(v / 2)``; other
features are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqmodels.sequences.measure import Values

LARGEST = 1e100  # largest positive value, and the inverse of the smallest
FARTHEST, NEAREST = 1e6, 1e-30  # an integral ends at these multiples of the largest and the median positive value
SMALLEST_PROPORTION = 1e-37  # smallest number that float32 holds with all its digits
EDGE = float(np.finfo(np.float64).eps) / 2  # distance from 1 of the largest float64 below it
ABOVE_0: tuple[Values, ...] = ("positive", "amounts")  # kinds of values that have a density above 0 alone
WHOLE: tuple[Values, ...] = ("bits", "counts", "rounded")  # kinds of values that have a probability and no density


def to_reals(x: np.ndarray, values: Sequence[Values]) -> np.ndarray:
    """Map values to unconstrained coordinates, which may be any reals, of the same shape ``(N, D)``.

    The logarithm is taken of positive values, the logit of proportions, ``2 artanh(x / π)`` of angles, and reals stay.
    A value at the end of its range gives a finite coordinate.

    Args:
        x: N vectors of D features, ``(N, D)``.
        values: kind of the values of each feature, such as ``"positive"``.
    """
    v = x.astype(np.float64)
    for d, kind in enumerate(values):
        column = v[:, d]
        if kind in ABOVE_0:
            v[:, d] = np.log(np.clip(column, 1 / LARGEST, LARGEST))
        elif kind == "proportions":
            clipped = np.clip(column, 1 / LARGEST, 1 - EDGE)
            v[:, d] = np.log(clipped) - np.log1p(-clipped)
        elif kind == "angles":
            v[:, d] = 2 * np.arctanh(np.clip(column / np.pi, EDGE - 1, 1 - EDGE))
    return v


def from_reals(v: np.ndarray, values: Sequence[Values]) -> np.ndarray:
    """Map unconstrained coordinates back to values, ``(N, D)``, the inverse of ``to_reals``.

    A value that would round to an end of its range becomes the nearest float inside.

    Args:
        v: coordinates of N vectors of D features, ``(N, D)``.
        values: kind of the values of each feature: ``"positive"``, ``"proportions"``, ``"angles"``, or another that
            stays.
    """
    x = v.astype(np.float64)
    for d, kind in enumerate(values):
        column = x[:, d]
        if kind in ABOVE_0:
            x[:, d] = np.clip(np.exp(np.clip(column, -np.log(LARGEST), np.log(LARGEST))), 1 / LARGEST, LARGEST)
        elif kind == "proportions":
            x[:, d] = np.clip(_logistic(column), 1 / LARGEST, 1 - EDGE)
        elif kind == "angles":
            x[:, d] = np.pi * np.tanh(column / 2)
    return x


def log_derivative(v: np.ndarray, values: Sequence[Values]) -> np.ndarray:
    """Return the log-derivative of the map from unconstrained coordinates to values, summed over features, ``(N,)``.

    Args:
        v: coordinates of N vectors of D features, ``(N, D)``.
        values: kind of the values of each feature, which determines the map: exponential for ``"positive"``, logistic
            for ``"proportions"``, ``π tanh(v / 2)`` for ``"angles"``, else the identity.
    """
    total = np.zeros(len(v))
    for d, kind in enumerate(values):
        column = v[:, d]
        if kind in ABOVE_0:
            total += column
        elif kind in ("proportions", "angles"):  # σ(v) σ(-v), and 2π times it for angles
            total -= np.abs(column) + 2 * np.log1p(np.exp(-np.abs(column)))
            total += np.log(2 * np.pi) if kind == "angles" else 0.0
    return total


def limits(x: np.ndarray, kind: Values) -> tuple[float, float]:
    """Return the limits, in unconstrained coordinates, for integrating the density of a feature around its values.

    Beyond the limits the density is taken to be zero.

    Args:
        x: N values of one feature, ``(N,)``.
        kind: kind of its values; the limits are infinite unless they are above 0 or proportions.
    """
    if kind in ABOVE_0:
        return float(np.log(NEAREST * np.median(x))), float(np.log(FARTHEST * x.max()))
    if kind == "proportions":
        return float(np.log(SMALLEST_PROPORTION)), float(-np.log(EDGE))
    return -np.inf, np.inf


def _logistic(v: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(v))
    return np.asarray(np.where(v >= 0, 1.0, small) / (1 + small))
