"""Paths of states drawn from a chain as a compiled loop."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled


@compiled
def draw_states(
    first: np.ndarray,
    transition: np.ndarray,
    final: np.ndarray,
    states: np.ndarray,
    uniform: np.ndarray,
    drawn: np.ndarray,
    ended: np.ndarray,
) -> None:
    """Fill ``drawn (T, n)``, the next T states of n sequences, and ``ended (T, n)``, whether they ended before each.

    Args:
        first: (n, K + 1) weights of a first step's states, and of the end in its place.
        transition: (K, K) probabilities.
        final: (K,) probability of the end after each state.
        states: (n,) those of the last steps, -1 before the first; afterwards those of the last of these steps.
        uniform: (T, n) numbers from 0 on and below 1, at which inverse cdfs are taken.
        drawn, ended: filled; what is drawn after an end means nothing.
    """
    K = len(transition)
    for row in range(len(states)):
        state = states[row]
        for t in range(len(uniform)):
            weights = first[row, :K] if state < 0 else transition[state]
            end = first[row, K] if state < 0 else final[state]
            total = end
            for j in range(K):
                total += weights[j]
            threshold, cumulative, chosen = uniform[t, row] * total, 0.0, K
            for j in range(K):
                cumulative += weights[j]
                if threshold < cumulative:
                    chosen = j
                    break
            if chosen == K and not end > 0.0:  # by rounding: the last that has a weight
                for j in range(K):
                    chosen = j if weights[j] > 0.0 else chosen
            ended[t, row] = chosen == K and end > 0.0
            if chosen < K:
                state = chosen
            elif state < 0:
                state = 0
            drawn[t, row] = state
        states[row] = state
