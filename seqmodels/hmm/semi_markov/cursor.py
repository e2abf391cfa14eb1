"""``HSMMCursor``: an HSMM as a chain of one-step predictions, from beliefs over states and the steps left of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Draws, Prediction, SingleSteps
from seqmodels.generation.cursor import ScoredSteps
from seqmodels.hmm.chain_cursor import ChainCursor
from seqmodels.inference.chains.given_inputs import log_initial, log_transitions
from seqmodels.inference.chains.log_space import LogProduct
from seqmodels.inference.chains.log_weights import finite, relative_to_largest
from seqmodels.inference.chains.parallel_segments import loops_are_compiled
from seqmodels.inference.chains.semi_markov import Durations

MOST_TERMS_COMPILED = 1 << 14  # terms of a step up to which a compiled loop is faster than tensor operations


@dataclass(frozen=True)
class SegmentState:
    """The probabilities of an HSMM's hidden states after some steps of n sequences: the state of ``HSMMCursor``.

    A segment is a visit to a hidden state. K states; D is the longest duration (of ``past``, the number of features); U
    inputs.

    Attributes:
        log_predicted: log p(there is a next step, it is in state j, and r steps of its segment are left with it | all
            steps so far), ``(n, K, D)`` float64; -inf everywhere once the steps are impossible.
        log_ended: log p(the last step was the last of a segment in state j | all steps so far), ``(n, K)`` float64;
            None before the first step.
        log_belief: log p(state of the last step | all steps so far), ``(n, K)`` float64; None before the first step.
        past: the last p steps, ``(n, p, D)``.
        n_scored: number of steps after the source.
        log_going_on: the part of ``log_predicted`` in which the segment of the last step goes on, ``(n, K, D)``; None
            before the first step, and where neither transitions nor durations depend on inputs.
        inputs: standardised inputs of the next step, ``(n, U)``, which ``log_predicted`` then depends on; None until
            they are given.
    """

    log_predicted: Tensor
    log_ended: Tensor | None
    log_belief: Tensor | None
    past: Tensor
    n_scored: int
    log_going_on: Tensor | None = None
    inputs: Tensor | None = None


@dataclass(frozen=True)
class HSMMCursor(ChainCursor[SegmentState]):
    """The cursor of an HSMM: it reads n sequences step by step and predicts the next step of each.

    Its methods take and return a ``SegmentState``. The table of its parameters holds output parameters only, without
    those of durations.

    Attributes:
        durations: distributions of the durations of segments, which are visits to a state.
    """

    durations: Durations

    def given(self, state: SegmentState, inputs: Tensor) -> SegmentState:
        """Return the state once the inputs of the next step are known, before that step is predicted.

        Transitions into a segment that begins with this step, and its duration, may depend on them, and so may the
        first state.

        Args:
            state: state of the cursor.
            inputs: standardised inputs of the next step of n sequences, ``(n, U)``.
        """
        p, inputs, predicted = self.parameters, inputs.to(self.parameters.initial), state.log_predicted
        durations = self.durations
        if p.duration_slopes is not None:
            durations = durations.given_inputs(p.duration_slopes, inputs, len(inputs))
        if state.log_ended is None and (p.initial_slopes is not None or durations.differ):
            log_first = p.initial.log()[None]
            if p.initial_slopes is not None:
                log_first = log_initial(p.initial, p.initial_slopes, inputs)
            predicted = log_first.unsqueeze(-1) + durations.log_first
        if state.log_ended is not None and self._is_driven:
            assert state.log_going_on is not None, "kept where segments depend on inputs"
            if p.transition_slopes is None:
                starts = self._follow(state.log_ended)
            else:
                log_a = log_transitions(p.transition, p.transition_slopes, inputs)  # (n, K, K)
                starts = torch.logsumexp(state.log_ended.unsqueeze(2) + log_a, 1)
            predicted = torch.logaddexp(state.log_going_on, starts.unsqueeze(-1) + durations.log_pmf_of_rows)
        return replace(state, log_predicted=predicted, inputs=inputs)

    def unseen(self, state: SegmentState) -> SegmentState | None:
        """Return the state after a next step whose value is not observed; None if the observation reads past steps.

        ``state`` is the state of the cursor before that step.
        """
        if self.observation.n_past:
            return None
        total = torch.logsumexp(state.log_predicted.flatten(1), 1)
        return self._after(state.log_predicted - finite(total)[:, None, None], state.past, state.n_scored + 1)

    def _first(self, n: int, past: Tensor) -> SegmentState:
        first = self.parameters.initial.log()[:, None] + self.durations.log_first
        return SegmentState(first.expand(n, -1, -1), None, None, past, 0)

    def advance_and_score(self, state: SegmentState, x: Tensor) -> tuple[SegmentState, Tensor]:
        x = self._on_device(x)
        past_after = torch.cat([state.past[:, 1:], x.unsqueeze(1)], 1) if self.observation.n_past else state.past
        log_b, n_scored = self._log_b_of_step(state, x), state.n_scored + 1
        if self._runs_compiled(len(x)) and not self._is_driven:
            predicted, ended, belief, log_prob = self._advance_compiled(state.log_predicted, log_b)
            after = SegmentState(predicted, ended, belief, past_after, n_scored)
        else:
            log_b, peak = relative_to_largest(log_b)  # because a vector may lie far from every state
            joint = state.log_predicted + log_b.unsqueeze(-1)
            total = torch.logsumexp(joint.flatten(1), 1)
            # After an impossible step all later steps are impossible too, as in the evaluation in batches.
            after = self._after(joint - finite(total)[:, None, None], past_after, n_scored)
            log_prob = total + peak[:, 0]
        if self.parameters.final is not None and not state.n_scored:
            log_prob = log_prob - self._log_first(state)
        return after, log_prob

    @property
    def _is_driven(self) -> bool:
        """True if a new segment, its state or its duration, depends on the inputs of its first step."""
        return self.parameters.transition_slopes is not None or self.parameters.duration_slopes is not None

    def single_steps(self) -> SingleSteps:
        """Return a reader of the steps of one sequence, one at a time, which uses this cursor."""
        return ScoredSteps(self)

    def _log_weights(self, state: SegmentState) -> Tensor:
        return torch.logsumexp(state.log_predicted, -1)

    def _log_last(self, state: SegmentState) -> Tensor | None:
        return state.log_ended

    def _runs_compiled(self, n: int) -> bool:
        k, longest = self.durations.log_pmf.shape
        return n * k * (k + longest) <= MOST_TERMS_COMPILED and loops_are_compiled(self.parameters.initial.device)

    def _advance_compiled(self, log_predicted: Tensor, log_b: Tensor) -> list[Tensor]:
        """Return the arrays of the state after a step, computed in a compiled loop.

        Args:
            log_predicted: log-probabilities of state and steps left of its segment at the step before it is seen,
                ``(n, K, D)``.
            log_b: log-densities of the step, ``(n, K)``.

        Returns:
            ``log_predicted (n, K, D)``, ``log_ended (n, K)`` and ``log_belief (n, K)`` of the new ``SegmentState``, and
            log p(x_t | x_<t), ``(n,)``.
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

    def _after(self, log_alpha: Tensor, past: Tensor, n_scored: int) -> SegmentState:
        """Return the state of the cursor after a step.

        Args:
            log_alpha: log p(state of the last step, steps left of its segment | all steps so far), ``(n, K, D)``.
            past: the last p steps, ``(n, p, D)``.
            n_scored: number of steps after the source.
        """
        log_ended = log_alpha[:, :, 0]
        continues = torch.cat([log_alpha[:, :, 1:], torch.full_like(log_alpha[:, :, :1], -torch.inf)], 2)
        starts = self._follow(log_ended).unsqueeze(-1) + self.durations.log_pmf
        log_predicted = torch.logaddexp(continues, starts)
        kept = continues if self._is_driven else None
        return SegmentState(log_predicted, log_ended, torch.logsumexp(log_alpha, -1), past, n_scored, kept)

    def predictions_ahead(self, state: SegmentState, k: int) -> list[Prediction] | None:
        """Return the distribution of each of the next k steps when none of the steps before it is seen.

        Each is conditional on the sequence having that step. Return None if the observation depends on past steps,
        because there is no closed form then.

        Args:
            state: state of the cursor after the steps so far.
            k: number of steps ahead.
        """
        predictions = []
        for _ in range(k):
            predictions.append(self.distribution(state))
            after = self.unseen(state)
            if after is None:
                return None
            state = after
        return predictions

    def draw_path(
        self, state: SegmentState, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """Return an iterator over draws of the next steps; the path of segments is drawn before what their states emit.

        Return None if the observation depends on past steps, if the model reads inputs, if tensors are not on a CPU, or
        if ends are events but ``may_end`` is False: given that a sequence goes on, its states are no Markov chain.

        Args:
            state: state of the cursor after the steps so far of n sequences.
            n_steps: number of steps.
            generator: random generator.
            may_end: True if a sequence may end among these steps.
        """
        final, is_on_cpu = self.parameters.final, self.parameters.initial.device.type == "cpu"
        if self.observation.n_past or self._reads_inputs or not is_on_cpu or (final is not None and not may_end):
            return None
        from seqmodels.hmm.drawn_steps import StatesOfSegments, drawn_steps, emitted_by

        log_end = self._log_end(state)
        if log_end is None:
            log_end = torch.full_like(state.log_predicted[:, 0, 0], -torch.inf)
        log_first = torch.cat([state.log_predicted.flatten(1), log_end[:, None]], 1)
        states = StatesOfSegments(log_first, self.parameters.transition, final, self.durations.log_pmf)
        emit, size = emitted_by(self.observation, self._table_of_all), len(log_end) * self._table_of_all.shape[1]
        return drawn_steps(states, emit, size, n_steps, generator, may_end=final is not None)

    @cached_property
    def _follow(self) -> LogProduct:
        return LogProduct(self.parameters.transition)
