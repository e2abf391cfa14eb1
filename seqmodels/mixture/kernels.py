"""Loops over the steps of one sequence, compiled where numba is installed."""

from __future__ import annotations

import math

import numpy as np

from seqmodels.compiled import compiled


@compiled
def fixed_share_steps(log_p: np.ndarray, log_prior: np.ndarray, rate: float) -> np.ndarray:
    """``(T,)`` nats of the mixture, of ``log_p (T, K)``; ``FixedShare`` says the recursion."""
    n_steps, n_models = log_p.shape
    steps, log_weights, joint = np.empty(n_steps), log_prior.copy(), np.empty(n_models)
    log_rate = math.log(rate) if rate > 0 else -math.inf
    log_stay = math.log1p(-rate)
    for t in range(n_steps):
        largest = -math.inf
        for k in range(n_models):
            joint[k] = log_weights[k] + log_p[t, k]
            largest = max(largest, joint[k])
        if largest == -math.inf:  # what no model can give
            steps[t] = -math.inf
            log_weights[:] = log_prior
            continue
        total = 0.0
        for k in range(n_models):
            total += math.exp(joint[k] - largest)
        steps[t] = largest + math.log(total)
        for k in range(n_models):
            stays, restarts = log_stay + joint[k] - steps[t], log_rate + log_prior[k]
            high, low = max(stays, restarts), min(stays, restarts)
            log_weights[k] = high if low == -math.inf else high + math.log1p(math.exp(low - high))
    return steps


@compiled
def gated_density_steps(log_p: np.ndarray, state: np.ndarray, rate: float, decay: float, limit: float) -> np.ndarray:
    """``(T,)`` nats of the mixture, of ``log_p (T, K)``; ``DensityGate`` says the recursion, ``state`` is changed."""
    n_steps, n_models = log_p.shape
    steps, joint, weight = np.empty(n_steps), np.empty(n_models), np.empty(n_models)
    for t in range(n_steps):
        scale, largest = state[n_models], -math.inf
        for k in range(n_models):
            weight[k] = state[k] + scale * state[n_models + 1 + k]
            largest = max(largest, weight[k])
        total = 0.0
        for k in range(n_models):
            total += math.exp(weight[k] - largest)
        normaliser, largest = largest + math.log(total), -math.inf
        for k in range(n_models):
            weight[k] -= normaliser
            joint[k] = weight[k] + log_p[t, k]
            largest = max(largest, joint[k])
        if largest == -math.inf:  # what no model can give teaches nothing
            steps[t] = -math.inf
            continue
        total = 0.0
        for k in range(n_models):
            total += math.exp(joint[k] - largest)
        steps[t] = largest + math.log(total)
        for k in range(n_models):
            error = math.exp(joint[k] - steps[t]) - math.exp(weight[k])
            recent = state[n_models + 1 + k]
            state[k] += rate * error
            state[n_models] += rate * error * recent
            gain = min(max(log_p[t, k] - steps[t], -limit), limit)
            state[n_models + 1 + k] = decay * recent + (1.0 - decay) * gain
    return steps


@compiled
def gated_symbol_steps(
    log_odds: np.ndarray,
    bits: np.ndarray,
    nodes: np.ndarray,
    contexts: np.ndarray,
    weights: np.ndarray,
    rate: float,
) -> np.ndarray:
    """``(T,)`` nats of a sequence by logistic mixing; ``weights`` are changed as ``SymbolGate`` says.

    Args:
        log_odds: ``(T, B, K)`` of each model for each of B decisions.
        bits: ``(T, B)`` the outcome, 0 or 1; -1 where there is nothing to decide.
        nodes: ``(T, B)`` the decision's node, by which rows of a block are found.
        contexts: ``(T, J)`` the first row of each set's block, or of a set without nodes its only one, negative:
            ``-1 - row``.
        weights: ``(R, K)``.
    """
    n_steps, n_decisions, n_models = log_odds.shape
    n_sets = contexts.shape[1]
    steps, error = np.empty(n_steps), np.empty(n_decisions)
    for t in range(n_steps):
        nats = 0.0
        for b in range(n_decisions):
            if bits[t, b] < 0:
                continue
            total = 0.0
            for j in range(n_sets):
                first = contexts[t, j]
                row = first + nodes[t, b] if first >= 0 else -1 - first
                for k in range(n_models):
                    total += weights[row, k] * log_odds[t, b, k]
            signed = total if bits[t, b] == 1 else -total
            log_p = -math.log1p(math.exp(-signed)) if signed > 0 else signed - math.log1p(math.exp(signed))
            nats += log_p
            wrong = -math.expm1(log_p)
            error[b] = wrong if bits[t, b] == 1 else -wrong
        steps[t] = nats
        for b in range(n_decisions):
            if bits[t, b] < 0:
                continue
            for j in range(n_sets):
                first = contexts[t, j]
                row = first + nodes[t, b] if first >= 0 else -1 - first
                for k in range(n_models):
                    weights[row, k] += rate * error[b] * log_odds[t, b, k]
    return steps


@compiled
def restore_rows(
    bits: np.ndarray, nodes: np.ndarray, contexts: np.ndarray, weights: np.ndarray, fitted: np.ndarray
) -> None:
    """Rows of ``weights (R, K)`` that ``gated_symbol_steps`` changed, as they are in ``fitted``."""
    for t in range(bits.shape[0]):
        for b in range(bits.shape[1]):
            if bits[t, b] < 0:
                continue
            for j in range(contexts.shape[1]):
                first = contexts[t, j]
                row = first + nodes[t, b] if first >= 0 else -1 - first
                weights[row] = fitted[row]
