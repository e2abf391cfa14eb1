"""``ContinuousTimeCursor``: an HMM in continuous time as a chain of one-step predictions at given times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seqmodels.generation import Draws, Prediction, SingleSteps, Source
from seqmodels.generation.cursor import ScoredSteps
from seqmodels.hmm.chain_cursor import ChainCursor
from seqmodels.inference.chains.continuous_time import (
    ExponentialSeries,
    distinct_gaps,
    log_transitions_over,
    transition_probabilities,
)
from seqmodels.inference.chains.given_inputs import log_initial
from seqmodels.inference.chains.log_space import LogProduct
from seqmodels.inference.chains.log_weights import finite, relative_to_largest

if TYPE_CHECKING:
    from seqmodels.hmm.chain_in_loops import ChainInLoops


@dataclass(frozen=True)
class TimedState:
    """The probabilities of the K hidden states after some steps of n sequences: the state of ``ContinuousTimeCursor``.

    Both log-probabilities are -inf in all states once the steps are impossible.

    Attributes:
        log_alpha: log p(state of the last step | all steps so far), ``(n, K)`` float64; None before the first step.
        log_predicted: log p(state of the next step at ``next_time`` | all steps so far), ``(n, K)`` float64.
        time: time of the last step, ``(n,)`` float64; None before the first step.
        next_time: time of the next step, ``(n,)`` float64.
        past: the last p steps, ``(n, p, D)``.
        inputs: standardised inputs of the next step, ``(n, U)``, on which ``log_predicted`` then depends; None until
            they are given.
    """

    log_alpha: Tensor | None
    log_predicted: Tensor
    time: Tensor | None
    next_time: Tensor
    past: Tensor
    inputs: Tensor | None = None


@dataclass(frozen=True)
class ContinuousTimeCursor(ChainCursor[TimedState]):
    """The cursor of a continuous-time HMM: it reads n sequences step by step and predicts the next step of each.

    Its methods take and return a ``TimedState``. ``given`` tells the time of the next step. Otherwise the first step is
    at time 0 and every other step one unit after the step before it. ``parameters`` must have a generator.
    """

    def given(self, state: TimedState, inputs: Tensor) -> TimedState:
        """Return the state once the time and the inputs of the next step are known, before that step is predicted.

        Args:
            state: state of the cursor.
            inputs: time of the next step of n sequences, and then its standardised inputs, ``(n, 1 + U)``. A time of
                NaN is one unit after the last step.

        Raises:
            ValueError: a time is before the time of the last step.
        """
        inputs = inputs.to(self.parameters.initial)
        time, others = inputs[:, 0], inputs[:, 1:] if self._reads_inputs else None
        time = torch.where(time.isnan(), state.next_time, time)
        if state.log_alpha is None or state.time is None:
            predicted, slopes = state.log_predicted, self.parameters.initial_slopes
            if slopes is not None and others is not None:
                predicted = log_initial(self.parameters.initial, slopes, others)
            return replace(state, log_predicted=predicted, next_time=time, inputs=others)
        refuse_back(state.time, time)
        predicted = self._over(state.log_alpha, time - state.time, others)
        return TimedState(state.log_alpha, predicted, state.time, time, state.past, others)

    def unseen(self, state: TimedState) -> TimedState | None:
        """Return the state after a next step whose value is not observed; None if the observation reads past steps.

        ``state`` is the state of the cursor before that step.
        """
        if self.observation.n_past:
            return None
        total = torch.logsumexp(state.log_predicted, -1, keepdim=True)
        return self._after(state, state.log_predicted - finite(total), state.past)

    def start(self, source: Source = None, n: int = 1) -> TimedState:
        """Return the state of ``n`` sequences before the first step.

        ``source`` must be None, because the model is p(x | times) and reads no source.
        """
        assert source is None, "a model that reads times is p(x | times)"
        return self._first(n, self._no_past(n))

    def _first(self, n: int, past: Tensor) -> TimedState:
        initial = self.parameters.initial
        return TimedState(None, initial.log().expand(n, -1), None, initial.new_zeros(n), past)

    def _runs_compiled(self, n: int) -> bool:
        return self._chain is not None

    def _log_weights(self, state: TimedState) -> Tensor:
        return state.log_predicted

    def _log_last(self, state: TimedState) -> Tensor | None:
        return state.log_alpha

    def advance_and_score(self, state: TimedState, x: Tensor) -> tuple[TimedState, Tensor]:
        x = self._on_device(x)
        past_after = torch.cat([state.past[:, 1:], x.unsqueeze(1)], 1) if self.observation.n_past else state.past
        log_b = self._log_b_of_step(state, x)
        if self._chain is not None:
            filtered = self._chain.filter(state.log_predicted.contiguous().numpy(), log_b.contiguous().numpy())
            log_alpha, log_predicted, log_prob = map(torch.from_numpy, filtered)
            after = TimedState(log_alpha, log_predicted, state.next_time, state.next_time + 1, past_after)
            return after, log_prob
        log_b, peak = relative_to_largest(log_b)  # because a vector may lie far from every state
        joint = state.log_predicted + log_b
        total = torch.logsumexp(joint, -1, keepdim=True)
        # After an impossible step all later steps are impossible too, as in the evaluation in batches.
        return self._after(state, joint - finite(total), past_after), (total + peak)[:, 0]

    def single_steps(self) -> SingleSteps:
        """Return a reader of the steps of one sequence, one at a time, which uses this cursor."""
        return ScoredSteps(self)

    @cached_property
    def _series(self) -> ExponentialSeries:
        assert self.parameters.generator is not None
        return ExponentialSeries.of(self.parameters.generator)

    @cached_property
    def _chain(self) -> ChainInLoops | None:
        """The chain over gaps of one unit as compiled loops; None where steps are computed by tensor operations."""
        if not self._series.runs_compiled:
            return None
        from seqmodels.hmm.chain_in_loops import ChainInLoops

        return ChainInLoops(self.parameters.transition, LogProduct(self.parameters.transition).least_exact)

    def _after(self, state: TimedState, log_alpha: Tensor, past: Tensor) -> TimedState:
        log_predicted = torch.logsumexp(log_alpha.unsqueeze(2) + self._log_over_one, 1)
        return TimedState(log_alpha, log_predicted, state.next_time, state.next_time + 1, past)

    @cached_property
    def _log_over_one(self) -> Tensor:
        return self.parameters.transition.log()

    def predictions_ahead(self, state: TimedState, k: int) -> list[Prediction] | None:
        """Return the distribution of each of the next k steps, one unit of time apart, given only the steps so far.

        Return None if the observation depends on past steps.

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

    def draw_path_given(
        self, state: TimedState, inputs: Tensor, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """Return an iterator over random draws of the next ``n_steps`` steps of n sequences, at given times.

        Hidden states are drawn first, and then what they emit. Return None if the observation depends on past steps or
        on inputs, if rates depend on inputs that are missing, or if tensors are not on a CPU.

        Args:
            state: state of the sequences before the first of these steps.
            inputs: times and standardised inputs of the steps after the next one, ``(n, S, 1 + U)``; a time that is NaN
                or missing is one unit after the step before.
            n_steps: number of steps.
            generator: random generator.
            may_end: has no effect, because ends are no events.
        """
        slopes, others = self.parameters.transition_slopes, inputs[:, : n_steps - 1, 1:].to(self.parameters.initial)
        depends = bool(self.observation.n_past) or self.parameters.table_slopes is not None
        depends = depends or (slopes is not None and others.shape[1] < n_steps - 1)
        if depends or self.parameters.initial.device.type != "cpu":
            return None
        from seqmodels.hmm.drawn_steps import StatesOfChain, drawn_steps, emitted_by

        assert self.parameters.generator is not None
        gaps = gaps_between(state.next_time, inputs[:, : n_steps - 1, 0].to(self.parameters.initial), n_steps - 1)
        distinct = distinct_gaps(self.parameters.generator, gaps.flatten(), slopes, others.flatten(0, 1))
        transitions, which = transition_probabilities(*distinct[:2]), distinct.which.view_as(gaps)
        before = torch.cat([torch.zeros_like(which[:, :1]), which], 1).T.contiguous().numpy()
        log_first = torch.nn.functional.pad(state.log_predicted, (0, 1), value=-torch.inf)
        if not len(transitions):  # one step, before which there is no gap
            transitions = self.parameters.transition
        states = StatesOfChain(log_first, transitions, None, before)
        table = self.parameters.table.to(self.dtype)
        size = len(log_first) * table.shape[1]
        return drawn_steps(states, emitted_by(self.observation, table), size, n_steps, generator, may_end=False)

    def draw_path(
        self, state: TimedState, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """Return an iterator over random draws of the next steps, one unit of time apart.

        Hidden states are drawn first, and then what they emit. Return None if the observation depends on past steps or
        on inputs, if rates depend on inputs, or if tensors are not on a CPU.

        Args:
            state: state of the cursor after the steps so far of n sequences.
            n_steps: number of steps.
            generator: random generator.
            may_end: has no effect, because ends are no events.
        """
        return self.draw_path_given(state, state.next_time[:, None, None][:, :0], n_steps, generator, may_end=may_end)

    def _over(self, log_alpha: Tensor, gaps: Tensor, inputs: Tensor | None) -> Tensor:
        """Return the log-probabilities of the states after times without observations, ``(n, K)``.

        Args:
            log_alpha: log-probabilities of the states before these times, ``(n, K)``.
            gaps: how long each time is, ``(n,)``.
            inputs: standardised inputs that hold over these times, ``(n, U)``, or None.
        """
        slopes = self.parameters.transition_slopes
        if self._chain is not None and slopes is None:
            return self._series.beliefs_over(log_alpha, gaps)
        assert self.parameters.generator is not None
        log_p = log_transitions_over(self.parameters.generator, gaps, slopes, inputs)
        return torch.logsumexp(log_alpha.unsqueeze(2) + log_p, 1)


def gaps_between(first: Tensor, times: Tensor, n_gaps: int) -> Tensor:
    """Return the time between each step and the next, ``(n, n_gaps)``, for n sequences.

    Args:
        first: time of the first step, ``(n,)``.
        times: times of the S steps after it, ``(n, S)``; a time that is NaN, or past the last column, is one unit after
            the step before it.
        n_gaps: number of gaps to return.

    Raises:
        ValueError: a time is before the one of the step before it.
    """
    times = torch.nn.functional.pad(times, (1, n_gaps - times.shape[1]), value=torch.nan)
    times[:, 0] = first
    is_known, steps = ~times.isnan(), torch.arange(n_gaps + 1)
    last = torch.where(is_known, steps, 0).cummax(1).values
    times = times.gather(1, last) + (steps - last)
    gaps = torch.where(is_known[:, 1:], times.diff(), 1.0)
    refuse_back(times[:, :-1], times[:, 1:])
    return gaps


def refuse_back(before: Tensor, time: Tensor) -> None:
    """Raise ``ValueError`` if an entry of ``time`` is smaller than that of ``before``, the time of the step before."""
    goes_back = time < before
    if bool(goes_back.any()):
        raise ValueError(
            f"the time of a step goes back, from {float(before[goes_back][0])} to {float(time[goes_back][0])}; "
            "pass times in order"
        )
