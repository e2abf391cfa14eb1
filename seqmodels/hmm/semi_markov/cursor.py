"""``HSMMCursor``: an HSMM as a chain of one-step predictions, from beliefs over states and the steps left of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Draws, Prediction, SingleSteps, Source, select_rows, stacked_sources
from seqmodels.generation.cursor import ScoredSteps
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.log_space import LogProduct, finite, relative_to_largest
from seqmodels.inference.chains.segments import loops_are_compiled
from seqmodels.inference.chains.semi_markov import Durations
from seqmodels.observations import Observation

if TYPE_CHECKING:
    from seqmodels.hmm.chain_in_loops import FrameDensities

MOST_TERMS_COMPILED = 1 << 14  # terms of a step up to which a compiled loop is faster than tensor operations


@dataclass(frozen=True)
class SegmentState:
    """The belief about ``n`` sequences after some steps.

    Attributes:
        log_predicted: log p(there is a next step, it is in state j, and r steps of its segment are left with it | all
            steps so far), ``(n, K, D)`` float64; -inf everywhere once the steps are impossible.
        log_ended: log p(the last step was the last of a segment in state j | all steps so far), ``(n, K)`` float64;
            None before the first step.
        log_belief: log p(state of the last step | all steps so far), ``(n, K)`` float64; None before the first step.
        past: the last p steps, ``(n, p, D)``.
        n_scored: number of steps after the source.
    """

    log_predicted: Tensor
    log_ended: Tensor | None
    log_belief: Tensor | None
    past: Tensor
    n_scored: int


@dataclass(frozen=True)
class HSMMCursor:
    """The cursor of an HSMM, which predicts one step at a time.

    Attributes:
        parameters: parameters of the chain.
        table: output parameters of the states without their durations, ``(K, P)``.
        durations: distributions of durations.
        observation: the observation of the states.
        size: number of features or symbols.
        dtype: precision of densities; beliefs are float64.
    """

    parameters: Parameters
    table: Tensor
    durations: Durations
    observation: Observation
    size: int
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> SegmentState:
        """Return the state of ``n`` sequences before the first scored step.

        The steps of ``source`` are read first and not scored; None means that there are none.
        """
        device, width = self.parameters.initial.device, self.size if self.observation.emits == "vectors" else 1
        past = torch.full((n, self.observation.n_past, width), torch.nan, dtype=self.dtype, device=device)
        first = self.parameters.initial.log()[:, None] + self.durations.log_first
        state = SegmentState(first.expand(n, -1, -1), None, None, past, 0)
        rows = stacked_sources(source, n)
        for step in rows.unbind(1) if rows is not None else []:
            state = self.advance(state, step)
        return replace(state, n_scored=0)

    def advance(self, state: SegmentState, x: Tensor) -> SegmentState:
        """Return the state after the step ``x``, ``(n, D)`` or ``(n,)``."""
        return self.advance_and_score(state, x)[0]

    def advance_and_score(self, state: SegmentState, x: Tensor) -> tuple[SegmentState, Tensor]:
        """Return the state after the step ``x``, and log p(x_t | x_<t) of each sequence in nats, ``(n,)`` float64.

        The log-probabilities are the same as those of ``distribution(state)``.
        """
        x = x.to(self.parameters.initial.device)
        if self.observation.emits == "vectors":
            x = x.to(self.dtype)
        past_after = torch.cat([state.past[:, 1:], x.unsqueeze(1)], 1) if self.observation.n_past else state.past
        log_b, n_scored = self._log_b(state, x), state.n_scored + 1
        if self._runs_compiled(len(x)):
            predicted, ended, belief, log_prob = self._advance_compiled(state.log_predicted, log_b)
            after = SegmentState(predicted, ended, belief, past_after, n_scored)
        else:
            log_b, peak = relative_to_largest(log_b)  # because a vector may lie far from every state
            joint = state.log_predicted + log_b.unsqueeze(-1)
            total = torch.logsumexp(joint.flatten(1), 1)
            # After an impossible step all later steps are impossible too, as in the evaluation in batches.
            after = self._after(joint - finite(total)[:, None, None], past_after, n_scored)
            log_prob = total + peak[:, 0]
        if self.parameters.final is not None and not state.n_scored:  # it cannot end before its first scored step
            log_prob = log_prob - finite(torch.logsumexp(state.log_predicted.flatten(1), 1))
        return after, log_prob

    def single_steps(self) -> SingleSteps:
        """Return the reader of one sequence's steps, which uses ``advance_and_score``."""
        return ScoredSteps(self)

    def _log_b(self, state: SegmentState, x: Tensor) -> Tensor:
        """Return log p(x_t | state) in nats, ``(n, K)`` float64."""
        if self._densities is not None:
            return torch.from_numpy(self._densities(x.numpy()))
        past = state.past.unsqueeze(1) if self.observation.n_past else None
        return self.observation.log_prob(self._table(len(x)), x.unsqueeze(1), past).double()

    def _runs_compiled(self, n: int) -> bool:
        """Return True if a step of ``n`` sequences is faster as a compiled loop than by tensor operations."""
        k, longest = self.durations.log_pmf.shape
        return n * k * (k + longest) <= MOST_TERMS_COMPILED and loops_are_compiled(self.parameters.initial.device)

    def _advance_compiled(self, log_predicted: Tensor, log_b: Tensor) -> list[Tensor]:
        """Return ``log_predicted``, ``log_ended`` and ``log_belief`` of a ``SegmentState`` after a step, and log
        p(x_t).

        They are ``(n, K, D)``, ``(n, K)``, ``(n, K)`` and ``(n,)``.
        """
        from seqmodels.inference.chains.compiled_semi_markov import advance

        before, densities = log_predicted.contiguous().numpy(), log_b.contiguous().numpy()
        results = np.empty(before.shape), np.empty(log_b.shape), np.empty(log_b.shape), np.empty(len(log_b))
        advance(self._chain, before, densities, results)
        return [torch.from_numpy(each) for each in results]

    @cached_property
    def _chain(self) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the transposed transition matrix, ``(K, K)``, and of the durations, ``(K, D)``, as arrays."""
        log_into, log_pmf = self.parameters.transition.T.log(), self.durations.log_pmf
        return log_into.contiguous().numpy(), log_pmf.contiguous().numpy()

    @cached_property
    def _densities(self) -> FrameDensities | None:
        """A compiled function that returns a step's log-densities; None where it is no faster or cannot be used.

        It cannot be used where densities depend on past steps.
        """
        if not self._runs_compiled(1) or self.observation.n_past:
            return None
        from seqmodels.hmm.chain_in_loops import log_densities_of

        return log_densities_of(self.observation, self.table.to(self.dtype), self.size)

    def _after(self, log_alpha: Tensor, past: Tensor, n_scored: int) -> SegmentState:
        """Return the state that follows from log-beliefs about the last step's state and steps left, ``(n, K, D)``."""
        log_ended = log_alpha[:, :, 0]
        continues = torch.cat([log_alpha[:, :, 1:], torch.full_like(log_alpha[:, :, :1], -torch.inf)], 2)
        starts = self._follow(log_ended).unsqueeze(-1) + self.durations.log_pmf
        log_predicted = torch.logaddexp(continues, starts)
        return SegmentState(log_predicted, log_ended, torch.logsumexp(log_alpha, -1), past, n_scored)

    def distribution(self, state: SegmentState) -> Prediction:
        """Return the distribution of the next step: the mixture of all states' observations, and the end.

        The end has probability zero before the first scored step.
        """
        n, past = len(state.past), state.past if self.observation.n_past else None
        log_weights = torch.logsumexp(state.log_predicted, -1)  # (n, K)
        if self.parameters.final is None:  # there is always a next step, so the weights sum to one
            return Prediction(self.observation, self._table(n), log_weights, past, None)
        total = torch.logsumexp(log_weights, -1)  # (n,)
        log_end = torch.full_like(total, -torch.inf)
        log_continue = torch.zeros_like(total)
        if state.log_ended is not None and state.n_scored:
            # Each is summed from its own terms, because one minus the other would lose a small one.
            log_end, log_continue = torch.logsumexp(state.log_ended + self._log_final, -1), total
        log_weights = log_weights - finite(total).unsqueeze(-1)
        return Prediction(self.observation, self._table(n), log_weights, past, log_end, log_continue)

    def predictions_ahead(self, state: SegmentState, k: int) -> list[Prediction] | None:
        """Return the distribution of each of the next k steps when none of the steps before it is seen.

        Each is conditional on the sequence having that step. Return None if the observation depends on past steps,
        because there is no closed form then.
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

    def draw_path(
        self, state: SegmentState, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """Return an iterator over draws of the next ``n_steps`` steps; segments are drawn before what they emit.

        If ``may_end`` is True a sequence may end. Return None if the observation depends on past steps, if tensors are
        not on a CPU, or if ends are events but ``may_end`` is False. In the last case states are no Markov chain,
        because the emissions tell how probable an end was.
        """
        final, is_on_cpu = self.parameters.final, self.parameters.initial.device.type == "cpu"
        if self.observation.n_past or not is_on_cpu or (final is not None and not may_end):
            return None
        from seqmodels.hmm.drawn_steps import StatesOfSegments, drawn_steps, emitted_by

        log_end = torch.full_like(state.log_predicted[:, 0, :1], -torch.inf)
        if final is not None and state.log_ended is not None and state.n_scored:
            log_end = torch.logsumexp(state.log_ended + self._log_final, -1, keepdim=True)
        log_first = torch.cat([state.log_predicted.flatten(1), log_end], 1)
        states = StatesOfSegments(log_first, self.parameters.transition, final, self.durations.log_pmf)
        emit, size = emitted_by(self.observation, self.table.to(self.dtype)), len(log_end) * self.table.shape[1]
        return drawn_steps(states, emit, size, n_steps, generator, may_end=final is not None)

    def select(self, state: SegmentState, index: Tensor) -> SegmentState:
        """Return the state of the sequences ``index``, ``(m,)``, in this order."""
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
        """Return the output parameters for n sequences, ``(n, K, P)``, without copies."""
        return self.table.to(self.dtype).expand(n, -1, -1)
