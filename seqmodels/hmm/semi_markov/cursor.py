"""An HSMM one step at a time: the state of the cursor is the belief over states and how many steps each has left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source, select_rows, stacked_sources
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.log_space import LogProduct, finite, relative_to_largest
from seqmodels.inference.chains.semi_markov import Durations
from seqmodels.observations import Observation


@dataclass(frozen=True)
class SegmentState:
    """What is known of ``n`` sequences after some steps.

    Attributes:
        log_predicted: (n, K, D) float64: log p(there is a next step, in state j, the r-th last of its segment | all
            steps so far); -inf everywhere once the steps are impossible.
        log_ended: (n, K) float64: log p(the last step was the last of a segment of j | all steps so far); None before
            the first step.
        log_belief: (n, K) float64: log p(state of the last step | all steps so far); None before the first.
        past: (n, p, D) the last p steps.
        n_scored: the number of steps after the source.
    """

    log_predicted: Tensor
    log_ended: Tensor | None
    log_belief: Tensor | None
    past: Tensor
    n_scored: int


@dataclass(frozen=True)
class HSMMCursor:
    """Parameters and observation as a chain of one-step predictions, in ``dtype``; beliefs are float64.

    ``table (K, P)`` are the output parameters, without the durations.
    """

    parameters: Parameters
    table: Tensor
    durations: Durations
    observation: Observation
    size: int
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> SegmentState:
        """The state before the first scored step of ``n`` sequences; a ``source`` runs through the same chain."""
        device, width = self.parameters.initial.device, self.size if self.observation.emits == "vectors" else 1
        past = torch.full((n, self.observation.n_past, width), torch.nan, dtype=self.dtype, device=device)
        first = self.parameters.initial.log()[:, None] + self.durations.log_first
        state = SegmentState(first.expand(n, -1, -1), None, None, past, 0)
        rows = stacked_sources(source, n)
        for step in rows.unbind(1) if rows is not None else []:
            state = self.advance(state, step)
        return replace(state, n_scored=0)

    def advance(self, state: SegmentState, x: Tensor) -> SegmentState:
        """The prediction times the density of what came, ``x (n, D)`` or ``(n,)``, normalised."""
        x = x.to(self.parameters.initial.device)
        if self.observation.emits == "vectors":
            x = x.to(self.dtype)
        past = state.past.unsqueeze(1) if self.observation.n_past else None
        log_b = self.observation.log_prob(self._table(len(x)), x.unsqueeze(1), past).double()  # (n, K)
        if self.observation.emits == "vectors":  # which may lie far from every state
            log_b = relative_to_largest(log_b)[0]
        joint = state.log_predicted + log_b.unsqueeze(-1)
        # After an impossible step all that follows is impossible too, as in the evaluation in batches.
        log_alpha = joint - finite(torch.logsumexp(joint.flatten(1), 1))[:, None, None]
        past_after = torch.cat([state.past[:, 1:], x.unsqueeze(1)], 1) if self.observation.n_past else state.past
        return self._after(log_alpha, past_after, state.n_scored + 1)

    def _after(self, log_alpha: Tensor, past: Tensor, n_scored: int) -> SegmentState:
        """From the belief ``(n, K, D)`` about the last step."""
        log_ended = log_alpha[:, :, 0]
        continues = torch.cat([log_alpha[:, :, 1:], torch.full_like(log_alpha[:, :, :1], -torch.inf)], 2)
        starts = self._follow(log_ended).unsqueeze(-1) + self.durations.log_pmf
        log_predicted = torch.logaddexp(continues, starts)
        return SegmentState(log_predicted, log_ended, torch.logsumexp(log_alpha, -1), past, n_scored)

    def distribution(self, state: SegmentState) -> Prediction:
        """The mixture of all states' observations, and the end; a sequence cannot end before its first scored step."""
        n, past = len(state.past), state.past if self.observation.n_past else None
        log_weights = torch.logsumexp(state.log_predicted, -1)  # (n, K)
        if self.parameters.final is None:  # what is to come sums to one
            return Prediction(self.observation, self._table(n), log_weights, past, None)
        total = torch.logsumexp(log_weights, -1)  # (n,)
        log_end = torch.full_like(total, -torch.inf)
        log_continue = torch.zeros_like(total)
        if state.log_ended is not None and state.n_scored:
            # Either from its own terms: a difference from one would lose a small one.
            log_end, log_continue = torch.logsumexp(state.log_ended + self._log_final, -1), total
        log_weights = log_weights - finite(total).unsqueeze(-1)
        return Prediction(self.observation, self._table(n), log_weights, past, log_end, log_continue)

    def predictions_ahead(self, state: SegmentState, k: int) -> list[Prediction] | None:
        """What is known of each of the next k steps when none of those before it is seen, each given that there is one.

        None where there is no closed form: an observation that looks back.
        """
        if self.observation.n_past:
            return None
        predictions = []
        for _ in range(k):
            predictions.append(self.distribution(state))
            total = torch.logsumexp(state.log_predicted.flatten(1), 1)
            log_alpha = state.log_predicted - finite(total)[:, None, None]
            state = self._after(log_alpha, state.past, state.n_scored + 1)
        return predictions

    def select(self, state: SegmentState, index: Tensor) -> SegmentState:
        """The state of the sequences ``index (m,)``, in this order."""
        selected: SegmentState = select_rows(state, index)
        return selected

    @cached_property
    def _follow(self) -> LogProduct:
        return LogProduct(self.parameters.transition)

    @cached_property
    def _log_final(self) -> Tensor:
        assert self.parameters.final is not None, "ends are events"
        return self.parameters.final.log()

    def _table(self, n: int) -> Tensor:
        """``(n, K, P)``, without copies."""
        return self.table.to(self.dtype).expand(n, -1, -1)
