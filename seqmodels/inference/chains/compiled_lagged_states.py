"""The passes of ``lagged_states`` as compiled loops in log space, for few sequences on a CPU.

There are K states, and M = K^p combinations of p of them. The number of a tuple of p + 1 states is ``newest * M +
earlier``, where ``earlier`` is the combination of all but the newest, and also ``last * K + oldest``, where ``last`` is
that of all but the oldest. Densities have D = M columns for each newest state; or D = 1 if they depend on no earlier
state. Then p is 1, and of a tuple only the newest state is kept.
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
    log_alpha: np.ndarray,
    log_scale: np.ndarray,
    merged: np.ndarray,
) -> None:
    """Run the forward pass over tuples of the last p + 1 of K states, with M = K^p combinations of p states.

    Args:
        offsets: first of the N packed rows of each time, and N at the end, ``(T + 1,)``.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities, ``(N, K·D)``, with D = M, or D = 1 if they depend on no earlier state.
        log_start: log-probabilities of first states, ``(n, K)`` by rank (longest first).
        terms: buffer, ``(K,)``.
        log_alpha: result: log p(tuple | x_<=t), ``(N, K·D)``.
        log_scale: result: log p(x_t | x_<t), ``(N,)``.
        merged: result: log p(last p states | x_<=t), ``(N, M)``; it is ``log_alpha`` if D is 1.
    """
    K, M, D = log_a.shape[1], merged.shape[1], log_b.shape[1] // log_a.shape[1]
    for t in range(len(offsets) - 1):
        for row in range(offsets[t], offsets[t + 1]):
            rank, here, of_row = row - offsets[t], log_alpha[row], row if len(log_a) > 1 else 0
            before = merged[offsets[t - 1] + rank if t else row]
            for j in range(K):
                for m in range(D):
                    if t == 0:
                        here[j * D + m] = log_start[rank, j] + log_b[row, j * D] if m == 0 else -np.inf
                    elif D == 1:
                        for i in range(K):
                            terms[i] = before[i] + log_a[of_row, i, j]
                        here[j] = log_sum(terms) + log_b[row, j]
                    else:
                        here[j * D + m] = before[m] + log_a[of_row, m * K // M, j] + log_b[row, j * D + m]
            log_scale[row] = log_sum(here)
            if log_scale[row] > -np.inf:
                for c in range(K * D):
                    here[c] -= log_scale[row]
            if D > 1:
                for m in range(M):
                    merged[row, m] = log_sum(here[m * K : (m + 1) * K])


@compiled(allocates=False)
def _backward(
    offsets: np.ndarray,
    log_a: np.ndarray,
    log_b: np.ndarray,
    log_alpha: np.ndarray,
    log_scale: np.ndarray,
    merged: np.ndarray,
    log_end: np.ndarray,
    log_beta: np.ndarray,
    newest: np.ndarray,
    factor: np.ndarray,
    ahead: np.ndarray,
    gamma: np.ndarray,
    xi: np.ndarray,
) -> None:
    """Run the backward pass over tuples of the last p + 1 of K states, with M = K^p combinations of p states.

    Args:
        offsets, log_a, log_b: first rows, transitions and log-densities, as ``_forward`` takes them.
        log_alpha, log_scale, merged: results of ``_forward``.
        log_end: log-probabilities of the end after each state, ``(n, K)`` by rank (longest first).
        log_beta: buffer for the messages, ``(n, K·D)`` by rank.
        newest: the newest state of each combination, ``(M,)``.
        factor, ahead: buffers, ``(K·D,)`` and ``(M, K)``.
        gamma: result: p(tuple | x), ``(N, K·D)``.
        xi: result: p(z_t-1, z_t | x), ``(N, K, K)``; first rows are not changed.
    """
    K, M, D, n_times = log_a.shape[1], merged.shape[1], log_b.shape[1] // log_a.shape[1], len(offsets) - 1
    alike = K * D // M  # tuples with the same last p states
    for t in range(n_times - 1, -1, -1):
        n_after = 0 if t == n_times - 1 else offsets[t + 2] - offsets[t + 1]
        for row in range(offsets[t], offsets[t + 1]):
            rank, after = row - offsets[t], offsets[t + 1] + row - offsets[t]
            has_next, beta = rank < n_after, log_beta[rank]
            if has_next:
                a = log_a[after if len(log_a) > 1 else 0]
                scale = log_scale[after] if log_scale[after] > -np.inf else 0.0
                for c in range(K * D):
                    factor[c] = log_b[after, c] + beta[c] - scale
                for m in range(M):
                    i, column = newest[m], m if D > 1 else 0
                    for j in range(K):
                        ahead[m, j] = factor[j * D + column] + a[i, j]
                    of_next = log_sum(ahead[m])
                    for c in range(m * alike, (m + 1) * alike):
                        beta[c] = of_next
            else:
                for c in range(K * D):
                    beta[c] = log_end[rank, c // D]
            norm = log_dot(log_alpha[row], beta)
            norm = norm if norm > -np.inf else 0.0
            for c in range(K * D):
                gamma[row, c] = np.exp(log_alpha[row, c] + beta[c] - norm)
                beta[c] -= norm
            if has_next:
                for m in range(M):
                    i = newest[m]
                    for j in range(K):
                        xi[after, i, j] += np.exp(merged[row, m] + ahead[m, j] - norm)


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
    """Find the most probable path of each sequence over tuples of the last p + 1 of K states (Viterbi).

    There are M = K^p combinations of p states, and D = M columns of densities, or 1 if they depend on no earlier state.
    Ties go to the lowest state.

    Args:
        packed: row offsets ``(T + 1,)``, lengths ``(n,)`` by rank, and index of each sequence's first frame in
            ``path``.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities, ``(N, K·D)``.
        log_start, log_end: log-probabilities of first states, and of the end after each state, ``(n, K)`` by rank
            (longest first).
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
            a = log_a[row if len(log_a) > 1 else 0]
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
                            value = before[i] + ((a[i, j] + shift) - shift)
                            if value > best:
                                best, state = value, i
                        best += b[j]
                    else:
                        for i in range(K):
                            m = rest * K + i
                            value = before[m] + ((a[newest[m], j] + shift) - shift) + b[j * D + m]
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
    """Return the most probable path of states of each sequence, ``(N,)``, and log p(path, x) in nats, ``(n,)``.

    Densities depend on the last p + 1 of K states; M = K^p. Paths lie one after the other.

    Args:
        packing: packing of the N rows.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities in nats, ``(N, K, M)``, or ``(N, K, 1)`` if they depend on no earlier state.
        log_start: log-probabilities of first states, ``(n, K)`` by rank (longest first).
        log_end: log-probabilities of the end after each state, ``(n, K)`` by rank.
        shift: number whose addition rounds every term to a grid; 0 rounds nothing.
    """
    packed, (N, K, D) = packing.arrays, log_b.shape
    M = max(K, D)
    buffers, newest = (np.empty(M), np.empty(M), np.empty(K * D)), np.arange(M) // (M // K)
    oldest, path, log_prob = np.empty((N, M), np.int16), np.empty(N, np.int64), np.empty(len(packed.lengths))
    a, b, start, end = _arrays(log_a, log_b.double().flatten(1), log_start, log_end)
    places = packed.offsets, packed.lengths, packed.firsts
    _best_paths(places, a, b, start, end, shift, buffers, newest, oldest, path, log_prob)
    return torch.from_numpy(path), torch.from_numpy(packed.by_sequence(log_prob))


def forward(packing: Packing, log_a: Tensor, log_b: Tensor, log_start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run the forward pass over tuples of the last p + 1 of K states in compiled loops, with M = K^p.

    Args:
        packing: packing of the N rows.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities less the largest of their row, ``(N, K, M)``, or ``(N, K, 1)`` if they depend on no earlier
            state.
        log_start: log-probabilities of first states, ``(n, K)`` by rank (longest first).

    Returns:
        log p(z_t, earlier states | x_<=t) in the shape of ``log_b``; log p(x_t | x_<t), ``(N,)``; and log p(last p
        states | x_<=t), ``(N, M)``.
    """
    N, K, D = log_b.shape
    log_alpha, log_scale = np.empty((N, K * D)), np.empty(N)
    merged = np.empty((N, D)) if D > 1 else log_alpha
    offsets, a, b, start = _arrays(packing.offsets, log_a, log_b.flatten(1), log_start)
    _forward(offsets, a, b, start, np.empty(K), log_alpha, log_scale, merged)
    return torch.from_numpy(log_alpha).view(N, K, D), torch.from_numpy(log_scale), torch.from_numpy(merged)


def backward(
    packing: Packing,
    log_a: Tensor,
    log_b: Tensor,
    log_end: Tensor,
    log_alpha: Tensor,
    log_scale: Tensor,
    merged: Tensor,
) -> tuple[Tensor, Tensor]:
    """Run the backward pass over tuples of the last p + 1 of K states in compiled loops, with M = K^p.

    Args:
        packing, log_a, log_b: arguments of ``forward``.
        log_end: log-probabilities of the end after each state, ``(n, K)`` by rank (longest first).
        log_alpha, log_scale, merged: results of ``forward``.

    Returns:
        p(z_t, earlier states | x) in the shape of ``log_b``, and p(z_t-1, z_t | x), ``(N, K, K)``, zeros in first rows.
    """
    (N, K, D), M = log_b.shape, merged.shape[1]
    gamma, xi = np.empty((N, K * D)), np.zeros((N, K, K))
    buffers = np.empty((packing.n_sequences, K * D)), np.arange(M) // (M // K), np.empty(K * D), np.empty((M, K))
    offsets, a, b, end = _arrays(packing.offsets, log_a, log_b.flatten(1), log_end)
    ran = log_alpha.flatten(1).numpy(), log_scale.numpy(), merged.numpy()
    _backward(offsets, a, b, *ran, end, *buffers, gamma, xi)
    return torch.from_numpy(gamma).view(N, K, D), torch.from_numpy(xi)


def _arrays(*tensors: Tensor) -> Iterator[np.ndarray]:
    return (each.contiguous().numpy() for each in tensors)
