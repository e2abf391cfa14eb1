"""An HMM one step at a time: the state of the cursor is the belief, ``log p(z_t | x_1 .. x_t)``.

It never leaves the logarithms: a state that lies 10^5 nats behind may explain all that comes later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from seqmodels.generation import MergedStates, Prediction, Source, select_rows, stacked_sources
from seqmodels.hmm.inference.log_space import LogProduct
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import Observation


@dataclass(frozen=True)
class HMMState:
    """What is known of ``n`` sequences after some steps.

    Attributes:
        log_alpha: (n, K) float64: log p(state of the last step | all steps so far), None before the first.
        log_predicted: (n, K) float64: log p(there is a next step, in this state | the same).
        past: (n, p, D) the last p steps.
        n_scored: the number of steps after the source.

    Both log-probabilities are -inf in all states once the steps are impossible.
    """

    log_alpha: Tensor | None
    log_predicted: Tensor
    past: Tensor
    n_scored: int


def merged_states(log_weights: list[float], states: list[HMMState]) -> MergedStates:
    """All as one, with the mean of their beliefs: the probability of the future is linear in the belief."""
    first = states[0]
    if len(states) == 1 or first.log_alpha is None:
        return [([i], state) for i, state in enumerate(states)]
    weights = torch.tensor(log_weights, dtype=torch.float64, device=first.log_predicted.device).log_softmax(0)
    beliefs = torch.cat([state.log_alpha for state in states if state.log_alpha is not None])  # (n, K)
    predicted = torch.cat([state.log_predicted for state in states])
    log_alpha = torch.logsumexp(weights[:, None] + beliefs, 0, keepdim=True)
    log_predicted = torch.logsumexp(weights[:, None] + predicted, 0, keepdim=True)
    return [(list(range(len(states))), HMMState(log_alpha, log_predicted, first.past, first.n_scored))]


@dataclass(frozen=True)
class HMMCursor:
    """Parameters and observation as a chain of one-step predictions, in ``dtype``; beliefs are float64."""

    parameters: Parameters
    observation: Observation
    size: int
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> HMMState:
        """The state before the first scored step of ``n`` sequences; a ``source`` runs through the same chain."""
        device, width = self.parameters.initial.device, self.size if self.observation.emits == "vectors" else 1
        past = torch.full((n, self.observation.n_past, width), torch.nan, dtype=self.dtype, device=device)
        state = HMMState(None, self._log_initial.expand(n, -1), past, 0)
        rows = stacked_sources(source, n)
        for step in rows.unbind(1) if rows is not None else []:
            state = self.advance(state, step)
        return replace(state, n_scored=0)

    def advance(self, state: HMMState, x: Tensor) -> HMMState:
        """The prediction times the density of what came, ``x (n, D)`` or ``(n,)``, normalised."""
        x = x.to(self.parameters.initial.device)
        if self.observation.emits == "vectors":
            x = x.to(self.dtype)
        past = state.past.unsqueeze(1) if self.observation.n_past else None
        log_b = self.observation.log_prob(self._table(len(x)), x.unsqueeze(1), past).double()  # (n, K)
        joint = state.log_predicted + log_b
        total = torch.logsumexp(joint, -1, keepdim=True)
        # After an impossible step all that follows is impossible too, as in the evaluation in batches.
        log_alpha = joint - torch.where(total == -torch.inf, 0.0, total)
        past = state.past
        if self.observation.n_past:
            past = torch.cat([past[:, 1:], x.unsqueeze(1)], dim=1)
        return HMMState(log_alpha, self._predict(log_alpha), past, state.n_scored + 1)

    def distribution(self, state: HMMState) -> Prediction:
        """The mixture of all states' observations, and the end; a sequence cannot end before its first scored step."""
        n, past = len(state.past), state.past if self.observation.n_past else None
        table, log_weights = self._table(n), state.log_predicted
        if self.parameters.final is None:  # what is to come sums to one
            return Prediction(self.observation, table, log_weights, past, None)
        total = torch.logsumexp(log_weights, -1)  # (n,)
        log_end = torch.full_like(total, -torch.inf)
        log_continue = torch.zeros_like(total)
        if state.log_alpha is not None and state.n_scored:
            # Either from its own terms: a difference from one would lose a small one.
            log_end, log_continue = torch.logsumexp(state.log_alpha + self._log_final, -1), total
        log_weights = log_weights - torch.where(total == -torch.inf, 0.0, total).unsqueeze(-1)
        return Prediction(self.observation, table, log_weights, past, log_end, log_continue)

    def select(self, state: HMMState, index: Tensor) -> HMMState:
        """The state of the sequences ``index (m,)``, in this order."""
        return select_rows(state, index)

    @cached_property
    def _predict(self) -> LogProduct:
        return LogProduct(self.parameters.transition)

    @cached_property
    def _log_initial(self) -> Tensor:
        return self.parameters.initial.log()

    @cached_property
    def _log_final(self) -> Tensor:
        assert self.parameters.final is not None, "ends are events"
        return self.parameters.final.log()

    def _table(self, n: int) -> Tensor:
        """``(n, K, P)``, without copies."""
        return self.parameters.table.to(self.dtype).expand(n, -1, -1)
