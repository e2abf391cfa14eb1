"""Compiled loops that draw paths of states from a chain, or from a chain of segments with durations."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled


@compiled(inner=True)
def _chosen(weights: np.ndarray, end: float, uniform: float) -> int:
    """Draw an index with probability proportional to ``weights (K,)``, or K with probability proportional to ``end``.

    ``uniform`` is a random number in [0, 1), at which the inverse cumulative distribution is taken.
    """
    K, total = len(weights), end
    for j in range(K):
        total += weights[j]
    threshold, cumulative, last = uniform * total, 0.0, 0
    for j in range(K):
        cumulative += weights[j]
        if threshold < cumulative:
            return j
        last = j if weights[j] > 0.0 else last
    return K if end > 0.0 else last  # only reached by rounding: the last outcome that has a weight


@compiled
def draw_states(
    first: np.ndarray,
    transitions: np.ndarray,
    which: np.ndarray,
    final: np.ndarray,
    states: np.ndarray,
    uniform: np.ndarray,
    drawn: np.ndarray,
    ended: np.ndarray,
) -> None:
    """Draw the next T states of n sequences of a chain, and where each sequence ends.

    Args:
        first: weights of the states of a sequence's first step and, last, of an end in its place, ``(n, K + 1)``.
        transitions: transition probabilities, ``(G, K, K)``.
        which: index of the transition matrix into each step, ``(T, n)``.
        final: probability of the end after each state, ``(K,)``.
        states: state of the step before, ``(n,)``, -1 before the first step; afterwards the state of the last of the T.
        uniform: random numbers in [0, 1) that decide the draws, ``(T, n)``.
        drawn: result, the states, ``(T, n)``; they are arbitrary after an end.
        ended: result, True where a sequence ended before a step, ``(T, n)`` bool.
    """
    K = len(final)
    for row in range(len(states)):
        state = states[row]
        for t in range(len(uniform)):
            if state < 0:
                chosen = _chosen(first[row, :K], first[row, K], uniform[t, row])
            else:
                chosen = _chosen(transitions[which[t, row], state], final[state], uniform[t, row])
            ended[t, row] = chosen == K
            if chosen < K:
                state = chosen
            elif state < 0:
                state = 0
            drawn[t, row] = state
        states[row] = state


@compiled
def draw_backwards(
    offsets: np.ndarray,
    log_alpha: np.ndarray,
    transition: np.ndarray,
    log_transition: np.ndarray,
    log_ends: np.ndarray,
    least_exact: float,
    uniform: np.ndarray,
    paths: np.ndarray,
) -> None:
    """Fill ``paths``, ``(N, n)`` in packed rows, with n paths of each sequence drawn from p(z | x).

    Where no state is possible the path is 0.

    Args:
        offsets: first row of each time, and N at the end, ``(T + 1,)``.
        log_alpha: log p(z_t | x_1 .. x_t), ``(N, K)`` in packed rows.
        transition: transition probabilities, ``(K, K)``.
        log_transition: logarithms of ``transition``, ``(K, K)``.
        log_ends: log p(end | last state) of each sequence, ``(w, K)`` by rank (longest first).
        least_exact: smallest sum over states that is trusted in scaled numbers; a smaller one is computed from
            logarithms.
        uniform: numbers in [0, 1), ``(N, n)``, in the order in which states are drawn: from the last time to the first,
            and at each time first the sequences that end there.
        paths: result, ``(N, n)`` int64.
    """
    K, n = len(transition), paths.shape[1]
    weights, scaled = np.empty(K), np.empty(K)
    into = np.empty((K, K))
    for i in range(K):
        for j in range(K):
            into[j, i] = transition[i, j]
    drawn, n_after = 0, 0
    for back in range(len(offsets) - 1):
        t = len(offsets) - 2 - back
        n_here = offsets[t + 1] - offsets[t]
        for place in range(n_here):
            is_end = place < n_here - n_after
            rank = n_after + place if is_end else place - (n_here - n_after)
            row, peak = offsets[t] + rank, -np.inf
            for i in range(K):
                peak = max(peak, log_alpha[row, i])
            if not is_end:
                for i in range(K):
                    scaled[i] = np.exp(log_alpha[row, i] - peak) if peak > -np.inf else 0.0
            for d in range(n):
                total = 0.0
                after = 0 if is_end else paths[offsets[t + 1] + rank, d]
                if not is_end:
                    for i in range(K):
                        weights[i] = scaled[i] * into[after, i]
                        total += weights[i]
                if not total > least_exact:
                    total = _relative_weights(
                        log_alpha[row], log_ends[rank] if is_end else log_transition[:, after], weights
                    )
                threshold, cumulative, state = (1.0 - uniform[drawn, d]) * total, 0.0, 0
                for i in range(K):
                    if weights[i] > 0.0:
                        cumulative += weights[i]
                        state = i
                        if cumulative >= threshold:
                            break
                paths[row, d] = state
            drawn += 1
        n_after = n_here


@compiled(inner=True)
def _relative_weights(log_a: np.ndarray, log_b: np.ndarray, weights: np.ndarray) -> float:
    """Fill ``weights`` with ``exp(log_a + log_b)`` divided by its largest entry, and return the sum of the result."""
    peak, total = -np.inf, 0.0
    for i in range(len(log_a)):
        peak = max(peak, log_a[i] + log_b[i])
    for i in range(len(log_a)):
        weights[i] = np.exp(log_a[i] + log_b[i] - peak) if peak > -np.inf else 0.0
        total += weights[i]
    return total


@compiled
def draw_segments(
    first: np.ndarray,
    transition: np.ndarray,
    final: np.ndarray,
    pmf: np.ndarray,
    states: np.ndarray,
    left: np.ndarray,
    uniform: np.ndarray,
    drawn: np.ndarray,
    ended: np.ndarray,
) -> None:
    """Draw the next T states of n sequences of a semi-Markov chain, whose states last a drawn number of steps.

    Args:
        first: weights of the state of a first step together with the number of steps its segment has left, and, last,
            of an end in its place, ``(n, K D + 1)``.
        transition: probabilities of the state of the next segment, ``(K, K)``.
        final: probability of the end after a segment of each state, ``(K,)``.
        pmf: probabilities of the durations 1 .. D of each state, ``(K, D)``.
        states: state of the step before, ``(n,)``, -1 before the first step; afterwards the state of the last step.
        left: number of steps that the current segment has left after the step before, ``(n,)``; afterwards after the
            last.
        uniform: numbers in [0, 1), ``(2, T, n)``, for the states and for the durations.
        drawn: result, the states, ``(T, n)``; they are arbitrary after an end.
        ended: result, True where a sequence ended before a step, ``(T, n)`` bool.
    """
    K, D = pmf.shape
    for row in range(len(states)):
        state, rest = states[row], left[row]
        for t in range(uniform.shape[1]):
            ended[t, row] = False
            if state < 0:
                chosen = _chosen(first[row, : K * D], first[row, K * D], uniform[0, t, row])
                ended[t, row] = chosen == K * D
                state, rest = (chosen // D, chosen % D) if chosen < K * D else (0, 0)
            elif rest > 0:
                rest -= 1
            else:
                chosen = _chosen(transition[state], final[state], uniform[0, t, row])
                ended[t, row] = chosen == K
                if chosen < K:
                    state = chosen
                    rest = _chosen(pmf[state], 0.0, uniform[1, t, row])
            drawn[t, row] = state
        states[row], left[row] = state, rest
