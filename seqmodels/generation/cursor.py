"""A model as a chain of one-step predictions for n sequences at once: ``Cursor``, and the ``Prediction`` of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from seqmodels.observations import Observation
from seqmodels.observations.base import full_conditionals_of_mixture

# The encoded source of n sequences: one for all of them, a list with one for each, or None.
Source = np.ndarray | list[np.ndarray] | None

# A tensor whose first axis is the batch, or a tuple or a frozen dataclass of such, of None and of plain numbers.
CursorState = Any
StateT = TypeVar("StateT")

STEPS_AT_ONCE = 1024  # steps read in one call, because a network holds its activations of all of them in memory

# Histories merged in groups: the indices of the histories in each group, and one state for all of them.
MergedStates = list[tuple[list[int], CursorState]]


class Cursor(Protocol):
    """An interface to run a fitted model step by step on ``n`` sequences at once, predicting and reading each step.

    ``start`` returns a state, ``distribution`` predicts the next step from it, and ``advance`` returns the state after
    that step. Steps are encoded: numbers of symbols, or vectors as the model reads them (standardised, for example).
    ``SequenceModel.cursor()`` makes a cursor, which computes once what all steps share, and many sequences can start
    from it. States are values: ``advance`` and ``select`` do not change the state that they are given, so several
    continuations can start from one state. Steps and indices may be on any device.
    """

    def start(self, source: Source = None, n: int = 1) -> CursorState:
        """Return the state of ``n`` sequences before the first step.

        Args:
            source: encoded source that the sequences are conditioned on, symbols ``(S,)`` or vectors ``(S, D)``: one
                for all of them, or a list with one for each, of equal length unless the model pads sources. None for a
                model of p(x).
            n: number of sequences.
        """

    def advance(self, state: CursorState, x: Tensor) -> CursorState:
        """Return the state after each of n sequences has continued by one known step.

        Args:
            state: state before the step, which is not changed.
            x: the step of each sequence, a vector of D features, ``(n, D)``, or a symbol, ``(n,)``.
        """

    def distribution(self, state: CursorState) -> Prediction:
        """Return the predicted distribution of the next step of each sequence, given the state before that step."""

    def select(self, state: CursorState, index: Tensor) -> CursorState:
        """Return the part of a state that belongs to some of its sequences.

        Args:
            state: state of n sequences, which is not changed.
            index: indices of the sequences in the order of the result, ``(m,)``; an index may occur more than once.
        """


@dataclass(frozen=True)
class Prediction:
    """The predicted distribution of the next step of n sequences: a mixture of K components, and possibly an end.

    Attributes:
        observation: family of the distribution of a step within a component, such as a Gaussian mixture.
        output_parameters: the P parameters of that distribution for each component, ``(n, K, P)``, in the order that
            the observation defines.
        log_weights: normalised log-weights of the components, ``(n, K)``, all -inf if no next step is possible; None if
            K is 1.
        past: the p last steps of D features, ``(n, p, D)``, for observations that depend on them; else None.
        log_end: log-probability that the sequence has ended, ``(n,)``; None if its length is given.
        exact_log_continue: log-probability that it continues, ``(n,)``, if known to more digits than
            ``log(1 - exp(log_end))`` has; else None.
    """

    observation: Observation
    output_parameters: Tensor
    log_weights: Tensor | None
    past: Tensor | None
    log_end: Tensor | None
    exact_log_continue: Tensor | None = None

    def cpu(self) -> Prediction:
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        moved = {name: x.cpu() for name, x in tensors.items() if isinstance(x, Tensor)}
        return replace(self, observation=self.observation.on_cpu(), **moved)

    @torch.no_grad()
    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log-probability that each sequence continues, and with the step ``x``, in nats, ``(n,)``.

        Args:
            x: the next step of each of n sequences, a vector of D features, ``(n, D)``, or a symbol, ``(n,)``.
        """
        return self._sum_components(self.log_prob_by_component(x)) + self.log_continue

    def log_prob_by_component(self, x: Tensor) -> Tensor:
        """Return the log-probability of a step under each of K mixture components, given that the sequence continues.

        Args:
            x: the next step of each of n sequences, a vector of D features, ``(n, D)``, or a symbol, ``(n,)``.

        Returns:
            The log-probabilities in nats, ``(n, K)``, without the weights of the components.
        """
        past = None if self.past is None else self.past.unsqueeze(1)
        # A stream's steps come in float64, and from the CPU.
        x = x.to(self.output_parameters) if x.is_floating_point() else x.to(self.output_parameters.device)
        return self.observation.log_prob(self.output_parameters, x.unsqueeze(1), past)

    @torch.no_grad()
    def full_conditionals(self, x: Tensor) -> Tensor:
        """Return the log-density of each feature of a step given its other features and the steps before it, in nats.

        It is ``log p(x_d | the other features of x, the past)``, given that the sequence continues.

        Args:
            x: the next step of each of n sequences, with D features, ``(n, D)``; NaN is missing.

        Returns:
            The log-densities of the values as the model reads them, ``(n, D)`` float64. They are NaN if the other
            features already have probability zero, and 0 for a missing feature.

        Raises:
            ValueError: if the features cannot be summed out of the observation's density.
        """
        past = None if self.past is None else self.past.unsqueeze(1)
        x = x.to(self.output_parameters).unsqueeze(1)
        components = self.observation.full_conditionals(self.output_parameters, x, past)  # of (n, K, D)
        return full_conditionals_of_mixture(self._log_weights().double(), components).each.double()

    def log_probs(self, *, with_end: bool = True) -> Tensor:
        """Return the log-probability of each of V symbols as the next one, in nats, ``(n, V)`` float64.

        If the model predicts ends, the result is ``(n, V + 1)`` with the end last; with ``with_end=False`` it is
        conditioned on the sequence continuing, ``(n, V)``.
        """
        log_probs = self._sum_components(self.observation.log_probs(self.output_parameters.double()))  # (n, V)
        if not with_end or self.log_end is None:
            return log_probs
        log_continue = torch.as_tensor(self.log_continue).double()
        return torch.cat([log_probs + log_continue.unsqueeze(-1), self.log_end.double().unsqueeze(-1)], dim=-1)

    def _sum_components(self, log_prob: Tensor) -> Tensor:
        """Return the log-probability of the mixture, ``(n, ...)``, given that of each component, ``(n, K, ...)``."""
        if self.log_weights is None:
            return log_prob.squeeze(1)
        log_weights = self.log_weights.view(*self.log_weights.shape, *[1] * (log_prob.ndim - 2))
        return torch.logsumexp(log_weights + log_prob, dim=1)

    @property
    def log_continue(self) -> Tensor | float:
        """The log-probability that the sequence continues, ``(n,)``, or 0.0 if lengths are given."""
        if self.exact_log_continue is not None:
            return self.exact_log_continue
        return 0.0 if self.log_end is None else torch.log(-torch.expm1(self.log_end))

    @property
    def has_no_next_step(self) -> Tensor:
        """Whether no next step is possible, bool ``(n,)``: the sequence must end, or has probability zero already."""
        if self.log_weights is None:
            return torch.zeros(len(self.output_parameters), dtype=torch.bool, device=self.output_parameters.device)
        return torch.isneginf(self.log_weights).all(-1)

    def weights(self) -> Tensor:
        """Return the weights of the K mixture components, ``(n, K)``; they are uniform if no next step is possible.

        Every row can therefore be sampled.
        """
        if self.log_weights is None:
            return self.output_parameters.new_ones(len(self.output_parameters), 1)
        return torch.where(self.has_no_next_step.unsqueeze(-1), 1 / self.log_weights.shape[-1], self.log_weights.exp())

    def _log_weights(self) -> Tensor:
        """Return the log-weights of the K components, ``(n, K)``; they are uniform for sequences without a next step.

        They are finite even if a weight underflows.
        """
        if self.log_weights is None:
            return self.output_parameters.new_zeros(len(self.output_parameters), 1)
        return torch.where(self.has_no_next_step.unsqueeze(-1), -math.log(self.log_weights.shape[-1]), self.log_weights)

    def as_distribution(self, shift: Tensor, scale: Tensor) -> Any:
        """Return the prediction for the first sequence as a Pyro distribution on the CPU.

        For symbols of unknown length, the end is one more category, the last. For vectors, it is the distribution of
        raw values ``shift + scale * x``, conditioned on the sequence continuing. Its attribute ``p_end`` is the
        probability that the sequence ends here, 0 if lengths are given.

        Args:
            shift, scale: map from the D features that the model reads to raw values, each ``(D,)``; not used for
                symbols.

        Raises:
            ValueError: if the steps before have probability zero, or if the dtype cannot hold the distribution.
        """
        import pyro.distributions as dist

        if self.output_parameters.device.type != "cpu":
            return self.cpu().as_distribution(shift, scale)
        if self.has_no_next_step[0] and (self.log_end is None or self.log_end[0] < 0):
            raise ValueError("what came before has probability zero, so the next step has no distribution")
        past = None if self.past is None else self.past[:1]
        log_weights = self._log_weights()[0].to(self.output_parameters.dtype)  # an HMM's belief is float64
        try:
            result = self.observation.distribution(
                self.output_parameters[0], log_weights=log_weights, past=past, shift=shift, scale=scale
            )
        except ValueError as error:  # parameters that are no number, or infinite
            raise ValueError(
                "the distribution of the next step exceeds what "
                f"{self.output_parameters.dtype} can hold; rescale the values that are far from the training data"
            ) from error
        if self.log_end is None:
            result.p_end = 0.0
            return result
        if self.observation.emits == "symbols":
            log_continue = torch.as_tensor(self.log_continue)[0]
            result = dist.Categorical(
                logits=torch.cat([result.logits + log_continue, self.log_end[:1]]), validate_args=True
            )
        result.p_end = float(self.log_end[0].exp())
        return result


@runtime_checkable
class ClosedFormCursor(Cursor, Protocol):
    """A cursor that predicts several steps ahead in closed form, without drawing the steps between."""

    def predictions_ahead(self, state: CursorState, k: int) -> list[Prediction] | None:
        """Return the predictions of the next k steps given only the steps read so far; None if there is no closed form.

        The prediction of step h is conditioned on the sequence having h more steps. Its ``log_continue`` is the
        log-probability of step h given that there were h - 1 more steps.
        """


@runtime_checkable
class ReadingCursor(Cursor, Protocol):
    """A cursor that reads many known steps at once, which is faster than one after another."""

    def read(self, state: CursorState, x: Tensor) -> CursorState:
        """Return the state after the next T ≥ 1 known steps of each of n sequences.

        Args:
            state: state before these steps, which is not changed.
            x: the steps, vectors of D features, ``(n, T, D)``, or symbols, ``(n, T)``.
        """


@runtime_checkable
class DrawingCursor(Cursor, Protocol):
    """A cursor that draws several symbols in one call, which is faster than one after another."""

    def n_drawn_at_once(self, state: CursorState) -> int:
        """Return the most steps that ``draw`` can draw from a given state; 0 means that it must not be called."""

    def draw(
        self, state: CursorState, x: Tensor, uniform: Tensor, *, may_end: bool
    ) -> tuple[Tensor, Tensor | None, CursorState]:
        """Draw the next T symbols of n sequences: read ``x``, draw the next symbol as the new ``x``, and repeat.

        Args:
            state: state before ``x`` is read.
            x: the symbols drawn last, ``(n,)``.
            uniform: uniform random numbers ``(T, n)``, float64, to which the inverse cdf of the predictions is applied.
            may_end: False conditions the draws on the sequences continuing.

        Returns:
            The symbols drawn, ``(T, n)``; whether their sequence ended before them, bool ``(T, n)``, None if sequences
            never end; and the state before the last symbols are read.
        """


class SingleSteps(Protocol):
    """An interface to read one sequence step by step on the CPU, with a form of state that makes single steps fast.

    A state in this form is called ``at``. It is a value: ``advance`` does not change it.
    """

    def enter(self, state: CursorState) -> Any:
        """Convert a cursor's state of one sequence to this reader's own form of a state, and return it."""

    def leave(self, at: Any) -> CursorState:
        """Convert a state in this reader's own form to a state of the cursor, and return it."""

    def advance(self, at: Any, x: np.ndarray) -> tuple[Any, float]:
        """Read the next step, and return the state after it and the log-probability of continuing with it, in nats.

        Args:
            at: state in this reader's own form.
            x: the step as the model reads it, a vector of D features, ``(D,)``, or a symbol, ``()``.
        """


@runtime_checkable
class SteppingCursor(Cursor, Protocol):
    """A cursor with a faster way to read one sequence step by step than ``distribution`` and ``advance``."""

    def single_steps(self) -> SingleSteps | None:
        """Return a reader of one sequence, step by step; None if it would be no faster than the cursor itself."""


class StepsOnStates:
    """The base class of ``SingleSteps`` readers that use the cursor's own states; subclasses define ``advance``."""

    def enter(self, state: Any) -> Any:
        return state

    def leave(self, at: Any) -> Any:
        return at


class ScoringCursor(Cursor, Protocol):
    """A cursor that returns the log-probability of a step while it reads the step."""

    def advance_and_score(self, state: CursorState, x: Tensor) -> tuple[CursorState, Tensor]:
        """Return the state after the next step of each of n sequences, and the log-probability of that step.

        Args:
            state: state before the step, which is not changed.
            x: the step of each sequence, a vector of D features, ``(n, D)``, or a symbol, ``(n,)``.

        Returns:
            The state, and ``log p(x_t | x_<t)`` in nats, ``(n,)`` float64.
        """


@dataclass(frozen=True)
class ScoredSteps(StepsOnStates):
    """A reader of one sequence, step by step, that calls the ``advance_and_score`` of a cursor."""

    cursor: ScoringCursor

    def advance(self, at: CursorState, x: np.ndarray) -> tuple[CursorState, float]:
        after, log_prob = self.cursor.advance_and_score(at, torch.as_tensor(x).unsqueeze(0))
        return after, float(log_prob)


@dataclass(frozen=True)
class StepsOfCursor(StepsOnStates):
    """A reader of one sequence, step by step, for any cursor; it uses the cursor's ``distribution`` and ``advance``."""

    cursor: Cursor

    def advance(self, at: CursorState, x: np.ndarray) -> tuple[CursorState, float]:
        value, prediction = torch.as_tensor(x).unsqueeze(0), self.cursor.distribution(at)
        nats = float(prediction.log_prob(value.to(prediction.output_parameters.device)))
        return self.cursor.advance(at, value), nats


def single_steps(cursor: Cursor) -> SingleSteps:
    """Return the fastest reader of one sequence, step by step, that a cursor has."""
    steps = cursor.single_steps() if isinstance(cursor, SteppingCursor) else None
    return StepsOfCursor(cursor) if steps is None else steps


def read_steps(cursor: Cursor, state: CursorState, x: Tensor) -> CursorState:
    """Return the state of n sequences after T known steps.

    Args:
        cursor: cursor of the model.
        state: state before these steps, which is not changed.
        x: the steps, vectors of D features, ``(n, T, D)``, or symbols, ``(n, T)``; T may be 0.
    """
    if isinstance(cursor, ReadingCursor):
        for part in x.split(STEPS_AT_ONCE, dim=1) if x.shape[1] else ():
            state = cursor.read(state, part)
        return state
    for step in x.unbind(1):
        state = cursor.advance(state, step)
    return state


def select_rows(state: StateT, index: Tensor) -> StateT:
    """Return the part of a state that belongs to some of its sequences.

    Args:
        state: a tensor whose first axis is the sequences, or a tuple or dataclass of such tensors; parts that are none
            of these are kept unchanged.
        index: indices of the sequences in the order of the result, ``(m,)``.
    """
    whole: Any = state
    selected = whole
    if isinstance(whole, Tensor):
        selected = whole.index_select(0, index.to(whole.device))
    elif isinstance(whole, tuple):
        selected = tuple(select_rows(part, index) for part in whole)
    elif is_dataclass(whole) and not isinstance(whole, type):
        selected = replace(whole, **{f.name: select_rows(getattr(whole, f.name), index) for f in fields(whole)})
    return cast(StateT, selected)


def start_after(cursor: Cursor, source: Source, prefix: Sequence[Any] | np.ndarray, n: int) -> CursorState:
    """Return the state of ``n`` sequences that all begin with the same encoded steps, after these were read.

    Args:
        cursor: cursor of the model.
        source: one encoded source for all sequences, a list with one for each, or None.
        prefix: the encoded steps, symbols ``(P,)`` or vectors ``(P, D)``; may be empty.
        n: number of sequences.
    """
    if isinstance(source, list):
        steps = torch.as_tensor(np.asarray(prefix)) if len(prefix) else torch.empty(0)
        return read_steps(cursor, cursor.start(source, n), steps.expand(n, *steps.shape))
    state = cursor.start(source, 1)
    if len(prefix):
        state = read_steps(cursor, state, torch.as_tensor(np.asarray(prefix)).unsqueeze(0))
    return state if n == 1 else cursor.select(state, torch.zeros(n, dtype=torch.int64))


def source_of_each(source: Source, n: int) -> list[np.ndarray | None]:
    """Return a list with the source of each of ``n`` sequences; the sources may differ in length.

    Args:
        source: one encoded source for all sequences, a list with one for each, or None.
        n: number of sequences.

    Raises:
        ValueError: if ``source`` is a list with another number of sources.
    """
    if not isinstance(source, list):
        return [source] * n
    if len(source) != n:
        raise ValueError(f"there are {len(source)} sources for {n} sequences; pass one for each")
    return [*source]


def stacked_sources(source: Source, n: int) -> Tensor | None:
    """Return the sources of ``n`` sequences as one tensor, ``(n, S)`` symbols or ``(n, S, D)`` vectors, or None.

    Args:
        source: one encoded source of S steps for all sequences, a list with one for each, or None.
        n: number of sequences.

    Raises:
        ValueError: if a list does not have n sources, or they differ in length.
    """
    if source is None:
        return None
    if not isinstance(source, list):
        return torch.as_tensor(source).expand(n, *source.shape)
    lengths = {len(each) for each in source}
    if len(source) != n or len(lengths) != 1:
        raise ValueError(
            f"there are {len(source)} sources of {sorted(lengths)} steps for {n} sequences; pass one for each, all of "
            "one length"
        )
    return torch.as_tensor(np.stack(source))
