"""The E-step of many sequences without missing values, as compiled loops whose innermost runs over the sequences.

Step t is a block of ``(D, n_t)`` or ``(K, n_t)`` numbers. The values of one feature in all sequences that have this
step are contiguous, so that the loops become vector instructions. Rows begin at whole vectors (``packing.aligned``),
and whatever is in them after the first n_t numbers is not read. Smoothed means are added up as they are computed and
not stored.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled


@compiled(any_order=True)
def add_product(matrix: np.ndarray, source: np.ndarray, target: np.ndarray, n: int) -> None:
    """Add ``matrix @ source`` to ``target`` in the first n columns; shapes ``(I, J)``, ``(J, n)`` and ``(I, n)``."""
    n_rows, J = matrix.shape
    even, whole = n_rows - n_rows % 2, J - J % 4
    for i in range(0, even, 2):  # two rows at once: what is read of ``source`` is used twice
        out, to = target[i], target[i + 1]
        for j in range(0, whole, 4):
            a, b, c, d = matrix[i, j], matrix[i, j + 1], matrix[i, j + 2], matrix[i, j + 3]
            e, f, g, h = matrix[i + 1, j], matrix[i + 1, j + 1], matrix[i + 1, j + 2], matrix[i + 1, j + 3]
            p, q, r, s = source[j], source[j + 1], source[j + 2], source[j + 3]
            for m in range(n):
                out[m] += a * p[m] + b * q[m] + c * r[m] + d * s[m]
                to[m] += e * p[m] + f * q[m] + g * r[m] + h * s[m]
        for j in range(whole, J):
            a, e, p = matrix[i, j], matrix[i + 1, j], source[j]
            for m in range(n):
                out[m] += a * p[m]
                to[m] += e * p[m]
    for i in range(even, n_rows):
        out = target[i]
        for j in range(0, whole, 4):
            a, b, c, d = matrix[i, j], matrix[i, j + 1], matrix[i, j + 2], matrix[i, j + 3]
            p, q, r, s = source[j], source[j + 1], source[j + 2], source[j + 3]
            for m in range(n):
                out[m] += a * p[m] + b * q[m] + c * r[m] + d * s[m]
        for j in range(whole, J):
            a, p = matrix[i, j], source[j]
            for m in range(n):
                out[m] += a * p[m]


@compiled(any_order=True)
def add_gram(left: np.ndarray, right: np.ndarray, sums: np.ndarray, n: int, only_upper: bool = False) -> None:
    """Add ``left @ rightᵀ`` over the first n columns to ``sums``; shapes ``(I, n)``, ``(J, n)`` and ``(I, J)``.

    If ``only_upper``, part of what is below the diagonal is left out.
    """
    n_rows, J = sums.shape
    even, whole = n_rows - n_rows % 2, J - J % 4
    for i in range(0, even, 2):  # two rows at once: what is read of ``right`` is used twice
        o, p = left[i], left[i + 1]
        for j in range(i - i % 4 if only_upper else 0, whole, 4):
            q, r, s, t = right[j], right[j + 1], right[j + 2], right[j + 3]
            a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for m in range(n):
                a += o[m] * q[m]
                b += o[m] * r[m]
                c += o[m] * s[m]
                d += o[m] * t[m]
                e += p[m] * q[m]
                f += p[m] * r[m]
                g += p[m] * s[m]
                h += p[m] * t[m]
            sums[i, j] += a
            sums[i, j + 1] += b
            sums[i, j + 2] += c
            sums[i, j + 3] += d
            sums[i + 1, j] += e
            sums[i + 1, j + 1] += f
            sums[i + 1, j + 2] += g
            sums[i + 1, j + 3] += h
        for j in range(whole, J):
            q, a, e = right[j], 0.0, 0.0
            for m in range(n):
                a += o[m] * q[m]
                e += p[m] * q[m]
            sums[i, j] += a
            sums[i + 1, j] += e
    for i in range(even, n_rows):
        p = left[i]
        for j in range(i - i % 4 if only_upper else 0, whole, 4):
            q, r, s, t = right[j], right[j + 1], right[j + 2], right[j + 3]
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for m in range(n):
                a += p[m] * q[m]
                b += p[m] * r[m]
                c += p[m] * s[m]
                d += p[m] * t[m]
            sums[i, j] += a
            sums[i, j + 1] += b
            sums[i, j + 2] += c
            sums[i, j + 3] += d
        for j in range(whole, J):
            q, a = right[j], 0.0
            for m in range(n):
                a += p[m] * q[m]
            sums[i, j] += a


@compiled(any_order=True)
def filter_blocks_alone(
    closed: np.ndarray,
    by_value: np.ndarray,
    constant: np.ndarray,
    counts: np.ndarray,
    offsets: np.ndarray,
    x: np.ndarray,
    filtered: np.ndarray,
) -> None:
    """Fill ``filtered`` with the mean of each step's state given the steps so far, without log-probabilities.

    Args:
        closed: matrix that takes the mean of the step before to this mean, at each step, ``(G, K, K)``; not read at the
            first step.
        by_value: matrix that takes the values of a step to this mean, ``(G, K, D)``; the last holds for all later
            steps.
        constant: vector that is added to the mean of each step, ``(G, K)``.
        counts: number of sequences that have step t, ``(T,)``.
        offsets: first column of each step's numbers, ``(T + 1,)``; a step takes at least as many columns as it has
            sequences.
        x: values, step by step, ``(N D,)``.
        filtered: result, step by step, ``(N K,)``.
    """
    G, K, D = by_value.shape
    before = filtered[: offsets[1] * K].reshape(K, offsets[1])
    for t in range(len(counts)):
        a, b, n = offsets[t], offsets[t + 1], counts[t]
        g = min(t, G - 1)
        here = filtered[a * K : b * K].reshape(K, b - a)
        for k in range(K):
            for m in range(n):
                here[k, m] = constant[g, k]
        if t > 0:
            add_product(closed[g], before, here, n)
        add_product(by_value[g], x[a * D : b * D].reshape(D, b - a), here, n)
        before = here


@compiled(any_order=True)
def filter_blocks(
    transition: np.ndarray,
    observation: np.ndarray,
    intercept: np.ndarray,
    white_t: np.ndarray,
    gain_t: np.ndarray,
    counts: np.ndarray,
    offsets: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    weights: np.ndarray,
    filtered: np.ndarray,
) -> float:
    """Fill ``filtered`` with the filtered means, and return the weighted sum of squared standardised errors.

    Args:
        transition: transition matrix of the K states, ``(K, K)``.
        observation: observation matrix for D features, ``(D, K)``.
        intercept: vector that is added to every observation, ``(D,)``.
        white_t: ``s⁻ᵀ`` of each step, lower triangular, where ``sᵀs`` is the covariance of the prediction error, ``(G,
            D, D)``; the last holds for all later steps.
        gain_t: matrix that takes the prediction error of a step to the correction of the mean, ``(G, K, D)``.
        counts: number of sequences that have step t, ``(T,)``.
        offsets: first column of each step's block, ``(T + 1,)``; a block may be wider than its number of sequences.
        x: values, step by step, each step a block of D rows, ``(N D,)``.
        mean: mean of first states, ``(K,)``.
        weights: weight of each sequence, the longest first, ``(n,)``.
        filtered: result, the mean of z_t given x_1 .. x_t, step by step, each a block of K rows, ``(N K,)``.
    """
    D, K = observation.shape
    last, n = len(white_t) - 1, counts[0]
    predicted, error, white = np.empty((K, n)), np.empty((D, n)), np.empty(n)
    for k in range(K):
        predicted[k] = mean[k]
    total = 0.0
    for t in range(len(counts)):
        a, b, n = offsets[t], offsets[t + 1], counts[t]
        g = min(t, last)
        block = x[a * D : b * D].reshape(D, b - a)
        here = filtered[a * K : b * K].reshape(K, b - a)
        for d in range(D):
            for m in range(n):
                error[d, m] = block[d, m] - intercept[d]
        add_product(-observation, predicted, error, n)
        for d in range(D):
            for m in range(n):
                white[m] = white_t[g, d, d] * error[d, m]
            for j in range(d):
                factor = white_t[g, d, j]
                for m in range(n):
                    white[m] += factor * error[j, m]
            for m in range(n):
                total += weights[m] * white[m] * white[m]
        for k in range(K):
            for m in range(n):
                here[k, m] = predicted[k, m]
        add_product(gain_t[g], error, here, n)
        predicted[:, :n] = 0.0
        add_product(transition, here, predicted, n)
    return total


@compiled(any_order=True)
def smooth_blocks(
    from_filtered: np.ndarray,
    backward_t: np.ndarray,
    counts: np.ndarray,
    offsets: np.ndarray,
    x: np.ndarray,
    weights: np.ndarray,
    filtered: np.ndarray,
    work: np.ndarray,
    first: np.ndarray,
    state_state: np.ndarray,
    now_before: np.ndarray,
    seen_state: np.ndarray,
    state_sum: np.ndarray,
    ending: np.ndarray,
) -> None:
    """Add up weighted products of the smoothed means of states and of the values, over all steps and sequences.

    Args:
        from_filtered: ``I - J A`` of each step, with A the transition matrix, ``(G, K, K)``; the last holds for all
            later steps.
        backward_t: J, the matrix of the smoother's step, ``(G, K, K)``: the smoothed mean is ``I - J A`` times the
            filtered mean plus J times the next smoothed mean.
        counts, offsets, x, weights: the arguments of ``filter_blocks`` with these names: sizes and places of the steps,
            values, and weights of sequences.
        filtered: result of ``filter_blocks``.
        work: buffer, ``(3, K, W)``, with W the width of the first block.
        first: result, the means of first states, ``(K, n)``.
        state_state: sum of ``z_t z_tᵀ``, ``(K, K)``, added to; only its diagonal and the part above are complete.
        now_before: sum of ``z_t+1 z_tᵀ``, ``(K, K)``, added to.
        seen_state: sum of ``x_t z_tᵀ``, ``(D, K)``, added to.
        state_sum: sum of ``z_t``, ``(K,)``, added to.
        ending: sum of ``z_T z_Tᵀ``, ``(K, K)``, added to.
    """
    K, D = len(state_sum), len(seen_state)
    last, n_steps = len(backward_t) - 1, len(counts)
    z, ahead, weighted = work[0], work[1], work[2]
    for t in range(n_steps - 1, -1, -1):
        a, b, n = offsets[t], offsets[t + 1], counts[t]
        n_next = counts[t + 1] if t + 1 < n_steps else n - n  # a literal 0 would be a type of its own to numba
        here = filtered[a * K : b * K].reshape(K, b - a)
        block = x[a * D : b * D].reshape(D, b - a)
        for k in range(K):
            for m in range(n_next):
                z[k, m] = 0.0
            for m in range(n_next, n):
                z[k, m] = here[k, m]
        if n_next:
            add_product(from_filtered[min(t, last)], here, z, n_next)
            add_product(backward_t[min(t, last)], ahead, z, n_next)
        for k in range(K):
            total = 0.0
            for m in range(n):
                weighted[k, m] = weights[m] * z[k, m]
                total += weighted[k, m]
            state_sum[k] += total
        add_gram(weighted, z, state_state, n, True)
        add_gram(block, weighted, seen_state, n)
        if n_next:
            add_gram(ahead, weighted, now_before, n_next)
        if n > n_next:
            for i in range(K):
                for j in range(K):
                    total = 0.0
                    for m in range(n_next, n):
                        total += weighted[i, m] * z[j, m]
                    ending[i, j] += total
        z, ahead = ahead, z
    for k in range(K):
        for m in range(counts[0]):
            first[k, m] = ahead[k, m]
