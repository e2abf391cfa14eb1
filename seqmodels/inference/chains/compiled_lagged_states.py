"""The passes of ``lagged_states`` as compiled loops in log space, for few sequences on a CPU.

There are K states, and M = K^p combinations of the last p of them, ``newest * R + rest`` with R = M / K. Densities have
D = M columns for each newest state, or D = 1 if they do not depend on the states before, with p = 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.compiled_log_sum import log_dot, log_sum
from seqmodels.inference.chains.packing import Packing


@compiled(allocates=False)
def _forward(
    offsets: np.ndarray,
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_start: np.ndarray,
    terms: np.ndarray,
    log_scale: np.ndarray,
    log_alpha: np.ndarray,
) -> None:
    """Run the forward pass over the last p of K states.

    Args:
        offsets: first of the N packed rows of each time, and N at the end, ``(T + 1,)``.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities, ``(N, K·D)``.
        log_start: log-probabilities of first states, ``(n, K)`` by rank (longest first).
        terms: buffer, ``(K,)``.
        log_scale: result: log p(x_t | x_<t), ``(N,)``.
        log_alpha: result: log p(last p states | x_<=t), ``(N, M)``.
    """
    K, M = log_a.shape[1], log_alpha.shape[1]
    R, D = M // K, log_b.shape[1] // K
    for t in range(len(offsets) - 1):
        for row in range(offsets[t], offsets[t + 1]):
            rank, of_row = row - offsets[t], row if len(log_a) > 1 else 0
            before = log_alpha[offsets[t - 1] + rank if t else row]
            for j in range(K):
                for rest in range(R):
                    if t == 0:
                        value = log_start[rank, j] + log_b[row, j * D] if rest == 0 else -np.inf
                    elif D == 1:
                        for i in range(K):
                            terms[i] = before[i] + log_a[of_row, i, j]
                        value = log_sum(terms) + log_b[row, j]
                    else:
                        for m in range(rest * K, (rest + 1) * K):
                            terms[m - rest * K] = before[m] + log_a[of_row, m // R, j] + log_b[row, j * D + m]
                        value = log_sum(terms)
                    log_alpha[row, j * R + rest] = value
            log_scale[row] = log_sum(log_alpha[row])
            if log_scale[row] > -np.inf:
                for m in range(M):
                    log_alpha[row, m] -= log_scale[row]


@compiled(allocates=False)
def _backward(
    offsets: np.ndarray,
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_scale: np.ndarray,
    log_alpha: np.ndarray,
    log_end: np.ndarray,
    log_beta: np.ndarray,
    newest: np.ndarray,
    factor: np.ndarray,
    gamma: np.ndarray,
    pairs: np.ndarray,
) -> None:
    """Run the backward pass: fill ``gamma`` and ``pairs``.

    Args:
        offsets, log_a, log_b: arguments of ``_forward``.
        log_scale, log_alpha: results of ``_forward``.
        log_end: log-probabilities of the end after each state, ``(n, K)`` by rank (longest first).
        log_beta: buffer for the messages, ``(n, M)`` by rank.
        newest: the newest state of each combination, ``(M,)``.
        factor: buffer, ``(K·D,)``.
        gamma: result: p(last p states | x), ``(N, M)``.
        pairs: result: p(p states before, z_t | x), ``(N, M, K)``; first rows are not changed.
    """
    K, M, n_times = log_a.shape[1], log_alpha.shape[1], len(offsets) - 1
    D, per_message = log_b.shape[1] // K, log_b.shape[1] // M
    for t in range(n_times - 1, -1, -1):
        n_after = 0 if t == n_times - 1 else offsets[t + 2] - offsets[t + 1]
        for row in range(offsets[t], offsets[t + 1]):
            rank, after = row - offsets[t], offsets[t + 1] + row - offsets[t]
            has_next, beta = rank < n_after, log_beta[rank]
            if has_next:
                a = log_a[after if len(log_a) > 1 else 0]
                scale = log_scale[after] if log_scale[after] > -np.inf else 0.0
                for m in range(M):
                    for c in range(m * per_message, (m + 1) * per_message):
                        factor[c] = log_b[after, c] + beta[m] - scale
                for m in range(M):
                    i, column = newest[m], m if D > 1 else 0
                    for j in range(K):
                        pairs[after, m, j] = a[i, j] + factor[j * D + column]
                    beta[m] = log_sum(pairs[after, m])
            else:
                for m in range(M):
                    beta[m] = log_end[rank, newest[m]]
            norm = log_dot(log_alpha[row], beta)
            norm = norm if norm > -np.inf else 0.0
            for m in range(M):
                gamma[row, m] = np.exp(log_alpha[row, m] + beta[m] - norm)
                beta[m] -= norm
            if has_next:
                for m in range(M):
                    for j in range(K):
                        pairs[after, m, j] = np.exp(log_alpha[row, m] + pairs[after, m, j] - norm)


@compiled(allocates=False)
def _best_paths(
    packed: tuple[np.ndarray, np.ndarray, np.ndarray],
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_start: np.ndarray,
    log_end: np.ndarray,
    shift: float,
    buffers: tuple[np.ndarray, np.ndarray, np.ndarray],
    newest: np.ndarray,
    oldest: np.ndarray,
    path: np.ndarray,
    log_prob: np.ndarray,
) -> None:
    """Fill ``path`` with the most probable states and ``log_prob`` with log p(path, x) of each sequence (Viterbi).

    Ties go to the lowest state. The arguments that are not listed are those of ``_forward`` and ``_backward``.

    Args:
        packed: row offsets ``(T + 1,)``, lengths ``(n,)`` by rank, and index of each sequence's first frame in
            ``path``.
        shift: number whose addition rounds every term to a grid; 0 rounds nothing.
        buffers: scores of the step before and of this one, ``(M,)``, and log-densities of this one, ``(K·D,)``.
        newest: the newest state of each combination, ``(M,)``.
        oldest: buffer for the oldest state of the best tuple of each row and combination, ``(N, M)``.
        path: result: states, one sequence after the other, ``(N,)``.
        log_prob: result: log p(path, x) in nats, ``(n,)`` by rank (longest first).
    """
    offsets, lengths, firsts = packed
    K, M, R = log_a.shape[1], oldest.shape[1], oldest.shape[1] // log_a.shape[1]
    D, (before, delta, b) = log_b.shape[1] // K, buffers
    for rank in range(len(lengths)):
        level = 0.0  # of what was subtracted from the scores to keep them small
        for t in range(lengths[rank]):
            row, peak, largest = offsets[t] + rank, -np.inf, -np.inf
            of_row = row if len(log_a) > 1 else 0
            for c in range(K * D):
                peak = max(peak, log_b[row, c])
            peak = peak if peak > -np.inf else 0.0
            for c in range(K * D):
                b[c] = ((log_b[row, c] - peak) + shift) - shift
            before, delta = delta, before
            for j in range(K):
                for rest in range(R):
                    target, best, state = j * R + rest, -np.inf, 0
                    if t == 0:
                        best = ((log_start[rank, j] + shift) - shift) + b[j * D] if rest == 0 else -np.inf
                    elif D == 1:
                        for i in range(K):
                            value = before[i] + ((log_a[of_row, i, j] + shift) - shift)
                            if value > best:
                                best, state = value, i
                        best += b[j]
                    else:
                        for i in range(K):
                            m = rest * K + i
                            value = before[m] + ((log_a[of_row, m // R, j] + shift) - shift) + b[j * D + m]
                            if value > best:
                                best, state = value, i
                    delta[target], oldest[row, target], largest = best, state, max(largest, best)
            largest = largest if largest > -np.inf else 0.0
            level += peak + largest
            for m in range(M):
                delta[m] -= largest
        best, index = -np.inf, 0
        for m in range(M):
            value = delta[m] + ((log_end[rank, newest[m]] + shift) - shift)
            if value > best:
                best, index = value, m
        log_prob[rank] = best + level
        for t in range(lengths[rank] - 1, -1, -1):
            path[firsts[rank] + t] = newest[index]
            index = (index - newest[index] * R) * K + oldest[offsets[t] + rank, index]


@compiled
def advance(
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_predicted: np.ndarray,
    log_alpha: np.ndarray,
    after: np.ndarray,
    log_prob: np.ndarray,
) -> None:
    """Read one step of n sequences in the forward pass over tuples of the last p + 1 of K states, with M = K^p.

    Args:
        log_a: log transition probabilities, ``(K, K)``.
        log_b: log-densities of the step, ``(n, K·M)``, of any magnitude.
        log_predicted: log-probabilities of the tuples before the step is read, ``(n, K·M)``.
        log_alpha: result: log-probabilities of the tuples given the step, ``(n, K·M)``.
        after: result: predicted log-probabilities of the tuples at the next step, ``(n, K·M)``.
        log_prob: result: log-probability of the step in nats, ``(n,)``.
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
    packing: Packing, log_a: Tensor, log_b: Tensor, log_start: Tensor, log_end: Tensor, shift: float
) -> tuple[Tensor, Tensor]:
    """Return the most probable states, ``(N,)``, one sequence after the other, and log p(path, x) in nats, ``(n,)``.

    The arguments that are not listed are those of ``lagged_states.forward``.

    Args:
        log_end: log-probabilities of the end after each state, ``(n, K)`` by rank (longest first).
        shift: number whose addition rounds every term to a grid; 0 rounds nothing.
    """
    packed, (N, K, D) = packing.arrays, log_b.shape
    M = max(K, D)
    buffers, newest = (np.empty(M), np.empty(M), np.empty(K * D)), np.arange(M) // (M // K)
    oldest, path, log_prob = np.empty((N, M), np.int16), np.empty(N, np.int64), np.empty(len(packed.lengths))
    arrays = _arrays(log_a, log_b.double().flatten(1), log_start, log_end)
    places = packed.offsets, packed.lengths, packed.firsts
    _best_paths(places, *arrays, shift, buffers, newest, oldest, path, log_prob)
    return torch.from_numpy(path), torch.from_numpy(packed.by_sequence(log_prob))


def forward(packing: Packing, log_a: Tensor, log_b: Tensor, log_start: Tensor) -> tuple[Tensor, Tensor]:
    """Run the forward pass in compiled loops; the arguments and results are those of ``lagged_states.forward``."""
    N, K, D = log_b.shape
    log_scale, log_alpha = np.empty(N), np.empty((N, max(K, D)))
    _forward(*_arrays(packing.offsets, log_a, log_b.flatten(1), log_start), np.empty(K), log_scale, log_alpha)
    return torch.from_numpy(log_scale), torch.from_numpy(log_alpha)


def backward(
    packing: Packing, log_a: Tensor, log_b: Tensor, log_scale: Tensor, log_alpha: Tensor, log_end: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the backward pass in compiled loops; the arguments and results are those of ``lagged_states.backward``."""
    (N, K, D), M = log_b.shape, log_alpha.shape[1]
    gamma, pairs = np.empty((N, M)), np.zeros((N, M, K))
    buffers = np.empty((packing.n_sequences, M)), np.arange(M) // (M // K), np.empty(K * D)
    arrays = _arrays(packing.offsets, log_a, log_b.flatten(1), log_scale, log_alpha, log_end)
    _backward(*arrays, *buffers, gamma, pairs)
    return torch.from_numpy(gamma), torch.from_numpy(pairs)


def _arrays(*tensors: Tensor) -> Iterator[np.ndarray]:
    return (each.contiguous().numpy() for each in tensors)
