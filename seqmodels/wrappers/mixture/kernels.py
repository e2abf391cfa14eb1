"""Loops over the steps of one sequence, compiled by numba if it is installed."""

from __future__ import annotations

import math

import numpy as np

from seqmodels.common.compiled import compiled
from seqmodels.wrappers.mixture.gate_rows import Leads, OddsBins


@compiled
def fixed_share_steps(log_p: np.ndarray, log_prior: np.ndarray, rate: float) -> np.ndarray:
    """Return the log-probability of each step under a mixture of K models with fixed-share weights, ``(T,)`` nats.

    The weights of a step are ``(1 - α)`` times the posterior of the models after the step before, plus α times the
    prior.

    Args:
        log_p: log-probability of each of T steps under each model, ``(T, K)`` nats.
        log_prior: log-weights at the start, ``(K,)``.
        rate: switching rate α.
    """
    n_steps, n_models = log_p.shape
    steps, log_weights, joint = np.empty(n_steps), log_prior.copy(), np.empty(n_models)
    log_rate = math.log(rate) if rate > 0 else -math.inf
    log_stay = math.log1p(-rate)
    for t in range(n_steps):
        largest = -math.inf
        for k in range(n_models):
            joint[k] = log_weights[k] + log_p[t, k]
            largest = max(largest, joint[k])
        if largest == -math.inf:  # the step is impossible under every model
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
    """Return the log-probability of each step under a mixture of K densities with weights that learn, ``(T,)`` nats.

    The weights are ``softmax(b + s r)``, where r are the models' recent gains over the mixture, and b and s follow the
    gradient; ``DensityGate`` gives the recursion.

    Args:
        log_p: log-probability of each of T steps under each model, ``(T, K)`` nats.
        state: b, s and r, ``(2 K + 1,)``, which are changed in place.
        rate: learning rate η.
        decay: decay λ of the recent gains.
        limit: largest gain of a step.
    """
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
        if largest == -math.inf:  # nothing is learned from a step that is impossible under every model
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
    """Return the index of the row of mixing weights that the models' log-odds of one binary decision choose.

    Args:
        bins: the rows, and how log-odds are rounded to bins.
        log_odds: log-odds under each of K models, ``(K,)``.
    """
    row = 0
    for k in range(bins.n_models):
        place = math.floor((log_odds[k] + bins.largest) * (bins.n_bins / (2 * bins.largest)))
        row = row * bins.n_bins + int(min(max(place, 0), bins.n_bins - 1))
    return bins.at + row


@compiled
def row_of_lead(leads: Leads, recent: np.ndarray, n_decisions: int) -> int:
    """Return the index of the row of mixing weights for the first decision of a symbol, chosen by the best model.

    Args:
        leads: the rows, and how the best model's lead is rounded.
        recent: mean log-probability of the last symbols under each of K models, ``(K,)`` nats.
        n_decisions: number of rows for one model and lead, one for each place of a decision in the symbol.
    """
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
    """Return the log-probability of each step of a sequence by logistic mixing of K models, ``(T,)`` nats.

    A symbol is coded as binary decisions, and the log-odds of each are summed over models with weights: the sum of a
    row from each of several sets of rows. The ``weights`` are changed in place, along the gradient of each symbol's
    log-probability.

    Args:
        log_odds: log-odds of each of B binary decisions of a symbol under each model, ``(T, B, K)``.
        bits: outcome of each decision, 0 or 1, ``(T, B)``; -1 where there is nothing to decide.
        nodes: node of each decision in the binary code of symbols, by which a row is found in its block, ``(T, B)``.
        contexts: first row of the block that each of J sets of rows offers, ``(T, J)``; for a set without nodes its
            only row, written ``-1 - row``.
        weights: weights of all R rows, ``(R, K)``.
        rate: learning rate η.
        bins: set of rows that the models' log-odds choose.
        leads: set of rows that the best model of the last symbols chooses.
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


@compiled(inner=True)
def log_sigmoid_of(x: float) -> float:
    """Return ``log(1 / (1 + exp(-x)))``."""
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


@compiled
def restore_rows(
    bits: np.ndarray, nodes: np.ndarray, contexts: np.ndarray, weights: np.ndarray, fitted: np.ndarray
) -> None:
    """Copy the rows of ``weights`` that the last two symbols chose in a sequence back from ``fitted``.

    These are all rows that ``gated_symbol_steps`` may have changed, except those that log-odds and leads choose.

    Args:
        bits: outcome of each of B decisions at T steps, ``(T, B)``; -1 where there was nothing to decide.
        nodes: node of each decision in the binary code of symbols, ``(T, B)``.
        contexts: first row of the block that each of J sets of rows offers, ``(T, J)``; for a set without nodes its
            only row, written ``-1 - row``.
        weights: weights of K models in R rows, ``(R, K)``, which are changed.
        fitted: weights to restore, ``(R, K)``.
    """
    for t in range(bits.shape[0]):
        for b in range(bits.shape[1]):
            if bits[t, b] < 0:
                continue
            for j in range(contexts.shape[1]):
                first = contexts[t, j]
                row = first + nodes[t, b] if first >= 0 else -1 - first
                for k in range(weights.shape[1]):
                    weights[row, k] = fitted[row, k]
