"""Passes over the steps of a chain given inputs, for ``observed_information``, as compiled loops.

A *predictor* is a linear function of the inputs: there are K·K for the logits of transitions, then K·L for the output
parameters of densities, then K for the logits of the first state. A *term* of a predictor is one of its coefficients;
its value at a step is the derivative of the predictor by one of the q numbers that a sequence depends on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqmodels.common.compiled import compiled

SMALL = 1e-250  # probabilities below it may have lost digits
CONNECTED = 1e-50  # transition probability from which on states of small probability cannot matter later


class Layout(NamedTuple):
    """The N steps of n sequences, and the terms of their predictors, of which there are M = K·K + K·L + K.

    Attributes:
        starts: place in ``order`` of the first step of each sequence, and N at the end, ``(n + 1,)``.
        order: the row of each step, one sequence after the other, ``(N,)``.
        design: the distinct columns of the design that the sequence of each row reads, ``(N, c)``.
        bounds: number of the first term of each predictor in each sequence, and of the first after them,
            ``(n, M + 1)``.
        column: column of ``design`` of each term, ``(E,)``.
        place: which of the q sums of the sequence each term belongs to, ``(E,)``.
        unit: factor of the column in the term's value, ``(E,)``.
        first_used: place in ``used`` of the first number of each sequence, and their total at the end, ``(n + 1,)``.
        used: the numbers that each sequence depends on, among all P, one sequence after the other.
        sums: for each of them, which of the q sums of its sequence it is part of.
    """

    starts: np.ndarray
    order: np.ndarray
    design: np.ndarray
    bounds: np.ndarray
    column: np.ndarray
    place: np.ndarray
    unit: np.ndarray
    first_used: np.ndarray
    used: np.ndarray
    sums: np.ndarray


class Smoothed(NamedTuple):
    """The probabilities of the states of N steps in n sequences, given the data.

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


@compiled(any_order=True)
def smooth(
    layout: Layout, logits: np.ndarray, log_b: np.ndarray, final: np.ndarray, result: Smoothed, log_prob: np.ndarray
) -> bool:
    """Compute the posterior of states and transitions in probabilities that are scaled at each step.

    The backward recursion is that of Kim (1994), ``p(z_t-1 = i, z_t = j | x) = p(z_t-1 = i | x_<t) a_ij
    p(z_t = j | x) / p(z_t = j | x_<t)``, which reads no densities.

    Args:
        layout: the steps.
        logits: logits of the transitions into each step, ``(N, K, K)``.
        log_b: log-densities of each step, ``(N, K)``.
        final: probabilities of the end after each state, ``(n, K)``.
        result: is filled, but for ``initial``, which is read.
        log_prob: is filled with the log-probability of each sequence in nats, ``(n,)``.

    Returns:
        False if a probability was so small that the results may be wrong.
    """
    K = log_b.shape[1]
    transition, gamma, xi = result.transition, result.gamma, result.xi
    predicted, ratio = np.empty((len(gamma), K)), np.empty(K)
    for s in range(len(layout.starts) - 1):
        begin, end = layout.starts[s], layout.starts[s + 1]
        log_prob[s], least, smallest, before = 0.0, 1.0, 1.0, -1
        for at in range(begin, end):
            row = layout.order[at]
            for j in range(K):
                predicted[row, j] = result.initial[s, j] if at == begin else 0.0
            for i in range(K):
                peak, total = -np.inf, 0.0
                for j in range(K):
                    peak = max(peak, logits[row, i, j])
                    xi[row, i, j] = 0.0
                for j in range(K):
                    transition[row, i, j] = 0.0 if at == begin else np.exp(logits[row, i, j] - peak)
                    total += transition[row, i, j]
                if at > begin:
                    for j in range(K):
                        transition[row, i, j] /= total
                        least = min(least, transition[row, i, j])
                        predicted[row, j] += gamma[before, i] * transition[row, i, j]
            peak, total = -np.inf, 0.0
            for j in range(K):
                if predicted[row, j] > 0.0:
                    peak = max(peak, log_b[row, j])
            for j in range(K):
                gamma[row, j] = predicted[row, j] * np.exp(log_b[row, j] - peak) if predicted[row, j] > 0.0 else 0.0
                total += gamma[row, j]
            if not total > SMALL:
                return False
            for j in range(K):
                gamma[row, j] /= total
                if predicted[row, j] > 0.0 and log_b[row, j] > -np.inf:
                    smallest = min(smallest, gamma[row, j])
            log_prob[s] += peak + np.log(total)
            before = row
        if smallest < SMALL and least < CONNECTED:
            return False
        total = 0.0
        for j in range(K):
            gamma[before, j] *= final[s, j]
            total += gamma[before, j]
        if not total > SMALL:
            return False
        for j in range(K):
            gamma[before, j] /= total
        log_prob[s] += np.log(total)
        for at in range(end - 1, begin, -1):
            row, before = layout.order[at], layout.order[at - 1]
            for j in range(K):
                ratio[j] = gamma[row, j] / predicted[row, j] if predicted[row, j] > 0.0 else 0.0
            for i in range(K):
                filtered, total = gamma[before, i], 0.0
                for j in range(K):
                    xi[row, i, j] = filtered * transition[row, i, j] * ratio[j]
                    total += xi[row, i, j]
                gamma[before, i] = total
    return True


@compiled(any_order=True)
def add_gradient(layout: Layout, smoothed: Smoothed, first: np.ndarray, gradient: np.ndarray) -> None:
    """Add the gradient of the log-likelihood by P numbers to ``gradient (P,)``, by Fisher's identity.

    Args:
        layout: the steps.
        smoothed: the posterior of the states.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        gradient: the sum that is added to.
    """
    transition, gamma, xi, initial = smoothed
    K, L, n_columns, (n, M) = gamma.shape[1], first.shape[2], layout.design.shape[1], layout.bounds.shape
    of_predictors, of_sums = np.empty((M - 1, n_columns)), np.empty(len(layout.place) + 1)
    for s in range(n):
        bounds, begin = layout.bounds[s], layout.starts[s]
        of_predictors[:], of_sums[:] = 0.0, 0.0
        for at in range(begin, layout.starts[s + 1]):
            row = layout.order[at]
            x = layout.design[row]
            for i in range(K):
                mass = 0.0
                for j in range(K):
                    mass += xi[row, i, j]
                for j in range(K):
                    if bounds[i * K + j + 1] > bounds[i * K + j] and at > begin:
                        score = xi[row, i, j] - mass * transition[row, i, j]
                        for c in range(n_columns):
                            of_predictors[i * K + j, c] += score * x[c]
                for output in range(L):
                    m = K * K + i * L + output
                    if bounds[m + 1] > bounds[m]:
                        score = gamma[row, i] * first[row, i, output]
                        for c in range(n_columns):
                            of_predictors[m, c] += score * x[c]
                if at == begin:
                    for c in range(n_columns):
                        of_predictors[K * K + K * L + i, c] = (gamma[row, i] - initial[s, i]) * x[c]
        for m in range(M - 1):
            for e in range(bounds[m], bounds[m + 1]):
                of_sums[layout.place[e]] += layout.unit[e] * of_predictors[m, layout.column[e]]
        for number in range(layout.first_used[s], layout.first_used[s + 1]):
            gradient[layout.used[number]] += of_sums[layout.sums[number]]


@compiled(any_order=True, inner=True)
def _add_terms(
    layout: Layout, values: np.ndarray, terms: tuple[int, int, int], factor: float, total: np.ndarray
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
    layout: Layout, smoothed: Smoothed, first: np.ndarray, second: np.ndarray, information: np.ndarray
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
                values[e - e_0] = layout.unit[e] * layout.design[row, layout.column[e]]
            n_rows, of_rows = (K, 0) if at > begin else (1, K * K + K * L)  # the first state has one distribution
            mean[:q] = 0.0
            for i in range(n_rows):
                mass = 0.0
                for j in range(K):
                    w[i, j] = xi[row, i, j] if at > begin else gamma[row, j]
                    p[i, j] = transition[row, i, j] if at > begin else initial[s, j]
                    mass += w[i, j]
                ahead[i, :q] = 0.0
                for j in range(K):
                    m = of_rows + i * K + j
                    _add_terms(layout, values, (e_0, bounds[m], bounds[m + 1]), w[i, j] - mass * p[i, j], mean)
                    for r in range(q):
                        ahead[i, r] += w[i, j] * later[j, r]
            for j in range(K):
                for output in range(L):
                    m, factor = K * K + j * L + output, gamma[row, j] * first[row, j, output]
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
                        along[r] = gamma[row, j] * score * (later[j, r] - 0.5 * mean[r])
                    for other in range(L):
                        of_j = K * K + j * L + other
                        factor = 0.5 * gamma[row, j] * (score * first[row, j, other] + second[row, j, output, other])
                        _add_terms(layout, values, (e_0, bounds[of_j], bounds[of_j + 1]), factor, along)
                    for e in range(bounds[m], bounds[m + 1]):
                        total, value = half[layout.place[e]], values[e - e_0]
                        for r in range(q):
                            total[r] += value * along[r]
            for i in range(n_rows):
                mass = 0.0
                for j in range(K):
                    mass += w[i, j]
                share = 1.0 / mass if mass > 0.0 else 0.0
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
