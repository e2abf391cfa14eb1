"""An HMM in continuous time one step at a time: the belief moves on over the gap before each step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source, select_rows
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.continuous_time import log_transitions_over
from seqmodels.inference.chains.log_space import finite, relative_to_largest
from seqmodels.observations import Observation


@dataclass(frozen=True)
class TimedState:
    """What is known of ``n`` sequences after some steps.

    Attributes:
        log_alpha: (n, K) float64: log p(state of the last step | all steps so far); None before the first.
        log_predicted: (n, K) float64: log p(state of the next step | the same), at the time ``next_time``.
        time: (n,) float64, of the last step; None before the first.
        next_time: (n,) float64, of the next step.
        past: (n, p, D) the last p steps.

    Both log-probabilities are -inf in all states once the steps are impossible.
    """

    log_alpha: Tensor | None
    log_predicted: Tensor
    time: Tensor | None
    next_time: Tensor
    past: Tensor


@dataclass(frozen=True)
class ContinuousTimeCursor:
    """Parameters and observation as a chain of one-step predictions, in ``dtype``; beliefs are float64.

    Without a time, which ``given`` tells, a step is at 0 where it is the first, or else one unit after the one before.
    """

    parameters: Parameters
    observation: Observation
    size: int
    dtype: torch.dtype

    def given(self, state: TimedState, inputs: Tensor) -> TimedState:
        """The same state, given the times ``(n, 1)`` of the next step; of NaN they stay what they are.

        Raises:
            ValueError: times before those of the last step.
        """
        time = inputs[:, 0].to(self.parameters.initial)
        time = torch.where(time.isnan(), state.next_time, time)
        if state.log_alpha is None or state.time is None:
            return replace(state, next_time=time)
        if bool((time < state.time).any()):
            i = int((time < state.time).nonzero()[0])
            raise ValueError(
                f"the time of a step goes back, from {float(state.time[i])} to {float(time[i])}; pass times in order"
            )
        return replace(state, log_predicted=self._over(state.log_alpha, time - state.time), next_time=time)

    def unseen(self, state: TimedState) -> TimedState | None:
        """The state after a next step that is not seen; None where the observation looks at what came before."""
        if self.observation.n_past:
            return None
        total = torch.logsumexp(state.log_predicted, -1, keepdim=True)
        return self._after(state, state.log_predicted - finite(total), state.past)

    def start(self, source: Source = None, n: int = 1) -> TimedState:
        """The state before the first step of ``n`` sequences."""
        assert source is None, "a model that reads times is p(x | times)"
        initial, width = self.parameters.initial, self.size if self.observation.emits == "vectors" else 1
        past = torch.full((n, self.observation.n_past, width), torch.nan, dtype=self.dtype, device=initial.device)
        return TimedState(None, initial.log().expand(n, -1), None, initial.new_zeros(n), past)

    def advance(self, state: TimedState, x: Tensor) -> TimedState:
        """The prediction times the density of what came, ``x (n, D)`` or ``(n,)``, normalised."""
        x = x.to(self.parameters.initial.device)
        if self.observation.emits == "vectors":
            x = x.to(self.dtype)
        past = state.past.unsqueeze(1) if self.observation.n_past else None
        log_b = self.observation.log_prob(self._table(len(x)), x.unsqueeze(1), past).double()  # (n, K)
        if self.observation.emits == "vectors":  # which may lie far from every state
            log_b = relative_to_largest(log_b)[0]
        joint = state.log_predicted + log_b
        # After an impossible step all that follows is impossible too, as in the evaluation in batches.
        log_alpha = joint - finite(torch.logsumexp(joint, -1, keepdim=True))
        past_after = torch.cat([state.past[:, 1:], x.unsqueeze(1)], 1) if self.observation.n_past else state.past
        return self._after(state, log_alpha, past_after)

    def _after(self, state: TimedState, log_alpha: Tensor, past: Tensor) -> TimedState:
        log_predicted = torch.logsumexp(log_alpha.unsqueeze(2) + self._log_over_one, 1)
        return TimedState(log_alpha, log_predicted, state.next_time, state.next_time + 1, past)

    @cached_property
    def _log_over_one(self) -> Tensor:
        return self.parameters.transition.log()

    def distribution(self, state: TimedState) -> Prediction:
        """The mixture of all states' observations."""
        past = state.past if self.observation.n_past else None
        return Prediction(self.observation, self._table(len(state.log_predicted)), state.log_predicted, past, None)

    def predictions_ahead(self, state: TimedState, k: int) -> list[Prediction] | None:
        """What is known of each of the next k steps, one unit of time apart, when none of those before it is seen.

        None where the observation looks at what came before.
        """
        predictions = []
        for _ in range(k):
            predictions.append(self.distribution(state))
            after = self.unseen(state)
            if after is None:
                return None
            state = after
        return predictions

    def select(self, state: TimedState, index: Tensor) -> TimedState:
        """The state of the sequences ``index (m,)``, in this order."""
        selected: TimedState = select_rows(state, index)
        return selected

    def _over(self, log_alpha: Tensor, gaps: Tensor) -> Tensor:
        """``(n, K)``: the belief after gaps ``(n,)``."""
        assert self.parameters.generator is not None
        log_p = log_transitions_over(self.parameters.generator, gaps)
        return torch.logsumexp(log_alpha.unsqueeze(2) + log_p, 1)

    def _table(self, n: int) -> Tensor:
        """``(n, K, P)``, without copies."""
        return self.parameters.table.to(self.dtype).expand(n, -1, -1)
