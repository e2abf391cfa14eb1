"""Chains in which a state that lies far behind explains what comes later, for tests of every cursor."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import seqmodels as sm
from seqmodels.encodings.raw_data import Data

Chain = tuple[np.ndarray, np.ndarray]  # initial (K,), transition (K, K)


def _unit(k: int) -> Chain:
    return np.full(k, 1 / k), np.eye(k)


def _left_to_right(k: int) -> Chain:
    transition = 0.9 * np.eye(k) + 0.1 * np.eye(k, k=1)
    transition[-1, -1] = 1.0
    return np.eye(k)[0], transition


def _split(between: float) -> Callable[[int], Chain]:
    """Two parts, the first state and the others, with ``between`` from one to the other."""

    def chain(k: int) -> Chain:
        transition = np.full((k, k), between)
        transition[0, 0], transition[1:, 1:] = 1.0, 1 / (k - 1)
        return np.full(k, 1 / k), transition

    return chain


def _zeros(k: int) -> Chain:
    """As EM leaves them: each state is left for the next alone, and to some it never comes back."""
    transition = 0.7 * np.eye(k) + 0.3 * np.eye(k)[np.append(np.arange(1, k), k - 1)]
    return np.full(k, 1 / k), transition


CHAINS: dict[str, Callable[[int], Chain]] = {
    "unit": _unit,
    "left-to-right": _left_to_right,
    "zeros": _zeros,
    "blocks": _split(0.0),
    "1e-60": _split(1e-60),
    "subnormal": _split(1e-310),
}


def with_chain(model: sm.HMM, name: str) -> sm.HMM:
    """The model in float64 with another chain, and ends of 1 % and of all but 1e-20 where ends are events."""
    other = copy.deepcopy(model).set_params(dtype="float64")
    p = other.parameters_
    initial, transition = CHAINS[name](len(p.initial))
    final = None
    if p.final is not None:
        final = np.full(len(initial), 0.01)
        final[0] = 1.0
        transition = transition * np.where(final == 1.0, 1e-20, 1 - final)[:, None]
        final = torch.from_numpy(final)
    other.parameters_ = replace(
        p, initial=torch.from_numpy(initial), transition=torch.from_numpy(transition), final=final
    )
    return other


def log_steps(model: sm.HMM, x: Any) -> np.ndarray:
    """The forward pass as textbooks write it, in logarithms: the steps of one encoded sequence, and the end."""
    (example,) = model._setting().examples(Data.of([x]))
    p, observation = model.parameters_, model.observation_
    values = torch.as_tensor(example.values)
    past = None
    if observation.n_past:
        padded = torch.cat([values.new_full((observation.n_past, values.shape[1]), torch.nan), values])
        past = torch.stack([padded[t : t + observation.n_past] for t in range(len(values))]).unsqueeze(1)
    log_b = observation.log_prob(p.table.expand(len(values), -1, -1), values.unsqueeze(1), past).numpy()
    with np.errstate(divide="ignore"):
        predicted, log_a = np.log(p.initial.numpy()), np.log(p.transition.numpy())
        log_end = None if p.final is None else np.log(p.final.numpy())
    steps = []
    for each in log_b:
        joint = predicted + each
        steps.append(np.logaddexp.reduce(joint))
        belief = joint - (0.0 if np.isneginf(steps[-1]) else steps[-1])
        predicted = np.logaddexp.reduce(belief[:, None] + log_a, axis=0)
    return np.array(steps if log_end is None else [*steps, np.logaddexp.reduce(belief + log_end)])


def walked(model: Any, x: Any, source: Any = None) -> np.ndarray:
    """Log-probabilities of the steps of one raw sequence as the cursor gives them, and of the end where it is an event.

    Log-determinants are left out.
    """
    if source is None:
        (example,) = model._setting().examples(Data.of([x]))
    else:
        (example,) = model._setting().examples(Data.of([source], [x]))
    cursor, steps = model.cursor(), []
    with torch.inference_mode():
        state = cursor.start(example.source, 1)
        for value in torch.as_tensor(example.values):
            steps.append(float(cursor.distribution(state).log_prob(value[None])))
            state = cursor.advance(state, value[None])
        if model.length_ == "stop":
            steps.append(float(cursor.distribution(state).log_end))
    return np.array(steps)


def batched(model: Any, x: Any, source: Any = None) -> np.ndarray:
    """The same steps as all sequences at once are scored."""
    data = Data.of([x]) if source is None else Data.of([source], [x])
    return model._steps(model._setting().examples(data))[0]


def deviation(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of a step or of the sum, relative to it and one nat; inf where one alone is finite."""
    if not np.array_equal(np.isneginf(found), np.isneginf(expected)) or np.isnan(found).any():
        return np.inf
    real = ~np.isneginf(expected)
    found, expected = found[real], expected[real]
    each = np.abs(found - expected) / max(1.0, float(np.abs(expected).max(initial=0.0)))
    return max(float(each.max(initial=0.0)), abs(found.sum() - expected.sum()) / max(1.0, abs(expected.sum())))
