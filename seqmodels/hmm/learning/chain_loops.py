"""The M-step of a Markov chain in compiled loops: expected counts of starts, transitions and ends over their sums.

All arrays are float64: ``initial (K,)``, ``transition (K, K)`` and, where the end is an event, ``final (K,)``.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled


@compiled
def maximise_chain(
    counts: tuple[np.ndarray, np.ndarray, np.ndarray],
    pseudocounts: tuple[np.ndarray, np.ndarray, np.ndarray],
    is_frozen: np.ndarray,
    keeps_initial: bool,
    has_final: bool,
    initial: np.ndarray,
    transition: np.ndarray,
    final: np.ndarray,
) -> None:
    """Put the maximum a posteriori in place of ``initial``, ``transition`` and ``final``.

    What is zero stays zero, and a state that was never left keeps its row, as does one that ``is_frozen (K,)``.

    Args:
        counts: expected starts, transitions and ends.
        pseudocounts: counts of the same shapes, which are added where the probability is not zero.
        is_frozen: (K,) whether what follows each state stays as it is.
        keeps_initial: whether ``initial`` stays as it is.
        has_final: whether the end is an event.
        initial, transition, final: the parameters before, and after.
    """
    K = len(initial)
    new = np.empty(K + 1)
    if not keeps_initial:
        total = 0.0
        for j in range(K):
            new[j] = counts[0][j] + (pseudocounts[0][j] if initial[j] > 0.0 else 0.0)
            total += new[j]
        if total > 0.0:
            for j in range(K):
                initial[j] = new[j] / total
    for i in range(K):
        if is_frozen[i]:
            continue
        total = 0.0
        for j in range(K):
            new[j] = counts[1][i, j] + (pseudocounts[1][i, j] if transition[i, j] > 0.0 else 0.0)
            total += new[j]
        if has_final:
            new[K] = counts[2][i] + (pseudocounts[2][i] if final[i] > 0.0 else 0.0)
            total += new[K]
        if total > 0.0:
            for j in range(K):
                transition[i, j] = new[j] / total
            if has_final:
                final[i] = new[K] / total


@compiled
def log_prior(
    pseudocounts: tuple[np.ndarray, np.ndarray, np.ndarray],
    has_final: bool,
    initial: np.ndarray,
    transition: np.ndarray,
    final: np.ndarray,
) -> float:
    """Return the sum of each pseudocount times the logarithm of its probability, where neither is zero."""
    K, total = len(initial), 0.0
    for i in range(K):
        if pseudocounts[0][i] > 0.0 and initial[i] > 0.0:
            total += pseudocounts[0][i] * np.log(initial[i])
        if has_final and pseudocounts[2][i] > 0.0 and final[i] > 0.0:
            total += pseudocounts[2][i] * np.log(final[i])
        for j in range(K):
            if pseudocounts[1][i, j] > 0.0 and transition[i, j] > 0.0:
                total += pseudocounts[1][i, j] * np.log(transition[i, j])
    return total
