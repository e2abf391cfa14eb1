"""The M-step of a Markov chain in compiled loops: each expected count is divided by the sum of its row.

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
    """Overwrite ``initial``, ``transition`` and ``final`` by the M-step of a Markov chain, given expected counts and
    pseudocounts.

    The new probabilities are the most probable ones a posteriori. Probabilities of zero stay zero. A state without
    expected transitions keeps its row.

    Args:
        counts: expected starts ``(K,)``, transitions ``(K, K)`` and ends ``(K,)``.
        pseudocounts: counts of the same shapes, which are added where the probability is not zero.
        is_frozen: True for states whose transitions and end stay unchanged, ``(K,)``.
        keeps_initial: True if ``initial`` stays unchanged.
        has_final: True if the end is an event; else ``final`` is not read or changed.
        initial: probabilities of first states, ``(K,)``.
        transition: transition probabilities, ``(K, K)``.
        final: probabilities of ending after each state, ``(K,)``.
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
    """Return the log-density of the Dirichlet priors of a Markov chain in nats, up to a constant.

    It is the sum of each pseudocount times the logarithm of its probability, over terms in which both are above zero.

    Args:
        pseudocounts: counts of starts ``(K,)``, transitions ``(K, K)`` and ends ``(K,)``.
        has_final: True if the end is an event; else ``final`` is not read.
        initial: probabilities of first states, ``(K,)``.
        transition: transition probabilities, ``(K, K)``.
        final: probabilities of ending after each state, ``(K,)``.
    """
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
