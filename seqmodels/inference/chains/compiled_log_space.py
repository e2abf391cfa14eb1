"""The forward pass of ``log_space`` as a compiled loop, for few sequences of many steps on a CPU.

One sequence has one row at each time, so that calls of tensor operations would take nearly all of the time. A step is
computed as in ``log_space.LogProduct``: in scaled numbers, and again as a sum of exponentials where the result is tiny.
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
    """Run the forward pass in log space over all times, for packed sequences and K states.

    Args:
        transition, log_transition: transition probabilities and their logarithms, ``(K, K)``.
        log_b: log-densities less the largest of each frame, ``(N, K)`` in packed rows.
        offsets: first row of each time, and N at the end, ``(T + 1,)``.
        predicted: log-probabilities predicted for the first step, ``(n, K)``; afterwards those for the step after the
            last.
        least_exact: smallest sum over states that is trusted in scaled numbers; a smaller one is computed from
            logarithms.
        log_alpha: result: log p(z_t | x_<=t), ``(N, K)``.
        log_scale: result: log p(x_t | x_<t), ``(N,)``, up to what was subtracted from ``log_b``.
    """
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
    """Read T steps of n sequences in the forward pass in log space, for a chain of K states.

    Rows are in time-major order: all first steps, then all second steps, and so on.

    Args:
        transition: transition probabilities, ``(K, K)``.
        log_transition: logarithms of ``transition``, ``(K, K)``.
        least_exact: smallest sum over states that is trusted in scaled numbers; a smaller one is computed from
            logarithms.
        log_b: log-densities, ``(T n, K)``, of any magnitude.
        log_predicted: log-probabilities of the states of the first step before it is read, ``(n, K)``.
        log_alpha: result: log p(z_t | x_<=t), ``(T n, K)``.
        after: result: predicted log-probabilities of the states after the last step, ``(n, K)``.
        log_prob: result: log-probability of each step in nats, ``(T n,)``.
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
    """Return log p(z_t | x_<=t), ``(N, K)``, and log p(x_t | x_<t), ``(N,)``, both float64, by compiled loops.

    The latter is relative to the largest density of the frame.

    Args:
        transition: transition probabilities, ``(K, K)``.
        log_b: log-densities in packed rows, ``(N, K)``; the largest of each frame is 0, or all are -inf.
        offsets: first row of each time, and N at the end, ``(T + 1,)``.
        log_starts: predicted log-probabilities of the first states, ``(w, K)`` by rank (longest first).
        least_exact: smallest sum over states that is trusted in scaled numbers; a smaller one is computed as a sum of
            exponentials.
    """
    log_alpha, log_scale = torch.empty(log_b.shape, dtype=log_b.dtype), log_b.new_empty(len(log_b))
    _forward(
        transition.contiguous().numpy(), transition.log().contiguous().numpy(), log_b.contiguous().numpy(),
        offsets.numpy(), log_starts.contiguous().clone().numpy(), least_exact, log_alpha.numpy(), log_scale.numpy(),
    )  # fmt: skip
    return log_alpha, log_scale
