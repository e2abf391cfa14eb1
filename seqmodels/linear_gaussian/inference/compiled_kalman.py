"""The loops over steps of ``kalman``, compiled by numba where it is installed: the same lines with and without it.

Covariances are kept as upper triangular factors, ``P = uᵀu``; means are rows.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled, is_compiling

WELL_CONDITIONED = 1e-3  # diagonal of a factor of a correlation matrix, from which on it is inverted as it is
NEGLIGIBLE = 1e-280  # a sum of squares, of which more would be lost to underflow
LOOK_EVERY = 16  # steps, whether it is
SINGULAR = 1e-13  # of standardised states: deviations that are smaller are rounding


@compiled
def _triangular(block: np.ndarray) -> np.ndarray:
    """By Householder's reflections, for matrices so small that a call of LAPACK costs more than what it does."""
    m, n = block.shape
    upper, products = block.copy(), np.empty(n)
    for j in range(min(m, n)):
        below = 0.0
        for i in range(j + 1, m):
            below += upper[i, j] * upper[i, j]
        if below < NEGLIGIBLE:
            upper[j + 1 :, j] = 0.0
            continue
        head = upper[j, j]
        square = head * head + below
        alpha = -np.sqrt(square) if head > 0 else np.sqrt(square)
        upper[j, j] = head - alpha
        beta = 1.0 / (square - alpha * head)
        products[j + 1 :] = 0.0
        for i in range(j, m):
            v = upper[i, j]
            if v != 0.0:
                for k in range(j + 1, n):
                    products[k] += v * upper[i, k]
        for i in range(j, m):
            v = beta * upper[i, j]
            if v != 0.0:
                for k in range(j + 1, n):
                    upper[i, k] -= v * products[k]
        upper[j, j] = alpha
        upper[j + 1 :, j] = 0.0
    return upper[:n]


def _triangular_by_lapack(block: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.qr(block)[1])


# ``(m, n)`` -> the upper triangular ``(n, n)`` R with ``RᵀR`` as of the matrix, m being n or more.
triangular = _triangular if is_compiling() else _triangular_by_lapack


@compiled
def _inverse_of_upper(upper: np.ndarray) -> np.ndarray:
    n = len(upper)
    inverse = np.zeros((n, n))
    for i in range(n - 1, -1, -1):
        pivot = 1.0 / upper[i, i]
        inverse[i, i] = pivot
        for j in range(i + 1, n):
            factor = pivot * upper[i, j]
            if factor != 0.0:
                for k in range(j, n):
                    inverse[i, k] -= factor * inverse[j, k]
    return inverse


def _inverse_by_lapack(upper: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.inv(upper))


# Of an upper triangular matrix.
inverse_of_upper = _inverse_of_upper if is_compiling() else _inverse_by_lapack


@compiled
def covariances(
    transition_t: np.ndarray,
    state_factor: np.ndarray,
    observation_t: np.ndarray,
    noise_factor: np.ndarray,
    factor: np.ndarray,
    observed: np.ndarray,
    smooths: bool,
    white: np.ndarray,
    gain: np.ndarray,
    log_det: np.ndarray,
    filtered: np.ndarray,
    backward: np.ndarray,
    rest: np.ndarray,
    closed_loop: np.ndarray,
) -> np.ndarray:
    """What the filter and the smoother need of covariances, at each step; no value of an observation enters.

    Args:
        transition_t, state_factor: (G, K, K) Aᵀ and the factor of Q of the move from each step to the next; the last
            stays.
        observation_t, noise_factor: Cᵀ (K, D), the factor of R (D, D).
        factor: of the covariance of the state of the first step, given what came before (K, K).
        observed: (T, D) 1 where a value is observed, else 0; no rows where all are.
        smooths: whether ``backward`` and ``rest`` are computed.
        white: (T, D, D), is set to ``s⁻¹``, where ``S = sᵀs`` is the covariance of the innovation ``e``: ``e s⁻¹`` is
            standard normal. Values that are missing have innovation 0 and variance 1.
        gain: (T, K), (T, D, K): the filtered mean is the predicted one and ``e s⁻¹ gain``.
        log_det: (T,) ``log |s|``.
        filtered: (T, K, K) covariance of z_t given x_1 .. x_t.
        backward: (T, K, K): the mean of z_t given z_t+1 is the filtered one and ``(z_t+1 - predicted) backward``.
        rest: (T, K, K) the covariance of z_t given z_t+1 and x_1 .. x_t.
        closed_loop: (K, K), is multiplied by that of each step, which takes a change of the predicted mean to that of
            the next.

    Returns:
        The factor of the step after the last.
    """
    n_steps, D = white.shape[0], white.shape[1]
    K, last = transition_t.shape[1], transition_t.shape[0] - 1
    is_complete = observed.shape[0] == 0
    is_diagonal = np.abs(noise_factor).sum() == np.abs(np.diag(noise_factor)).sum()
    n_noise = D if is_complete or is_diagonal else 2 * D
    unit = np.eye(K)
    for t in range(n_steps):
        block = np.zeros((n_noise + K, D + K))
        seen = factor @ observation_t
        if is_complete:
            block[:D, :D] = noise_factor
        else:
            block[:D, :D] = noise_factor * observed[t]
            seen = seen * observed[t]
            for d in range(D):
                block[d if is_diagonal else D + d, d] += 1.0 - observed[t, d]
        block[n_noise:, :D] = seen
        block[n_noise:, D:] = factor
        upper = triangular(block)
        s = np.ascontiguousarray(upper[:D, :D])
        total = 0.0
        for d in range(D):
            total += np.log(np.abs(s[d, d]))
        log_det[t] = total
        w = inverse_of_upper(s)
        k = np.ascontiguousarray(upper[:D, D:])
        u = np.ascontiguousarray(upper[D : D + K, D:])
        white[t], gain[t] = w, k
        filtered[t] = u.T.copy() @ u
        move = min(t, last)
        moved = u @ transition_t[move]
        seen_by = observation_t if is_complete else observation_t * observed[t]
        closed_loop[:] = closed_loop @ ((unit - seen_by @ (w @ k)) @ transition_t[move])
        if smooths:
            both = np.zeros((2 * K, 2 * K))
            both[:K, :K] = moved
            both[:K, K:] = u
            both[K:, :K] = state_factor[move]
            upper = triangular(both)
            factor = np.ascontiguousarray(upper[:K, :K])
            g = np.ascontiguousarray(upper[:K, K:])
            psi = np.ascontiguousarray(upper[K:, K:])
            scale = np.sqrt((factor * factor).sum(0))
            for i in range(K):
                if not scale[i] > 0:
                    scale[i] = 1.0
            standardised = factor / scale
            least = np.abs(np.diag(standardised)).min()
            if least > WELL_CONDITIONED:
                solved = np.linalg.solve(standardised, g)
            else:
                left, singular, right = np.linalg.svd(standardised)
                inverse = np.zeros(K)
                for i in range(K):
                    if singular[i] > SINGULAR * singular[0]:
                        inverse[i] = 1.0 / singular[i]
                solved = (right.T * inverse).copy() @ (left.T.copy() @ g)
            jt = solved / np.expand_dims(scale, 1)
            off = g - factor @ jt
            backward[t] = jt
            rest[t] = psi.T.copy() @ psi + off.T.copy() @ off
        else:
            both = np.zeros((2 * K, K))
            both[:K] = moved
            both[K:] = state_factor[move]
            factor = np.ascontiguousarray(triangular(both))
    return factor


@compiled
def filter_means(
    transition_t: np.ndarray,
    observation_t: np.ndarray,
    white: np.ndarray,
    gain: np.ndarray,
    offsets: np.ndarray,
    x: np.ndarray,
    observed: np.ndarray,
    drive: np.ndarray,
    mean: np.ndarray,
    innovations: np.ndarray,
    predicted: np.ndarray,
    filtered: np.ndarray,
) -> None:
    """Means of packed rows: ``innovations (N, D)`` standardised, ``predicted`` and ``filtered`` (N, K) are set.

    ``white`` and ``gain`` may have fewer steps than there are: the last stays. ``mean (n, K)`` is that of the first
    states, ``drive (N, K)`` is added to each predicted mean but the first; no rows: nothing is. ``transition_t`` and
    ``observed`` as above.
    """
    last, last_move = len(white) - 1, len(transition_t) - 1
    for t in range(len(offsets) - 1):
        a, b = offsets[t], offsets[t + 1]
        g = min(t, last)
        mean = mean[: b - a]
        if t > 0 and len(drive):
            mean = mean + drive[a:b]
        predicted[a:b] = mean
        residual = x[a:b] - mean @ observation_t
        if len(observed):
            residual = residual * observed[t]
        innovations[a:b] = residual @ white[g]
        here = mean + innovations[a:b] @ gain[g]
        filtered[a:b] = here
        mean = here @ transition_t[min(t, last_move)]


@compiled
def smooth_means(
    backward: np.ndarray, offsets: np.ndarray, predicted: np.ndarray, filtered: np.ndarray, smoothed: np.ndarray
) -> None:
    """``smoothed (N, K)`` is set to the means given all of a sequence (Rauch, Tung and Striebel 1965)."""
    last, n_steps = len(backward) - 1, len(offsets) - 1
    smoothed[:] = filtered
    for t in range(n_steps - 2, -1, -1):
        a, b = offsets[t], offsets[t + 1]
        n_next = offsets[t + 2] - b
        change = smoothed[b : b + n_next] - predicted[b : b + n_next]
        smoothed[a : a + n_next] += change @ backward[min(t, last)]


@compiled
def _add_product(row: np.ndarray, matrix: np.ndarray, target: np.ndarray) -> None:
    """``target (J,) += row (I,) @ matrix (I, J)``."""
    for i in range(len(row)):
        factor = row[i]
        for j in range(len(target)):
            target[j] += factor * matrix[i, j]


@compiled
def filter_means_of_one(
    transition_t: np.ndarray,
    observation_t: np.ndarray,
    white: np.ndarray,
    gain: np.ndarray,
    x: np.ndarray,
    observed: np.ndarray,
    drive: np.ndarray,
    mean: np.ndarray,
    innovations: np.ndarray,
    predicted: np.ndarray,
    filtered: np.ndarray,
) -> None:
    """As ``filter_means``, of one sequence, ``mean (K,)``: rows are so short that a call of BLAS costs more than it
    does.
    """
    last, last_move, D, K = len(white) - 1, len(transition_t) - 1, x.shape[1], len(mean)
    residual = np.empty(D)
    for t in range(len(x)):
        g = min(t, last)
        here, out = predicted[t], filtered[t]
        if t == 0:
            here[:] = mean
        else:
            here[:] = 0.0
            _add_product(filtered[t - 1], transition_t[min(t - 1, last_move)], here)
            if len(drive):
                for k in range(K):
                    here[k] += drive[t, k]
        innovations[t] = 0.0
        residual[:] = 0.0
        _add_product(here, observation_t, residual)
        for d in range(D):
            residual[d] = x[t, d] - residual[d]
            if len(observed):
                residual[d] *= observed[t, d]
        _add_product(residual, white[g], innovations[t])
        out[:] = here
        _add_product(innovations[t], gain[g], out)


@compiled
def smooth_means_of_one(
    backward: np.ndarray, predicted: np.ndarray, filtered: np.ndarray, smoothed: np.ndarray
) -> None:
    """As ``smooth_means``, of one sequence."""
    last, change = len(backward) - 1, np.empty(predicted.shape[1])
    smoothed[:] = filtered
    for t in range(len(filtered) - 2, -1, -1):
        for k in range(len(change)):
            change[k] = smoothed[t + 1, k] - predicted[t + 1, k]
        _add_product(change, backward[min(t, last)], smoothed[t])


@compiled
def _is_forgotten(power: np.ndarray, begun: np.ndarray, here: np.ndarray, unchanged: float) -> bool:
    """Whether a recursion ``S <- V + Jᵀ S J``, J to the power so far, is where it will stay, as in ``kalman``."""
    transposed = power.T.copy()
    left = np.abs(transposed @ begun @ power) + np.abs(transposed @ here @ power)
    scale = np.sqrt(np.maximum(np.diag(here), 0.0))
    for i in range(len(here)):
        for j in range(len(here)):
            if left[i, j] > unchanged * scale[i] * scale[j]:
                return False
    return True


@compiled
def smooth_covariances(
    backward: np.ndarray,
    rest: np.ndarray,
    filtered: np.ndarray,
    ending: np.ndarray,
    going_on: np.ndarray,
    unchanged: float,
    smoothed: np.ndarray,
    across: np.ndarray,
    before: np.ndarray,
) -> None:
    """Weighted sums over sequences, at each step, of covariances given all of a sequence.

    The recursion is linear in them, so that sequences of all lengths take one pass.

    Args:
        backward, rest, filtered: of ``covariances``; the last stays.
        ending, going_on: (T,) the weight of the sequences whose last step this is, and of those that go on.
        unchanged: of the sums: by how much what they came from may still matter where they are taken to be constant.
        smoothed: (T, K, K), is set to the sums of Cov[z_t].
        across: (T, K, K), is set to the sums of Cov[z_t+1, z_t].
        before: (K, K), is set to the sum over steps of Cov[z_t] of the sequences that go on.
    """
    n_steps, last, t = len(ending), len(backward) - 1, len(ending) - 1
    power, begun = np.eye(backward.shape[1]), np.zeros(backward.shape[1:])
    n_alike = 0  # steps of one recursion, from sums ``begun``: what is left of these is what ``power`` makes of them
    while t >= 0:
        g = min(t, last)
        here = ending[t] * filtered[g]
        if t < n_steps - 1:
            ahead = smoothed[t + 1] @ backward[g]
            across[t] = ahead
            leaving = going_on[t] * rest[g] + backward[g].T.copy() @ ahead
            before += leaving
            here = here + leaving
        smoothed[t] = here
        if t <= last or ending[t] != 0.0:
            n_alike = 0
        else:
            if n_alike == 0:
                power, begun = np.eye(len(here)), here
            else:
                power = backward[g] @ power
            n_alike += 1
            if n_alike % LOOK_EVERY == 0 and _is_forgotten(power, begun, here, unchanged):
                ahead, n_same = here @ backward[last], 0
                while t - 1 > last and ending[t - 1] == 0.0:
                    t, n_same = t - 1, n_same + 1
                    smoothed[t], across[t] = here, ahead
                before += n_same * here
                n_alike = 0
        t -= 1


@compiled
def smooth_means_by_adjoints(
    transition: np.ndarray,
    observation: np.ndarray,
    white: np.ndarray,
    gain: np.ndarray,
    covariance: np.ndarray,
    offsets: np.ndarray,
    innovations: np.ndarray,
    filtered: np.ndarray,
    smoothed: np.ndarray,
) -> None:
    """As ``smooth_means``, by adjoints r of the filter: ``E[z_t | x] = a_t + r_t P_t`` (Bryson and Frazier 1963).

    ``transition (G, K, K)`` is that of the move from each step, whose last stays, as does that of ``covariance``, the
    ``filtered`` one of ``covariances``; ``innovations`` are standardised.
    """
    last, n_steps, K = len(white) - 1, len(offsets) - 1, transition.shape[1]
    last_move = len(transition) - 1
    r = np.zeros((0, K))
    for t in range(n_steps - 1, -1, -1):
        a, b = offsets[t], offsets[t + 1]
        g = min(t, last)
        moved = np.zeros((b - a, K))
        moved[: len(r)] = r @ transition[min(t, last_move)]
        smoothed[a:b] = filtered[a:b] + moved @ covariance[g]
        r = moved + (innovations[a:b] - moved @ gain[g].T.copy()) @ (white[g].T.copy() @ observation)


@compiled
def smooth_covariances_by_adjoints(
    transition: np.ndarray,
    state_covariance: np.ndarray,
    observation: np.ndarray,
    white: np.ndarray,
    gain: np.ndarray,
    filtered: np.ndarray,
    observed: np.ndarray,
    smoothed: np.ndarray,
    across: np.ndarray,
) -> None:
    """Covariances of one sequence given all of it: ``P - P N P``, N that of the adjoints.

    ``smoothed (T, K, K)`` is set to Cov[z_t], ``across (T, K, K)`` to Cov[z_t+1, z_t], but its last; ``transition`` and
    ``state_covariance``, both (G, K, K), are those of the move from each step, of which the last stays; ``observed`` is
    that of ``covariances``.
    """
    n_steps, last, K = len(smoothed), len(white) - 1, transition.shape[1]
    unit, spread, last_move = np.eye(K), np.zeros((K, K)), len(transition) - 1
    for t in range(n_steps - 1, -1, -1):
        g, move = min(t, last), min(t, last_move)
        covariance, transposed = filtered[g], transition[move].T.copy()
        moved = transition[move] @ covariance
        if t < n_steps - 1:
            predicted = moved @ transposed + state_covariance[move]
            across[t] = moved - predicted @ (spread @ moved)
        inner = transposed @ spread @ transition[move]
        smoothed[t] = covariance - covariance @ inner @ covariance
        seen = observation if len(observed) == 0 else np.expand_dims(observed[t], 1) * observation
        weights = white[g].T.copy() @ seen
        closed = unit - gain[g].T.copy() @ weights
        spread = closed.T.copy() @ inner @ closed + weights.T.copy() @ weights
