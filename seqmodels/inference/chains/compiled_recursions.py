"""The recursions of ``scaled`` as loops for a CPU and few states, which numba compiles when they are first called.

With few states a step is little arithmetic, so that calling one tensor operation after another takes most of the time,
and between two calls only one thread can be at work. Here a block of ``WIDTH`` sequences is processed from its first
time to its last. Inner loops run over the sequences of a block, so that the compiler turns them into vector
instructions and messages stay in the cache nearest to the processor. Blocks are shared among as many threads as torch
uses.

Arrays are ``(K, N)``, a row of frames for each state. Buffers are ``(K · WIDTH)``; a block that has fewer sequences
uses a part of them. Inner loops always have one length, and what they compute for the unused part is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import compiled
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.threads import run_parts

WIDTH = 64  # number of sequences in a block
MOST_PARTS = 256  # largest number of calls that blocks are divided among
ROWS_SUMMED = 512  # rows that are summed in the precision of the arrays before the sum goes to float64
WORTH_SHARING = 20_000_000  # number of multiplications from which a second thread gains

# -- loops over one block ----------------------------------------------------------------------------------------------


@compiled(any_order=True, inner=True)
def _multiply(matrix: np.ndarray, factor: np.ndarray, product: np.ndarray) -> None:
    """Fill ``product`` with the matrix product ``product[j] = Σ_i matrix[i, j] factor[i]`` for one block.

    ``factor`` and ``product`` are buffers with ``WIDTH`` numbers, one for each sequence, for every state. The loops
    take four rows and four columns at a time, so that the sums stay in registers.
    """
    K = len(matrix)
    whole = K - K % 4
    for j in range(0, whole, 4):
        p = product[j * WIDTH : (j + 1) * WIDTH]
        q = product[(j + 1) * WIDTH : (j + 2) * WIDTH]
        r = product[(j + 2) * WIDTH : (j + 3) * WIDTH]
        s = product[(j + 3) * WIDTH : (j + 4) * WIDTH]
        for n in range(WIDTH):
            p[n] = 0
            q[n] = 0
            r[n] = 0
            s[n] = 0
        for i in range(0, whole, 4):
            p0, p1, p2, p3 = matrix[i, j], matrix[i + 1, j], matrix[i + 2, j], matrix[i + 3, j]
            q0, q1, q2, q3 = matrix[i, j + 1], matrix[i + 1, j + 1], matrix[i + 2, j + 1], matrix[i + 3, j + 1]
            r0, r1, r2, r3 = matrix[i, j + 2], matrix[i + 1, j + 2], matrix[i + 2, j + 2], matrix[i + 3, j + 2]
            s0, s1, s2, s3 = matrix[i, j + 3], matrix[i + 1, j + 3], matrix[i + 2, j + 3], matrix[i + 3, j + 3]
            f = factor[i * WIDTH : (i + 4) * WIDTH]
            for n in range(WIDTH):
                f0, f1, f2, f3 = f[n], f[WIDTH + n], f[2 * WIDTH + n], f[3 * WIDTH + n]
                p[n] += p0 * f0 + p1 * f1 + p2 * f2 + p3 * f3
                q[n] += q0 * f0 + q1 * f1 + q2 * f2 + q3 * f3
                r[n] += r0 * f0 + r1 * f1 + r2 * f2 + r3 * f3
                s[n] += s0 * f0 + s1 * f1 + s2 * f2 + s3 * f3
        for i in range(whole, K):
            p0, q0, r0, s0 = matrix[i, j], matrix[i, j + 1], matrix[i, j + 2], matrix[i, j + 3]
            f = factor[i * WIDTH : (i + 1) * WIDTH]
            for n in range(WIDTH):
                p[n] += p0 * f[n]
                q[n] += q0 * f[n]
                r[n] += r0 * f[n]
                s[n] += s0 * f[n]
    for j in range(whole, K):
        p, weight = product[j * WIDTH : (j + 1) * WIDTH], matrix[0, j]
        for n in range(WIDTH):
            p[n] = weight * factor[n]
        i = 1
        while i + 4 <= K:
            p0, p1, p2, p3 = matrix[i, j], matrix[i + 1, j], matrix[i + 2, j], matrix[i + 3, j]
            f = factor[i * WIDTH : (i + 4) * WIDTH]
            for n in range(WIDTH):
                p[n] += p0 * f[n] + p1 * f[WIDTH + n] + p2 * f[2 * WIDTH + n] + p3 * f[3 * WIDTH + n]
            i += 4
        while i < K:
            weight, f = matrix[i, j], factor[i * WIDTH : (i + 1) * WIDTH]
            for n in range(WIDTH):
                p[n] += weight * f[n]
            i += 1


@compiled(any_order=True)
def _add_up(buffer: np.ndarray, total: np.ndarray) -> None:
    for n in range(WIDTH):
        total[n] = buffer[n]
    for j in range(1, len(buffer) // WIDTH):
        at = j * WIDTH
        for n in range(WIDTH):
            total[n] += buffer[at + n]


@compiled(any_order=True, inner=True)
def _width_read(row: int, running: int, b: np.ndarray) -> int:
    """Return how many frames to read from ``row`` of ``b (K, N)`` on.

    It is ``WIDTH``, or ``running``, the number of running sequences, where fewer frames follow.
    """
    return WIDTH if row + WIDTH <= b.shape[1] else running


@compiled(any_order=True)
def _forward_block(
    transition: np.ndarray,
    b: np.ndarray,
    offsets: np.ndarray,
    times: tuple[int, int],
    ranks: tuple[int, int],
    predicted: np.ndarray,
    alpha: np.ndarray,
    scale: np.ndarray,
    flush: Any,
) -> None:
    """Run the forward recursion of K states over a range of times, on one block of up to ``WIDTH`` sequences.

    Args:
        transition: transition probabilities, ``(K, K)``.
        b: densities, ``(K, N)``.
        offsets: first row of each time, and N at the end.
        times: first time, and the first after the last.
        ranks: first rank of the block, and the first after it.
        predicted: buffer with the predictions before the first time, and afterwards those after the last.
        alpha: result, p(z_t | x_<=t), ``(K, N)``.
        scale: result, scaling factors, ``(N,)``; if it is empty, alpha and the scaling factors are not written.
        flush: values of alpha up to this become zero.
    """
    K, zero = len(transition), predicted.dtype.type(0)  # of the arrays' type, because numba would compute in float64
    joint, total = np.zeros_like(predicted), np.zeros_like(predicted[:WIDTH])
    for t in range(times[0], times[1]):
        row, running = offsets[t] + ranks[0], min(offsets[t + 1] - offsets[t], ranks[1]) - ranks[0]
        if running <= 0:
            break
        width = _width_read(row, running, b)
        for j in range(K):
            at, b_j = j * WIDTH, b[j, row : row + width]
            for n in range(width):
                joint[at + n] = predicted[at + n] * b_j[n]
        _add_up(joint, total)
        for j in range(K):
            at = j * WIDTH
            for n in range(WIDTH):
                value = joint[at + n] / total[n]
                joint[at + n] = zero if value <= flush else value
        if len(scale):
            scale_t = scale[row : row + running]
            for n in range(running):
                scale_t[n] = total[n]
            for j in range(K):
                at, alpha_j = j * WIDTH, alpha[j, row : row + running]
                for n in range(running):
                    alpha_j[n] = joint[at + n]
        _multiply(transition, joint, predicted)


@compiled(any_order=True)
def _forward_blocks(
    transition: np.ndarray,
    b: np.ndarray,
    offsets: np.ndarray,
    times: tuple[int, int],
    ranks: tuple[int, int],
    starts: np.ndarray,
    alpha: np.ndarray,
    scale: np.ndarray,
    flush: Any,
) -> None:
    """Run the forward recursion of K states over a range of times on all sequences of a range of ranks.

    ``starts (K, w)`` are the predicted distributions of the first states of w sequences. The other arguments are those
    of ``_forward_block``, which runs the recursion on one block of sequences.
    """
    K = len(transition)
    predicted = np.zeros(K * WIDTH, starts.dtype)
    for first in range(ranks[0], ranks[1], WIDTH):
        stop = min(first + WIDTH, ranks[1])
        for j in range(K):
            at, starts_j = j * WIDTH, starts[j, first:stop]
            for n in range(stop - first):
                predicted[at + n] = starts_j[n]
            for n in range(stop - first, WIDTH):
                predicted[at + n] = 0
        _forward_block(transition, b, offsets, times, (first, stop), predicted, alpha, scale, flush)


@compiled(any_order=True, inner=True)
def _backward_block(
    transposed: np.ndarray,
    b: np.ndarray,
    offsets: np.ndarray,
    ranks: tuple[int, int],
    alpha: np.ndarray,
    scale: np.ndarray,
    ends: np.ndarray,
    rescale_every: int,
    drift: Any,
    gamma: np.ndarray,
    beta_max: np.ndarray,
    messages: np.ndarray,
    drifted: np.ndarray,
) -> None:
    """Run the backward recursion of K states on one block of up to ``WIDTH`` sequences.

    Args:
        transposed: transposed transition probabilities, ``(K, K)``.
        b: densities, ``(K, N)``, which are overwritten by b beta / c.
        offsets: first row of each time, and N at the end.
        ranks: first rank of the block, and the first after it.
        alpha: alpha of the forward recursion, ``(K, N)``.
        scale: scaling factors of the forward recursion, ``(N,)``.
        ends: backward messages beta at last frames, ``(K, w)``.
        rescale_every: number of steps after which the messages are normalised.
        drift: largest deviation from one of the sum of a row of gamma that is accepted.
        gamma: result, p(z_t | x), ``(K, N)``.
        beta_max: result: largest beta of each frame, ``(N,)``; if it is empty, it is not computed.
        messages: result: messages before first frames, ``(K, w)``.
        drifted: result: True where a row of gamma of the sequence drifted from a sum of one, ``(w,)``.
    """
    K, first, one = len(transposed), ranks[0], b.dtype.type(1)
    message, ahead, norm = np.zeros(K * WIDTH, b.dtype), np.zeros(K * WIDTH, b.dtype), np.zeros(WIDTH, b.dtype)
    was_running = 0
    for back in range(len(offsets) - 1):
        t = len(offsets) - 2 - back
        row, running = offsets[t] + first, min(offsets[t + 1] - offsets[t], ranks[1]) - first
        if running <= 0:
            continue
        if running > was_running:  # some sequences end here
            for j in range(K):
                for n in range(was_running, running):
                    message[j * WIDTH + n] = ends[j, first + n]
            was_running = running
        width = _width_read(row, running, b)
        for j in range(K):
            at, alpha_j = j * WIDTH, alpha[j, row : row + width]
            for n in range(width):
                ahead[at + n] = alpha_j[n] * message[at + n]
        if t % rescale_every == 0:
            _add_up(ahead, norm)
            for n in range(running):
                drifted[first + n] |= not abs(norm[n] - one) <= drift
            for j in range(K):
                at = j * WIDTH
                for n in range(WIDTH):
                    ahead[at + n] /= norm[n]
                    message[at + n] /= norm[n]
        for j in range(K):
            at, gamma_j = j * WIDTH, gamma[j, row : row + running]
            for n in range(running):
                gamma_j[n] = ahead[at + n]
        if len(beta_max):
            for n in range(WIDTH):
                norm[n] = message[n]
            for j in range(1, K):
                at = j * WIDTH
                for n in range(WIDTH):
                    largest, value = norm[n], message[at + n]
                    norm[n] = largest if value <= largest or largest != largest else value  # NaN stays
            beta_max_t = beta_max[row : row + running]
            for n in range(running):
                beta_max_t[n] = norm[n]
        scale_t = scale[row : row + running]
        for j in range(K):
            at, b_j = j * WIDTH, b[j, row : row + running]
            for n in range(running):
                value = b_j[n] * message[at + n] / scale_t[n]
                ahead[at + n] = value
                b_j[n] = value
        _multiply(transposed, ahead, message)
    for j in range(K):
        for n in range(was_running):
            messages[j, first + n] = message[j * WIDTH + n]


@compiled(any_order=True)
def _backward_blocks(
    transposed: np.ndarray,
    b: np.ndarray,
    offsets: np.ndarray,
    ranks: tuple[int, int],
    alpha: np.ndarray,
    scale: np.ndarray,
    ends: np.ndarray,
    rescale_every: int,
    drift: Any,
    gamma: np.ndarray,
    beta_max: np.ndarray,
    messages: np.ndarray,
    drifted: np.ndarray,
) -> None:
    for first in range(ranks[0], ranks[1], WIDTH):
        block = (first, min(first + WIDTH, ranks[1]))
        _backward_block(
            transposed, b, offsets, block, alpha, scale, ends, rescale_every, drift, gamma, beta_max, messages, drifted
        )


@compiled(any_order=True)
def _warm_end_block(
    transposed: np.ndarray,
    b: np.ndarray,
    offsets: np.ndarray,
    n_times: int,
    ranks: tuple[int, int],
    ends: np.ndarray,
    messages: np.ndarray,
) -> None:
    """Approximate the backward message beta before the first frames of one block of up to ``WIDTH`` sequences.

    Args:
        transposed: transposed transition probabilities, ``(K, K)``. The recursion runs backward over a few frames.
        b: densities, ``(K, N)``.
        offsets: first row of each time, and N at the end.
        n_times: number of frames of each sequence to use. Longer sequences start from equal messages there.
        ranks: first rank of the block, and the first after it.
        ends: beta at last frames, from which shorter sequences start, ``(K, w)``.
        messages: result: beta before first frames, ``(K, w)``.
    """
    K, first = len(transposed), ranks[0]
    message, ahead, norm = np.zeros(K * WIDTH, b.dtype), np.zeros(K * WIDTH, b.dtype), np.zeros(WIDTH, b.dtype)
    was_running = 0
    if n_times < len(offsets) - 1:
        was_running = max(0, min(offsets[n_times + 1] - offsets[n_times], ranks[1]) - first)
        for j in range(K):
            for n in range(was_running):
                message[j * WIDTH + n] = 1
    for back in range(min(n_times, len(offsets) - 1)):
        t = min(n_times, len(offsets) - 1) - 1 - back
        row, running = offsets[t] + first, min(offsets[t + 1] - offsets[t], ranks[1]) - first
        if running <= 0:
            continue
        if running > was_running:
            for j in range(K):
                for n in range(was_running, running):
                    message[j * WIDTH + n] = ends[j, first + n]
            was_running = running
        for j in range(K):
            at, b_j = j * WIDTH, b[j, row : row + running]
            for n in range(running):
                ahead[at + n] = b_j[n] * message[at + n]
        _add_up(ahead, norm)
        for j in range(K):
            at = j * WIDTH
            for n in range(WIDTH):
                ahead[at + n] /= norm[n]
        _multiply(transposed, ahead, message)
    for j in range(K):
        for n in range(was_running):
            messages[j, first + n] = message[j * WIDTH + n]


@compiled(any_order=True)
def _add_products(before: np.ndarray, after: np.ndarray, spans: np.ndarray, total: np.ndarray) -> None:
    """Add ``Σ before[:, t - 1] after[:, t]ᵀ`` over pairs of consecutive frames to ``total``, ``(K, K)``.

    ``before`` and ``after`` are ``(K, N)``. ``spans (S, 3)`` lists ranges of rows whose previous frames are also a
    range, as ``(shift, low, high)``: the frame before row r is row r - shift.
    """
    K = len(total)
    for s in range(len(spans)):
        shift, low, high = spans[s, 0], spans[s, 1], spans[s, 2]
        for start in range(low, high, ROWS_SUMMED):
            stop = min(start + ROWS_SUMMED, high)
            for i in range(0, K - 1, 2):
                x, y = before[i, start - shift : stop - shift], before[i + 1, start - shift : stop - shift]
                _add_two_rows(x, y, after, (start, stop), total[i], total[i + 1])
            if K % 2:
                x = before[K - 1, start - shift : stop - shift]
                for j in range(K):
                    z = after[j, start:stop]
                    sum_x = x[0] * z[0]
                    for n in range(1, stop - start):
                        sum_x += x[n] * z[n]
                    total[K - 1, j] += sum_x


@compiled(any_order=True, inner=True)
def _add_two_rows(
    x: np.ndarray, y: np.ndarray, after: np.ndarray, rows: tuple[int, int], total_x: np.ndarray, total_y: np.ndarray
) -> None:
    """Add the scalar products of rows x and y with each row of ``after[:, start:stop]`` to two totals.

    ``x`` and ``y`` are ``(n,)``, with n = stop - start; ``total_x`` and ``total_y`` have a number for each row of
    ``after``; ``rows`` is ``(start, stop)``. Four rows of ``after`` are taken at a time.
    """
    K, start, stop = len(after), rows[0], rows[1]
    whole = K - K % 4
    for j in range(0, whole, 4):
        p, q = after[j, start:stop], after[j + 1, start:stop]
        r, s = after[j + 2, start:stop], after[j + 3, start:stop]
        xp, xq, xr, xs = x[0] * p[0], x[0] * q[0], x[0] * r[0], x[0] * s[0]
        yp, yq, yr, ys = y[0] * p[0], y[0] * q[0], y[0] * r[0], y[0] * s[0]
        for n in range(1, stop - start):
            xp += x[n] * p[n]
            xq += x[n] * q[n]
            xr += x[n] * r[n]
            xs += x[n] * s[n]
            yp += y[n] * p[n]
            yq += y[n] * q[n]
            yr += y[n] * r[n]
            ys += y[n] * s[n]
        total_x[j] += xp
        total_x[j + 1] += xq
        total_x[j + 2] += xr
        total_x[j + 3] += xs
        total_y[j] += yp
        total_y[j + 1] += yq
        total_y[j + 2] += yr
        total_y[j + 3] += ys
    for j in range(whole, K):
        p = after[j, start:stop]
        xp, yp = x[0] * p[0], y[0] * p[0]
        for n in range(1, stop - start):
            xp += x[n] * p[n]
            yp += y[n] * p[n]
        total_x[j] += xp
        total_y[j] += yp


# -- loops over all sequences; several chains, which have a leading axis, are taken one by one ------------------------


def forward(
    transition: Tensor, b: Tensor, packing: Packing, *, starts: Tensor, alpha: Tensor, scale: Tensor, flush: float
) -> None:
    """Run the forward recursion, with probabilities scaled at each step, on packed sequences in compiled loops.

    Args:
        transition: transition probabilities, ``(..., K, K)``.
        b: densities, ``(..., N, K)``.
        packing: packing of the N rows.
        starts: predicted distributions of first states, ``(..., w, K)`` by rank (longest first).
        alpha: result, p(z_t | x_<=t), ``(..., N, K)``, with the memory layout of ``b``.
        scale: result, scaling factors, ``(..., N)``.
        flush: values of alpha up to this become zero.
    """
    if transition.dim() > 2:
        for a_r, b_r, start, alpha_r, scale_r in zip(transition, b, starts, alpha, scale, strict=True):
            forward(a_r, b_r, packing, starts=start, alpha=alpha_r, scale=scale_r, flush=flush)
        return
    offsets = packing.offsets.numpy()
    a, b_rows, alpha_rows, scales = (_array(each) for each in (transition.contiguous(), b.mT, alpha.mT, scale))
    messages, least = _array(starts.mT.contiguous()), _number(flush, b)
    times = (0, len(offsets) - 1)  # an argument: numba compiles what it calls with a literal once more for that

    def run(ranks: tuple[int, int]) -> None:
        _forward_blocks(a, b_rows, offsets, times, ranks, messages, alpha_rows, scales, least)

    _each_part(starts.shape[0], packing.n_frames * transition.numel(), run)


def warm_start(transition: Tensor, b: Tensor, packing: Packing, *, size: int, margin: int, flush: float) -> Tensor:
    """Approximate the predicted state distribution after each of m segments of full size, ``(..., m, K)``.

    It is computed in compiled loops from the last frames of each segment.

    Args:
        transition: transition probabilities, ``(..., K, K)``.
        b: densities, ``(..., N, K)``.
        packing: packing of the segments.
        size: number of frames of a full segment.
        margin: number of last frames to use, before which all states are taken to be equally probable.
        flush: values of alpha up to this become zero.
    """
    if transition.dim() > 2:
        each = zip(transition, b, strict=True)
        return torch.stack([warm_start(a_r, b_r, packing, size=size, margin=margin, flush=flush) for a_r, b_r in each])
    offsets, n, K = packing.offsets.numpy(), packing.batch_sizes[size - 1], b.shape[1]
    a, b_rows, no_alpha, no_scale = (
        _array(each) for each in (transition.contiguous(), b.mT, b.new_empty(0, 0), b.new_empty(0))
    )
    result, least = b.new_empty(K, n), _number(flush, b)
    messages, times = _array(result), (size - margin, size)

    def run(ranks: tuple[int, int]) -> None:
        predicted = np.full(K * WIDTH, 1 / K, messages.dtype)
        _forward_block(a, b_rows, offsets, times, ranks, predicted, no_alpha, no_scale, least)
        messages[:, slice(*ranks)] = predicted.reshape(K, WIDTH)[:, : ranks[1] - ranks[0]]

    _each_block(n, n * margin * transition.numel(), run)
    return result.mT


def backward(
    transition: Tensor, ahead: Tensor, packing: Packing, *, alpha: Tensor, scale: Tensor, ends: Tensor, gamma: Tensor,
    drift: float, rescale_every: int, beta_max: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Run the backward recursion, with messages scaled at each step, on packed sequences in compiled loops.

    Args:
        transition: transition probabilities, ``(..., K, K)``.
        ahead: the densities b, ``(..., N, K)``, which are replaced by b beta / c.
        packing: packing of the N rows.
        alpha, scale: results of ``forward``.
        ends: backward messages beta at last frames, ``(..., w, K)`` by rank (longest first).
        gamma: result, p(z_t | x), ``(..., N, K)``.
        drift: accepted deviation from one of the sum of a row of gamma.
        rescale_every: number of steps after which messages are normalised.
        beta_max: filled with the largest beta of each frame, ``(..., N)``; None if it is not needed.

    Returns:
        Beta before first frames, ``(..., w, K)`` by rank, and True for each sequence with a row of gamma that drifted
        from a sum of one, ``(..., w)``.
    """
    if transition.dim() > 2:
        largest = [None] * len(transition) if beta_max is None else beta_max
        of_chains = zip(transition, ahead, alpha, scale, ends, gamma, largest, strict=True)
        results = [
            backward(
                a_r, ahead_r, packing, alpha=alpha_r, scale=scale_r, ends=end, gamma=gamma_r, drift=drift,
                rescale_every=rescale_every, beta_max=beta_max_r,
            )
            for a_r, ahead_r, alpha_r, scale_r, end, gamma_r, beta_max_r in of_chains
        ]  # fmt: skip
        return torch.stack([each[0] for each in results]), torch.stack([each[1] for each in results])
    before = ends.mT.contiguous()
    messages, drifted = torch.empty_like(before), torch.zeros(len(ends), dtype=torch.bool)
    no_maximum = scale[:0] if beta_max is None else beta_max
    offsets, limit = packing.offsets.numpy(), _number(drift, ahead)
    a, b_rows, alpha_rows, scales, after = (
        _array(each) for each in (transition.mT.contiguous(), ahead.mT, alpha.mT, scale, before)
    )
    gamma_rows, largest_beta, result, has_drifted = (_array(each) for each in (gamma.mT, no_maximum, messages, drifted))

    def run(ranks: tuple[int, int]) -> None:
        _backward_blocks(
            a, b_rows, offsets, ranks, alpha_rows, scales, after, rescale_every, limit,
            gamma_rows, largest_beta, result, has_drifted,
        )  # fmt: skip

    _each_part(len(ends), packing.n_frames * transition.numel(), run)
    return messages.mT, drifted


def warm_end(transition: Tensor, b: Tensor, packing: Packing, *, ends: Tensor, margin: int) -> Tensor:
    """Approximate the backward message beta before the first frame of each of w segments, ``(..., w, K)``.

    Args:
        transition: transition probabilities, ``(..., K, K)``.
        b: densities, ``(..., N, K)``.
        packing: packing of the w segments.
        ends: beta at last frames, ``(..., w, K)`` by rank, from which segments shorter than ``margin`` start.
        margin: number of first frames to use, after which beta is taken to be equal for all states.
    """
    if transition.dim() > 2:
        each = zip(transition, b, ends, strict=True)
        return torch.stack([warm_end(a_r, b_r, packing, ends=end, margin=margin) for a_r, b_r, end in each])
    before = ends.mT.contiguous()
    result, offsets = torch.empty_like(before), packing.offsets.numpy()
    a, b_rows, after, messages = (_array(each) for each in (transition.mT.contiguous(), b.mT, before, result))

    def run(ranks: tuple[int, int]) -> None:
        _warm_end_block(a, b_rows, offsets, margin, ranks, after, messages)

    _each_block(len(ends), len(ends) * margin * transition.numel(), run)
    return result.mT


def expected_transitions(alpha: Tensor, ahead: Tensor, packing: Packing) -> Tensor:
    """Return ``Σ_t alpha_t(i) ahead_t+1(j)`` over all pairs of consecutive frames, ``(..., K, K)`` float64.

    Times the transition probabilities, these are expected transitions. ``alpha`` and ``ahead`` are ``(..., N, K)``
    packed.
    """
    if alpha.dim() > 2:
        each = zip(alpha, ahead, strict=True)
        return torch.stack([expected_transitions(alpha_r, ahead_r, packing) for alpha_r, ahead_r in each])
    total = torch.zeros(alpha.shape[1], alpha.shape[1], dtype=torch.float64)
    spans = np.array(packing.spans, dtype=np.int64).reshape(-1, 3)
    _add_products(_array(alpha.mT), _array(ahead.mT), spans, _array(total))
    return total


def _each_block(n_sequences: int, n_products: int, run: Callable[[tuple[int, int]], None]) -> None:
    """Call ``run`` with ``(first rank, first rank after it)`` of every block of ``WIDTH`` sequences.

    Blocks are shared among threads if ``n_products``, the number of multiplications in all, is large enough.
    """
    blocks = [(first, min(first + WIDTH, n_sequences)) for first in range(0, n_sequences, WIDTH)]
    run_parts(blocks, run, is_worth_sharing=n_products >= WORTH_SHARING)


def _each_part(n_sequences: int, n_products: int, run: Callable[[tuple[int, int]], None]) -> None:
    """Call ``run`` with ``(first rank, first rank after it)`` of each part of the sequences.

    A part is a block of ``WIDTH`` sequences, or several if there are very many. Parts are shared among threads if
    ``n_products``, the number of multiplications in all, is large enough.
    """
    size = WIDTH * -(-n_sequences // (WIDTH * MOST_PARTS))
    parts = [(first, min(first + size, n_sequences)) for first in range(0, n_sequences, size)]
    run_parts(parts, run, is_worth_sharing=n_products >= WORTH_SHARING)


def _array(tensor: Tensor) -> np.ndarray:
    assert tensor.is_contiguous()
    return tensor.numpy()


def _number(value: float, like: Tensor) -> Any:
    """Return ``value`` as a scalar in the precision of ``like``, so that sums with it stay in that precision."""
    return like.new_tensor(value).numpy()[()]
