"""The cursor of many draws of a chain's parameters together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqmodels.generation import Cursor
from seqmodels.generation.mixture_cursor import MixtureCursor
from seqmodels.hmm.chains.base import HiddenChain
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import Observation


@dataclass(frozen=True)
class EvenWeights:
    """Posterior weights of S draws in a mixture of their predictions: equal at first, then updated by Bayes' rule.

    Attributes:
        n_draws: number of draws, S.
        are_fixed: False, because the weights change at each step.
    """

    n_draws: int
    are_fixed: bool = False

    def start(self, n: int) -> np.ndarray:
        return np.full((n, self.n_draws), -np.log(self.n_draws))

    def log_weights(self, state: np.ndarray) -> np.ndarray:
        return state

    def after(self, state: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        joint = state + log_p
        total = np.logaddexp.reduce(joint, axis=1, keepdims=True)
        return np.asarray(np.where(np.isneginf(total), state, joint - np.where(np.isneginf(total), 0.0, total)))


def cursor_of_draws(
    chain: HiddenChain[Any],
    draws: Sequence[Parameters],
    observation: Observation,
    size: int,
    dtype: torch.dtype,
    n_inputs: int,
) -> Cursor:
    """Return a cursor that predicts by the mixture of all draws, each weighted by its probability of the steps so far.

    Args:
        chain: the hidden chain.
        draws: draws of its parameters.
        observation: family of the distributions that the states emit from.
        size: number of features or symbols.
        dtype: precision of densities.
        n_inputs: number of inputs of a step.
    """
    together = chain.together(draws)
    if together is not None:
        return chain.cursor(together, observation, size, dtype, None)
    members = [chain.cursor(parameters, observation, size, dtype, None) for parameters in draws]
    return MixtureCursor(members, EvenWeights(len(draws)), [list(range(n_inputs))] * len(draws))
