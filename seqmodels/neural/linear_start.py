"""The linear prediction that a network of vectors starts from: ``x_t = A x_{t-1} + c + e_t``, by least squares."""

from __future__ import annotations

import numpy as np
import torch

from seqmodels.neural.batches import Row
from seqmodels.observations import LinearPrediction

RIDGE = 1e-3  # added to the mean square of every feature, and to every variance; features have about variance one
ROWS_IN_MEMORY = 1 << 16  # frames whose products are summed at once


def linear_prediction(rows: list[Row]) -> LinearPrediction | None:
    """Return the least-squares prediction of each scored frame from the one before, and a Gaussian of first frames.

    Frames with a missing value, and those after one, are left out.

    Args:
        rows: sequences of L vectors with D features, ``(L, D)``; a frame is weighted by its row's weight.

    Returns:
        The prediction, or None if fewer than ``4 (D + 1)`` frames are left: too few for an estimate.
    """
    size = rows[0].values.shape[1]
    moments, n_frames, n_pairs = np.zeros((2 * size + 1, 2 * size + 1)), 0.0, 0
    first = np.zeros((size + 1, size + 1))
    for row in rows:
        for begin in range(max(row.first, 1), len(row.values), ROWS_IN_MEMORY):
            frames = np.asarray(row.values[begin - 1 : begin + ROWS_IN_MEMORY], dtype=np.float64)
            pairs = _with_ones(np.concatenate([frames[1:], frames[:-1]], axis=1))  # the frame, the one before it, 1
            moments += row.weight * pairs.T @ pairs
            n_frames, n_pairs = n_frames + row.weight * len(pairs), n_pairs + len(pairs)
        if row.first == 0:
            start = _with_ones(np.asarray(row.values[:1], dtype=np.float64))
            first += row.weight * start.T @ start
    if n_pairs < 4 * (size + 1) or n_frames <= 0:
        return None
    moments /= n_frames
    of_past = moments[size:, size:] + RIDGE * np.diag([1.0] * size + [0.0])
    solution = np.linalg.solve(of_past, moments[size:, :size])  # (D + 1, D)
    residual = moments[:size, :size] - solution.T @ moments[size:, :size]
    residual = (residual + residual.T) / 2 - RIDGE * solution[:size].T @ solution[:size]
    mean = moments[-1, :size]
    # As if D + 1 more first frames had been seen, of the mean and the variances of all frames.
    count = first[-1, -1] + size + 1
    total = moments[:size, :size] - np.outer(mean, mean)
    first_mean = (first[-1, :size] + (size + 1) * mean) / count
    squares = first[:size, :size] + (size + 1) * (np.diag(np.diag(total)) + np.outer(mean, mean))
    arrays = (
        solution[:size].T,
        solution[size],
        _positive(residual),
        first_mean,
        _positive(squares / count - np.outer(first_mean, first_mean)),
    )
    return LinearPrediction(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))


def _with_ones(frames: np.ndarray) -> np.ndarray:
    """Return the frames of D features ``(N, D)`` that have no missing value, with a column of ones appended."""
    kept = frames[~np.isnan(frames).any(axis=1)]
    return np.concatenate([kept, np.ones((len(kept), 1))], axis=1)


def _positive(covariance: np.ndarray) -> np.ndarray:
    """Return the covariance matrix ``(D, D)`` with its eigenvalues raised to at least ``RIDGE``, a small number."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.maximum(values, RIDGE)) @ vectors.T)
