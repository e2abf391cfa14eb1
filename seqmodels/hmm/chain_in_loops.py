"""A chain in compiled loops, for the few steps that a cursor reads at a time: what all share is computed once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.inference.compiled_log_space import advance
from seqmodels.observations import GaussianMixture, Observation

LogDensities = Callable[[np.ndarray], np.ndarray]


class ChainInLoops:
    """A chain as loops over steps.

    Args:
        transition: (K, K) float64.
        least_exact: what a sum over states in scaled numbers must exceed to be exact.
    """

    def __init__(self, transition: Tensor, least_exact: float) -> None:
        matrix = transition.contiguous()
        self._chain = matrix.numpy(), matrix.log().numpy(), least_exact

    def filter(self, log_predicted: np.ndarray, log_b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Beliefs after each of T steps of n sequences (T n, K), predictions of what is next (n, K), and log p (T n,).

        Args:
            log_predicted: (n, K) log-probabilities of the states of the first step before it is seen.
            log_b: (T n, K) log-densities, time by time.
        """
        log_alpha, after, log_prob = np.empty(log_b.shape), np.empty(log_predicted.shape), np.empty(len(log_b))
        advance(*self._chain, log_b, log_predicted, log_alpha, after, log_prob)
        return log_alpha, after, log_prob


def log_densities_of(observation: Observation, table: Tensor, size: int) -> LogDensities:
    """Return the function of frames ``x (n, ...)`` that returns ``(n, K)`` float64 log p(x | state), nats."""
    if observation.emits == "symbols":
        log_probs = observation.log_probs(table).double().T.contiguous().numpy()  # (V, K)
        return lambda x: log_probs[x]
    # Of a class derived from it nobody knows that its density is the same.
    if type(observation) is GaussianMixture and observation.shape_type == "diag":
        return _of_diagonal_mixtures(observation, table, size)
    return lambda x: observation.log_prob(table, torch.as_tensor(x, dtype=table.dtype).unsqueeze(1)).double().numpy()


def _of_diagonal_mixtures(observation: GaussianMixture, table: Tensor, size: int) -> LogDensities:
    from seqmodels.hmm.emissions.diagonal_loops import log_densities

    arrays = (np.ascontiguousarray(each.double().numpy()) for each in observation.unpack_all(table, size))
    log_weights, means, log_variances = arrays
    log_floor, is_single = math.log(observation.min_covariance), table.dtype == torch.float32
    K, M = log_weights.shape
    n_shares = M if M > 1 else 0

    def of_frames(x: np.ndarray) -> np.ndarray:
        frames = np.ascontiguousarray((x.astype(np.float32) if is_single else x).T, np.float64)
        log_b, shares = np.empty((len(x), K)), np.empty((n_shares, K, len(x)))
        log_densities(frames, True, log_weights, means, log_variances, log_floor, log_b, shares)
        return log_b

    return of_frames
