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
    """A fitted model as a chain of one-step predictions, for ``n`` sequences at once.

    Its steps are encoded steps: numbers of symbols, or vectors as the model reads them (standardised, for example).
    ``SequenceModel.cursor()`` makes one and computes what all steps share (tables of inputs, packed weights); many
    sequences can start from it. States are values: ``advance`` and ``select`` do not change the state that they are
    given, so several continuations can start from one state. Steps and indices may be on any device.
    """

    def start(self, source: Source = None, n: int = 1) -> CursorState:
        """Return the state of ``n`` sequences before the first step.

        ``source`` is one encoded source for all n sequences, or a list with one for each, of equal length unless the
        model pads sources.
        """

    def advance(self, state: CursorState, x: Tensor) -> CursorState:
        """Return the state after the next step of each sequence: vectors ``x (n, D)`` or symbols ``x (n,)``."""

    def distribution(self, state: CursorState) -> Prediction:
        """Return the distribution of the next step of each sequence."""

    def select(self, state: CursorState, index: Tensor) -> CursorState:
        """Return the state of only the sequences ``index (m,)``, in this order; an index may occur more than once."""


@dataclass(frozen=True)
class Prediction:
    """The distribution of the next step of n sequences: a mixture of K components, and perhaps an end.

    Attributes:
        observation: family of the distribution of a step within a component, such as a Gaussian mixture.
        output_parameters: parameters of that distribution for each component, ``(n, K, P)``.
        log_weights: normalised log-weights of the components, ``(n, K)``, all -inf if no next step is possible; None if
            K is 1.
        past: the p last steps, ``(n, p, D)``, for observations that depend on them; else None.
        log_end: log-probability that the sequence has ended, ``(n,)``; None if its length is given.
        exact_log_continue: log-probability that it continues, ``(n,)``, if known to more digits than ``log(1 -
            exp(log_end))`` has; else None.
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
        """Return the log-probability that the sequence continues with ``x``, ``(n,)`` nats."""
        return self._sum_components(self.log_prob_by_component(x)) + self.log_continue

    def log_prob_by_component(self, x: Tensor) -> Tensor:
        """Return the log-probability of ``x`` under each component if the sequence continues, ``(n, K)`` nats."""
        past = None if self.past is None else self.past.unsqueeze(1)
        # A stream's steps come in float64, and from the CPU.
        x = x.to(self.output_parameters) if x.is_floating_point() else x.to(self.output_parameters.device)
        return self.observation.log_prob(self.output_parameters, x.unsqueeze(1), past)

    @torch.no_grad()
    def full_conditionals(self, x: Tensor) -> Tensor:
        """Return ``log p(x_d | the other features of x, the past)`` in nats, given that the sequence continues.

        The result is ``(n, D)`` float64, a density of the values as the model reads them. It is NaN if the other
        features already have probability zero, and 0 for a missing feature.

        Raises:
            ValueError: if the features cannot be summed out of the observation's density.
        """
        past = None if self.past is None else self.past.unsqueeze(1)
        x = x.to(self.output_parameters).unsqueeze(1)
        components = self.observation.full_conditionals(self.output_parameters, x, past)  # of (n, K, D)
        return full_conditionals_of_mixture(self._log_weights().double(), components).each.double()

    def log_probs(self, *, with_end: bool = True) -> Tensor:
        """Return the log-probability of every next symbol in nats, ``(n, V)`` float64.

        If the model predicts ends, the result is ``(n, V + 1)`` with the end last; with ``with_end=False`` it is
        conditioned on the sequence continuing, ``(n, V)``.
        """
        log_probs = self._sum_components(self.observation.log_probs(self.output_parameters.double()))  # (n, V)
        if not with_end or self.log_end is None:
            return log_probs
        log_continue = torch.as_tensor(self.log_continue).double()
        return torch.cat([log_probs + log_continue.unsqueeze(-1), self.log_end.double().unsqueeze(-1)], dim=-1)

    def _sum_components(self, log_prob: Tensor) -> Tensor:
        """Return the log-probabilities of the mixture, ``(n, ...)``, given those of each component, ``(n, K, ...)``."""
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
        """Return the weights of the components, ``(n, K)``, which are uniform if there is no next step.

        So every row can be sampled.
        """
        if self.log_weights is None:
            return self.output_parameters.new_ones(len(self.output_parameters), 1)
        return torch.where(self.has_no_next_step.unsqueeze(-1), 1 / self.log_weights.shape[-1], self.log_weights.exp())

    def _log_weights(self) -> Tensor:
        """Return the logarithm of ``weights``, ``(n, K)``, finite even if a weight underflows."""
        if self.log_weights is None:
            return self.output_parameters.new_zeros(len(self.output_parameters), 1)
        return torch.where(self.has_no_next_step.unsqueeze(-1), -math.log(self.log_weights.shape[-1]), self.log_weights)

    def as_distribution(self, shift: Tensor, scale: Tensor) -> Any:
        """Return the prediction for the first sequence as a Pyro distribution on the CPU.

        For symbols of unknown length, the end is one more category, the last. For vectors, it is the distribution of
        raw values ``shift + scale * x``, conditioned on the sequence continuing. Its attribute ``p_end`` is the
        probability that the sequence ends here, 0 if lengths are given.

        Args:
            shift, scale: map from the values that the model reads to raw values, ``(D,)`` each.

        Raises:
            ValueError: if the past has probability zero, or if the dtype cannot hold the distribution.
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
    """A cursor that predicts several steps ahead without drawing the steps between."""

    def predictions_ahead(self, state: CursorState, k: int) -> list[Prediction] | None:
        """Return the predictions of the next k steps given only the steps read so far; None if there is no closed form.

        The prediction of step h is conditioned on the sequence having h steps more; its ``log_continue`` is the
        log-probability of that given h - 1 steps more.
        """


@runtime_checkable
class ReadingCursor(Cursor, Protocol):
    """A cursor that reads many known steps at once, which is faster than one after another."""

    def read(self, state: CursorState, x: Tensor) -> CursorState:
        """Return the state after the next T steps, vectors ``x (n, T, D)`` or symbols ``x (n, T)``, with T ≥ 1."""


@runtime_checkable
class DrawingCursor(Cursor, Protocol):
    """A cursor that draws several symbols in one call, which is faster than one after another."""

    def n_drawn_at_once(self, state: CursorState) -> int:
        """Return the most steps that ``draw`` can draw from this state; 0 means that it must not be called."""

    def draw(
        self, state: CursorState, x: Tensor, uniform: Tensor, *, may_end: bool
    ) -> tuple[Tensor, Tensor | None, CursorState]:
        """Draw the next T symbols of each sequence: read ``x``, draw the next symbol as the new ``x``, and repeat.

        Args:
            state: state before the step of ``x``.
            x: the symbols drawn last, ``(n,)``.
            uniform: uniform random numbers ``(T, n)``, float64, to which the inverse cdf of the predictions is applied.
            may_end: False conditions the draws on the sequences continuing.

        Returns:
            The symbols drawn, ``(T, n)``; whether their sequence ended before them, bool ``(T, n)``, None if sequences
            never end; and the state before the step of the last symbols.
        """


class SingleSteps(Protocol):
    """A reader of one sequence, step by step on the CPU, in the form in which a single step is fastest.

    It has a form of its own for a state, which is called ``at``. A state is a value: ``advance`` does not change it.
    """

    def enter(self, state: CursorState) -> Any:
        """Return the cursor's ``state`` of one sequence converted to this reader's form."""

    def leave(self, at: Any) -> CursorState:
        """Return this reader's state ``at`` converted to a state of the cursor."""

    def advance(self, at: Any, x: np.ndarray) -> tuple[Any, float]:
        """Return the state after the next step x, and the log-probability of continuing with x, in nats.

        Args:
            at: state in this reader's form.
            x: the step, a vector ``(D,)`` or a symbol ``()``.
        """


@runtime_checkable
class SteppingCursor(Cursor, Protocol):
    """A cursor that reads one sequence step by step faster than by ``distribution`` and ``advance``."""

    def single_steps(self) -> SingleSteps | None:
        """Return the cursor's reader of single steps; None if it would be no faster."""


class StepsOnStates:
    """A base class of readers of single steps that use the cursor's own states; subclasses define ``advance``."""

    def enter(self, state: Any) -> Any:
        return state

    def leave(self, at: Any) -> Any:
        return at


class ScoringCursor(Cursor, Protocol):
    """A cursor that returns the log-probability of a step while it reads the step."""

    def advance_and_score(self, state: CursorState, x: Tensor) -> tuple[CursorState, Tensor]:
        """Return the state after the step ``x`` of each sequence, and ``log p(x_t | x_<t)``, ``(n,)`` float64 nats."""


@dataclass(frozen=True)
class ScoredSteps(StepsOnStates):
    """A reader of single steps that calls a cursor's ``advance_and_score``."""

    cursor: ScoringCursor

    def advance(self, at: CursorState, x: np.ndarray) -> tuple[CursorState, float]:
        after, log_prob = self.cursor.advance_and_score(at, torch.as_tensor(x).unsqueeze(0))
        return after, float(log_prob)


@dataclass(frozen=True)
class StepsOfCursor(StepsOnStates):
    """A reader of single steps for any cursor, which uses its predictions."""

    cursor: Cursor

    def advance(self, at: CursorState, x: np.ndarray) -> tuple[CursorState, float]:
        value, prediction = torch.as_tensor(x).unsqueeze(0), self.cursor.distribution(at)
        nats = float(prediction.log_prob(value.to(prediction.output_parameters.device)))
        return self.cursor.advance(at, value), nats


def single_steps(cursor: Cursor) -> SingleSteps:
    """Return the fastest reader of single steps for a cursor."""
    steps = cursor.single_steps() if isinstance(cursor, SteppingCursor) else None
    return StepsOfCursor(cursor) if steps is None else steps


def read_steps(cursor: Cursor, state: CursorState, x: Tensor) -> CursorState:
    """Return the state after T known steps, vectors ``x (n, T, D)`` or symbols ``(n, T)``; T may be 0."""
    if isinstance(cursor, ReadingCursor):
        for part in x.split(STEPS_AT_ONCE, dim=1) if x.shape[1] else ():
            state = cursor.read(state, part)
        return state
    for step in x.unbind(1):
        state = cursor.advance(state, step)
    return state


def select_rows(state: StateT, index: Tensor) -> StateT:
    """Return only the sequences ``index`` of a state that consists of nested tensors, one row per sequence."""
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
    """Return the state of ``n`` sequences that all begin with the encoded steps ``prefix``.

    ``source`` is one encoded source for all of them, a list with one for each, or None.
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

    Raises:
        ValueError: if ``source`` is a list with another number of sources.
    """
    if not isinstance(source, list):
        return [source] * n
    if len(source) != n:
        raise ValueError(f"there are {len(source)} sources for {n} sequences; pass one for each")
    return [*source]


def stacked_sources(source: Source, n: int) -> Tensor | None:
    """Return the sources of ``n`` sequences as one tensor, ``(n, S, D)`` or ``(n, S)``; None if there are none.

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
