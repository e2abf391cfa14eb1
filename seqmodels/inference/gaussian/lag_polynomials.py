"""Polynomials in the lag operator B, as arrays of their coefficients from lag 0 on: ``1 - 0.5 B`` is ``[1, -0.5]``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np


def lag_polynomial(numbers: Sequence[float]) -> np.ndarray:
    """Return the coefficients of a stationary lag polynomial for any p real numbers, ``(p + 1,)`` (Monahan 1984).

    The polynomial is ``1 - φ_1 B - ... - φ_p B^p``. The hyperbolic tangents of the numbers are the partial
    autocorrelations of the autoregression.

    >>> lag_polynomial([math.atanh(0.5), math.atanh(0.2)]).round(12)
    array([ 1. , -0.4, -0.2])
    """
    coefficients: list[float] = []
    for partial in map(math.tanh, numbers):
        coefficients = [c - partial * b for c, b in zip(coefficients, coefficients[::-1], strict=True)] + [partial]
    return np.array([1.0, *(-c for c in coefficients)])


def in_seasonal_lags(polynomial: np.ndarray, season: int) -> np.ndarray:
    """Return the coefficients of a lag polynomial with ``B^season`` in the place of B.

    >>> in_seasonal_lags(np.array([1.0, -0.5]), 3)
    array([ 1. ,  0. ,  0. , -0.5])
    """
    result = np.zeros((len(polynomial) - 1) * season + 1)
    result[::season] = polynomial
    return result


def product(*polynomials: np.ndarray) -> np.ndarray:
    """Return the coefficients of the product of lag polynomials, each given by its coefficients from lag 0 on.

    The product of none is 1.
    """
    result = np.ones(1)
    for each in polynomials:
        result = np.convolve(result, each)
    return result


def difference(lag: int) -> np.ndarray:
    """Return the coefficients of ``1 - B^lag``, which takes the change of a series since ``lag`` steps before."""
    polynomial = np.zeros(lag + 1)
    polynomial[0], polynomial[lag] = 1.0, -1.0
    return polynomial


@cache
def differences(d: int, seasonal_d: int, season: int) -> np.ndarray:
    """Return the coefficients of ``(1 - B)^d (1 - B^season)^seasonal_d``, a polynomial in the lag operator B."""
    return product(*[difference(1)] * d, *[difference(season)] * seasonal_d)


def autocovariance(theta: np.ndarray) -> np.ndarray:
    """Return the autocovariances of a moving average ``θ(B) ε`` at lags 0 to q, ``(q + 1,)``.

    The noise ε has variance 1; ``theta (q + 1,)`` are the coefficients of θ.
    """
    return np.convolve(theta, theta[::-1])[len(theta) - 1 :]


def continued(a: np.ndarray, past: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the next k values of a series y that satisfies ``a(B) y = u``, ``(k,)``.

    Args:
        a: coefficients of a polynomial in the lag operator B, from lag 0 on, with ``a[0]`` = 1.
        past: the values so far, ``(P,)``, at least as many as the polynomial has lags.
        u: the right sides, ``(k,)``.
    """
    values = [*past.tolist()]
    for each in u.tolist():
        before = values[len(values) - len(a) + 1 :][::-1]
        values.append(each - float(np.dot(a[1:], before)))
    return np.array(values[len(past) :])


def inverse_filter(a: np.ndarray, k: int) -> np.ndarray:
    """Return the matrix ``(k, k)`` that takes k values of ``u = a(B) y`` back to y, which is zero before them.

    ``a`` are the coefficients of a polynomial in the lag operator B, from lag 0 on.
    """
    response = continued(a, np.zeros(len(a) - 1), (np.arange(k) == 0).astype(float))
    rows, columns = np.indices((k, k))
    return np.where(rows >= columns, response[np.abs(rows - columns)], 0.0)
