"""``MarkovSwitchingCursor``: a switching autoregression as one-step predictions, from beliefs over p + 1 states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Draws, Prediction, SingleSteps, Source, select_rows, stacked_sources
from seqmodels.generation.cursor import ScoredSteps
from seqmodels.generation.given_inputs import refuse_without_inputs
from seqmodels.hmm.learning.first_state import Start, log_stationary
from seqmodels.hmm.markov_switching.deviations import DeviationEmission
from seqmodels.hmm.markov_switching.steps_ahead import StepAhead, steps_ahead
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.given_inputs import log_initial, log_transitions
from seqmodels.inference.chains.lagged_states import first_tuples, next_tuples, tuples, without_oldest
from seqmodels.inference.chains.log_weights import draw, finite, relative_to_largest
from seqmodels.inference.chains.parallel_segments import loops_are_compiled
from seqmodels.observations import GaussianMixture, gaussian

MOST_TERMS_COMPILED = 1 << 14  # terms of a step up to which a compiled loop is faster than tensor operations
MOST_PATHS = 1 << 12  # paths of states up to which a prediction is exact; beyond, it averages over drawn paths
GAUSSIANS = GaussianMixture(1, "diag", min_covariance=1e-300)  # a floor below every variance of a prediction


@dataclass(frozen=True)
class LastStates:
    """The probabilities of the hidden states of the last p + 1 steps of n sequences.

    It is the state of a ``MarkovSwitchingCursor``. K states, D features, U inputs; M = K^p is the number of tuples of p
    earlier states.

    Attributes:
        log_alpha: log p(states of the last p + 1 steps | all steps so far), ``(n, K, M)`` float64, with the newest
            state on its own axis; None before the first step.
        log_predicted: log p(there is a next step, with these p + 1 states | all steps so far), ``(n, K, M)`` float64.
        past: the last p steps, NaN before the first, ``(n, p, D)``.
        n_scored: number of steps after the source.
        inputs: standardised inputs of the next step, ``(n, U)``; None until they are given.
        past_inputs: inputs of the last p steps, zeros before the first, ``(n, p, U)``; None if means depend on no
            inputs.
    """

    log_alpha: Tensor | None
    log_predicted: Tensor
    past: Tensor
    n_scored: int
    inputs: Tensor | None = None
    past_inputs: Tensor | None = None


@dataclass(frozen=True)
class MarkovSwitchingCursor:
    """The cursor of a Markov-switching autoregression: it reads n sequences step by step and predicts each next step.

    Its methods take and return a ``LastStates``.

    Attributes:
        parameters: parameters of the chain and its emissions. If means depend on inputs, their slopes are in the table.
        emission: the emission, whose densities depend on the last p + 1 states.
        dtype: precision of densities; beliefs are float64.
        start_choice: how the distribution of the first state is determined.
    """

    parameters: Parameters
    emission: DeviationEmission
    dtype: torch.dtype
    start_choice: Start

    def given(self, state: LastStates, inputs: Tensor) -> LastStates:
        """Return the state once the inputs of the next step are known, before that step is predicted.

        If transitions or the first state depend on inputs, ``log_predicted`` is computed again.

        Args:
            state: state of the cursor.
            inputs: standardised inputs of the next step of n sequences, ``(n, U)``.
        """
        inputs, predicted, p = inputs.to(self.parameters.initial), state.log_predicted, self.parameters
        if p.transition_slopes is not None:
            log_a = log_transitions(p.transition, p.transition_slopes, inputs)  # (n, K, K)
            if state.log_alpha is not None:
                predicted = next_tuples(state.log_alpha, log_a)
            elif self.start_choice == "stationary":
                predicted = first_tuples(log_stationary(log_a), self._n_earlier)
        if p.initial_slopes is not None and state.log_alpha is None:
            predicted = first_tuples(log_initial(p.initial, p.initial_slopes, inputs), self._n_earlier)
        return replace(state, log_predicted=predicted, inputs=inputs)

    @property
    def _reads_inputs(self) -> bool:
        return any(slopes is not None for slopes in self.parameters.slopes)

    def start(self, source: Source = None, n: int = 1) -> LastStates:
        """Return the state of ``n`` sequences before the first scored step.

        The steps of ``source``, which the sequences are conditioned on, are read first and not scored; None means that
        there are none.
        """
        device = self.parameters.initial.device
        past = torch.full((n, self.emission.order, self.emission.size), torch.nan, dtype=self.dtype, device=device)
        first = first_tuples(self.parameters.initial.log()[None], self._n_earlier)
        past_inputs = None
        if self.parameters.table_slopes is not None:
            n_inputs = self.parameters.table_slopes.shape[2]
            past_inputs = torch.zeros(n, self.emission.order, n_inputs, dtype=torch.float64, device=device)
        state = LastStates(None, first.expand(n, -1, -1), past, 0, past_inputs=past_inputs)
        rows = stacked_sources(source, n)
        for step in rows.unbind(1) if rows is not None else []:
            state = self.advance(state, step)
        return replace(state, n_scored=0)

    def advance(self, state: LastStates, x: Tensor) -> LastStates:
        """Return the state of the cursor after the next step.

        Args:
            state: state of the cursor before the step.
            x: the step of each of n sequences, vectors ``(n, D)``.
        """
        return self.advance_and_score(state, x)[0]

    def advance_and_score(self, state: LastStates, x: Tensor) -> tuple[LastStates, Tensor]:
        """Return the state of the cursor after the next step, and the log-probability of that step given earlier ones.

        The log-probabilities are the same as those of ``distribution(state)``.

        Args:
            state: state of the cursor before the step.
            x: the step of each of n sequences, vectors ``(n, D)``.

        Returns:
            The new state, and log p(x_t | x_<t) of each sequence in nats, ``(n,)`` float64.
        """
        x = x.to(self.parameters.initial.device, self.dtype)
        table = self._table(state)  # raises an error if the inputs of the step are not given
        past = torch.cat([state.past[:, 1:], x.unsqueeze(1)], 1)
        if self._runs_compiled(len(x)):
            log_alpha, predicted, log_prob = self._advance_compiled(state, x)
        else:
            log_b = self.emission.observation.log_prob(table, x.unsqueeze(1), state.past.unsqueeze(1)).double()
            log_b, peak = relative_to_largest(log_b)
            joint = state.log_predicted + log_b.view_as(state.log_predicted)
            total = torch.logsumexp(joint.flatten(1), 1)
            # After an impossible step all later steps are impossible too, as in the evaluation in batches.
            log_alpha = joint - finite(total)[:, None, None]
            predicted, log_prob = next_tuples(log_alpha, self._log_a), total + peak[:, 0]
        if self.parameters.final is not None and not state.n_scored:  # it cannot end before its first scored step
            log_prob = log_prob - finite(torch.logsumexp(state.log_predicted.flatten(1), 1))
        past_inputs = state.past_inputs
        if past_inputs is not None and state.inputs is not None:
            past_inputs = torch.cat([past_inputs[:, 1:], state.inputs.unsqueeze(1)], 1)
        return LastStates(log_alpha, predicted, past, state.n_scored + 1, past_inputs=past_inputs), log_prob

    def single_steps(self) -> SingleSteps:
        """Return a reader of the steps of one sequence, one at a time, which uses this cursor."""
        return ScoredSteps(self)

    def _runs_compiled(self, n: int) -> bool:
        n_terms = n * self._of_tuples.numel()
        return (
            self.parameters.table_slopes is None
            and n_terms <= MOST_TERMS_COMPILED
            and loops_are_compiled(self.parameters.initial.device)
        )

    def _advance_compiled(self, state: LastStates, x: Tensor) -> list[Tensor]:
        """Return ``log_alpha`` and ``log_predicted`` after a step, ``(n, K, M)``, and log p(x_t | x_<t), ``(n,)``.

        Args:
            state: state of the cursor before the step.
            x: the step of each of n sequences, vectors ``(n, D)``.
        """
        from seqmodels.hmm.markov_switching.deviation_loops import log_densities
        from seqmodels.inference.chains.compiled_lagged_states import advance

        predicted = state.log_predicted.flatten(1).contiguous().numpy()
        log_b, log_alpha, after, log_prob = (*(np.empty(predicted.shape) for _ in range(3)), np.empty(len(x)))
        log_densities(x.double().contiguous().numpy(), state.past.double().contiguous().numpy(), *self._numbers, log_b)
        advance(self._log_a_array, log_b, predicted, log_alpha, after, log_prob)
        shape = state.log_predicted.shape
        return [*(torch.from_numpy(each).view(shape) for each in (log_alpha, after)), torch.from_numpy(log_prob)]

    @cached_property
    def _log_a_array(self) -> np.ndarray:
        return self._log_a[0].contiguous().numpy()

    @cached_property
    def _numbers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The arrays that ``log_densities`` takes for S tuples of states, of p past steps and D features.

        They are coefficients ``(S, p, D)``, intercepts ``(S, D)``, log-variances ``(S, D)``, and the mean and
        log-variance of first steps, ``(2, D)``.
        """
        observation, size = self.emission.observation, self.emission.size
        matrix, intercept, shape, *first = observation.unpack(self._of_tuples.double(), size)
        coefficients = matrix.unflatten(2, (-1, size)).diagonal(dim1=1, dim2=3)  # (S, p, D)
        log_variance, log_first = (
            gaussian.variances_of_shape(s, observation.min_covariance).log() for s in (shape, first[1])
        )
        of_first = torch.stack([first[0][0], log_first[0]])
        a, b, c, d = (each.contiguous().numpy() for each in (coefficients, intercept, log_variance, of_first))
        return a, b, c, d

    def distribution(self, state: LastStates) -> Prediction:
        """Return the distribution of the next step, and the probability of the end.

        The distribution is a mixture of one Gaussian for each tuple of the last p + 1 states. The end has probability
        zero before the first scored step. ``state`` is the state of the cursor after the steps so far.
        """
        table, log_weights = self._table(state), state.log_predicted.flatten(1)  # (n, K^(p+1))
        if self.parameters.final is None:  # there is always a next step, so the weights sum to one
            return Prediction(self.emission.observation, table, log_weights, state.past, None)
        total = torch.logsumexp(log_weights, -1)  # (n,)
        log_end = torch.full_like(total, -torch.inf)
        log_continue = torch.zeros_like(total)
        if state.log_alpha is not None and state.n_scored:
            # Each is summed from its own terms, because one minus the other would lose a small one.
            log_belief = torch.logsumexp(state.log_alpha, 2)
            log_end, log_continue = torch.logsumexp(log_belief + self.parameters.final.log(), -1), total
        log_weights = log_weights - finite(total).unsqueeze(-1)
        return Prediction(self.emission.observation, table, log_weights, state.past, log_end, log_continue)

    def predictions_ahead(self, state: LastStates, k: int) -> list[Prediction] | None:
        """Return the distribution of each of the next k steps when none of the steps before it is seen.

        Each is conditional on the sequence having that step, and has a Gaussian for every path of states. Return None
        if there are more than 4096 paths, if fewer than p steps were read, or if the model reads inputs.

        Args:
            state: state of the cursor after the steps so far.
            k: number of steps ahead.
        """
        n_states, order = len(self.parameters.initial), self.emission.order
        is_short = state.log_alpha is None or bool(state.past.isnan().any())
        if is_short or self._reads_inputs or n_states ** (order + k) > MOST_PATHS:
            return None
        predictions = [self.distribution(state)]
        for step in islice(self._steps_ahead(state), 1, k):
            log_weights, log_end, log_continue = step.log_weights, None, None
            if self.parameters.final is not None:
                log_continue = torch.logsumexp(log_weights, 1)
                log_end = torch.logsumexp(step.log_last + self.parameters.final.log(), 1)
                log_weights = log_weights - finite(log_continue).unsqueeze(1)
            log_variance = step.variance.log().expand_as(step.mean)
            table = torch.cat([torch.zeros_like(step.mean[..., :1]), step.mean, log_variance], 2)
            predictions.append(Prediction(GAUSSIANS, table, log_weights, None, log_end, log_continue))
        return predictions

    def _steps_ahead(self, state: LastStates) -> Iterator[StepAhead]:
        assert state.log_alpha is not None, "steps were read"
        mean, coefficients, log_variance, *_ = self.emission.unpack(self.parameters.table)
        variance = log_variance.exp().clamp(min=self.emission.observation.min_covariance)
        log_last_states = without_oldest(state.log_alpha)
        return steps_ahead(log_last_states, self._log_a[0], state.past.double(), mean, coefficients, variance)

    def draw_path(
        self, state: LastStates, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """Return an iterator over draws of the next steps; the path of hidden states is drawn before what it emits.

        Return None if the model reads inputs, if tensors are not on a CPU, or if ends are events that must not come:
        given that a sequence goes on, its states are no Markov chain.

        Args:
            state: state of the cursor after the steps so far of n sequences.
            n_steps: number of steps.
            generator: random generator.
            may_end: True if a sequence may end among these steps.
        """
        final, is_on_cpu = self.parameters.final, self.parameters.initial.device.type == "cpu"
        must_go_on = final is not None and (not may_end or (state.log_alpha is not None and not state.n_scored))
        if self._reads_inputs or not is_on_cpu or must_go_on:
            return None
        from seqmodels.hmm.drawn_steps import StatesOfChain, drawn_steps

        n, k, order = len(state.past), len(self.parameters.initial), self.emission.order
        earlier, last = torch.zeros(n, order, dtype=torch.int64), None
        log_first = torch.logsumexp(state.log_predicted, 2)
        if state.log_alpha is not None:
            drawn = draw(without_oldest(state.log_alpha).unsqueeze(1), generator)[:, 0].clamp(min=0)
            earlier = tuples(k, order - 1)[drawn]
            last = earlier[:, 0]
        log_first = torch.nn.functional.pad(log_first, (0, 1), value=-torch.inf)
        states = StatesOfChain(log_first, self.parameters.transition, final, states=last)
        emit = self._emit(state.past.double().flip(1).contiguous(), earlier.contiguous())
        return drawn_steps(states, emit, n * self.emission.size, n_steps, generator, may_end=final is not None)

    def _emit(self, past: Tensor, earlier: Tensor) -> Callable[[Tensor, torch.Generator], Tensor]:
        """Return a function that draws the frames of given states; each call continues after the one before.

        Args:
            past: the p frames before, the newest first, ``(n, p, D)``; overwritten.
            earlier: their states, ``(n, p)``; overwritten.
        """
        from seqmodels.hmm.markov_switching.deviation_loops import draw_frames

        floor = self.emission.observation.min_covariance
        mean, coefficients, log_variance, first_mean, first_log_variance = self.emission.unpack(
            self.parameters.table.double()
        )
        deviation, first = (each.exp().clamp(min=floor).sqrt() for each in (log_variance, first_log_variance))
        of_first = torch.stack([first_mean[0], first[0]])
        tables = (each.contiguous().numpy() for each in (mean, coefficients, deviation, of_first))
        m, a, s, f = tables

        def emit(states: Tensor, generator: torch.Generator) -> Tensor:
            noise = torch.randn((*states.shape, self.emission.size), generator=generator, dtype=torch.float64)
            x = torch.empty_like(noise)
            draw_frames(states.numpy(), noise.numpy(), m, a, s, f, past.numpy(), earlier.numpy(), x.numpy())
            return x.to(self.dtype)

        return emit

    def select(self, state: LastStates, index: Tensor) -> LastStates:
        """Return the state of some of the sequences.

        Args:
            state: state of the cursor.
            index: numbers of the sequences in the new order, ``(m,)``.
        """
        selected: LastStates = select_rows(state, index)
        return selected

    @property
    def _n_earlier(self) -> int:
        return int(len(self.parameters.initial) ** self.emission.order)

    @cached_property
    def _of_tuples(self) -> Tensor:
        return self.emission.of_tuples(self.parameters.table).to(self.dtype)

    @cached_property
    def _log_a(self) -> Tensor:
        return self.parameters.transition.log()[None]

    def _table(self, state: LastStates) -> Tensor:
        """Return the output parameters of all tuples of states at the next step of n sequences, ``(n, K^(p+1), P)``.

        Output parameters are the P numbers that the observation takes; ``state`` is the state of the cursor. If they do
        not depend on inputs, they are a view without copies.
        """
        if self._reads_inputs:
            refuse_without_inputs(state.inputs)
        if state.past_inputs is None or state.inputs is None:
            return self._of_tuples.expand(len(state.past), -1, -1)
        inputs = torch.cat([state.inputs.unsqueeze(1), state.past_inputs.flip(1)], 1)
        return self.emission.of_tuples(self.parameters.table, inputs).to(self.dtype)
