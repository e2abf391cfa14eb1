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
