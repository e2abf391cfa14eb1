"""``HMMCursor``: an HMM as a chain of one-step predictions, from the belief ``log p(z_t | x_1 .. x_t)``.

Beliefs stay in the log domain, because a state that lies 10^5 nats behind may explain all later steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Draws, MergedStates, Prediction, SingleSteps
from seqmodels.generation.cursor import ScoredSteps
from seqmodels.hmm.chain_cursor import ChainCursor
from seqmodels.hmm.missing_past import PastFilter, with_beliefs
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.given_inputs import log_initial, log_transitions
from seqmodels.inference.chains.log_space import LogProduct, log_alpha_and_steps, steps_are_compiled
from seqmodels.inference.chains.log_weights import finite, relative_to_largest
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.observations import AutoregressiveGaussian, GaussianMixture
from seqmodels.observations.gaussian import shape_of_covariance
from seqmodels.observations.gaussian_mixture import BACKGROUND_COVARIANCE

if TYPE_CHECKING:
    from seqmodels.hmm.chain_in_loops import ChainInLoops, FrameDensities

TERMS_AT_ONCE = 1 << 22  # numbers held at once when many steps are read; bounds memory
SMALLEST_VARIANCE = 1e-300  # a floor below every variance of a prediction


@dataclass(frozen=True)
class HMMState:
    """The probabilities of an HMM's hidden states after some steps of n sequences: the state of ``HMMCursor``.

    K hidden states, D features, U inputs. Both log-probabilities are -inf in all hidden states once the steps are
    impossible.

    Attributes:
        log_alpha: log p(hidden state of the last step | all steps so far), ``(n, K)`` float64; None before the first
            step.
        log_predicted: log p(there is a next step, in this hidden state | all steps so far), ``(n, K)`` float64.
        past: the last p steps, which an autoregressive observation reads, ``(n, p, D)``; once values were missing,
            their means and covariances, ``(n, p + p²D, D)``.
        n_scored: number of steps after the source.
        inputs: standardised inputs of the next step, ``(n, U)``, which ``log_predicted`` then depends on; None until
            they are given.
    """

    log_alpha: Tensor | None
    log_predicted: Tensor
    past: Tensor
    n_scored: int
    inputs: Tensor | None = None


def merged_states(log_weights: list[float], states: list[HMMState]) -> MergedStates:
    """Return states of the cursor that stand for one text, merged into one by a weighted mean of probabilities.

    The mean is exact, because the probability of the future is linear in the probabilities of the hidden states. States
    before the first step are not merged.

    Args:
        log_weights: log-weight of each state, up to a constant.
        states: states of the cursor, of one sequence each.

    Returns:
        Pairs: the indices of the states that were merged, and the state that replaces them.
    """
    # Without ``log_alpha`` no step was read yet, so there is no belief to average. Everything else is taken from the
    # first state: merged states spell one text, symbols have no ``past``, and only ``n_scored > 0`` matters.
    first = states[0]
    if len(states) == 1 or first.log_alpha is None:
        return [([i], state) for i, state in enumerate(states)]
    weights = torch.tensor(log_weights, dtype=torch.float64, device=first.log_predicted.device).log_softmax(0)
    beliefs = torch.cat([state.log_alpha for state in states if state.log_alpha is not None])  # (n, K)
    predicted = torch.cat([state.log_predicted for state in states])
    log_alpha = torch.logsumexp(weights[:, None] + beliefs, 0, keepdim=True)
    log_predicted = torch.logsumexp(weights[:, None] + predicted, 0, keepdim=True)
    return [(list(range(len(states))), HMMState(log_alpha, log_predicted, first.past, first.n_scored))]


class BeliefArrays(NamedTuple):
    """The probabilities of the hidden states after some steps of one sequence, as arrays that compiled loops read.

    Its fields mean the same as in ``HMMState``: log p(state of the last step | steps so far), ``(1, K)`` or None; log
    p(state of the next step | steps so far), ``(1, K)``; the number of steps after the source; and ``past``, which is
    empty.
    """

    log_alpha: np.ndarray | None
    log_predicted: np.ndarray
    n_scored: int
    past: Tensor  # empty, because the compiled loops serve observations without past steps


@dataclass(frozen=True)
class BeliefSteps:
    """An HMM that reads one step of one sequence at a time in compiled loops (``SingleSteps``).

    Attributes:
        chain: forward pass of the HMM's chain in compiled loops.
        log_densities: function of steps ``(T, ...)`` that returns their log-densities in each of K states, ``(T, K)``.
        has_end: True if the end of a sequence is an event.
    """

    chain: ChainInLoops
    log_densities: FrameDensities
    has_end: bool

    def enter(self, state: HMMState) -> BeliefArrays:
        """Return ``state``, a state of the cursor for one sequence, as arrays, the form that ``advance`` takes."""
        log_alpha = None if state.log_alpha is None else state.log_alpha.numpy()
        return BeliefArrays(log_alpha, state.log_predicted.contiguous().numpy(), state.n_scored, state.past)

    def leave(self, at: BeliefArrays) -> HMMState:
        """Return the state of the cursor that the arrays ``at`` hold; the inverse of ``enter``."""
        log_alpha = None if at.log_alpha is None else torch.from_numpy(at.log_alpha)
        return HMMState(log_alpha, torch.from_numpy(at.log_predicted), at.past, at.n_scored)

    def advance(self, at: BeliefArrays, x: np.ndarray) -> tuple[BeliefArrays, float]:
        """Return the state as arrays after a next step, and log p(x_t | x_<t) of that step in nats.

        Args:
            at: the state before the step, as ``enter`` returns it.
            x: the step, a vector ``(D,)`` or a symbol ``()``.
        """
        log_alpha, after, log_prob = self.chain.filter(at.log_predicted, self.log_densities(x[None]))
        nats: float = log_prob.item()
        if self.has_end and not at.n_scored:  # a sequence cannot end before its first scored step
            total = float(np.logaddexp.reduce(at.log_predicted, axis=None))
            nats -= total if total > -np.inf else 0.0
        return BeliefArrays(log_alpha, after, at.n_scored + 1, at.past), nats


@dataclass(frozen=True)
class HMMCursor(ChainCursor[HMMState]):
    """The cursor of an HMM: it reads n sequences step by step and predicts the next step of each.

    Its methods take and return an ``HMMState``, which holds the probabilities of the hidden states.

    Attributes:
        make_past_filter: function that makes the Kalman filter of missing values among the past steps that the
            observation reads; None if the observation reads none.
    """

    make_past_filter: Callable[[], PastFilter] | None = None

    def given(self, state: HMMState, inputs: Tensor) -> HMMState:
        """Return the state once the inputs of the next step are known, before that step is predicted.

        If transitions or the first state depend on inputs, ``log_predicted`` is computed again.

        Args:
            state: state of the cursor.
            inputs: standardised inputs of the next step of n sequences, ``(n, U)``.
        """
        inputs, predicted = inputs.to(self.parameters.initial), state.log_predicted
        if self.parameters.transition_slopes is not None and state.log_alpha is not None:
            log_a = log_transitions(self.parameters.transition, self.parameters.transition_slopes, inputs)  # (n, K, K)
            predicted = torch.logsumexp(state.log_alpha.unsqueeze(2) + log_a, 1)
        if self.parameters.initial_slopes is not None and state.log_alpha is None:
            predicted = log_initial(self.parameters.initial, self.parameters.initial_slopes, inputs)
        return replace(state, log_predicted=predicted, inputs=inputs)

    def unseen(self, state: HMMState) -> HMMState | None:
        """Return the state after a next step whose value is not observed; None if the observation reads past steps.

        ``state`` is the state of the cursor before that step.
        """
        if self.observation.n_past:
            return None
        total = torch.logsumexp(state.log_predicted, -1, keepdim=True)
        log_alpha = state.log_predicted - finite(total)
        return HMMState(log_alpha, self._predict(log_alpha), state.past, state.n_scored + 1)

    def _first(self, n: int, past: Tensor) -> HMMState:
        return HMMState(None, self._log_initial.expand(n, -1), past, 0)

    def advance_and_score(self, state: HMMState, x: Tensor) -> tuple[HMMState, Tensor]:
        x = self._on_device(x)
        log_alpha, predicted, steps = self._filter(state.log_predicted, self._log_b_of_step(state, x).unsqueeze(1))
        log_prob = steps[:, 0]
        if self.parameters.final is not None and not state.n_scored:
            log_prob = log_prob - self._log_first(state)
        after = HMMState(log_alpha, predicted, self._past_after(state.past, x), state.n_scored + 1)
        return after, log_prob

    def single_steps(self) -> SingleSteps | None:
        """Return a reader of one sequence, step by step: compiled loops where possible, else this cursor."""
        if self._densities is None or self._reads_inputs:
            return ScoredSteps(self)
        return BeliefSteps(self._chain, self._densities, self.parameters.final is not None)

    def _runs_compiled(self, n: int) -> bool:
        return steps_are_compiled(n * self.parameters.transition.numel(), self.parameters.initial.device)

    def _log_weights(self, state: HMMState) -> Tensor:
        return state.log_predicted

    def _log_last(self, state: HMMState) -> Tensor | None:
        return state.log_alpha

    def _past_after(self, past: Tensor, x: Tensor) -> Tensor:
        if not self.observation.n_past:
            return past
        if self.make_past_filter is not None and self._is_uncertain(past, x):
            return self._narrowed(self._past_filter.advance(past, x))
        return torch.cat([past[:, 1:], x.unsqueeze(1)], dim=1)

    def _is_uncertain(self, past: Tensor, x: Tensor) -> bool:
        return past.shape[1] > self.observation.n_past or bool(torch.isnan(x).any())

    @cached_property
    def _past_filter(self) -> PastFilter:
        assert self.make_past_filter is not None, "asked where the observation looks at the past"
        return self.make_past_filter()

    def read(self, state: HMMState, x: Tensor) -> HMMState:
        """Return the state after several steps, by one forward pass over all of them.

        Args:
            state: state of the cursor before the steps.
            x: T steps of n sequences, vectors ``(n, T, D)`` or symbols ``(n, T)``.
        """
        if self._reads_inputs:
            for step in x.unbind(1):
                state = self.advance(state, step)  # raises an error if the inputs of the step are not given
            return state
        x = self._on_device(x)
        terms = self.parameters.table.numel()
        if self.observation.n_past and self._is_uncertain(state.past, x):
            width = (self.observation.n_past + 1) * self.size
            terms = max(terms, len(self.parameters.initial) * width * width)  # covariances of past and step
        for part in x.split(max(1, TERMS_AT_ONCE // (len(x) * terms)), dim=1) if x.shape[1] else []:
            state = self._read(state, part)
        return state

    def _read(self, state: HMMState, x: Tensor) -> HMMState:
        past, past_after = self.past_of_each(state, x)
        log_b, length = self._log_b(x, past), x.shape[1]
        if self._runs_compiled(len(x)):
            log_alpha, predicted, _ = self._filter(state.log_predicted, log_b)
        else:
            whole = Segments.whole([length] * len(x), x.device)
            packed = LogDensities(whole.packing.pack(log_b.flatten(0, 1)))
            parameters = self.parameters
            trellis = Trellis.of(parameters.initial, parameters.transition, packed, whole, parameters.final)
            log_alpha = log_alpha_and_steps(trellis, state.log_predicted[whole.packing.order])[0][whole.packing.last]
            predicted = self._predict(log_alpha)
        return HMMState(log_alpha, predicted, past_after, state.n_scored + length)

    def read_and_score(self, state: HMMState, x: Tensor) -> tuple[HMMState, Tensor]:
        """Return the state after several steps, and the log-probability of each step given those before it.

        The recursion goes step by step in the log domain, so that the rounding of a step does not depend on later ones.

        Args:
            state: state of the cursor before the steps.
            x: T steps of n sequences, vectors ``(n, T, D)`` or symbols ``(n, T)``.

        Returns:
            The new state, and log p(x_t | x_<t) in nats, ``(n, T)`` float64.
        """
        x = self._on_device(x)
        past, past_after = self.past_of_each(state, x)
        log_alpha, predicted, log_prob = self._filter(state.log_predicted, self._log_b(x, past))
        if self.parameters.final is not None and not state.n_scored:
            log_prob[:, 0] -= self._log_first(state)
        return HMMState(log_alpha, predicted, past_after, state.n_scored + x.shape[1]), log_prob

    def _filter(self, log_predicted: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run the forward pass over T steps of n sequences.

        Args:
            log_predicted: log-probabilities of the first step's states before it is seen, ``(n, K)``.
            log_b: log-densities of the steps, ``(n, T, K)``.

        Returns:
            Log-probabilities of the states after the last step, ``(n, K)``; of the state after one more transition,
            ``(n, K)``; and log p(x_t | x_<t) of each step, ``(n, T)``.
        """
        n, n_steps, _ = log_b.shape
        if self._runs_compiled(n):
            rows = log_b.transpose(0, 1).flatten(0, 1).contiguous().numpy()  # time by time
            filtered = self._chain.filter(log_predicted.contiguous().numpy(), rows)
            log_alpha, log_predicted, steps = map(torch.from_numpy, filtered)
            return log_alpha[-n:], log_predicted, steps.view(n_steps, n).T.contiguous()
        log_b, peak = relative_to_largest(log_b)
        each = []
        for log_b_t in log_b.unbind(1):
            joint = log_predicted + log_b_t
            scale = torch.logsumexp(joint, -1, keepdim=True)
            # After an impossible step all later steps are impossible too, as in the evaluation in batches.
            log_alpha = joint - finite(scale)
            log_predicted = self._predict(log_alpha)
            each.append(scale)
        return log_alpha, log_predicted, torch.cat(each, 1) + peak.squeeze(-1)

    def past_of_each(self, state: HMMState, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the p steps before each of several steps, and the p steps before the one after them.

        They are what an autoregressive observation reads. If the observation reads no past steps, the first result is
        None.

        Args:
            state: state of the cursor before the steps.
            x: T steps of n sequences, ``(n, T, D)``.

        Returns:
            Arrays ``(n, T, p, D)`` and ``(n, p, D)``. Once values were missing, means and covariances take their place,
            with ``p + p²D`` instead of p rows.
        """
        n_past = self.observation.n_past
        if not n_past:
            return None, state.past
        x = self._on_device(x)
        if not self._is_uncertain(state.past, x):
            history = torch.cat([state.past, x], dim=1)  # (n, p + T, D)
            past = history.unfold(1, n_past, 1)[:, : x.shape[1]].transpose(-1, -2)
            return past, history[:, history.shape[1] - n_past :]
        each, after, t = [], state.past, 0
        while t < x.shape[1] and not self._is_known(after):
            each.append(after.unsqueeze(1))
            after, t = self._past_after(after, x[:, t]), t + 1
        if t < x.shape[1]:
            rest, after = self._past_with_gaps(after, x[:, t:])
            each.append(rest)
        return torch.cat(each, 1), after

    def _is_known(self, past: Tensor) -> bool:
        """Return True if no value among the last p steps of n sequences, ``past (n, p, D)``, is missing.

        Frames before the start do not count as missing if all rows have the same number of them.
        """
        if past.shape[1] > self.observation.n_past:
            return False
        is_before = past.isnan().any(-1)  # (n, p)
        return bool((is_before == is_before[:1]).all())

    def _past_with_gaps(self, past: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the p steps before each of several steps with missing values, and the p steps before the next one.

        The results have the form of ``past_of_each``. Only missing values and the steps after them are filtered, for
        all sequences side by side.

        Args:
            past: the p steps before the first, ``(n, p, D)``, without missing values.
            x: T steps of n sequences, ``(n, T, D)``, NaN where a value is missing.
        """
        n, length, n_past = len(x), x.shape[1], self.observation.n_past
        known = past[:, int(past[0].isnan().any(-1).sum()) :]
        first = known.shape[1]
        sequences = torch.cat([known, x], 1).double().cpu().numpy()
        beliefs = self._past_filter.beliefs(list(sequences))
        windows = torch.cat([past, x], 1).unfold(1, n_past, 1).transpose(-1, -2)  # (n, T + 1, p, D)
        parts = [(each, first, first + length + 1) for each in beliefs]
        wide = with_beliefs(windows.flatten(0, 1).double().cpu(), parts).unflatten(0, (n, length + 1)).to(x.device)
        is_certain = all(each is None or each.steps[-1] < first + length for each in beliefs)
        return wide[:, :length], windows[:, length] if is_certain else wide[:, length]

    def _narrowed(self, past: Tensor) -> Tensor:
        """Return the last p steps without their covariances if these are all zero, and unchanged otherwise.

        ``past (n, p + p²D, D)`` has p rows of means and then covariances; the result is ``(n, p, D)`` if values are
        known.
        """
        n_past = self.observation.n_past
        return past if bool(past[:, n_past:].any()) else past[:, :n_past].to(self.dtype)

    def widened(self, past: Tensor) -> Tensor:
        """Return the last p steps with their covariances, ``(n, p + p²D, D)``: p rows of means, then covariances.

        Steps ``past (n, p, D)`` without missing values get covariances of zero; a ``past`` that has covariances already
        is returned unchanged.
        """
        observation = self.observation
        assert isinstance(observation, AutoregressiveGaussian), "no other has a past that may miss values"
        history, spread = observation.split_past(past.double())
        if spread is not None:
            return past
        width = history.shape[-1]
        return observation.join_past(history, history.new_zeros(len(history), width, width))

    def _log_b(self, x: Tensor, past: Tensor | None) -> Tensor:
        """Return the log-density of each of several steps in each hidden state, in nats, ``(n, T, K)`` float64.

        Args:
            x: T steps of n sequences, vectors ``(n, T, D)`` or symbols ``(n, T)``.
            past: the p steps before each of them, ``(n, T, p, D)``; None if the observation reads none.
        """
        if self._densities is not None:
            return torch.from_numpy(self._densities(x.flatten(0, 1).numpy())).view(*x.shape[:2], -1)
        past = None if past is None else past.unsqueeze(2)  # (n, T, 1, p, D)
        return self.observation.log_prob(self._table_of_all, x.unsqueeze(2), past).double()

    def predictions_ahead(self, state: HMMState, k: int) -> list[Prediction] | None:
        """Return the distribution of each of the next k steps when none of the steps before it is seen.

        Each is conditional on the sequence having that step, and is the mixture of what the states emit, weighted with
        ``p(z_T+h | x_1 .. x_T) = p(z_T | x_1 .. x_T) A^h``, where A are the transitions. An autoregression of one state
        is Gaussian at every step, also where values of its past are missing; with a background it is a mixture of two
        Gaussians from the second step on, of which that of paths with a jump has only the right mean and covariance. So
        have those of an autoregression that is integrated over its posterior, whose first step is Student t.
        Return None where there is no closed form, which is for an autoregression of several states, or after fewer
        steps than its order.

        Args:
            state: state of the cursor after the steps so far.
            k: number of steps ahead.
        """
        if self.observation.n_past:
            return self._autoregression_ahead(state, k)
        predictions = [self.distribution(state)]
        if k > 1 and self._runs_compiled(len(state.past)):
            return [*predictions, *self._compiled_ahead(state, k - 1)]
        for _ in range(k - 1):
            total = torch.logsumexp(state.log_predicted, -1, keepdim=True)
            log_alpha = state.log_predicted - finite(total)
            state = HMMState(log_alpha, self._predict(log_alpha), state.past, state.n_scored + 1)
            predictions.append(self.distribution(state))
        return predictions

    def _compiled_ahead(self, state: HMMState, k: int) -> list[Prediction]:
        """Return the distributions of the 2nd to the (k + 1)-th next step given the steps so far, by compiled loops.

        Args:
            state: state of the cursor after the steps so far.
            k: number of distributions.
        """
        n, n_states = state.log_predicted.shape
        unseen, before = np.zeros(((k + 1) * n, n_states)), state.log_predicted.contiguous().numpy()
        log_alpha, _, log_prob = map(torch.from_numpy, self._chain.filter(before, unseen))
        beliefs, totals = log_alpha.view(-1, n, n_states), log_prob.view(-1, n)
        table = self._table(state)
        if self.parameters.final is None:
            return [Prediction(self.observation, table, belief, None, None) for belief in beliefs[1:]]
        log_ends = torch.logsumexp(beliefs + self._log_final, -1)  # (k + 1, n)
        each = zip(beliefs[1:], log_ends[:-1], totals[1:], strict=True)
        return [Prediction(self.observation, table, belief, None, *end) for belief, *end in each]

    def _autoregression_ahead(self, state: HMMState, k: int) -> list[Prediction] | None:
        has_one_state = len(self.parameters.initial) == 1
        if not isinstance(self.observation, AutoregressiveGaussian) or not has_one_state or state.past.isnan().any():
            return None
        steps = gaussian_steps(self.observation, self.parameters.table[0], state.past.double(), k)
        first, n_components = self.distribution(state), 1 + (self.observation.background > 0)
        mixture = GaussianMixture(n_components, "full", min_covariance=SMALLEST_VARIANCE)
        tables = [
            torch.cat([each.log_weights, each.means.flatten(1), shape_of_covariance(each.covariances).flatten(1)], 1)
            for each in steps
        ]
        following = [replace(first, observation=mixture, output_parameters=t.unsqueeze(1), past=None) for t in tables]
        return [first, *following[1:]]

    def draw_path(
        self, state: HMMState, n_steps: int, generator: torch.Generator, *, may_end: bool
    ) -> Iterator[Draws] | None:
        """Return an iterator over draws of the next steps; the path of hidden states is drawn before what it emits.

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
        from seqmodels.hmm.drawn_steps import StatesOfChain, drawn_steps, emitted_by

        log_end = self._log_end(state)
        if log_end is None:
            log_end = torch.full_like(state.log_predicted[:, 0], -torch.inf)
        states = StatesOfChain(torch.cat([state.log_predicted, log_end[:, None]], 1), self.parameters.transition, final)
        emit, size = emitted_by(self.observation, self._table_of_all), len(log_end) * self._table_of_all.shape[1]
        return drawn_steps(states, emit, size, n_steps, generator, may_end=final is not None)

    @cached_property
    def _predict(self) -> LogProduct:
        return LogProduct(self.parameters.transition)

    @cached_property
    def _chain(self) -> ChainInLoops:
        from seqmodels.hmm.chain_in_loops import ChainInLoops

        return ChainInLoops(self.parameters.transition, self._predict.least_exact)

    @cached_property
    def _log_initial(self) -> Tensor:
        return self.parameters.initial.log()


class GaussianStep(NamedTuple):
    """The distribution of a step ahead of each of n sequences, a mixture of M Gaussians of D features.

    Attributes:
        log_weights: logarithms of the weights of the Gaussians, ``(n, M)``.
        means: their means, ``(n, M, D)``.
        covariances: their covariance matrices, ``(n, M, D, D)``.
    """

    log_weights: Tensor
    means: Tensor
    covariances: Tensor


def gaussian_steps(
    observation: AutoregressiveGaussian, output_parameters: Tensor, past: Tensor, k: int
) -> list[GaussianStep]:
    """Return the distributions of the next k steps of an autoregression of one state, none of which is seen.

    With ``x = A s + c + e``, where s are the p steps before x and Σ is the covariance of e, the mean of a step is
    ``A E[s] + c`` and its covariance ``A Cov[s] Aᵀ + Σ`` (Lütkepohl 2005, *New introduction to multiple time series
    analysis*, section 2.2). If the regression is integrated over its posterior, Σ is the mean covariance of e given s,
    and only mean and covariance are those of the model: one step ahead it is Student t, and later steps have no closed
    form. With a background these are of paths without a jump, and a second Gaussian has the weight, mean and covariance
    of all paths with at least one. Both are in encoded units.

    Args:
        observation: the autoregression.
        output_parameters: its coefficients, intercepts and covariances as the P numbers that it takes, ``(P,)``.
        past: the last p steps, ``(n, p, D)``, or with missing values their means and covariances, ``(n, p + p²D, D)``.
        k: number of steps.
    """
    size, order, w = past.shape[-1], observation.order, observation.background
    matrix, intercept, noise, *_ = observation.regression(output_parameters.double(), size)
    width = order * size
    shift = torch.eye(width, dtype=torch.float64, device=past.device)[size:]  # the steps kept, one place further back

    def innovations(mean: Tensor, covariance: Tensor) -> Tensor:
        wider = observation.variance_factor(output_parameters.double(), mean, covariance)
        return noise if wider is None else wider[:, None, None] * noise

    regression = torch.cat([shift, matrix]), intercept, innovations
    last = torch.eye(width, dtype=torch.float64, device=past.device)[-size:]
    broad = BACKGROUND_COVARIANCE * torch.eye(size).to(noise)
    jump = torch.cat([shift, last]), torch.zeros_like(intercept), lambda mean, covariance: broad

    def moved(mean: Tensor, covariance: Tensor, by: tuple[Tensor, Tensor, Any]) -> tuple[Tensor, Tensor]:
        transition, constant, noise_of = by
        added = noise_of(mean, covariance)
        mean, covariance = mean @ transition.mT, transition @ covariance @ transition.mT
        mean[:, -size:] += constant
        covariance[:, -size:, -size:] += added
        return mean, 0.5 * (covariance + covariance.mT)

    history, spread = observation.split_past(past)  # (n, pD), (1 or n, pD, pD)
    if spread is None:
        spread = history.new_zeros(len(history) if observation.predictive == "posterior" else 1, width, width)
    plain, jumped, steps = (history, spread), (history, spread), []
    for h in range(1, k + 1):
        log_plain, was_plain = h * math.log1p(-w), (1 - w) ** (h - 1)
        if w:
            weights = torch.tensor([was_plain * w, (1 - was_plain) * (1 - w), (1 - was_plain) * w], dtype=torch.float64)
            each = moved(*plain, jump), moved(*jumped, regression), moved(*jumped, jump)
            stacked = (torch.stack(torch.broadcast_tensors(*parts)) for parts in zip(*each, strict=True))
            jumped = _moments_of_mixture(weights / weights.sum(), *stacked)
        plain = moved(*plain, regression)
        both = (plain, jumped) if w else (plain,)
        means = torch.stack([mean[:, -size:] for mean, _ in both], 1)
        ends = [covariance[:, -size:, -size:].expand(len(means), -1, -1) for _, covariance in both]
        covariances = torch.stack(ends, 1)
        log_weights = means.new_tensor([log_plain, math.log(-math.expm1(log_plain))] if w else [0.0])
        steps.append(GaussianStep(log_weights.expand(len(means), -1), means, covariances))
    return steps


def _moments_of_mixture(weights: Tensor, means: Tensor, covariances: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means ``(n, q)`` and covariances ``(n, q, q)`` of mixtures of M distributions.

    Args:
        weights: weights of the components, ``(M,)``.
        means, covariances: those of the components, ``(M, n, q)`` and ``(M, n, q, q)``.
    """
    weights = weights.to(means)
    mean = torch.einsum("m,mnq->nq", weights, means)
    apart = means - mean
    between = torch.einsum("m,mnq,mnr->nqr", weights, apart, apart)
    return mean, torch.einsum("m,mnqr->nqr", weights, covariances) + between
