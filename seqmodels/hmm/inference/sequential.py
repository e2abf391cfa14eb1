"""Forward, backward and Viterbi recursions as compiled loops over one sequence after the other, for a CPU.

A step of a chain of few states is some tens of multiplications: calling a tensor operation takes a hundred times as
long, so that loops over time must be machine code at every size. numba compiles these when they are first called, and
keeps what it compiled. All is computed in float64, scaled at each step to a sum of one::

    alpha_t(j) = Σ_i alpha_t-1(i) a_ij b_j(x_t) / c_t      ahead_t(j) = b_j(x_t) beta_t(j) / c_t
    gamma_t(i) = alpha_t(i) beta_t(i)                      beta_t(i)  = Σ_j a_ij ahead_t+1(j)

What underflows on the way is a path lost. As in ``scaled``, the loops say for which sequences that may have mattered,
and those are computed again in logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.hmm.inference.packing import Packing
from seqmodels.hmm.inference.trellis import Filtered, Posterior, Trellis

TINY = 1e-290  # smaller values become zero, well above the subnormal numbers, which are slow and inexact
RECEIVED = 1e-270  # mass of a prediction, beside which what one step can lose is far below rounding
LARGEST_POWER = 640.0  # of e, in density over that of the likeliest state that can be reached
LARGEST_BETA = 1e270  # of a state that lost its mass; times ``TINY`` it is far below rounding
GAP = 1e-11  # nats by which the bounds of log p(x_1 .. x_t) may differ
DRIFT = 1e-12  # how far the sum of a row of gamma may be from one: what was lost after it is missing in the row before


@compiled(any_order=True)
def _forward(
    initial: np.ndarray,
    transition: np.ndarray,
    log_b: np.ndarray,
    offsets: np.ndarray,
    lengths: np.ndarray,
    alpha: np.ndarray,
    steps: np.ndarray,
    ratio: np.ndarray,
    is_suspect: np.ndarray,
) -> None:
    """Fill ``alpha (N, K)``, ``steps (N,)`` and, unless it is empty, ``ratio (N, K)``, the densities ``b_t(j) / c_t``.

    Rows are packed; ``initial (n, K)`` and ``lengths (n,)`` are by rank. ``is_suspect (n,)`` is set where mass was lost
    that others need not outweigh.
    """
    K, keeps_ratio = len(transition), len(ratio) > 0
    predicted, joint, b = np.empty(K), np.empty(K), np.empty(K)
    for rank in range(len(lengths)):
        for j in range(K):
            predicted[j] = initial[rank, j]
        for t in range(lengths[rank]):
            row = offsets[t] + rank
            peak = -np.inf
            for j in range(K):
                if predicted[j] > 0.0:
                    peak = max(peak, log_b[row, j])
            total, is_lost = 0.0, False
            for j in range(K):
                # Of a state that cannot be reached the density may be far larger: beta shows whether a lost path could.
                b[j] = np.exp(min(log_b[row, j] - peak, LARGEST_POWER)) if log_b[row, j] > -np.inf else 0.0
                value = predicted[j] * b[j]
                if value < TINY:
                    is_lost |= log_b[row, j] > -np.inf
                    if predicted[j] < TINY and log_b[row, j] > peak and t > 0:
                        for i in range(K):
                            is_suspect[rank] |= alpha[offsets[t - 1] + rank, i] > 0.0 and transition[i, j] > 0.0
                    value = 0.0
                joint[j] = value
                total += value
            if not total > TINY:  # impossible, all but, or NaN
                is_suspect[rank] = True
                total = 1.0
            steps[row] = np.log(total) + peak
            inverse = 1.0 / total
            for j in range(K):
                joint[j] *= inverse
                alpha[row, j] = joint[j]
                predicted[j] = 0.0
                if keeps_ratio:
                    ratio[row, j] = b[j] * inverse
            for i in range(K):
                weight = joint[i]
                for j in range(K):
                    predicted[j] += weight * transition[i, j]
            if is_lost:
                for j in range(K):
                    is_suspect[rank] |= predicted[j] < RECEIVED


@compiled(any_order=True)
def _bounds_differ(
    initial: np.ndarray,
    transition: np.ndarray,
    final: np.ndarray,
    log_b: np.ndarray,
    offsets: np.ndarray,
    length: int,
    rank: int,
    alpha: np.ndarray,
    steps: np.ndarray,
) -> bool:
    """Whether an upper bound of ``log p(x_1 .. x_t)`` leaves that of ``steps`` at any step of the sequence of a rank.

    The upper bound adds at each step, to each state of positive density, more than the step can have lost.
    """
    K = len(transition)
    predicted, joint = initial[rank].copy(), np.empty(K)
    gap, mass, row = 0.0, 0.0, 0
    for t in range(length):
        row = offsets[t] + rank
        peak = -np.inf
        for j in range(K):
            peak = max(peak, log_b[row, j])
        total = 0.0
        for j in range(K):
            joint[j] = 0.0
            if log_b[row, j] > -np.inf:
                joint[j] = predicted[j] * np.exp(log_b[row, j] - peak) + 2 * TINY
            total += joint[j]
        gap += np.log(total) + peak - steps[row]
        if not abs(gap) <= GAP:
            return True
        for j in range(K):
            joint[j] /= total
            predicted[j] = 0.0
        for i in range(K):
            for j in range(K):
                predicted[j] += joint[i] * transition[i, j]
    upper = 0.0
    for j in range(K):
        mass += alpha[row, j] * final[rank, j]
        upper += joint[j] * final[rank, j]
    return not abs(gap + np.log(upper + TINY) - np.log(mass)) <= GAP


@compiled(any_order=True)
def _backward(
    transition: np.ndarray,
    final: np.ndarray,
    log_b: np.ndarray,
    offsets: np.ndarray,
    lengths: np.ndarray,
    weights: np.ndarray,
    alpha: np.ndarray,
    ends: np.ndarray,
    gamma: np.ndarray,
    xi: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    has_failed: np.ndarray,
) -> None:
    """Fill ``gamma (N, K)``, which holds the densities ``b_t(j) / c_t`` before, and the sums over sequences.

    The sums are ``xi (K, K)``, ``first (K,)`` and ``last (K,)``; a sequence that ``has_failed`` adds nothing to them.
    ``ends (n,)`` is the mass of ``final`` under the last alpha, by rank.
    """
    K = len(transition)
    beta, ahead = np.empty(K), np.empty(K)
    sums, own = np.zeros((K, K)), np.empty((K, K))
    for rank in range(len(lengths)):
        if has_failed[rank]:
            continue
        n_steps, weight = lengths[rank], weights[rank]
        own[:] = 0.0
        for j in range(K):
            beta[j] = final[rank, j] / ends[rank]
        failed = False
        for back in range(n_steps):
            t = n_steps - 1 - back
            row = offsets[t] + rank
            norm = 0.0
            for j in range(K):
                norm += alpha[row, j] * beta[j]
            if not abs(norm - 1.0) <= DRIFT:
                failed = True
                break
            inverse = 1.0 / norm
            for j in range(K):
                beta[j] *= inverse
                ahead[j] = gamma[row, j] * beta[j]
                gamma[row, j] = alpha[row, j] * beta[j]
                # What was lost of a state, less than TINY, went on as beta says.
                failed |= alpha[row, j] == 0.0 and log_b[row, j] > -np.inf and not beta[j] < LARGEST_BETA
            if failed or t == 0:
                break
            before = offsets[t - 1] + rank
            for i in range(K):
                total, a = 0.0, alpha[before, i]
                for j in range(K):
                    total += transition[i, j] * ahead[j]
                    own[i, j] += a * ahead[j]
                beta[i] = total
        has_failed[rank] = failed
        if failed:
            continue
        begin, end = offsets[0] + rank, offsets[n_steps - 1] + rank
        for i in range(K):
            first[i] += weight * gamma[begin, i]
            last[i] += weight * gamma[end, i]
            for j in range(K):
                sums[i, j] += weight * own[i, j]
    for i in range(K):
        for j in range(K):
            xi[i, j] = sums[i, j] * transition[i, j]


@compiled(any_order=True)
def _best_paths(
    log_initial: np.ndarray,
    log_into: np.ndarray,
    log_final: np.ndarray,
    log_b: np.ndarray,
    offsets: np.ndarray,
    lengths: np.ndarray,
    psi: np.ndarray,
    path: np.ndarray,
) -> None:
    """Fill the states ``path (N,)``, packed; ``psi (N, K)`` is memory for the states before.

    All logarithms are on a grid, so that sums are exact; ``log_into[j, i] = log a_ij``. Ties go to the lowest state.
    """
    K = len(log_into)
    delta, arriving = np.empty(K), np.empty(K)
    for rank in range(len(lengths)):
        n_steps, row = lengths[rank], rank
        for j in range(K):
            arriving[j] = log_initial[rank, j]
        for t in range(n_steps):
            row = offsets[t] + rank
            largest = -np.inf
            for j in range(K):
                delta[j] = arriving[j] + log_b[row, j]
                largest = max(largest, delta[j])
            if largest > -np.inf:
                for j in range(K):
                    delta[j] -= largest
            if t + 1 < n_steps:
                after = offsets[t + 1] + rank
                for j in range(K):
                    best, state = delta[0] + log_into[j, 0], 0
                    for i in range(1, K):
                        value = delta[i] + log_into[j, i]
                        if value > best:
                            best, state = value, i
                    arriving[j], psi[after, j] = best, state
        best, state = delta[0] + log_final[rank, 0], 0
        for j in range(1, K):
            value = delta[j] + log_final[rank, j]
            if value > best:
                best, state = value, j
        path[row] = state
        for back in range(1, n_steps):
            t = n_steps - 1 - back
            state = psi[offsets[t + 1] + rank, state]
            path[offsets[t] + rank] = state


# -- of a Trellis ------------------------------------------------------------------------------------------------------


def forward_pass(trellis: Trellis) -> tuple[Filtered, Tensor]:
    """Return the forward pass of one chain, and ``(n,)`` whether it may be wrong for a sequence."""
    chain = _Arrays.of(trellis)
    alpha, steps, ends, has_failed = chain.forward(np.empty((0, 0)))
    for rank in np.flatnonzero(has_failed).tolist():
        has_failed[rank] = not np.isfinite(ends[rank]) or _bounds_differ(
            chain.initial, chain.transition, chain.final, chain.log_b, chain.offsets, int(chain.lengths[rank]), rank,
            alpha, steps,
        )  # fmt: skip
    beliefs = torch.from_numpy(alpha).to(trellis.densities.dtype)
    filtered = Filtered(beliefs, torch.from_numpy(steps), chain.by_sequence(ends))
    return filtered, chain.by_sequence(has_failed)


def forward_backward_pass(trellis: Trellis) -> tuple[Posterior, Tensor]:
    """Return the posterior, and ``(..., n)`` whether a sequence failed; one that did is left out of the sums."""
    passes = [_of_one_chain(chain) for chain in trellis.chains]
    if trellis.transition.dim() == 2:
        return passes[0]
    fields = [(p.log_prob, p.gamma, p.xi, p.initial, p.final, failed) for p, failed in passes]
    *sums, failed = (torch.stack(each) for each in zip(*fields, strict=True))
    return Posterior(*sums), failed


def _of_one_chain(trellis: Trellis) -> tuple[Posterior, Tensor]:
    chain, K = _Arrays.of(trellis), len(trellis.transition)
    gamma = np.empty(chain.log_b.shape)
    alpha, steps, ends, _ = chain.forward(gamma)
    has_failed = ~np.isfinite(ends)  # what was lost on the way is for the backward pass to see
    xi, first, last = np.empty((K, K)), np.zeros(K), np.zeros(K)
    log_prob = np.zeros(len(chain.lengths))
    _backward(
        chain.transition, chain.final, chain.log_b, chain.offsets, chain.lengths, chain.weights, alpha, np.exp(ends),
        gamma, xi, first, last, has_failed,
    )  # fmt: skip
    _add_steps(steps, chain.offsets, chain.lengths, log_prob)
    of_states = torch.from_numpy(gamma).to(trellis.densities.dtype)
    sums = (torch.from_numpy(each) for each in (xi, first, last))
    return Posterior(chain.by_sequence(log_prob + ends), of_states, *sums), chain.by_sequence(has_failed)


def best_path(trellis: Trellis, log_into: Tensor, log_starts: Tensor, log_ends: Tensor, log_b: Tensor) -> Tensor:
    """``(N,)`` int64: the best path of states of each sequence, one after the other, given logarithms on a grid.

    Args:
        trellis: the problem, of one chain and whole sequences.
        log_into: (K, K), ``log_into[j, i] = log a_ij``.
        log_starts, log_ends: (n, K) by rank.
        log_b: (N, K) packed, the largest of each frame 0.
    """
    packing = trellis.packing
    psi = np.empty(log_b.shape, np.uint8 if log_b.shape[1] <= 256 else np.int16)
    path = np.empty(len(log_b), np.int64)
    starts, into, ends, frames = (_numpy(each) for each in (log_starts, log_into, log_ends, log_b))
    _best_paths(starts, into, ends, frames, packing.offsets.numpy(), _by_rank(packing), psi, path)
    return packing.unpack(torch.from_numpy(path))


@compiled
def _add_steps(steps: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, log_prob: np.ndarray) -> None:
    """Add to ``log_prob (n,)``, by rank, the steps of each sequence, in the order of time."""
    for rank in range(len(lengths)):
        for t in range(lengths[rank]):
            log_prob[rank] += steps[offsets[t] + rank]


@dataclass(frozen=True)
class _Arrays:
    """A trellis of one chain as the loops take it: float64, and by rank where sequences differ."""

    packing: Packing
    initial: np.ndarray
    transition: np.ndarray
    final: np.ndarray
    log_b: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, trellis: Trellis) -> _Arrays:
        packing = trellis.packing
        order, n = packing.order.numpy(), packing.n_sequences
        initial, final = (
            _numpy(p) if len(p) == n else p.expand(n, -1).numpy() for p in (trellis.initial, trellis.final)
        )
        weights = np.ones(n) if trellis.weights is None else _numpy(trellis.weights)[order]
        return cls(
            packing, initial[order], _numpy(trellis.transition), final[order], _numpy(trellis.densities.log()), weights,
            packing.offsets.numpy(), _by_rank(packing),
        )  # fmt: skip

    def forward(self, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Alpha, steps, ``(n,)`` the logarithm of the mass of ``final`` and the suspects, both by rank."""
        alpha, steps = np.empty(self.log_b.shape), np.empty(len(self.log_b))
        is_suspect = np.zeros(len(self.lengths), bool)
        _forward(self.initial, self.transition, self.log_b, self.offsets, self.lengths, alpha, steps, ratio, is_suspect)
        last = alpha[self.offsets[self.lengths - 1] + np.arange(len(self.lengths))]
        end_mass = (last * self.final).sum(1)
        with np.errstate(divide="ignore"):
            return alpha, steps, np.log(end_mass), is_suspect | ~(end_mass > RECEIVED)

    def by_sequence(self, by_rank: np.ndarray) -> Tensor:
        """``(n,)`` values by rank, in the caller's order."""
        return torch.from_numpy(by_rank)[self.packing.rank]


def _by_rank(packing: Packing) -> np.ndarray:
    return np.asarray(packing.lengths.numpy()[packing.order.numpy()])


def _numpy(values: Tensor) -> np.ndarray:
    return np.ascontiguousarray(values.double().numpy())
