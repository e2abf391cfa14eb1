"""Forward, backward and Viterbi recursions as compiled loops over one sequence after the other, for a CPU.

A step of a chain of few states is some tens of multiplications, while calling a tensor operation takes a hundred times
as long, so that loops over time must be machine code at every size. numba compiles these when they are first called,
and caches the result. Everything is computed in float64, scaled at each step to a sum of one (Rabiner 1989, section
V.A)::

    alpha_t(j) = Σ_i alpha_t-1(i) a_ij b_j(x_t) / c_t      ahead_t(j) = b_j(x_t) beta_t(j) / c_t
    gamma_t(i) = alpha_t(i) beta_t(i)                      beta_t(i)  = Σ_j a_ij ahead_t+1(j)

A positive number that would underflow is raised to ``TINY``, so that zero means impossible and nothing else, and a
result is an upper bound. Its distance from the truth is known: the forward pass carries the share of what was added,
and in the backward pass ``Σ_i alpha_t(i) beta_t(i)`` falls short of one by what was added after t. Sequences for which
this is more than rounding are computed again, in logarithms.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.compiled_powers import power
from seqmodels.inference.chains.densities import LOG2E
from seqmodels.inference.chains.packing import PackedArrays
from seqmodels.inference.chains.threads import run_parts
from seqmodels.inference.chains.trellis import Filtered, Posterior, Trellis

TINY = 1e-200  # least positive number, whose products with all but the rarest others are normal and fast
RARE = 1e-100  # factors below this are compared before they are multiplied
LEAST_TOTAL = 1e-60  # beside such a sum, whatever one step can add is far below rounding
MOST_BY_STATE = 12  # number of states up to which sums are faster one state after the other
LEAST_PRODUCT = 1e-100  # the logarithm of a product of totals is taken before it falls below this
LEAST = 1e-240  # smaller posteriors, and factors of them, become zero
MOST_PARTS = 256  # largest number of parts that sequences are shared in among threads
WORTH_SHARING = 20_000_000  # number of comparisons from which a second thread gains
MOST_ADDED = 1e-12  # largest share of a sum of one that raising numbers to ``TINY`` may add


@compiled(any_order=True, inner=True)
def _relative_densities(log_b: np.ndarray, b: np.ndarray, peak: np.ndarray) -> None:
    """Fill ``b (N, K)`` with the densities relative to the largest of each row, from log-densities ``log_b``.

    ``peak``, ``(N,)``, is filled with the logarithm of that largest, in nats.
    """
    N, K = log_b.shape
    for row in range(N):
        largest = log_b[row, 0]
        for j in range(1, K):
            largest = max(largest, log_b[row, j])
        largest = largest if largest > -np.inf else 0.0
        peak[row] = largest
        for j in range(K):
            b[row, j] = (log_b[row, j] - largest) * LOG2E
    flat = b.ravel()
    for i in range(N * K):
        flat[i] = power(flat[i], True) if flat[i] > -1000.0 or flat[i] != flat[i] else 0.0


@compiled(any_order=True)
def forward(
    initial: np.ndarray,
    transition: np.ndarray,
    final: np.ndarray,
    log_b: np.ndarray,
    offsets: np.ndarray,
    lengths: np.ndarray,
    alpha: np.ndarray,
    ratio: np.ndarray,
    steps: np.ndarray,
    ends: np.ndarray,
    log_prob: np.ndarray,
    is_posterior: bool,
    has_failed: np.ndarray,
) -> None:
    """Run the forward recursion over sequences of N frames in all, one after the other, with K states.

    Args:
        initial: distribution of the first state, ``(1, K)`` or ``(n, K)`` by rank (longest first).
        transition: transition probabilities, ``(K, K)``.
        final: probability that the sequence ends after each state, ``(1, K)`` or ``(n, K)`` by rank; ones if the length
            has no probability.
        log_b: log-densities in nats, ``(N, K)`` in packed rows.
        offsets: first row of each time, and N at the end.
        lengths: number of frames of each sequence, ``(n,)`` by rank.
        alpha: result: p(z_t | x_<=t), ``(N, K)``.
        ratio: result: ``b_t(j) / c_t``, ``(N, K)``, as ``backward`` needs it.
        steps: result: log p(x_t | x_<t) in nats, ``(N,)``; if ``is_posterior``, only the largest log-density of each
            frame.
        ends: result: logarithm of the mass of ``final`` under the last alpha, ``(n,)`` by rank.
        log_prob: result: log p(x) in nats, ``(n,)`` by rank.
        is_posterior: True if ``backward`` follows, which then finds out whether the bound holds.
        has_failed: result: True where the bound is too far from the truth, ``(n,)`` by rank.
    """
    K = len(transition)
    predicted, joint, into = np.empty(K), np.empty(K), np.empty((K, K))
    for i in range(K):
        for j in range(K):
            into[j, i] = transition[i, j]
    added, added_before = np.empty(K), np.empty(K)  # share of ``joint`` that was added by raising numbers
    _relative_densities(log_b, ratio, steps)
    for rank in range(len(lengths)):
        failed, has_added, is_possible, is_plain = False, False, True, True
        row, log_total, product = 0, 0.0, 1.0
        start = initial[rank if len(initial) > 1 else 0]
        for j in range(K):
            predicted[j], added[j], added_before[j] = start[j], 0.0, 0.0
        for t in range(lengths[rank]):
            row = offsets[t] + rank
            b, total, least, is_raised = ratio[row], 0.0, np.inf, False
            if is_plain:
                for j in range(K):
                    value = predicted[j] * b[j]
                    joint[j] = value
                    total += value
                    least = min(least, value)
                is_plain = least >= TINY and total < np.inf
            if not is_plain:  # some number is zero, or might underflow, or is NaN
                total, least = 0.0, np.inf
                for j in range(K):
                    value = 0.0
                    if predicted[j] > 0.0 and b[j] > 0.0:
                        if b[j] < RARE and (predicted[j] < RARE or b[j] < TINY):
                            value, is_raised = TINY, True
                        else:
                            value = predicted[j] * b[j]
                            if value < TINY:
                                value, is_raised = TINY, True
                    elif predicted[j] > 0.0 and log_b[row, j] != -np.inf:
                        value, is_raised = TINY, True
                    joint[j] = value
                    total += value
                    least = min(least, value)
                is_plain = least > TINY and total < np.inf  # then the next frame may be plain too
            if not total > LEAST_TOTAL:  # no reachable state has a density near the largest
                peak, total, is_possible = -np.inf, 0.0, False
                for j in range(K):
                    if predicted[j] > 0.0:
                        is_possible |= log_b[row, j] != -np.inf
                        if log_b[row, j] > peak:
                            peak = log_b[row, j]
                for j in range(K):
                    b[j], joint[j] = 0.0, 0.0
                    if predicted[j] > 0.0 and log_b[row, j] != -np.inf:
                        b[j] = np.exp(log_b[row, j] - peak)
                        joint[j] = predicted[j] * b[j]
                        if joint[j] < TINY:
                            joint[j], is_raised = TINY, True
                    total += joint[j]
                steps[row] = peak
            if not is_possible:
                for later in range(t, lengths[rank]):
                    row = offsets[later] + rank
                    steps[row] = -np.inf
                    for j in range(K):
                        alpha[row, j] = 0.0
                break
            if not total > 0.0:  # NaN
                failed, total = True, 1.0
            if (has_added or is_raised) and not is_posterior:
                share = 0.0
                for j in range(K):
                    added[j] = TINY if is_raised and joint[j] == TINY else added_before[j] * b[j]
                    added[j] /= total
                    share += added[j]
                    added_before[j] = 0.0
                for i in range(K):
                    for j in range(K):
                        added_before[j] += added[i] * transition[i, j]
                failed |= not share <= MOST_ADDED
                has_added = True
            if is_posterior:
                log_total += steps[row]
                product *= total
                if product < LEAST_PRODUCT:
                    log_total += np.log(product)
                    product = 1.0
            else:
                steps[row] += np.log(total)
                log_total += steps[row]
            inverse, least = 1.0 / total, np.inf
            for j in range(K):
                joint[j] *= inverse
                alpha[row, j] = joint[j]
                b[j] *= inverse
            if K <= MOST_BY_STATE:
                for j in range(K):
                    value = 0.0
                    for i in range(K):
                        value += joint[i] * into[j, i]
                    predicted[j] = value
                    least = min(least, value)
            else:
                for j in range(K):
                    predicted[j] = 0.0
                for i in range(K):
                    value = joint[i]
                    for j in range(K):
                        predicted[j] += value * transition[i, j]
                for j in range(K):
                    least = min(least, predicted[j])
            if not least >= TINY:
                for j in range(K):
                    if predicted[j] < TINY:
                        for i in range(K):
                            if joint[i] > 0.0 and transition[i, j] > 0.0:
                                predicted[j], added_before[j], has_added = TINY, TINY, True
        end, share, stop = 0.0, 0.0, final[rank if len(final) > 1 else 0]
        if is_possible:
            is_possible = False
            for j in range(K):
                end += joint[j] * stop[j]
                is_possible |= joint[j] > 0.0 and stop[j] > 0.0
                if has_added:
                    share += added[j] * stop[j]
            failed |= is_possible and (not end > TINY or not share <= MOST_ADDED * end)
        ends[rank] = np.log(end) if is_possible else -np.inf
        log_prob[rank] = log_total + np.log(product) + ends[rank]
        has_failed[rank] = failed and (not is_posterior or not end > TINY)


@compiled(any_order=True)
def backward(
    initial: np.ndarray,
    transition: np.ndarray,
    final: np.ndarray,
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
    """Run the backward recursion over sequences of N frames in all, one after the other, with K states.

    Args:
        initial: distribution of the first state, ``(1, K)`` or ``(n, K)`` by rank (longest first).
        transition: transition probabilities, ``(K, K)``.
        final: probability that the sequence ends after each state, ``(1, K)`` or ``(n, K)`` by rank; ones if the length
            has no probability.
        offsets: first row of each time, and N at the end.
        lengths: number of frames of each sequence, ``(n,)`` by rank.
        weights: weight of each sequence in the sums, ``(n,)`` by rank.
        alpha, ends: results of ``forward``. A sequence whose ``ends`` is -inf gets a gamma of zeros.
        gamma: result: p(z_t | x), ``(N, K)``; before, it holds the result ``ratio`` of ``forward``.
        xi, first, last: sums over sequences of expected transitions ``(K, K)``, first states ``(K,)`` and last states
            ``(K,)``, which are added to.
        has_failed: True where the result may be wrong, ``(n,)`` by rank; it is updated, and such sequences are not
            added to the sums.
    """
    K = len(transition)
    beta, ahead = np.empty(K), np.empty(K)
    sums, of_sequence = np.empty((K, K)), np.empty((K, K))
    for i in range(K):
        for j in range(K):
            sums[i, j] = 0.0
    for rank in range(len(lengths)):
        n_steps, weight, failed = lengths[rank], weights[rank], has_failed[rank]
        if ends[rank] == -np.inf:
            for t in range(n_steps):
                for j in range(K):
                    gamma[offsets[t] + rank, j] = 0.0
        if failed or ends[rank] == -np.inf:
            continue
        start, stop = initial[rank if len(initial) > 1 else 0], final[rank if len(final) > 1 else 0]
        scale = np.exp(-ends[rank])
        for i in range(K):
            beta[i] = stop[i] * scale
            for j in range(K):
                of_sequence[i, j] = 0.0
        for back in range(n_steps):
            t = n_steps - 1 - back
            row, norm = offsets[t] + rank, 0.0
            for j in range(K):
                norm += alpha[row, j] * beta[j]
            if not abs(norm - 1.0) <= MOST_ADDED:
                failed = True
                break
            inverse = 1.0 / norm
            for j in range(K):
                beta[j] *= inverse
                ahead[j] = gamma[row, j] * beta[j]
                ahead[j] = ahead[j] if ahead[j] > LEAST else 0.0
                gamma[row, j] = alpha[row, j] * beta[j]
            if t == 0:
                break
            before = offsets[t - 1] + rank
            for i in range(K):
                total, belief = 0.0, alpha[before, i]
                for j in range(K):
                    total += transition[i, j] * ahead[j]
                beta[i] = total
                if belief * total > LEAST:
                    for j in range(K):
                        of_sequence[i, j] += belief * ahead[j]
        norm = 0.0
        for j in range(K):
            norm += start[j] * ahead[j]
        failed |= not abs(norm - 1.0) <= MOST_ADDED
        has_failed[rank] = failed
        if failed:
            continue
        begin, end = offsets[0] + rank, offsets[n_steps - 1] + rank
        for i in range(K):
            first[i] += weight * gamma[begin, i]
            last[i] += weight * gamma[end, i]
            for j in range(K):
                sums[i, j] += weight * of_sequence[i, j]
    for i in range(K):
        for j in range(K):
            xi[i, j] += sums[i, j] * transition[i, j]


@compiled
def _best_paths(
    initial: np.ndarray,
    transition: np.ndarray,
    final: np.ndarray,
    log_b: np.ndarray,
    packed: tuple[np.ndarray, np.ndarray, np.ndarray],
    ranks: tuple[int, int],
    shift: float,
    psi: np.ndarray,
    path: np.ndarray,
    log_prob: np.ndarray,
) -> None:
    """Find the most probable path of each sequence of a range of ranks (Viterbi); ties go to the lowest state.

    Args:
        initial: distribution of the first state, ``(1, K)`` or ``(n, K)`` by rank (longest first).
        transition: transition probabilities, ``(K, K)``.
        final: probability that the sequence ends after each state, ``(1, K)`` or ``(n, K)`` by rank.
        log_b: log-densities in nats, ``(N, K)`` in packed rows.
        packed: first row of each time, length of each sequence, and index of its first frame in ``path``.
        ranks: first rank, and the first after the last.
        shift: number whose addition and subtraction rounds every term to a grid, so that sums are exact.
        psi: buffer for the states before, ``(N, K)``.
        path: result: states, one sequence after the other, ``(N,)``.
        log_prob: result: log p(path, x) in nats, ``(n,)`` by rank.
    """
    offsets, lengths, firsts = packed
    K = len(transition)
    log_a, into = np.empty((K, K)), np.empty((K, K))
    delta, arriving, stop = np.empty(K), np.empty(K), np.empty(K)
    for i in range(K):
        for j in range(K):
            log_a[i, j] = np.log(transition[i, j])
            into[j, i] = (log_a[i, j] + shift) - shift
    for rank in range(ranks[0], ranks[1]):
        n_steps, row = lengths[rank], rank
        start, end = rank if len(initial) > 1 else 0, rank if len(final) > 1 else 0
        for j in range(K):
            arriving[j] = (np.log(initial[start, j]) + shift) - shift
            stop[j] = (np.log(final[end, j]) + shift) - shift
        for t in range(n_steps):
            row = offsets[t] + rank
            peak, largest = -np.inf, -np.inf
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
                    best, state = delta[0] + into[j, 0], 0
                    for i in range(1, K):
                        value = delta[i] + into[j, i]
                        if value > best:
                            best, state = value, i
                    arriving[j], psi[after, j] = best, state
        best, state = delta[0] + stop[0], 0
        for j in range(1, K):
            value = delta[j] + stop[j]
            if value > best:
                best, state = value, j
        log_p = np.log(final[end, state]) + log_b[row, state]
        path[firsts[rank] + n_steps - 1] = state
        for back in range(1, n_steps):
            t = n_steps - 1 - back
            before = psi[offsets[t + 1] + rank, state]
            log_p += log_a[before, state] + log_b[offsets[t] + rank, before]
            state = before
            path[firsts[rank] + t] = state
        log_prob[rank] = log_p + np.log(initial[start, state])


def expectations(
    chain: tuple[np.ndarray, np.ndarray, np.ndarray],
    log_b: np.ndarray,
    packed: PackedArrays,
    weights: np.ndarray,
    memory: tuple[np.ndarray, np.ndarray],
    gamma: np.ndarray,
    counts: tuple[np.ndarray, np.ndarray, np.ndarray],
    by_rank: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Run forward-backward on all sequences: fill ``gamma`` with p(z_t | x), and add expected counts to ``counts``.

    Args:
        chain: distribution of the first state, ``(1, K)`` or ``(n, K)`` by rank; transition probabilities, ``(K, K)``;
            and probability of the end, ``(1, K)`` or ``(n, K)`` by rank.
        log_b: log-densities in nats, ``(N, K)`` in packed rows.
        packed: packing of the frames.
        weights: weight of each sequence, ``(n,)`` by rank (longest first).
        memory: buffers for alpha, ``(N, K)``, and for log p(x_t | x_<t), ``(N,)``.
        gamma: result: p(z_t | x), ``(N, K)``.
        counts: sums of first states ``(K,)``, transitions ``(K, K)`` and last states ``(K,)``, which are added to.
        by_rank: results ``(n,)``: log p(end | x), log p(x), and True where the result may be wrong.
    """
    (initial, transition, final), (alpha, steps), (ends, log_prob, has_failed) = chain, memory, by_rank
    offsets, lengths, (first, xi, last) = packed.offsets, packed.lengths, counts
    forward(initial, transition, final, log_b, offsets, lengths, alpha, gamma, steps, ends, log_prob, True, has_failed)
    backward(initial, transition, final, offsets, lengths, weights, alpha, ends, gamma, xi, first, last, has_failed)


def paths(
    chain: tuple[np.ndarray, np.ndarray, np.ndarray], log_b: np.ndarray, packed: PackedArrays, shift: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable path of each sequence, one after the other, ``(N,)``, and log p(path, x), ``(n,)``.

    Args:
        chain: initial distribution, ``(1 or n, K)`` by rank (longest first); transition probabilities, ``(K, K)``;
            probability of the end, ``(1 or n, K)`` by rank.
        log_b: log-densities in nats, ``(N, K)``, packed as ``packed`` says.
        packed: packing of the frames.
        shift: number whose addition and subtraction rounds every term to a grid, so that sums are exact.
    """
    psi = np.empty(log_b.shape, np.uint8 if log_b.shape[1] <= 256 else np.int16)
    path, log_prob = np.empty(len(log_b), np.int64), np.empty(len(packed.lengths))
    n, arrays = len(packed.lengths), (packed.offsets, packed.lengths, packed.firsts)
    is_worth_sharing = log_b.size * log_b.shape[1] >= WORTH_SHARING
    size = -(-n // MOST_PARTS) if is_worth_sharing else n

    def run(ranks: tuple[int, int]) -> None:
        _best_paths(*chain, log_b, arrays, ranks, shift, psi, path, log_prob)

    run_parts([(at, min(at + size, n)) for at in range(0, n, size)], run, is_worth_sharing=is_worth_sharing)
    return path, packed.by_sequence(log_prob)


# -- passes over a Trellis ---------------------------------------------------------------------------------------------


def forward_pass(trellis: Trellis) -> tuple[Filtered, Tensor]:
    """Return the results of the forward pass of one chain, and True for each sequence that may be wrong, ``(n,)``.

    ``trellis`` is the problem of inference, of whole sequences.
    """
    packed, (chain, log_b) = trellis.packing.arrays, _arrays(trellis)
    alpha, ratio, steps = np.empty(log_b.shape), np.empty(log_b.shape), np.empty(len(log_b))
    ends, log_prob, has_failed = packed.by_rank()
    places = packed.offsets, packed.lengths
    forward(*chain, log_b, *places, alpha, ratio, steps, ends, log_prob, False, has_failed)
    beliefs = torch.from_numpy(alpha).to(trellis.densities.dtype)
    log_ends, failed = (torch.from_numpy(packed.by_sequence(each)) for each in (ends, has_failed))
    return Filtered(beliefs, torch.from_numpy(steps), log_ends), failed


def forward_backward_pass(trellis: Trellis) -> tuple[Posterior, Tensor]:
    """Return the results of forward-backward, and True for each sequence that may be wrong, ``(..., n)``.

    Such sequences are left out of the sums. ``trellis`` is the problem of inference, of whole sequences.
    """
    passes = [_of_one_chain(chain) for chain in trellis.chains]
    if trellis.transition.dim() == 2:
        return passes[0]
    fields = [(p.log_prob, p.gamma, p.xi, p.initial, p.final, failed) for p, failed in passes]
    *sums, failed = (torch.stack(each) for each in zip(*fields, strict=True))
    return Posterior(*sums), failed


def _of_one_chain(trellis: Trellis) -> tuple[Posterior, Tensor]:
    packed, (chain, log_b), K = trellis.packing.arrays, _arrays(trellis), len(trellis.transition)
    weights = np.ones(len(packed.lengths)) if trellis.weights is None else _numpy(trellis.weights)[packed.order]
    gamma, xi, first, last = np.empty(log_b.shape), np.zeros((K, K)), np.zeros(K), np.zeros(K)
    memory, by_rank = (np.empty(gamma.shape), np.empty(len(gamma))), packed.by_rank()
    expectations(chain, log_b, packed, weights, memory, gamma, (first, xi, last), by_rank)
    _, log_prob, has_failed = by_rank
    of_states = torch.from_numpy(gamma).to(trellis.densities.dtype)
    sums = (torch.from_numpy(each) for each in (xi, first, last))
    log_probs, failed = (torch.from_numpy(packed.by_sequence(each)) for each in (log_prob, has_failed))
    return Posterior(log_probs, of_states, *sums), failed


def best_paths(trellis: Trellis, shift: float) -> tuple[Tensor, Tensor]:
    """Return the most probable path of each sequence, one after the other, ``(N,)``, and log p(path, x), ``(n,)``.

    Args:
        trellis: the problem of inference, of one chain and whole sequences.
        shift: number whose addition and subtraction rounds every term to a grid, so that sums are exact.
    """
    path, log_prob = paths(*_arrays(trellis), trellis.packing.arrays, shift)
    return torch.from_numpy(path), torch.from_numpy(log_prob)


def _arrays(trellis: Trellis) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Return the parameters of one chain as arrays by rank, and its log-densities, ``(N, K)``; all float64.

    The parameters are the distribution of the first state, transition probabilities and the probability of the end.
    """
    order = trellis.packing.order.numpy()
    rows = (_numpy(each) for each in (trellis.initial, trellis.final))
    initial, final = (each if len(each) == 1 else each[order] for each in rows)
    return (initial, _numpy(trellis.transition), final), _numpy(trellis.densities.log())


def _numpy(values: Tensor) -> np.ndarray:
    return np.ascontiguousarray(values.double().numpy())
