"""The passes of ``lagged_states`` as compiled loops in log space, for few sequences on a CPU.

K is the number of states, and a tuple is a combination of a state and the M = K^p tuples of the p states before it.
"""

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
    """Run the forward pass over tuples of the last p + 1 of K states; there are M = K^p combinations of earlier states.

    Args:
        offsets: first of the N packed rows of each time, and N at the end, ``(T + 1,)``.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities, ``(N, K·M)``.
        log_start: log-probabilities of the tuples at first steps, ``(n, K·M)`` by rank (longest first).
        log_alpha: result: log p(tuple | x_<=t), ``(N, K·M)``.
        log_scale: result: log p(x_t | x_<t), ``(N,)``.
        merged: result: log-probabilities of the tuples without their oldest state, ``(N, M)``.
    """
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
    """Run the backward pass over tuples of states: fill ``gamma`` and add to ``xi``.

    Args:
        offsets, log_a, log_b: arguments of ``_forward``.
        log_alpha, log_scale, merged: results of ``_forward``.
        log_end: log-probabilities of the end of a sequence after each state.
        log_beta: buffer for the messages, ``(n, K·M)`` by rank (longest first).
        gamma: result: p(tuple | x), ``(N, K·M)``.
        xi: result: p(z_t-1, z_t | x), ``(N, K, K)``; first rows are not changed.
    """
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
    """Fill ``path`` with the most probable states and ``log_prob`` with log p(path, x) of each sequence (Viterbi).

    Ties go to the lowest state. The arguments that are not listed are those of ``_forward`` and ``_backward``.

    Args:
        packed: row offsets ``(T + 1,)``, lengths ``(n,)`` by rank, and index of each sequence's first frame in
            ``path``.
        oldest: buffer for the oldest state of the best tuple before each row, ``(N, M)``.
        path: result: states, one sequence after the other, ``(N,)``.
        log_prob: result: log p(path, x) in nats, ``(n,)`` by rank (longest first).
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
    packing: Packing, log_a: Tensor, log_b: Tensor, log_initial: Tensor, log_ends: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Return the most probable path of each sequence, a list of ``(T,)`` states, and log p(path, x) in nats, ``(n,)``.

    Args:
        packing: packing of the N rows.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities in nats of each state and each of the M = K^p combinations of p earlier states, ``(N, K,
            M)``.
        log_initial: log p(z_1), ``(n, K)`` by rank (longest first).
        log_ends: log p(end | last state), ``(K,)``; zeros if the end is no event.
    """
    n_rows, _, m = log_b.shape
    packed, path = packing.arrays, np.empty(n_rows, np.int64)
    oldest, log_prob = np.empty((n_rows, m), np.int32), np.empty(len(packed.lengths))
    a, b, start, end = (each.contiguous().numpy() for each in (log_a, log_b.flatten(1), log_initial, log_ends))
    _best_paths((packed.offsets, packed.lengths, packed.firsts), a, b, start, end, oldest, path, log_prob)
    paths = [torch.from_numpy(each) for each in packed.parts(path)]
    return paths, torch.from_numpy(packed.by_sequence(log_prob))


def forward(packing: Packing, log_a: Tensor, log_b: Tensor, log_initial: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run the forward pass over the last p + 1 of K states in compiled loops; M = K^p is the number of earlier tuples.

    Args:
        packing: packing of the N rows.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities less the largest of their row, ``(N, K, M)``.
        log_initial: log p(z_1), ``(n, K)`` by rank (longest first).

    Returns:
        log p(z_t, earlier states | x_<=t), ``(N, K, M)``; log p(x_t | x_<t) relative to the largest density of the row,
        ``(N,)``; and the first result with the oldest state of each tuple summed out, ``(N, M)``.
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
    """Run the backward pass in compiled loops, on the results of ``forward``.

    Args:
        packing: packing of the N rows.
        log_a: log-probabilities of the transitions into each row, ``(N, K, K)``, or ``(1, K, K)`` for all rows.
        log_b: log-densities less the largest of their row, ``(N, K, M)``.
        log_ends: log p(end | last state), ``(K,)``; zeros if the end is no event.
        log_alpha, log_scale, merged: the three results of ``forward``.

    Returns:
        p(z_t, earlier states | x), ``(N, K, M)``, and p(z_t-1, z_t | x), ``(N, K, K)``, zeros in first rows.
    """
    n_rows, k, m = log_b.shape
    gamma, xi = torch.zeros_like(log_b.flatten(1)), log_b.new_zeros(n_rows, k, k)
    messages = log_b.new_zeros(packing.n_sequences, k * m)
    given = (packing.offsets, log_a, log_b.flatten(1), log_alpha.flatten(1), log_scale, merged, log_ends)
    _backward(*(array.contiguous().numpy() for array in (*given, messages, gamma, xi)))
    return gamma.view_as(log_b), xi
