"""Loops over the steps of one sequence, compiled where numba is installed."""

from __future__ import annotations

import math

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.wrappers.mixture.gate_rows import Leads, OddsBins


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
            for k in range(n_models):
                log_weights[k] = log_prior[k]
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
def row_of_odds(bins: OddsBins, log_odds: np.ndarray) -> int:
    """Of one decision's ``log_odds (K,)``."""
    row = 0
    for k in range(bins.n_models):
        place = math.floor((log_odds[k] + bins.largest) * (bins.n_bins / (2 * bins.largest)))
        row = row * bins.n_bins + int(min(max(place, 0), bins.n_bins - 1))
    return bins.at + row


@compiled
def row_of_lead(leads: Leads, recent: np.ndarray, n_decisions: int) -> int:
    """Of a symbol's first decision, after models gave ``recent (K,)`` nats to the last symbols."""
    best = 0
    for k in range(1, len(recent)):
        if recent[k] > recent[best]:
            best = k
    second = -math.inf
    for k in range(len(recent)):
        if k != best:
            second = max(second, recent[k])
    level = 0
    if second > -math.inf:
        level = int(min(math.floor((recent[best] - second) / leads.step + 0.5), leads.n_levels))
    return leads.at + (leads.n_levels * best + level if level > 0 else 0) * n_decisions


@compiled
def gated_symbol_steps(
    log_odds: np.ndarray,
    bits: np.ndarray,
    nodes: np.ndarray,
    contexts: np.ndarray,
    weights: np.ndarray,
    rate: float,
    bins: OddsBins,
    leads: Leads,
) -> np.ndarray:
    """``(T,)`` nats of a sequence by logistic mixing; ``weights`` are changed as ``SymbolGate`` says.

    Args:
        log_odds: ``(T, B, K)`` of each model for each of B decisions.
        bits: ``(T, B)`` the outcome, 0 or 1; -1 where there is nothing to decide.
        nodes: ``(T, B)`` the decision's node, by which rows of a block are found.
        contexts: ``(T, J)`` the first row of each set's block, or of a set without nodes its only one, negative:
            ``-1 - row``.
        weights: ``(R, K)``.
        rate: η.
        bins, leads: the sets whose rows follow from what models gave.
    """
    n_steps, n_decisions, n_models = log_odds.shape
    n_blocks = contexts.shape[1]
    n_sets = n_blocks + 2
    steps, error = np.empty(n_steps), np.empty(n_decisions)
    rows = np.empty((n_decisions, n_sets), dtype=np.int64)
    recent, given = np.zeros(n_models), np.empty(n_models)
    for t in range(n_steps):
        nats = 0.0
        given[:] = 0.0
        lead = row_of_lead(leads, recent, n_decisions)
        for b in range(n_decisions):
            if bits[t, b] < 0:
                continue
            for j in range(n_blocks):
                first = contexts[t, j]
                rows[b, j] = first + nodes[t, b] if first >= 0 else -1 - first
            rows[b, n_blocks] = row_of_odds(bins, log_odds[t, b])
            rows[b, n_blocks + 1] = lead + b
            total = 0.0
            for j in range(n_sets):
                for k in range(n_models):
                    total += weights[rows[b, j], k] * log_odds[t, b, k]
            log_p = log_sigmoid_of(total if bits[t, b] == 1 else -total)
            nats += log_p
            wrong = -math.expm1(log_p)
            error[b] = wrong if bits[t, b] == 1 else -wrong
            for k in range(n_models):
                given[k] += log_sigmoid_of(log_odds[t, b, k] if bits[t, b] == 1 else -log_odds[t, b, k])
        steps[t] = nats
        for k in range(n_models):
            recent[k] = leads.decay * recent[k] + (1.0 - leads.decay) * given[k]
        for b in range(n_decisions):
            if bits[t, b] < 0:
                continue
            for j in range(n_sets):
                for k in range(n_models):
                    weights[rows[b, j], k] += rate * error[b] * log_odds[t, b, k]
    return steps


@compiled
def log_sigmoid_of(x: float) -> float:
    """``log(1 / (1 + exp(-x)))``."""
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


@compiled
def restore_rows(
    bits: np.ndarray, nodes: np.ndarray, contexts: np.ndarray, weights: np.ndarray, fitted: np.ndarray
) -> None:
    """Rows of ``weights (R, K)`` of ``contexts`` that ``gated_symbol_steps`` changed, as they are in ``fitted``."""
    for t in range(bits.shape[0]):
        for b in range(bits.shape[1]):
            if bits[t, b] < 0:
                continue
            for j in range(contexts.shape[1]):
                first = contexts[t, j]
                row = first + nodes[t, b] if first >= 0 else -1 - first
                for k in range(weights.shape[1]):
                    weights[row, k] = fitted[row, k]
