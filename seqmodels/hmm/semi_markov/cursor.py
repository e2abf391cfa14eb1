"""An HSMM one step at a time: the state of the cursor is the belief over states and how many steps each has left."""

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

MOST_TERMS_COMPILED = 1 << 14  # numbers of a step: of more, tensor operations take no longer


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
        return self.advance_and_score(state, x)[0]

    def advance_and_score(self, state: SegmentState, x: Tensor) -> tuple[SegmentState, Tensor]:
        """As ``advance``; also ``(n,)`` float64 log p(x_t | x_<t), what ``distribution`` says of the step."""
        x = x.to(self.parameters.initial.device)
        if self.observation.emits == "vectors":
            x = x.to(self.dtype)
        past_after = torch.cat([state.past[:, 1:], x.unsqueeze(1)], 1) if self.observation.n_past else state.past
        log_b, n_scored = self._log_b(state, x), state.n_scored + 1
        if self._runs_compiled(len(x)):
            predicted, ended, belief, log_prob = self._advance_compiled(state.log_predicted, log_b)
            after = SegmentState(predicted, ended, belief, past_after, n_scored)
        else:
            log_b, peak = relative_to_largest(log_b)  # of vectors, which may lie far from every state
            joint = state.log_predicted + log_b.unsqueeze(-1)
            total = torch.logsumexp(joint.flatten(1), 1)
            # After an impossible step all that follows is impossible too, as in the evaluation in batches.
            after = self._after(joint - finite(total)[:, None, None], past_after, n_scored)
            log_prob = total + peak[:, 0]
        if self.parameters.final is not None and not state.n_scored:  # it cannot end before its first scored step
            log_prob = log_prob - finite(torch.logsumexp(state.log_predicted.flatten(1), 1))
        return after, log_prob

    def single_steps(self) -> SingleSteps:
        """One sequence by ``advance_and_score``."""
        return ScoredSteps(self)

    def _log_b(self, state: SegmentState, x: Tensor) -> Tensor:
        """``(n, K)`` float64 log p(x_t | state)."""
        if self._densities is not None:
            return torch.from_numpy(self._densities(x.numpy()))
        past = state.past.unsqueeze(1) if self.observation.n_past else None
        return self.observation.log_prob(self._table(len(x)), x.unsqueeze(1), past).double()

    def _runs_compiled(self, n: int) -> bool:
        """Whether a step of ``n`` sequences is faster as a compiled loop than by tensor operations."""
        k, longest = self.durations.log_pmf.shape
        return n * k * (k + longest) <= MOST_TERMS_COMPILED and loops_are_compiled(self.parameters.initial.device)

    def _advance_compiled(self, log_predicted: Tensor, log_b: Tensor) -> list[Tensor]:
        """Predictions of the next step, ended segments and beliefs as of ``SegmentState``, and ``(n,)`` log p(x_t)."""
        from seqmodels.inference.chains.compiled_semi_markov import advance

        before, densities = log_predicted.contiguous().numpy(), log_b.contiguous().numpy()
        results = np.empty(before.shape), np.empty(log_b.shape), np.empty(log_b.shape), np.empty(len(log_b))
        advance(self._chain, before, densities, results)
        return [torch.from_numpy(each) for each in results]

    @cached_property
    def _chain(self) -> tuple[np.ndarray, np.ndarray]:
        """The logarithms of the transposed transition and of durations."""
        log_into, log_pmf = self.parameters.transition.T.log(), self.durations.log_pmf
        return log_into.contiguous().numpy(), log_pmf.contiguous().numpy()

    @cached_property
    def _densities(self) -> FrameDensities | None:
        """Densities of steps in arrays; None where loops are no faster, or where they hang on more than the step."""
        if not self._runs_compiled(1) or self.observation.n_past:
            return None
        from seqmodels.hmm.chain_in_loops import log_densities_of

        return log_densities_of(self.observation, self.table.to(self.dtype), self.size)

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

    def draw_path(
        self, state: SegmentState, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """The next steps: segments first, then what they emit. None where one needs the step before it.

        Given that sequences go on which could end, states are no chain: what was emitted says how likely an end was.
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
