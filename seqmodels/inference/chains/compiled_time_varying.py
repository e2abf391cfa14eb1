"""The passes of ``time_varying`` as compiled loops in log space, for few sequences of many steps on a CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.compiled_log_sum import log_sum
from seqmodels.inference.chains.packing import Packing


@compiled
def _forward(
    offsets: np.ndarray,
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_start: np.ndarray,
    log_alpha: np.ndarray,
    log_scale: np.ndarray,
) -> None:
    K = log_b.shape[1]
    terms = np.empty(K)
    for t in range(len(offsets) - 1):
        for row in range(offsets[t], offsets[t + 1]):
            rank, here = row - offsets[t], log_alpha[row]
            for j in range(K):
                if t:
                    before = log_alpha[offsets[t - 1] + rank]
                    for i in range(K):
                        terms[i] = before[i] + log_a[row, i, j]
                    here[j] = log_sum(terms) + log_b[row, j]
                else:
                    here[j] = log_start[rank, j] + log_b[row, j]
            log_scale[row] = log_sum(here)
            if log_scale[row] > -np.inf:
                for j in range(K):
                    here[j] -= log_scale[row]


@compiled
def _backward(
    offsets: np.ndarray,
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_alpha: np.ndarray,
    log_scale: np.ndarray,
    log_end: np.ndarray,
    log_beta: np.ndarray,
    gamma: np.ndarray,
    xi: np.ndarray,
) -> None:
    """Run the backward pass in log space with transitions that differ from step to step: fill ``gamma`` and ``xi``.

    Args:
        offsets: first of the N packed rows of each time, and N at the end, ``(T + 1,)``.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``.
        log_b: log-densities, ``(N, K)``.
        log_alpha, log_scale: log p(z_t | x_<=t), ``(N, K)``, and log p(x_t | x_<t), ``(N,)``, of the forward pass.
        log_end: log-probabilities of the end after each state, ``(n, K)`` by rank (longest first).
        log_beta: buffer for the messages, ``(n, K)`` by rank.
        gamma: result: p(z_t | x), ``(N, K)``.
        xi: result: p(z_t-1, z_t | x), ``(N, K, K)``; first rows are not changed.
    """
    K, n_times = log_b.shape[1], len(offsets) - 1
    ahead, terms = np.empty(K), np.empty(K)
    for t in range(n_times - 1, -1, -1):
        n_after = 0 if t == n_times - 1 else offsets[t + 2] - offsets[t + 1]
        for row in range(offsets[t], offsets[t + 1]):
            rank, after = row - offsets[t], offsets[t + 1] + row - offsets[t]
            has_next = rank < n_after
            if has_next:
                scale = log_scale[after] if log_scale[after] > -np.inf else 0.0
                for j in range(K):
                    ahead[j] = log_b[after, j] + log_beta[rank, j] - scale
                for i in range(K):
                    for j in range(K):
                        xi[after, i, j] = log_a[after, i, j] + ahead[j]
                    log_beta[rank, i] = log_sum(xi[after, i])
            else:
                for i in range(K):
                    log_beta[rank, i] = log_end[rank, i]
            for i in range(K):
                terms[i] = log_alpha[row, i] + log_beta[rank, i]
            norm = log_sum(terms)
            norm = norm if norm > -np.inf else 0.0
            for i in range(K):
                gamma[row, i] = np.exp(terms[i] - norm)
            if has_next:
                for i in range(K):
                    for j in range(K):
                        xi[after, i, j] = np.exp(log_alpha[row, i] + xi[after, i, j] - norm)
            for i in range(K):
                log_beta[rank, i] -= norm


@compiled
def _best_paths(
    packed: tuple[np.ndarray, np.ndarray, np.ndarray],
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_start: np.ndarray,
    log_end: np.ndarray,
    shift: float,
    psi: np.ndarray,
    path: np.ndarray,
) -> None:
    """Fill ``path``, ``(N,)``, with the most probable states (Viterbi) under transitions that differ from step to step.

    ``log_a``, ``(N, K, K)``, are log-probabilities of the transitions into each row. ``packed`` is row offsets, lengths
    and first frames; ``psi``, ``(N, K)``, a buffer; the other arrays are the arguments of ``best_paths``.
    """
    offsets, lengths, firsts = packed
    K = log_b.shape[1]
    delta, arriving = np.empty(K), np.empty(K)
    for rank in range(len(lengths)):
        n_steps = lengths[rank]
        for j in range(K):
            arriving[j] = (log_start[rank, j] + shift) - shift
        for t in range(n_steps):
            row, peak, largest = offsets[t] + rank, -np.inf, -np.inf
            for j in range(K):
                peak = max(peak, log_b[row, j])
            for j in range(K):
                relative = log_b[row, j] - peak if peak > -np.inf else log_b[row, j]
                delta[j] = arriving[j] + ((relative + shift) - shift)
                largest = max(largest, delta[j])
            if largest > -np.inf:
                for j in range(K):
                    delta[j] -= largest
            if t + 1 < n_steps:
                after = offsets[t + 1] + rank
                for j in range(K):
                    best, state = delta[0] + ((log_a[after, 0, j] + shift) - shift), 0
                    for i in range(1, K):
                        value = delta[i] + ((log_a[after, i, j] + shift) - shift)
                        if value > best:
                            best, state = value, i
                    arriving[j], psi[after, j] = best, state
        best, state = delta[0] + ((log_end[rank, 0] + shift) - shift), 0
        for j in range(1, K):
            value = delta[j] + ((log_end[rank, j] + shift) - shift)
            if value > best:
                best, state = value, j
        path[firsts[rank] + n_steps - 1] = state
        for back in range(1, n_steps):
            t = n_steps - 1 - back
            state = psi[offsets[t + 1] + rank, state]
            path[firsts[rank] + t] = state


def best_paths(
    packing: Packing, log_a: Tensor, log_b: Tensor, log_start: Tensor, log_end: Tensor, shift: float
) -> Tensor:
    """Return the best paths of ``viterbi`` as states ``(N,)``, one sequence after the other.

    Args:
        packing: how the N rows make up n sequences.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``.
        log_b: log-densities in packed rows, ``(N, K)``.
        log_start: log-probabilities of first states, ``(n, K)`` by rank (longest first).
        log_end: log-probabilities of the end after each state, ``(n, K)`` by rank.
        shift: number whose addition rounds to the grid of ``viterbi``.
    """
    packed = packing.arrays
    psi, path = np.empty(log_b.shape, np.int16), np.empty(len(log_b), np.int64)
    a, b, start, end = (each.double().contiguous().numpy() for each in (log_a, log_b, log_start, log_end))
    _best_paths((packed.offsets, packed.lengths, packed.firsts), a, b, start, end, shift, psi, path)
    return torch.from_numpy(path)


def forward(packing: Packing, log_a: Tensor, log_b: Tensor, log_start: Tensor) -> tuple[Tensor, Tensor]:
    """Run the forward pass with transitions that differ from step to step in compiled loops.

    The arguments are those of ``time_varying.forward``.

    Returns:
        log p(z_t | x_<=t), ``(N, K)``, and log p(x_t | x_<t), ``(N,)``.
    """
    log_alpha, log_scale = torch.empty(log_b.shape, dtype=log_b.dtype), log_b.new_empty(len(log_b))
    arrays = (packing.offsets, log_a, log_b, log_start, log_alpha, log_scale)
    _forward(*(array.contiguous().numpy() for array in arrays))
    return log_alpha, log_scale


def backward(
    packing: Packing, log_a: Tensor, log_b: Tensor, log_alpha: Tensor, log_scale: Tensor, log_end: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the backward pass with transitions that differ from step to step in compiled loops.

    The arguments are those of ``time_varying.backward``.

    Returns:
        p(z_t | x), ``(N, K)``, and p(z_t-1, z_t | x), ``(N, K, K)``.
    """
    gamma, xi = torch.zeros(log_b.shape, dtype=log_b.dtype), torch.zeros(log_a.shape, dtype=log_a.dtype)
    messages = torch.zeros(log_end.shape, dtype=log_b.dtype)
    arrays = (packing.offsets, log_a, log_b, log_alpha, log_scale, log_end, messages, gamma, xi)
    _backward(*(array.contiguous().numpy() for array in arrays))
    return gamma, xi
