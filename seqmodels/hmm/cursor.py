"""An HMM one step at a time: the state of the cursor is the belief, ``p(z_t | x_1 .. x_t)``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.generation import Given, Merged, Prediction, given_rows, select_rows
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import Observation


@dataclass(frozen=True)
class HMMState:
    """``belief (n, K)``: p(state of the last step | all steps so far), None before the first; ``past`` the last p steps."""

    belief: Tensor | None
    past: Tensor
    n_scored: int


def merged(log_weights: list[float], states: list[HMMState]) -> Merged:
    """All as one, with the mean of their beliefs: what an HMM says of the future is linear in its belief."""
    first = states[0]
    if len(states) == 1 or first.belief is None:
        return [([i], state) for i, state in enumerate(states)]
    weights = torch.softmax(torch.tensor(log_weights, dtype=torch.float64, device=first.belief.device), dim=0)
    beliefs = torch.cat([state.belief for state in states if state.belief is not None])  # (n, K)
    return [(list(range(len(states))), replace(first, belief=weights[None] @ beliefs))]


@dataclass(frozen=True)
class HMMCursor:
    """Parameters and observation as a chain of one-step predictions, in ``dtype``; beliefs are float64."""

    parameters: Parameters
    observation: Observation
    size: int
    dtype: torch.dtype

    def start(self, source: Given = None, n: int = 1) -> HMMState:
        """The state before the first scored step of ``n`` sequences; a ``source`` runs through the same chain."""
        device, width = self.parameters.initial.device, self.size if self.observation.emits == "vectors" else 1
        past = torch.full((n, self.observation.n_past, width), torch.nan, dtype=self.dtype, device=device)
        state = HMMState(None, past, 0)
        rows = given_rows(source, n)
        for step in rows.unbind(1) if rows is not None else []:
            state = self.advance(state, step)
        return HMMState(state.belief, state.past, 0)

    def advance(self, state: HMMState, x: Tensor) -> HMMState:
        """Predict and weigh by what came, ``x (n, D)`` or ``(n,)``."""
        x = x.to(self.parameters.initial.device)
        if self.observation.emits == "vectors":
            x = x.to(self.dtype)
        past = state.past.unsqueeze(1) if self.observation.n_past else None
        each = self.observation.log_prob(self._table(len(x)), x.unsqueeze(1), past).double()  # (n, K)
        # After an impossible step no state is left: all that follows is impossible too, as in the batched road.
        belief = torch.nan_to_num(torch.softmax(self._log_weights(state) + each, dim=-1), nan=0.0)
        kept = state.past
        if self.observation.n_past:
            kept = torch.cat([kept[:, 1:], x.unsqueeze(1)], dim=1)
        return HMMState(belief, kept, state.n_scored + 1)

    def distribution(self, state: HMMState) -> Prediction:
        """The mixture of all states' observations, and the end; a sequence cannot end before its first scored step."""
        final, n, log_end = self.parameters.final, len(state.past), None
        if final is not None:
            never = torch.full((n,), -torch.inf, dtype=torch.float64, device=final.device)
            log_end = (state.belief @ final).log() if state.belief is not None and state.n_scored else never
        past = state.past if self.observation.n_past else None
        return Prediction(self.observation, self._table(n), self._log_weights(state), past, log_end)

    def select(self, state: HMMState, index: Tensor) -> HMMState:
        """The state of the sequences ``index (m,)``, in this order."""
        return select_rows(state, index)

    def _log_weights(self, state: HMMState) -> Tensor:
        """``(n, K)`` of the states of the next step, given that there is one; -inf everywhere if there cannot be."""
        if state.belief is None:
            weights = self.parameters.initial.expand(len(state.past), -1)
        else:
            weights = state.belief @ self.parameters.transition
        total = weights.sum(-1, keepdim=True)
        return torch.where(total > 0, weights / total, 0.0).log()

    def _table(self, n: int) -> Tensor:
        """``(n, K, P)``, without copies."""
        return self.parameters.table.to(self.dtype).expand(n, -1, -1)
