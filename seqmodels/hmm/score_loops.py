"""Passes over the steps of a chain given inputs, for ``observed_information``, as compiled loops.

A *predictor* is a linear function of the inputs: there are K·K for the logits of transitions, then K·L for the output
parameters of densities, then K for the logits of the first state. A *term* of a predictor is one of its coefficients;
its value at a step is the derivative of the predictor by one of the q numbers that a sequence depends on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmodels.common.compiled import compiled

WIDTH = 128  # steps whose scores are multiplied by the inputs at once
SMALL = 1e-250  # probabilities below it may have lost digits, and their reciprocals overflow
CONNECTED = 1e-50  # transition probability from which on states of small probability cannot matter later


class ScoreLayout(NamedTuple):
    """The N steps of n sequences, and the terms of their predictors, of which there are M = K·K + K·L + K.

    Attributes:
        starts: place in ``order`` of the first step of each sequence, and N at the end, ``(n + 1,)``.
        order: the row of each step, one sequence after the other, ``(N,)``.
        columns: the distinct columns of the design that each sequence reads, with steps as in ``order``, ``(c, N)``.
        bounds: number of the first term of each predictor in each sequence, and of the first after them,
            ``(n, M + 1)``.
        column: which of ``columns`` is that of each term, ``(E,)``.
        place: which of the q sums of the sequence each term belongs to, ``(E,)``.
        unit: factor of the column in the term's value, ``(E,)``.
        first_used: place in ``used`` of the first number of each sequence, and their total at the end, ``(n + 1,)``.
        used: the numbers that each sequence depends on, among all P, one sequence after the other.
        sums: for each of them, which of the q sums of its sequence it is part of.
    """

    starts: np.ndarray
    order: np.ndarray
    columns: np.ndarray
    bounds: np.ndarray
    column: np.ndarray
    place: np.ndarray
    unit: np.ndarray
    first_used: np.ndarray
    used: np.ndarray
    sums: np.ndarray


class Smoothed(NamedTuple):
    """The probabilities of the states of N steps in n sequences given the data, one sequence after the other.

    Attributes:
        transition: probabilities of the transitions into each step, ``(N, K, K)``; zeros in first steps.
        gamma: posterior of states, ``(N, K)``.
        xi: posterior of transitions into each step, ``(N, K, K)``; zeros in first steps.
        initial: probabilities of first states, ``(n, K)``.
    """

    transition: np.ndarray
    gamma: np.ndarray
    xi: np.ndarray
    initial: np.ndarray

    @classmethod
    def of(cls, shape: tuple[int, ...], initial: np.ndarray) -> Smoothed:
        """Return arrays to be filled for transitions of a shape ``(N, K, K)``, with the given first states."""
        return cls(np.empty(shape), np.empty(shape[:2]), np.empty(shape), initial)


@compiled(any_order=True, allocates=False)
def smooth(
    starts: np.ndarray,
    order: np.ndarray,
    odds: np.ndarray,
    b: np.ndarray,
    final: np.ndarray,
    result: Smoothed,
    predicted: np.ndarray,
    log_prob: np.ndarray,
) -> bool:
    """Compute the posterior of states and transitions in probabilities that are scaled at each step.

    The backward recursion is that of Kim (1994), ``p(z_t-1 = i, z_t = j | x) = p(z_t-1 = i | x_<t) a_ij
    p(z_t = j | x) / p(z_t = j | x_<t)``, which reads no densities.

    Args:
        starts, order: the steps, as in ``ScoreLayout``.
        odds: transition probabilities into each row, up to a factor of each row of the matrix, ``(N, K, K)``.
        b: densities of each row relative to the largest, ``(N, K)``; zero only if they are zero.
        final: probabilities of the end after each state, ``(n, K)``.
        result: is filled, but for ``initial``, which is read.
        predicted: buffer for the probabilities of the states given earlier steps, ``(N, K)``.
        log_prob: is filled with the log-probability of each sequence in nats, without the largest densities, ``(n,)``.

    Returns:
        False if a probability was so small that the results may be wrong.
    """
    transition, gamma, xi, initial = result
    K = b.shape[1]
    for s in range(len(starts) - 1):
        begin, end = starts[s], starts[s + 1]
        of_sequence, least, smallest = 0.0, 1.0, 1.0
        for at in range(begin, end):
            row = order[at]
            for j in range(K):
                predicted[at, j] = initial[s, j] if at == begin else 0.0
            for i in range(K):
                total = 0.0
                for j in range(K):
                    total += odds[row, i, j]
                if not SMALL < total < 1.0 / SMALL:
                    return False
                scale = 0.0 if at == begin else 1.0 / total
                for j in range(K):
                    transition[at, i, j] = a = scale * odds[row, i, j]
                    xi[at, i, j] = 0.0
                    if at > begin:
                        least = min(least, a)
                        predicted[at, j] += gamma[at - 1, i] * a
            total = 0.0
            for j in range(K):
                gamma[at, j] = predicted[at, j] * b[row, j]
                total += gamma[at, j]
            if not total > SMALL:
                return False
            scale = 1.0 / total
            for j in range(K):
                gamma[at, j] *= scale
                if predicted[at, j] > 0.0 and b[row, j] > 0.0:
                    smallest = min(smallest, predicted[at, j], gamma[at, j])
            of_sequence += np.log(total)
        if smallest < SMALL and least < CONNECTED:
            return False
        total = 0.0
        for j in range(K):
            gamma[end - 1, j] *= final[s, j]
            total += gamma[end - 1, j]
        if not total > SMALL:
            return False
        for j in range(K):
            gamma[end - 1, j] /= total
        log_prob[s] = of_sequence + np.log(total)
        for at in range(end - 1, begin, -1):
            for j in range(K):  # the predictions are not read again
                predicted[at, j] = gamma[at, j] / predicted[at, j] if predicted[at, j] > 0.0 else 0.0
            for i in range(K):
                filtered, total = gamma[at - 1, i], 0.0
                for j in range(K):
                    xi[at, i, j] = value = filtered * transition[at, i, j] * predicted[at, j]
                    total += value
                gamma[at - 1, i] = total
    return True


@compiled(any_order=True)
def add_gradient(layout: ScoreLayout, smoothed: Smoothed, first: np.ndarray, gradient: np.ndarray) -> None:
    """Add the gradient of the log-likelihood by P numbers to ``gradient (P,)``, by Fisher's identity.

    Args:
        layout: the steps.
        smoothed: the posterior of the states.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        gradient: the sum that is added to.
    """
    transition, gamma, xi, initial = smoothed
    order, columns, place, column, unit = layout.order, layout.columns, layout.place, layout.column, layout.unit
    K, L, C, (n, M) = gamma.shape[1], first.shape[2], len(columns), layout.bounds.shape
    scores, of_predictors, of_sums = np.empty((M - 1, WIDTH)), np.empty((M - 1, C)), np.empty(len(place) + 1)
    for s in range(n):
        bounds, begin, end = layout.bounds[s], layout.starts[s], layout.starts[s + 1]
        of_predictors[:], of_sums[:] = 0.0, 0.0
        for low in range(begin, end, WIDTH):
            width = min(WIDTH, end - low)
            for t in range(width):
                at = low + t
                row = order[at]
                for i in range(K):
                    mass = 0.0
                    for j in range(K):
                        mass += xi[at, i, j]
                    for j in range(K):
                        scores[i * K + j, t] = xi[at, i, j] - mass * transition[at, i, j]
                    for output in range(L):
                        scores[K * K + i * L + output, t] = gamma[at, i] * first[row, i, output]
                    scores[K * K + K * L + i, t] = gamma[at, i] - initial[s, i] if at == begin else 0.0
            for m in range(M - 1 if low == begin else K * K + K * L):
                if bounds[m + 1] > bounds[m]:
                    score = scores[m, :width]
                    for c in range(C):
                        total, x = 0.0, columns[c, low : low + width]
                        for t in range(width):
                            total += score[t] * x[t]
                        of_predictors[m, c] += total
        for m in range(M - 1):
            for e in range(bounds[m], bounds[m + 1]):
                of_sums[place[e]] += unit[e] * of_predictors[m, column[e]]
        for number in range(layout.first_used[s], layout.first_used[s + 1]):
            gradient[layout.used[number]] += of_sums[layout.sums[number]]


@compiled(any_order=True, inner=True)
def _add_terms(
    layout: ScoreLayout, values: np.ndarray, terms: tuple[int, int, int], factor: float, total: np.ndarray
) -> None:
    """Add the terms of a predictor times a factor to sums ``total (q,)``.

    Args:
        layout: the terms.
        values: values of the terms of the sequence, from its first on.
        terms: the first term of the sequence, the first of the predictor, and the first after it.
        factor: what they are multiplied by.
        total: the sums.
    """
    for e in range(terms[1], terms[2]):
        total[layout.place[e]] += factor * values[e - terms[0]]


@compiled(any_order=True)
def add_information(
    layout: ScoreLayout, smoothed: Smoothed, first: np.ndarray, second: np.ndarray, information: np.ndarray
) -> None:
    """Add minus the Hessian of the log-likelihood by P numbers to ``information (P, P)``, by Louis' identity.

    With scores ``s_t`` less their expectations given x, and ``v_t(j)`` the expected sum of those of later steps given
    state j, the variance of the sum of all scores is that of each, plus the covariance of each with ``v_t``, twice.

    Args:
        layout: the steps.
        smoothed: the posterior of the states.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        second: their second derivatives, ``(N, K, L, L)``.
        information: the sum that is added to.
    """
    transition, gamma, xi, initial = smoothed
    K, L, n, M = gamma.shape[1], first.shape[2], len(layout.bounds), layout.bounds.shape[1] - 1
    most = 1
    for s in range(n):
        most = max(most, layout.bounds[s, M] - layout.bounds[s, 0])
    values, mean, along = np.empty(most), np.empty(most), np.empty(most)
    later, ahead, new = np.empty((K, most)), np.empty((K, most)), np.empty((K, most))
    half, p, w = np.empty((most, most)), np.empty((K, K)), np.empty((K, K))
    for s in range(n):
        bounds, begin, e_0 = layout.bounds[s], layout.starts[s], layout.bounds[s, 0]
        q = 0
        for e in range(e_0, bounds[M]):
            q = max(q, layout.place[e] + 1)
        half[:q, :q] = 0.0
        later[:, :q] = 0.0
        for at in range(layout.starts[s + 1] - 1, begin - 1, -1):
            row = layout.order[at]
            for e in range(e_0, bounds[M]):
                values[e - e_0] = layout.unit[e] * layout.columns[layout.column[e], at]
            n_rows, of_rows = (K, 0) if at > begin else (1, K * K + K * L)  # the first state has one distribution
            mean[:q] = 0.0
            for i in range(n_rows):
                mass = 0.0
                for j in range(K):
                    w[i, j] = xi[at, i, j] if at > begin else gamma[at, j]
                    p[i, j] = transition[at, i, j] if at > begin else initial[s, j]
                    mass += w[i, j]
                ahead[i, :q] = 0.0
                for j in range(K):
                    m = of_rows + i * K + j
                    _add_terms(layout, values, (e_0, bounds[m], bounds[m + 1]), w[i, j] - mass * p[i, j], mean)
                    for r in range(q):
                        ahead[i, r] += w[i, j] * later[j, r]
            for j in range(K):
                for output in range(L):
                    m, factor = K * K + j * L + output, gamma[at, j] * first[row, j, output]
                    _add_terms(layout, values, (e_0, bounds[m], bounds[m + 1]), factor, mean)
            for i in range(n_rows):
                mass = 0.0
                for j in range(K):
                    mass += w[i, j]
                for k in range(K):
                    m = of_rows + i * K + k
                    if bounds[m + 1] == bounds[m]:
                        continue
                    score = w[i, k] - mass * p[i, k]
                    for r in range(q):
                        along[r] = w[i, k] * later[k, r] - p[i, k] * ahead[i, r] - 0.5 * score * mean[r]
                    for j in range(K):
                        factor = mass * p[i, k] * p[i, j] - 0.5 * (w[i, k] * p[i, j] + p[i, k] * w[i, j])
                        factor += 0.5 * (w[i, k] - mass * p[i, k]) if j == k else 0.0
                        of_j = of_rows + i * K + j
                        _add_terms(layout, values, (e_0, bounds[of_j], bounds[of_j + 1]), factor, along)
                        covariance = w[i, j] * ((1.0 if j == k else 0.0) - p[i, k])
                        for output in range(L):
                            of_j, factor = K * K + j * L + output, covariance * first[row, j, output]
                            _add_terms(layout, values, (e_0, bounds[of_j], bounds[of_j + 1]), factor, along)
                    for e in range(bounds[m], bounds[m + 1]):
                        total, value = half[layout.place[e]], values[e - e_0]
                        for r in range(q):
                            total[r] += value * along[r]
            for j in range(K):
                for output in range(L):
                    m, score = K * K + j * L + output, first[row, j, output]
                    if bounds[m + 1] == bounds[m]:
                        continue
                    for r in range(q):
                        along[r] = gamma[at, j] * score * (later[j, r] - 0.5 * mean[r])
                    for other in range(L):
                        of_j = K * K + j * L + other
                        factor = 0.5 * gamma[at, j] * (score * first[row, j, other] + second[row, j, output, other])
                        _add_terms(layout, values, (e_0, bounds[of_j], bounds[of_j + 1]), factor, along)
                    for e in range(bounds[m], bounds[m + 1]):
                        total, value = half[layout.place[e]], values[e - e_0]
                        for r in range(q):
                            total[r] += value * along[r]
            for i in range(n_rows):
                mass = 0.0
                for j in range(K):
                    mass += w[i, j]
                share = 1.0 / mass if mass > SMALL else 0.0
                for r in range(q):
                    new[i, r] = share * ahead[i, r] - mean[r]
                for j in range(K):
                    m, ratio = of_rows + i * K + j, share * w[i, j]
                    _add_terms(layout, values, (e_0, bounds[m], bounds[m + 1]), ratio - p[i, j], new[i])
                    for output in range(L):
                        m, factor = K * K + j * L + output, ratio * first[row, j, output]
                        _add_terms(layout, values, (e_0, bounds[m], bounds[m + 1]), factor, new[i])
            later, new = new, later
        for a in range(layout.first_used[s], layout.first_used[s + 1]):
            for b in range(layout.first_used[s], layout.first_used[s + 1]):
                i, j = layout.sums[a], layout.sums[b]
                information[layout.used[a], layout.used[b]] -= half[i, j] + half[j, i]


@compiled(any_order=True, inner=True)
def _scores(
    layout: ScoreLayout,
    smoothed: Smoothed,
    first: np.ndarray,
    covariance: np.ndarray,
    where: tuple[int, int],
    posterior: tuple[np.ndarray, np.ndarray],
    scores: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> int:
    """Fill arrays with the scores of one step of a sequence, given its state i and the state before.

    There are R rows of transition probabilities: K, or for a first step 1, the distribution of first states.

    Args:
        layout: the steps.
        smoothed: the posterior of the states.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        covariance: a matrix that is zero in the rows and columns of densities, ``(q, q)``.
        where: number of the sequence, and place of the step in ``layout.order``.
        posterior: is filled with posterior and prior probabilities of the pairs of states, each ``(K, K)``.
        scores: is filled with derivatives of the log-probabilities of transitions, ``(K, K, q)``, and these times the
            covariance, ``(K, K, q)``; with the same of transitions and densities less their expectation, twice.

    Returns:
        R.
    """
    (s, at), (w, p), (moves, covered_moves, total, covered) = where, posterior, scores
    K, L, q, bounds = smoothed.gamma.shape[1], first.shape[2], len(covariance), layout.bounds[s]
    row, is_later = layout.order[at], at > layout.starts[s]
    n_rows, of_rows = (K, 0) if is_later else (1, K * K + K * L)
    mean, covered_mean = np.zeros(q), np.zeros(q)
    for i in range(n_rows):
        for j in range(K):
            w[i, j] = smoothed.xi[at, i, j] if is_later else smoothed.gamma[at, j]
            p[i, j] = smoothed.transition[at, i, j] if is_later else smoothed.initial[s, j]
            moves[i, j], covered_moves[i, j] = 0.0, 0.0
        for k in range(K):
            for e in range(bounds[of_rows + i * K + k], bounds[of_rows + i * K + k + 1]):
                place, value = layout.place[e], layout.unit[e] * layout.columns[layout.column[e], at]
                column = covariance[place]
                for j in range(K):
                    moves[i, j, place] += ((1.0 if j == k else 0.0) - p[i, k]) * value
                for r in range(q):
                    covered_moves[i, k, r] += value * column[r]
        for r in range(q):
            expected = 0.0
            for k in range(K):
                expected += p[i, k] * covered_moves[i, k, r]
            for k in range(K):
                covered_moves[i, k, r] -= expected
        for j in range(K):
            for r in range(q):
                total[i, j, r] = moves[i, j, r]
                mean[r] += w[i, j] * moves[i, j, r]
                covered_mean[r] += w[i, j] * covered_moves[i, j, r]
    for j in range(K):
        for output in range(L):
            m, score = K * K + j * L + output, first[row, j, output]
            for e in range(bounds[m], bounds[m + 1]):
                place, value = layout.place[e], layout.unit[e] * layout.columns[layout.column[e], at] * score
                mean[place] += smoothed.gamma[at, j] * value
                for i in range(n_rows):
                    total[i, j, place] += value
    for i in range(n_rows):
        for j in range(K):
            for r in range(q):
                total[i, j, r] -= mean[r]
                covered[i, j, r] = covered_moves[i, j, r] - covered_mean[r]
    return n_rows


@compiled(any_order=True)
def add_trace_gradient(
    layout: ScoreLayout, smoothed: Smoothed, first: np.ndarray, covariances: np.ndarray, gradient: np.ndarray
) -> None:
    """Add the gradient of ``Σ_s tr(covariance_s @ information_s)`` over sequences s by P numbers to ``gradient (P,)``.

    ``tr(C I)`` is the expectation of ``h - S' C S`` over paths of states, where S are the scores of all steps less
    their expectations, and h sums minus the second derivatives times C of the logarithms of transition probabilities.
    So its gradient is ``E[∂h] + E[h S] - 2 E[∂S' C S] - E[(S' C S) S]``. Each is a sum over steps t, with the expected
    scores of earlier steps given the state at t - 1, and those of later steps given the state at t.

    Args:
        layout: the steps.
        smoothed: the posterior of the states.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        covariances: a matrix of the q sums of each sequence, ``(n, q, q)``, zero in rows and columns of densities, and
            beyond the sums that a sequence has.
        gradient: the sum that is added to.
    """
    K, q, n = smoothed.gamma.shape[1], covariances.shape[1], len(layout.bounds)
    posterior = np.empty((K, K)), np.empty((K, K))
    scores = np.empty((K, K, q)), np.empty((K, K, q)), np.empty((K, K, q)), np.empty((K, K, q))
    (w, p), (moves, covered_moves, total, covered) = posterior, scores
    longest = 0
    for s in range(n):
        longest = max(longest, layout.starts[s + 1] - layout.starts[s])
    earlier, of_sums, both = np.empty((longest + 1, K, q)), np.empty(q), np.empty(q)
    for s in range(n):
        begin, end = layout.starts[s], layout.starts[s + 1]
        of_sums[:], earlier[0] = 0.0, 0.0
        for at in range(begin, end):
            n_rows = _scores(layout, smoothed, first, covariances[s], (s, at), posterior, scores)
            before, after = earlier[at - begin], earlier[at - begin + 1]
            for j in range(K):
                share = 1.0 / smoothed.gamma[at, j] if smoothed.gamma[at, j] > SMALL else 0.0
                after[j] = 0.0
                for i in range(n_rows):
                    for r in range(q):
                        after[j, r] += share * w[i, j] * (before[i, r] + total[i, j, r])
        later, covered_later = np.zeros((K, q)), np.zeros((K, q))
        for at in range(end - 1, begin - 1, -1):
            n_rows = _scores(layout, smoothed, first, covariances[s], (s, at), posterior, scores)
            before, new, covered_new = earlier[at - begin], np.zeros((K, q)), np.zeros((K, q))
            of_later = np.zeros(K)
            for i in range(n_rows):
                mass, of_earlier, trace = 0.0, 0.0, 0.0
                for j in range(K):
                    mass += w[i, j]
                share = 1.0 / mass if mass > SMALL else 0.0
                for j in range(K):
                    of_step, with_later, with_earlier, across = 0.0, 0.0, 0.0, 0.0
                    for r in range(q):
                        of_step += covered[i, j, r] * total[i, j, r]
                        with_later += covered[i, j, r] * later[j, r]
                        with_earlier += covered[i, j, r] * before[i, r]
                        across += covered_later[j, r] * before[i, r]
                    of_earlier += w[i, j] * (of_step + 2.0 * with_later)
                    of_later[j] += w[i, j] * (of_step + 2.0 * with_earlier)
                    factor = w[i, j] * (of_step + 2.0 * (with_later + with_earlier + across))
                    for r in range(q):
                        of_sums[r] -= factor * total[i, j, r]
                        new[i, r] += share * w[i, j] * (total[i, j, r] + later[j, r])
                        covered_new[i, r] += share * w[i, j] * (covered[i, j, r] + covered_later[j, r])
                for r in range(q):
                    of_sums[r] -= of_earlier * before[i, r]
                    both[r] = before[i, r] + new[i, r]
                for k in range(K):
                    of_step, with_both = 0.0, 0.0
                    for r in range(q):
                        of_step += covered_moves[i, k, r] * moves[i, k, r]
                        with_both += covered_moves[i, k, r] * both[r]
                    trace += p[i, k] * of_step
                    factor = mass * p[i, k] * (of_step + 2.0 * with_both)
                    for r in range(q):
                        of_sums[r] += factor * moves[i, k, r]
                for r in range(q):
                    of_sums[r] += mass * trace * both[r]
            for j in range(K):
                for r in range(q):
                    of_sums[r] -= of_later[j] * later[j, r]
            later, covered_later = new, covered_new
        for number in range(layout.first_used[s], layout.first_used[s + 1]):
            gradient[layout.used[number]] += of_sums[layout.sums[number]]
