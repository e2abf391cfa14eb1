"""A chain in compiled loops, for the few steps that a cursor reads at a time; shared quantities are computed once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.inference.chains.compiled_log_space import advance
from seqmodels.observations import GaussianMixture, Observation
from seqmodels.observations.gaussian import precision_cholesky

FrameDensities = Callable[[np.ndarray], np.ndarray]


class ChainInLoops:
    """The forward pass of a Markov chain in compiled loops, which are fast for the few steps that a cursor reads.

    Args:
        transition: transition probabilities, ``(K, K)`` float64.
        least_exact: smallest sum of scaled probabilities that counts as exact; below it the loop computes in
            logarithms, because terms may have underflowed.
    """

    def __init__(self, transition: Tensor, least_exact: float) -> None:
        matrix = transition.contiguous()
        self._chain = matrix.numpy(), matrix.log().numpy(), least_exact

    def filter(self, log_predicted: np.ndarray, log_b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Run the forward pass over T steps of n sequences.

        Args:
            log_predicted: log-probabilities of the K states of the first step before it is seen, ``(n, K)``.
            log_b: log-densities of the steps in each state, first of the first step of all sequences, then of the
                second, and so on, ``(T n, K)``.

        Returns:
            Log p(z_t | x_1 .. x_t) of the states at each step, ``(T n, K)``; log-probabilities of the states of the
            next step, after the last ones, ``(n, K)``; and log p(x_t | x_<t) of each step, ``(T n,)``.
        """
        log_alpha, after, log_prob = np.empty(log_b.shape), np.empty(log_predicted.shape), np.empty(len(log_b))
        advance(*self._chain, log_b, log_predicted, log_alpha, after, log_prob)
        return log_alpha, after, log_prob


def log_densities_of(observation: Observation, table: Tensor, size: int) -> FrameDensities:
    """Return a function that takes frames and returns their log-densities in each of K states, in nats.

    The function takes vectors ``(n, D)`` or symbols ``(n,)`` as an array and returns ``(n, K)`` float64.

    Args:
        observation: family of the distributions of the states.
        table: output parameters of the states: the P numbers that the observation takes for each, ``(K, P)``.
        size: number of features or symbols.
    """
    if observation.emits == "symbols":
        log_probs = observation.log_probs(table).double().T.contiguous().numpy()  # (V, K)
        return lambda x: log_probs[x]
    by_tensors = partial(_by_tensors, observation, table)
    # A derived class may have another density.
    if type(observation) is not GaussianMixture:
        return by_tensors
    parts = observation.unpack_all(table, size)
    if observation.shape_type == "diag":
        return _of_diagonal_mixtures(*parts, observation.min_covariance)
    return _of_full_mixtures(*parts, observation.min_covariance, by_tensors)


def _by_tensors(observation: Observation, table: Tensor, x: np.ndarray) -> np.ndarray:
    return observation.log_prob(table, torch.as_tensor(x, dtype=table.dtype).unsqueeze(1)).double().numpy()


def _of_diagonal_mixtures(log_weights: Tensor, means: Tensor, shapes: Tensor, floor: float) -> FrameDensities:
    from seqmodels.hmm.emissions.diagonal_loops import log_densities

    parts = (np.ascontiguousarray(each.double().numpy()) for each in (log_weights, means, shapes))
    weights, centres, log_variances = parts
    K, M = log_weights.shape
    log_floor, n_shares, dtype = math.log(floor), M if M > 1 else 0, means.numpy().dtype

    def of_frames(x: np.ndarray) -> np.ndarray:
        frames = np.ascontiguousarray(_rounded(x, dtype).T, np.float64)
        log_b, shares = np.empty((len(x), K)), np.empty((n_shares, K, len(x)))
        log_densities(frames, True, weights, centres, log_variances, log_floor, log_b, shares)
        return log_b

    return of_frames


def _of_full_mixtures(
    log_weights: Tensor, means: Tensor, shapes: Tensor, floor: float, with_missing: FrameDensities
) -> FrameDensities:
    size, dtype = means.shape[-1], means.numpy().dtype
    factor = precision_cholesky(shapes.double(), size, floor)
    log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = (log_weights.double() + log_det - 0.5 * size * math.log(2 * math.pi)).numpy()  # (K, M)
    matrices, centres = factor.numpy(), means.double().numpy()  # (K, M, D, D), (K, M, D)

    def of_frames(x: np.ndarray) -> np.ndarray:
        if np.isnan(x).any():
            return with_missing(x)
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = _rounded(x, dtype).astype(np.float64)[:, None, None] - centres
            whitened = np.matmul(deviation[..., None, :], matrices)[..., 0, :]  # Lᵀ (x - mean)
            log_b = constant - 0.5 * np.square(whitened).sum(-1)  # (n, K, M)
            return np.asarray(np.logaddexp.reduce(log_b, axis=-1))

    return of_frames


def _rounded(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return ``x`` in ``dtype``, the precision in which the model reads data; too large values become infinite."""
    if x.dtype == dtype:
        return x
    with np.errstate(over="ignore"):
        return x.astype(dtype)
