"""Linear algebra of small matrices: loops compiled by numba if it is installed, else calls of NumPy.

For matrices so small a call of LAPACK costs more than its arithmetic. And numba compiles a loop in a tenth of the time
that it takes for an expression of arrays, or for an assignment to part of an array, whose shapes it checks.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled, is_compiling

NEGLIGIBLE = 1e-280  # smaller sums of squares lose digits to underflow
WELL_CONDITIONED = 1e-3  # a factor of a correlation matrix with a larger diagonal is inverted as it is
SINGULAR = 1e-13  # smaller standard deviations of standardised states are rounding


@compiled(inner=True)
def _copy(source: np.ndarray, target: np.ndarray) -> None:
    for i in range(target.shape[0]):
        for j in range(target.shape[1]):
            target[i, j] = source[i, j]


def _copy_at_once(source: np.ndarray, target: np.ndarray) -> None:
    target[:] = source


# Set ``target (I, J)`` to ``source``.
copy = _copy if is_compiling() else _copy_at_once


@compiled(inner=True)
def _take_part(source: np.ndarray, row: int, column: int, target: np.ndarray) -> None:
    for i in range(target.shape[0]):
        for j in range(target.shape[1]):
            target[i, j] = source[row + i, column + j]


def _take_part_at_once(source: np.ndarray, row: int, column: int, target: np.ndarray) -> None:
    target[:] = source[row : row + target.shape[0], column : column + target.shape[1]]


# Set ``target (I, J)`` to the part of ``source`` that begins at ``row, column``.
take_part = _take_part if is_compiling() else _take_part_at_once


@compiled(inner=True)
def _set_part(target: np.ndarray, row: int, column: int, source: np.ndarray) -> None:
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[row + i, column + j] = source[i, j]


def _set_part_at_once(target: np.ndarray, row: int, column: int, source: np.ndarray) -> None:
    target[row : row + source.shape[0], column : column + source.shape[1]] = source


# Set the part of ``target`` that begins at ``row, column`` to ``source (I, J)``.
set_part = _set_part if is_compiling() else _set_part_at_once


@compiled(inner=True)
def _add_scaled(factor: float, source: np.ndarray, target: np.ndarray) -> None:
    for i in range(target.shape[0]):
        for j in range(target.shape[1]):
            target[i, j] += factor * source[i, j]


def _add_scaled_at_once(factor: float, source: np.ndarray, target: np.ndarray) -> None:
    target += factor * source


# Add ``factor * source`` to ``target (I, J)``.
add_scaled = _add_scaled if is_compiling() else _add_scaled_at_once


@compiled(inner=True)
def _set_to_transpose(source: np.ndarray, target: np.ndarray) -> None:
    for i in range(target.shape[0]):
        for j in range(target.shape[1]):
            target[i, j] = source[j, i]


def _set_to_transpose_at_once(source: np.ndarray, target: np.ndarray) -> None:
    target[:] = source.T


# Set ``target (I, J)`` to the transpose of ``source``.
set_to_transpose = _set_to_transpose if is_compiling() else _set_to_transpose_at_once


@compiled
def make_symmetric(matrix: np.ndarray) -> None:
    """Replace ``matrix``, ``(n, n)``, by the mean of itself and its transpose."""
    for i in range(matrix.shape[0]):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = 0.5 * (matrix[i, j] + matrix[j, i])


@compiled
def is_diagonal(matrix: np.ndarray) -> bool:
    """Return True if every entry of ``matrix``, ``(n, n)``, off its diagonal is 0."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            if i != j and matrix[i, j] != 0.0:
                return False
    return True


@compiled(inner=True)
def _triangular(block: np.ndarray) -> np.ndarray:
    """Return an upper triangular factor u with ``uᵀu = blockᵀ block`` for ``block (m, n)``, by Householder reflections.

    Loops are faster than LAPACK for small matrices.
    """
    m, n = block.shape
    upper, products = block.copy(), np.empty(n)
    for j in range(min(m, n)):
        below = 0.0
        for i in range(j + 1, m):
            below += upper[i, j] * upper[i, j]
        if below < NEGLIGIBLE:
            upper[j + 1 :, j] = 0.0
            continue
        head = upper[j, j]
        square = head * head + below
        alpha = -np.sqrt(square) if head > 0 else np.sqrt(square)
        upper[j, j] = head - alpha
        beta = 1.0 / (square - alpha * head)
        products[j + 1 :] = 0.0
        for i in range(j, m):
            v = upper[i, j]
            if v != 0.0:
                for k in range(j + 1, n):
                    products[k] += v * upper[i, k]
        for i in range(j, m):
            v = beta * upper[i, j]
            if v != 0.0:
                for k in range(j + 1, n):
                    upper[i, k] -= v * products[k]
        upper[j, j] = alpha
        upper[j + 1 :, j] = 0.0
    return upper[:n]


def _triangular_by_lapack(block: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.qr(block)[1])


# Return the upper triangular R ``(n, n)`` with ``RᵀR = blockᵀ block``, of a ``block (m, n)`` with m at least n.
triangular = _triangular if is_compiling() else _triangular_by_lapack


@compiled(inner=True)
def _inverse_of_upper(upper: np.ndarray) -> np.ndarray:
    n = len(upper)
    inverse = np.zeros((n, n))
    for i in range(n - 1, -1, -1):
        pivot = 1.0 / upper[i, i]
        inverse[i, i] = pivot
        for j in range(i + 1, n):
            factor = pivot * upper[i, j]
            if factor != 0.0:
                for k in range(j, n):
                    inverse[i, k] -= factor * inverse[j, k]
    return inverse


def _inverse_by_lapack(upper: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.inv(upper))


# Return the inverse of an upper triangular matrix ``(n, n)``.
inverse_of_upper = _inverse_of_upper if is_compiling() else _inverse_by_lapack


@compiled
def set_to_regression(upper: np.ndarray, product: np.ndarray, target: np.ndarray) -> None:
    """Fill ``target (K, J)`` with ``upper⁻¹ product``, for a triangular matrix ``upper (K, K)``.

    If it is singular, its pseudoinverse is taken, in units in which the variables have standard deviation one.
    ``product`` is ``(K, J)``.
    """
    K = len(upper)
    standardised, scale = np.empty((K, K)), np.empty(K)
    least = np.inf
    for j in range(K):
        square = 0.0
        for i in range(K):
            square += upper[i, j] * upper[i, j]
        scale[j] = np.sqrt(square) if square > 0 else 1.0
        for i in range(K):
            standardised[i, j] = upper[i, j] / scale[j]
        least = min(least, np.abs(standardised[j, j]))
    if least > WELL_CONDITIONED:
        np.dot(inverse_of_upper(standardised), product, target)
    else:
        left, singular, right = np.linalg.svd(standardised)
        turned = np.empty(target.shape)
        np.dot(left.T, product, turned)
        for i in range(K):
            inverse = 1.0 / singular[i] if singular[i] > SINGULAR * singular[0] else 0.0
            for j in range(target.shape[1]):
                turned[i, j] *= inverse
        np.dot(right.T, turned, target)
    for i in range(K):
        for j in range(target.shape[1]):
            target[i, j] /= scale[i]
