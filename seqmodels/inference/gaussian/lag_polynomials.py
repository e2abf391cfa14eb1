"""Polynomials in the lag operator B, as arrays of their coefficients from lag 0 on: ``1 - 0.5 B`` is ``[1, -0.5]``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np


def lag_polynomial(numbers: Sequence[float]) -> np.ndarray:
    """Return the stationary polynomial ``1 - φ_1 B - ... - φ_p B^p`` of p unconstrained numbers (Monahan 1984).

    The hyperbolic tangents of the numbers are the partial autocorrelations of the autoregression.

    >>> lag_polynomial([math.atanh(0.5), math.atanh(0.2)]).round(12)
    array([ 1. , -0.4, -0.2])
    """
    coefficients: list[float] = []
    for partial in map(math.tanh, numbers):
        coefficients = [c - partial * b for c, b in zip(coefficients, coefficients[::-1], strict=True)] + [partial]
    return np.array([1.0, *(-c for c in coefficients)])


def in_seasonal_lags(polynomial: np.ndarray, season: int) -> np.ndarray:
    """Return the polynomial with ``B^season`` in the place of B.

    >>> in_seasonal_lags(np.array([1.0, -0.5]), 3)
    array([ 1. ,  0. ,  0. , -0.5])
    """
    result = np.zeros((len(polynomial) - 1) * season + 1)
    result[::season] = polynomial
    return result


def product(*polynomials: np.ndarray) -> np.ndarray:
    """Return the product of the polynomials; of none it is 1."""
    result = np.ones(1)
    for each in polynomials:
        result = np.convolve(result, each)
    return result


def difference(lag: int) -> np.ndarray:
    """Return ``1 - B^lag``, which takes the change from ``lag`` steps before."""
    polynomial = np.zeros(lag + 1)
    polynomial[0], polynomial[lag] = 1.0, -1.0
    return polynomial


@cache
def differences(d: int, seasonal_d: int, season: int) -> np.ndarray:
    """Return ``(1 - B)^d (1 - B^season)^seasonal_d``."""
    return product(*[difference(1)] * d, *[difference(season)] * seasonal_d)


def autocovariance(theta: np.ndarray) -> np.ndarray:
    """Return the autocovariances of a moving average ``θ(B) ε`` at lags 0 to q, ``(q + 1,)``.

    The noise ε has variance 1; ``theta (q + 1,)`` are the coefficients of θ.
    """
    return np.convolve(theta, theta[::-1])[len(theta) - 1 :]


def continued(a: np.ndarray, past: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the k values y that follow the values ``past (P,)`` in a series with ``a(B) y = u``, ``(k,)``.

    ``a`` are the coefficients of a lag polynomial, and ``u (k,)`` the right sides.
    """
    values = [*past.tolist()]
    for each in u.tolist():
        before = values[len(values) - len(a) + 1 :][::-1]
        values.append(each - float(np.dot(a[1:], before)))
    return np.array(values[len(past) :])


def inverse_filter(a: np.ndarray, k: int) -> np.ndarray:
    """Return the matrix ``(k, k)`` that takes k values of ``u = a(B) y`` back to y, which is zero before them."""
    response = continued(a, np.zeros(len(a) - 1), (np.arange(k) == 0).astype(float))
    rows, columns = np.indices((k, k))
    return np.where(rows >= columns, response[np.abs(rows - columns)], 0.0)
