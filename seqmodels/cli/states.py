"""The states of an HMM for people: how long each lasts, how often it is visited, what it emits."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqmodels.encodings.text import Text
from seqmodels.hmm import HMM
from seqmodels.observations import Categorical, GaussianMixture

MOST = 5  # symbols shown of a state, and features of its mean


def states_of(model: HMM) -> list[dict[str, Any]]:
    """For each state its share of the steps, its mean duration ``1 / (1 - a_kk)`` in steps, and what it emits, in words."""
    stay = np.diag(np.asarray(model.transition_))
    with np.errstate(divide="ignore"):
        durations = 1 / (1 - stay)  # inf: never left
    emitted = _emissions(model)
    return [
        {"state": k, "share": float(share), "duration": float(durations[k]), "emits": emitted[k]}
        for k, share in enumerate(_shares(model))
    ]


def _shares(model: HMM) -> np.ndarray:
    """``(K,)``: of the steps of many sequences, or, where there is no end, of one long sequence.

    The expected visits ``v = initial + v A`` of a sequence that ends, and the limit of the mean otherwise.
    """
    initial, transition = np.asarray(model.initial_), np.asarray(model.transition_)
    ends = 1 - transition.sum(axis=1)
    # A chain that never ends is made to, after a time far beyond any memory, so that one equation does for both.
    leave = np.where(ends > 1e-9, 0.0, 1e-6)
    visits = np.linalg.solve(np.eye(len(initial)) - (transition * (1 - leave[:, None])).T, initial)
    return visits / visits.sum()


def _emissions(model: HMM) -> list[str]:
    observation = model.observation_
    if isinstance(observation, Categorical):
        return [_symbols(model, row) for row in np.asarray(model.emission_)]
    if isinstance(observation, GaussianMixture):
        means = (np.asarray(model.weights_)[..., None] * np.asarray(model.means_)).sum(axis=1)  # (K, D)
        return [_mean(row) for row in means]
    return [type(observation).__name__] * len(model.initial_)


def _symbols(model: HMM, probabilities: np.ndarray) -> str:
    top = np.argsort(-probabilities, kind="stable")[:MOST]
    return "  ".join(f"{_name(model, int(k))} {probabilities[k]:.2f}" for k in top if probabilities[k] > 0.005)


def _name(model: HMM, symbol: int) -> str:
    if isinstance(model.encoding_, Text):
        return repr(model.encoding_.spelling()[symbol].decode(errors="backslashreplace"))
    return str(model.encoding_.decode(np.array([symbol]))[0])


def _mean(mean: np.ndarray) -> str:
    more = " ..." if len(mean) > MOST else ""
    return f"mean [{', '.join(f'{x:.3g}' for x in mean[:MOST])}{more}]"
