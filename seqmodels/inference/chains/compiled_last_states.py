"""The passes of ``last_states`` as compiled loops, for few sequences on a CPU: all is in logarithms."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.compiled_log_sum import log_dot, log_sum
from seqmodels.inference.chains.packing import Packing


@compiled
def _forward(
    offsets: np.ndarray,
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_start: np.ndarray,
    log_alpha: np.ndarray,
    log_scale: np.ndarray,
    merged: np.ndarray,
) -> None:
    """``log_b``, ``log_alpha`` (N, K·M); ``merged`` (N, M) is where tuples without their oldest state are kept."""
    K, M = log_a.shape[1], merged.shape[1]
    for t in range(len(offsets) - 1):
        for row in range(offsets[t], offsets[t + 1]):
            rank, here = row - offsets[t], log_alpha[row]
            if t:
                before = merged[offsets[t - 1] + rank]
                a = log_a[row] if len(log_a) > 1 else log_a[0]
                for j in range(K):
                    for m in range(M):
                        here[j * M + m] = before[m] + a[m * K // M, j] + log_b[row, j * M + m]
            else:
                for j in range(K):
                    for m in range(M):
                        here[j * M + m] = log_start[rank, j] + log_b[row, j * M] if m == 0 else -np.inf
            log_scale[row] = log_sum(here)
            if log_scale[row] > -np.inf:
                for c in range(K * M):
                    here[c] -= log_scale[row]
            for m in range(M):
                merged[row, m] = log_sum(here[m * K : (m + 1) * K])


@compiled
def _backward(
    offsets: np.ndarray,
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_alpha: np.ndarray,
    log_scale: np.ndarray,
    merged: np.ndarray,
    log_end: np.ndarray,
    log_beta: np.ndarray,
    gamma: np.ndarray,
    xi: np.ndarray,
) -> None:
    """``log_beta`` (n, K·M) by rank is memory for the messages; a step after the last has no rows."""
    K, M, n_times = log_a.shape[1], merged.shape[1], len(offsets) - 1
    ahead, terms, of_next = np.empty(K * M), np.empty(K), np.empty(M)
    for t in range(n_times - 1, -1, -1):
        n_after = 0 if t == n_times - 1 else offsets[t + 2] - offsets[t + 1]
        for row in range(offsets[t], offsets[t + 1]):
            rank, after = row - offsets[t], offsets[t + 1] + row - offsets[t]
            has_next = rank < n_after
            beta = log_beta[rank]
            if has_next:
                a = log_a[after] if len(log_a) > 1 else log_a[0]
                scale = log_scale[after] if log_scale[after] > -np.inf else 0.0
                for j in range(K):
                    for m in range(M):
                        ahead[j * M + m] = log_b[after, j * M + m] + beta[j * M + m] - scale + a[m * K // M, j]
                for m in range(M):
                    for j in range(K):
                        terms[j] = ahead[j * M + m]
                    of_next[m] = log_sum(terms)
                for c in range(K * M):
                    beta[c] = of_next[c // K]
            else:
                for c in range(K * M):
                    beta[c] = log_end[c // M]
            norm = log_dot(log_alpha[row], beta)
            norm = norm if norm > -np.inf else 0.0
            for c in range(K * M):
                gamma[row, c] = np.exp(log_alpha[row, c] + beta[c] - norm)
            if has_next:
                for j in range(K):
                    for m in range(M):
                        xi[after, m * K // M, j] += np.exp(merged[row, m] + ahead[j * M + m] - norm)
            for c in range(K * M):
                beta[c] -= norm


@compiled
def _best_paths(
    packed: tuple[np.ndarray, np.ndarray, np.ndarray],
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_start: np.ndarray,
    log_end: np.ndarray,
    oldest: np.ndarray,
    path: np.ndarray,
    log_prob: np.ndarray,
) -> None:
    """Fill the states ``path (N,)``, one sequence after the other, and by rank ``log_prob (n,)``, log p(path, x).

    ``log_b (N, K·M)``; ``oldest (N, M)`` is memory for the oldest states of the tuples before. Ties go to the lowest.
    """
    offsets, lengths, firsts = packed
    K, M = log_a.shape[1], oldest.shape[1]
    delta, merged = np.empty(K * M), np.empty(M)
    for rank in range(len(lengths)):
        n_steps = lengths[rank]
        for t in range(n_steps):
            row = offsets[t] + rank
            of_row = row if len(log_a) > 1 else 0
            if t > 0:
                for m in range(M):
                    merged[m], oldest[row, m] = delta[m * K], 0
                    for i in range(1, K):
                        if delta[m * K + i] > merged[m]:
                            merged[m], oldest[row, m] = delta[m * K + i], i
            for j in range(K):
                for m in range(M):
                    if t > 0:
                        before = merged[m] + log_a[of_row, m * K // M, j]
                    else:
                        before = log_start[rank, j] if m == 0 else -np.inf
                    delta[j * M + m] = before + log_b[row, j * M + m]
        best, index = delta[0] + log_end[0], 0
        for c in range(1, K * M):
            value = delta[c] + log_end[c // M]
            if value > best:
                best, index = value, c
        log_prob[rank] = best
        for back in range(n_steps):
            t = n_steps - 1 - back
            path[firsts[rank] + t] = index // M
            before_it = index % M  # the tuple before, without its oldest state
            if t > 0:
                index = before_it * K + oldest[offsets[t] + rank, before_it]


@compiled
def advance(
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_predicted: np.ndarray,
    log_alpha: np.ndarray,
    after: np.ndarray,
    log_prob: np.ndarray,
) -> None:
    """Fill, for one step of n sequences, beliefs ``log_alpha (n, K·M)``, predictions ``after (n, K·M)`` of the next
    step, and what the step is worth, ``log_prob (n,)``.

    ``log_a (K, K)``; ``log_b (n, K·M)`` are log-densities, whatever their size, and ``log_predicted (n, K·M)``
    log-probabilities of the tuples before the step is seen.
    """
    K = len(log_a)
    M = log_b.shape[1] // K
    for row in range(len(log_b)):
        level, peak, total = -np.inf, -np.inf, 0.0
        for c in range(K * M):
            level = log_b[row, c] if not log_b[row, c] <= level else level  # NaN, where one is
        level = level if level != -np.inf else 0.0
        for c in range(K * M):
            log_alpha[row, c] = log_predicted[row, c] + (log_b[row, c] - level)
            peak = log_alpha[row, c] if not log_alpha[row, c] <= peak else peak
        if peak != -np.inf:
            for c in range(K * M):
                total += np.exp(log_alpha[row, c] - peak)
            peak += np.log(total)
            for c in range(K * M):
                log_alpha[row, c] -= peak
        log_prob[row] = level + peak
        for m in range(M):
            merged = log_sum(log_alpha[row, m * K : (m + 1) * K])
            for j in range(K):
                after[row, j * M + m] = merged + log_a[m * K // M, j]


def best_paths(
    packing: Packing, log_a: Tensor, log_b: Tensor, log_initial: Tensor, log_ends: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Return the most probable path of each sequence, ``(T,)`` states, and ``(n,)`` log p(path, x).

    Arguments as of ``forward`` and ``backward``, but that ``log_b`` is relative to nothing.
    """
    n_rows, _, m = log_b.shape
    packed, path = packing.arrays, np.empty(n_rows, np.int64)
    oldest, log_prob = np.empty((n_rows, m), np.int32), np.empty(len(packed.lengths))
    a, b, start, end = (each.contiguous().numpy() for each in (log_a, log_b.flatten(1), log_initial, log_ends))
    _best_paths((packed.offsets, packed.lengths, packed.firsts), a, b, start, end, oldest, path, log_prob)
    paths = [torch.from_numpy(each) for each in packed.parts(path)]
    return paths, torch.from_numpy(packed.by_sequence(log_prob))


def forward(packing: Packing, log_a: Tensor, log_b: Tensor, log_initial: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The forward pass.

    Args:
        packing: of the N rows.
        log_a: (1 or N, K, K) of each row the transitions into it.
        log_b: (N, K, M) log-densities, relative to the largest of each row.
        log_initial: (n, K) by rank.

    Returns:
        (N, K, M) log p(z_t, earlier states | x_<=t), (N,) log p(x_t | x_<t), and (N, M) the former without the oldest
        state.
    """
    n_rows, _, m = log_b.shape
    log_alpha, log_scale = torch.empty_like(log_b.flatten(1)), log_b.new_empty(n_rows)
    merged = log_b.new_empty(n_rows, m)
    arrays = (packing.offsets, log_a, log_b.flatten(1), log_initial, log_alpha, log_scale, merged)
    _forward(*(array.contiguous().numpy() for array in arrays))
    return log_alpha.view_as(log_b), log_scale, merged


def backward(
    packing: Packing,
    log_a: Tensor,
    log_b: Tensor,
    log_ends: Tensor,
    log_alpha: Tensor,
    log_scale: Tensor,
    merged: Tensor,
) -> tuple[Tensor, Tensor]:
    """The backward pass, after ``forward``, of whose results the last three are; ``log_ends`` (K,).

    Returns:
        (N, K, M) p(z_t, earlier states | x), and (N, K, K) p(z_t-1, z_t | x), zeros of first rows.
    """
    n_rows, k, m = log_b.shape
    gamma, xi = torch.zeros_like(log_b.flatten(1)), log_b.new_zeros(n_rows, k, k)
    messages = log_b.new_zeros(packing.n_sequences, k * m)
    given = (packing.offsets, log_a, log_b.flatten(1), log_alpha.flatten(1), log_scale, merged, log_ends)
    _backward(*(array.contiguous().numpy() for array in (*given, messages, gamma, xi)))
    return gamma.view_as(log_b), xi
