"""Stacking: the weights of several models with which their mixture predicts held-out steps best."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from seqmodels.sequences.mapped import parts_of

MOST_STEPS = 200_000  # steps that weights are computed from; of more, every m-th is taken
LEAST_WEIGHT = 1e-9  # while they are sought; such a weight is 0 in the result


def stacking_weights(log_probs: np.ndarray) -> np.ndarray:
    """Return the weights w that maximise ``Σ_t log Σ_k w_k p_k(x_t)``, with w at least 0 and of sum 1, ``(K,)``.

    They are the stacking weights of predictive distributions (Yao, Vehtari, Simpson and Gelman 2018, *Using stacking to
    average Bayesian predictive distributions*). A model that adds nothing to the others has the weight 0, however good
    it is by itself.

    Args:
        log_probs: log-probability of each of T held-out steps given those before it, under each of K models, in nats,
            ``(T, K)``; -inf is allowed. Steps that are impossible under all models do not count.

    >>> stacking_weights(np.log([[0.9, 0.5], [0.9, 0.5], [0.1, 0.5]])).round(3).tolist()
    [0.417, 0.583]
    """
    from scipy.optimize import Bounds, LinearConstraint, minimize

    best = log_probs.max(axis=1, keepdims=True)
    is_possible = np.isfinite(best[:, 0])
    p = np.exp(log_probs[is_possible] - best[is_possible])  # the largest of each step is 1, so that none underflows
    n_models = p.shape[1]
    uniform = np.full(n_models, 1 / n_models)
    if not len(p) or n_models == 1:
        return uniform

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = p @ weights
        return -float(np.log(mixed).mean()), -(p / mixed[:, None]).mean(axis=0)

    with warnings.catch_warnings():
        # Older versions of scipy say when the search leaves the bounds by a rounding error.
        warnings.filterwarnings("ignore", "Values in x were outside bounds", RuntimeWarning)
        optimum = minimize(
            loss,
            uniform,
            jac=True,
            method="SLSQP",
            bounds=Bounds(LEAST_WEIGHT, 1),  # above 0, for a step that one model alone foresees
            constraints=LinearConstraint(np.ones(n_models), 1, 1),
            options={"ftol": 1e-12, "maxiter": 500},
        )
    weights = np.where(optimum.x > 2 * LEAST_WEIGHT, optimum.x, 0.0)
    return np.asarray(weights / weights.sum())


def steps_of_models(log_prob_steps: Sequence[Sequence[np.ndarray]], most: int = MOST_STEPS) -> np.ndarray:
    """Return the log-probability of each step of all sequences under each model in nats, ``(T, K)``.

    If there are more than ``most`` steps, every m-th is taken, with the smallest m that leaves at most ``most``.

    Args:
        log_prob_steps: for each of K models, the log-probability of each step of each sequence, a list of ``(T_i,)``
            arrays in nats, in memory or on disk.
        most: the most steps to return.
    """
    every = -(-sum(map(len, log_prob_steps[0])) // most)
    columns = []
    for steps in log_prob_steps:
        taken, start = [], 0
        for sequence in steps:
            for t, part in parts_of(sequence):
                taken.append(np.asarray(part[-(start + t) % every :: every]))
            start += len(sequence)
        columns.append(np.concatenate(taken))
    return np.stack(columns, axis=1)
