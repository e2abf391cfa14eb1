"""The forward pass of ``log_space`` as a compiled loop, for few sequences of many steps on a CPU.

One sequence has one row a time, of which calling tensor operations takes nearly all of the time. A step is computed as
``log_space.LogProduct`` does, in scaled numbers, and what is tiny in these again as a sum of exponentials.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.compiled_log_sum import log_dot


@compiled
def _forward(
    transition: np.ndarray,
    log_transition: np.ndarray,
    log_b: np.ndarray,
    offsets: np.ndarray,
    predicted: np.ndarray,
    least_exact: float,
    log_alpha: np.ndarray,
    log_scale: np.ndarray,
) -> None:
    """All times; ``predicted`` (n, K) has the logarithms of the predictions before a time, and then those after."""
    K = len(transition)
    joint, sums = np.empty(K), np.empty(K)
    for t in range(len(offsets) - 1):
        for row in range(offsets[t], offsets[t + 1]):
            ahead, here = predicted[row - offsets[t]], log_alpha[row]
            peak = -np.inf
            for j in range(K):
                here[j] = ahead[j] + log_b[row, j]
                peak = max(peak, here[j])
            if peak == -np.inf:  # impossible, and so is all that follows
                log_scale[row] = here.sum()  # NaN, where a density is
                ahead[:] = -np.inf
                continue
            total = 0.0
            for j in range(K):
                joint[j] = np.exp(here[j] - peak)
                total += joint[j]
                sums[j] = 0.0
            log_total = np.log(total)
            log_scale[row] = peak + log_total
            for i in range(K):
                here[i] -= log_scale[row]
                weight = joint[i]
                if weight > 0.0:
                    for j in range(K):
                        sums[j] += weight * transition[i, j]
            for j in range(K):
                if sums[j] > least_exact:
                    ahead[j] = np.log(sums[j]) - log_total
                else:
                    ahead[j] = log_dot(here, log_transition[:, j])


@compiled
def advance(
    transition: np.ndarray,
    log_transition: np.ndarray,
    least_exact: float,
    log_b: np.ndarray,
    log_predicted: np.ndarray,
    log_alpha: np.ndarray,
    after: np.ndarray,
    log_prob: np.ndarray,
) -> None:
    """Fill, for T steps of n sequences, beliefs ``log_alpha (T n, K)``, what each is worth, ``log_prob (T n,)``, and
    predictions ``after (n, K)`` them all.

    Rows are time by time. ``log_b (T n, K)`` are log-densities, whatever their size, and ``log_predicted (n, K)``
    log-probabilities of the states of the first step before it is seen.
    """
    n, (N, K) = len(log_predicted), log_b.shape
    relative, peaks, offsets = np.empty((N, K)), np.empty(N), np.arange(0, N + 1, n)
    for row in range(n):
        for j in range(K):
            after[row, j] = log_predicted[row, j]
    for row in range(N):
        peak = -np.inf
        for j in range(K):
            peak = log_b[row, j] if not log_b[row, j] <= peak else peak  # NaN, where one is
        peaks[row] = peak if peak != -np.inf else 0.0
        for j in range(K):
            relative[row, j] = log_b[row, j] - peaks[row]
    _forward(transition, log_transition, relative, offsets, after, least_exact, log_alpha, log_prob)
    for row in range(N):
        log_prob[row] += peaks[row]


def forward(
    transition: Tensor, log_b: Tensor, offsets: Tensor, log_starts: Tensor, least_exact: float
) -> tuple[Tensor, Tensor]:
    """Log alpha (N, K) and steps (N,), float64, from the predictions ``log_starts`` (w, K) by rank.

    Args:
        log_b: (N, K) packed, the largest of each frame 0 or all -inf.
        offsets: (T + 1,) the rows of each time.
        least_exact: of a sum in scaled numbers; below, it is computed as a sum of exponentials.
    """
    log_alpha, log_scale = torch.empty(log_b.shape, dtype=log_b.dtype), log_b.new_empty(len(log_b))
    _forward(
        transition.contiguous().numpy(), transition.log().contiguous().numpy(), log_b.contiguous().numpy(),
        offsets.numpy(), log_starts.contiguous().clone().numpy(), least_exact, log_alpha.numpy(), log_scale.numpy(),
    )  # fmt: skip
    return log_alpha, log_scale
