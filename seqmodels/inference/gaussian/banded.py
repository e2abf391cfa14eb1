"""Products with banded Cholesky factors: linear processes without a filter, arrays in and arrays out.

A moving average of order q has a covariance of bandwidth q, whose Cholesky factor L has too. ``L⁻¹`` takes a series to
independent steps; missing values are coefficients of a regression (Gómez, Maravall and Peña 1999).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np

from seqmodels.inference.gaussian.lag_polynomials import autocovariance

ROUNDING = 1e-14  # of the largest value of an input: the least change that is not taken for rounding
BLOCK = 32  # steps that are taken together


@cache
def _lapack() -> ModuleType:
    """Return SciPy's module of LAPACK functions; it is imported once because the import statement itself is slow."""
    from scipy.linalg import lapack  # lazily: scipy is slow to import

    return lapack


def banded_cholesky(covariance: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor of a banded covariance of n steps and bandwidth q.

    Both are ``(q + 1, n)``, with a row for the diagonal and for each diagonal below it.

    Raises:
        LinAlgError: a covariance that is not positive definite.
    """
    band, failed = _lapack().dpbtrf(covariance, lower=1)
    if failed:
        raise np.linalg.LinAlgError("the covariance has no Cholesky factor")
    factor: np.ndarray = band
    return factor


def solve_banded(band: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return ``L⁻¹ columns`` for C columns, ``(n, C)``, and a banded lower triangular matrix L.

    ``band (q + 1, n)`` has the diagonals of L, as ``banded_cholesky`` returns them.
    """
    whitened: np.ndarray = _lapack().dtbtrs(band, columns, uplo="L")[0]
    return whitened


def missing_columns(a: np.ndarray, n_steps: int, missing: np.ndarray) -> np.ndarray:
    """Return regressors whose coefficients are the M missing values of a series y, ``(n_steps - p, M)``.

    The target of the regression is ``a(B) y``. A column is ``a(B)`` applied to a series that is -1 at the place of the
    missing value and 0 elsewhere.

    Args:
        a: coefficients of a polynomial in the lag operator B, ``(p + 1,)``.
        n_steps: length of y.
        missing: steps of the missing values, ``(M,)``.
    """
    p = len(a) - 1
    columns = np.zeros((n_steps - p, len(missing)))
    for i, t in enumerate(missing.tolist()):
        lags = np.arange(max(p - t, 0), min(p, n_steps - 1 - t) + 1)
        columns[t + lags - p, i] = -a[lags]
    return columns


def filtered_columns(inputs: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return a lag polynomial applied to each of U series, ``(T - p, U)``.

    Results of the size of rounding errors are set to zero, so that an input that has not changed has no effect.

    Args:
        inputs: the series, ``(T, U)``.
        a: coefficients of the polynomial from lag 0 on, ``(p + 1,)``.
    """
    if not inputs.shape[1]:
        return np.zeros((len(inputs) - len(a) + 1, 0))
    filtered = np.stack([np.convolve(column, a, "valid") for column in inputs.T], axis=1)
    rounding = ROUNDING * np.abs(a).sum() * np.abs(inputs).max(axis=0, initial=0.0)
    return np.where(np.abs(filtered) > rounding, filtered, 0.0)


@dataclass(frozen=True)
class ARMAFactor:
    """The Cholesky factor of the covariance of n steps of a stationary ARMA process (Ansley 1979).

    The process w has ``φ(B) w_t = θ(B) ε_t``, with ε of variance 1 and B the lag operator. It is the factor of the
    covariance of u, which is w for the first p steps and ``φ(B) w`` after them. This covariance is banded but for the
    first p rows, and its determinant is that of the covariance of w.

    Attributes:
        ar: coefficients of φ, of order p, ``(p + 1,)``.
        head: factor of the first steps, ``(min(p, n), min(p, n))``.
        across: rows below the head that are not zero, ``(min(q, n - p), p)``, with q the order of θ.
        band: factor of the steps after the first p, ``(q + 1, n - p)``.
    """

    ar: np.ndarray
    head: np.ndarray
    across: np.ndarray
    band: np.ndarray

    @classmethod
    def of(cls, ar: np.ndarray, ma: np.ndarray, n_steps: int) -> ARMAFactor:
        """Return the factor of ``n_steps`` steps of an ARMA process.

        ``ar (p + 1,)`` and ``ma (q + 1,)`` are the coefficients of its autoregressive and moving-average polynomials,
        from lag 0 on.
        """
        p, q = len(ar) - 1, len(ma) - 1
        n_head, n_band = min(p, n_steps), max(n_steps - p, 0)
        gamma = autocovariance(ma)
        covariance = np.repeat(gamma[:, None], n_band, axis=1)
        n_across = min(q, n_band) if p else 0
        across = np.zeros((n_across, n_head))
        head = np.zeros((n_head, n_head))
        if p:
            with_noise = _covariances_with_noise(ar, ma)
            lags = np.abs(np.subtract.outer(np.arange(n_head), np.arange(n_head)))
            head = np.linalg.cholesky(_arma_autocovariance(ar, with_noise)[lags])
            apart = p + np.arange(n_across)[:, None] - np.arange(n_head)  # steps from each of the head to each below
            cross = np.where(apart <= q, with_noise[np.minimum(apart, q)], 0.0)
            across = _solve_lower(head, cross.T).T
            explained = across @ across.T
            for lag in range(min(q + 1, n_across)):
                covariance[lag, : n_across - lag] -= np.diagonal(explained, -lag)
        return cls(ar, head, across, banded_cholesky(covariance) if n_band else covariance)

    @property
    def diagonal(self) -> np.ndarray:
        """Diagonal of the factor, ``(n,)``: the standard deviation of each step given those before."""
        return np.concatenate([np.diagonal(self.head), self.band[0]])

    def whitened(self, columns: np.ndarray) -> np.ndarray:
        """Return C series of the process, ``columns (n, C)``, as independent steps of variance 1, ``(n, C)``."""
        p, n_head = len(self.ar) - 1, len(self.head)
        if not p or not len(columns):
            return solve_banded(self.band, columns) if len(columns) else columns
        first = _solve_lower(self.head, columns[:n_head])
        if len(columns) == n_head:
            return first
        rest = np.zeros((len(columns) - p, columns.shape[1]))
        for lag in np.flatnonzero(self.ar).tolist():
            rest += self.ar[lag] * columns[p - lag : len(columns) - lag]
        rest[: len(self.across)] -= self.across @ first
        return np.concatenate([first, solve_banded(self.band, rest)])


def _covariances_with_noise(ar: np.ndarray, ma: np.ndarray) -> np.ndarray:
    """Return covariances of an ARMA process w with its moving-average part, ``(q + 1,)``.

    They are ``E[w_t θ(B) ε_t+k]`` for k from 0 to q, where the noise ε has variance 1. ``ar`` and ``ma`` are the
    coefficients of φ ``(p + 1,)`` and θ ``(q + 1,)``.
    """
    q = len(ma) - 1
    weights = np.zeros(q + 1)  # of w in past noise
    for j in range(q + 1):
        n = min(j, len(ar) - 1)
        weights[j] = ma[j] - ar[1 : n + 1] @ weights[j - n : j][::-1]
    return np.correlate(ma, weights, "full")[q:]


def _arma_autocovariance(ar: np.ndarray, with_noise: np.ndarray) -> np.ndarray:
    """Return the autocovariances ``γ_0 .. γ_p`` of an ARMA process w, ``(p + 1,)``.

    They solve ``φ(B) γ_k = E[w_t-k θ(B) ε_t]``. ``ar (p + 1,)`` are the coefficients of φ, and ``with_noise (q + 1,)``
    the right sides.
    """
    p, lags = len(ar) - 1, np.arange(len(ar))
    padded = np.concatenate([np.zeros(p), ar, np.zeros(p)])
    before, after = np.subtract.outer(lags, lags), np.add.outer(lags, lags)
    equations = padded[p + before]
    equations[:, 1:] += padded[p + after[:, 1:]]  # γ is symmetric: lags below 0 are those above
    right = np.zeros(p + 1)
    n = min(len(ar), len(with_noise))
    right[:n] = with_noise[:n]
    return np.asarray(np.linalg.solve(equations, right))


def _solve_lower(factor: np.ndarray, columns: np.ndarray) -> np.ndarray:
    solved: np.ndarray = _lapack().dtrtrs(factor, columns, lower=1)[0]
    return solved


def log_probs_given_prior(
    white: np.ndarray, design: np.ndarray, mean: np.ndarray, root: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the one-step prediction errors of the series ``white``, a regression with Gaussian coefficients β.

    Args:
        white: n steps of each of S series, ``(n, S)``: ``design β`` plus independent noise of variance 1.
        design: regressors, ``(n, q)``, the same for all series.
        mean, root: mean of β, ``(q,)``, and a root of its covariance ``root @ root.T``, ``(q, q)``.

    Returns:
        The squared errors in units of their variances, ``(n, S)``, and the logarithms of their standard deviations,
        ``(n,)``.
    """
    if not len(mean):
        return white**2, np.zeros(len(white))
    squares, log_deviations = np.empty_like(white), np.empty(len(white))
    beta = np.repeat(mean[:, None], white.shape[1], axis=1)
    for start in range(0, len(white), BLOCK):
        here = slice(start, start + BLOCK)
        slopes = design[here] @ root  # of the errors in what of β is not known
        factor = np.linalg.cholesky(np.eye(len(slopes)) + slopes @ slopes.T)
        errors = _solve_lower(factor, white[here] - design[here] @ beta)
        gain = _solve_lower(factor, slopes)
        squares[here], log_deviations[here] = errors**2, np.log(np.diagonal(factor))
        beta = beta + root @ (gain.T @ errors)
        upper = np.asarray(np.linalg.qr(np.concatenate([np.eye(root.shape[1]), slopes]), mode="r"))
        root = _solve_lower(upper.T, root.T).T
    return squares, log_deviations
