"""The forward-backward algorithm for regimes over packed sequences, compiled by numba where it is installed."""

from __future__ import annotations

import numpy as np

from seqmodels.common.compiled import compiled


@compiled
def forward_backward(
    initial: np.ndarray,
    transition: np.ndarray,
    offsets: np.ndarray,
    log_b: np.ndarray,
    weights: np.ndarray,
    gamma: np.ndarray,
    pairs: np.ndarray,
    log_prob: np.ndarray,
) -> None:
    """Run the forward-backward algorithm for S regimes over packed sequences.

    Packed rows are all first steps, then all second steps, and so on, the longest sequence first.

    Args:
        initial, transition: probabilities of the first regime ``(S,)`` and of transitions ``(S, S)``.
        offsets: first of the N packed rows of each step, and N at the end, ``(T + 1,)``.
        log_b: log-density of each packed row under each regime, in nats, ``(N, S)``.
        weights: weight of each sequence, the longest first, ``(n,)``.
        gamma: result: probability of each regime given the sequence, ``(N, S)``.
        pairs: expected transitions, ``(S, S)``, to which the weighted sum over sequences is added.
        log_prob: result: log-probability of each sequence in nats, ``(n,)``.
    """
    S = len(initial)
    n, n_steps = offsets[1], len(offsets) - 1
    alpha, b = np.empty((n_steps, S)), np.empty((n_steps, S))
    scale, beta, ahead = np.empty(n_steps), np.empty(S), np.empty(S)
    for r in range(n):
        length = 0
        while length < n_steps and offsets[length + 1] - offsets[length] > r:
            length += 1
        total = 0.0
        for t in range(length):
            row = offsets[t] + r
            largest = log_b[row].max()
            norm = 0.0
            for s in range(S):
                b[t, s] = np.exp(log_b[row, s] - largest)
                predicted = 0.0
                if t == 0:
                    predicted = initial[s]
                else:
                    for q in range(S):
                        predicted += alpha[t - 1, q] * transition[q, s]
                alpha[t, s] = predicted * b[t, s]
                norm += alpha[t, s]
            if not norm > 0:  # the likeliest regimes cannot follow: those that can, by their own largest density
                largest = -np.inf
                for s in range(S):
                    predicted = initial[s] if t == 0 else (alpha[t - 1] * transition[:, s]).sum()
                    if predicted > 0:
                        largest = max(largest, log_b[row, s])
                for s in range(S):
                    predicted = initial[s] if t == 0 else (alpha[t - 1] * transition[:, s]).sum()
                    b[t, s] = np.exp(log_b[row, s] - largest) if predicted > 0 else 0.0
                    alpha[t, s] = predicted * b[t, s]
                    norm += alpha[t, s]
            alpha[t] /= norm
            scale[t] = norm
            total += largest + np.log(norm)
        log_prob[r] = total
        beta[:] = 1.0
        for t in range(length - 1, -1, -1):
            row = offsets[t] + r
            gamma[row] = alpha[t] * beta
            gamma[row] /= gamma[row].sum()
            if t == 0:
                break
            for s in range(S):
                ahead[s] = b[t, s] * beta[s] / scale[t]
            for q in range(S):
                sum_of_row = 0.0
                for s in range(S):
                    joint = transition[q, s] * ahead[s]
                    sum_of_row += joint
                    pairs[q, s] += weights[r] * alpha[t - 1, q] * joint
                beta[q] = sum_of_row
