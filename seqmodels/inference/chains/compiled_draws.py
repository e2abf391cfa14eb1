"""Paths of states drawn from a chain, or from segments with durations, as compiled loops."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled


@compiled
def _chosen(weights: np.ndarray, end: float, uniform: float) -> int:
    """The index that a number from 0 on and below 1 chooses by the inverse cdf, ``len(weights)`` for the end."""
    K, total = len(weights), end
    for j in range(K):
        total += weights[j]
    threshold, cumulative, last = uniform * total, 0.0, 0
    for j in range(K):
        cumulative += weights[j]
        if threshold < cumulative:
            return j
        last = j if weights[j] > 0.0 else last
    return K if end > 0.0 else last  # by rounding: the last that has a weight


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
    """Fill ``drawn (T, n)``, the next T states of n sequences, and ``ended (T, n)``, whether they ended before each.

    Args:
        first: (n, K + 1) weights of a first step's states, and of the end in its place.
        transitions: (G, K, K) probabilities.
        which: (T, n) the matrix of transitions into each step.
        final: (K,) probability of the end after each state.
        states: (n,) those of the last steps, -1 before the first; afterwards those of the last of these steps.
        uniform: (T, n) numbers from 0 on and below 1, at which inverse cdfs are taken.
        drawn, ended: filled; what is drawn after an end means nothing.
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
    """Fill ``paths (N, n)``, n of each sequence from p(z | x), packed; where no state is possible they are 0.

    Args:
        offsets: (T + 1,) the rows of each time.
        log_alpha: (N, K) log p(z_t | x up to t), packed.
        transition, log_transition: (K, K).
        log_ends: (w, K) by rank, log p(end | last state).
        least_exact: of a sum over states in scaled numbers; below, they are compared in logarithms.
        uniform: (N, n) numbers from 0 on and below 1, in the order of drawing: from the last time to the first, at each
            time first sequences that end there.
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


@compiled
def _relative_weights(log_a: np.ndarray, log_b: np.ndarray, weights: np.ndarray) -> float:
    """Fill ``weights`` with ``exp(log_a + log_b)`` over the largest of them, and return their sum."""
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
    """Fill ``drawn`` and ``ended`` as ``draw_states`` does, where states last as long as is drawn for each segment.

    Args:
        first: (n, K D + 1) weights of a first step's state and the steps that its segment then has left, and of the
            end in its place.
        transition: (K, K) probabilities of the state of the next segment.
        final: (K,) probability of the end after a segment of each state.
        pmf: (K, D) of durations.
        states: (n,) as of ``draw_states``.
        left: (n,) steps that segments have left after the last steps; likewise.
        uniform: (2, T, n) numbers from 0 on and below 1.
        drawn, ended: as of ``draw_states``.
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
