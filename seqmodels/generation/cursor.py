"""A model as a chain of one-step predictions, for n sequences at once: ``Cursor``, and the ``Prediction`` of a step."""

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

# What generated sequences are conditioned on: one encoded source for all n; a list of n, one each; or none.
Source = np.ndarray | list[np.ndarray] | None

# A tensor whose first axis is the batch, or a tuple or a frozen dataclass of such, of None and of plain numbers.
CursorState = Any
StateT = TypeVar("StateT")

STEPS_AT_ONCE = 1024  # that are read together: what a network holds of them is in memory

# Histories merged in groups: the numbers of the histories in each group, and one state for them all.
MergedStates = list[tuple[list[int], CursorState]]


class Cursor(Protocol):
    """A fitted model as a chain of one-step predictions, over encoded steps, for ``n`` sequences at once.

    ``SequenceModel.cursor()`` makes one. What all steps share (tables of inputs, packed weights) is computed then,
    once, and many sequences can start from it. States are values: ``advance`` and ``select`` leave the state they are
    given as it was, so that several continuations can go on from one. Steps and indices may be on any device.
    """

    def start(self, source: Source = None, n: int = 1) -> CursorState:
        """The state before the first step; ``source`` is one encoded sequence for all n, or a list of n.

        The sources of a list are of equal length, unless the model pads sources.
        """

    def advance(self, state: CursorState, x: Tensor) -> CursorState:
        """The state after each sequence's next step, ``x (n, D)`` or ``(n,)``."""

    def distribution(self, state: CursorState) -> Prediction:
        """The prediction of the next step."""

    def select(self, state: CursorState, index: Tensor) -> CursorState:
        """The state of the sequences ``index (m,)``, in this order, some perhaps more than once (beams)."""


@dataclass(frozen=True)
class Prediction:
    """The next step of n sequences at once.

    Attributes:
        observation: how a component emits the step.
        output_parameters: ``(n, K, P)``, of the observation in each component.
        log_weights: ``(n, K)`` of the components, normalised, -inf everywhere where no next step is possible; None
            where K is 1.
        past: ``(n, p, D)`` the last steps, for observations that look at them, or None.
        log_end: ``(n,)`` log-probability that the sequence has ended; None where its length is given.
        exact_log_continue: ``(n,)`` log-probability that it goes on, where that is known to more digits than
            ``log(1 - exp(log_end))`` has.
    """

    observation: Observation
    output_parameters: Tensor
    log_weights: Tensor | None
    past: Tensor | None
    log_end: Tensor | None
    exact_log_continue: Tensor | None = None

    def cpu(self) -> Prediction:
        """The same prediction on the CPU."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        moved = {name: x.cpu() for name, x in tensors.items() if isinstance(x, Tensor)}
        return replace(self, observation=self.observation.on_cpu(), **moved)

    @torch.no_grad()
    def log_prob(self, x: Tensor) -> Tensor:
        """``(n,)`` log-probability that the sequence goes on, and with ``x``."""
        return self._sum_components(self.log_prob_by_component(x)) + self.log_continue

    def log_prob_by_component(self, x: Tensor) -> Tensor:
        """``(n, K)`` log-probability of ``x`` in each component."""
        past = None if self.past is None else self.past.unsqueeze(1)
        # A stream's steps come in float64, and from the CPU.
        x = x.to(self.output_parameters) if x.is_floating_point() else x.to(self.output_parameters.device)
        return self.observation.log_prob(self.output_parameters, x.unsqueeze(1), past)

    @torch.no_grad()
    def full_conditionals(self, x: Tensor) -> Tensor:
        """``(n, D)`` float64 ``log p(x_d | the other features of x, the past)``, encoded, given that it goes on.

        NaN where the other features are impossible already; 0 of a missing feature. ``ValueError`` for an observation
        whose features cannot be summed out.
        """
        past = None if self.past is None else self.past.unsqueeze(1)
        x = x.to(self.output_parameters).unsqueeze(1)
        components = self.observation.full_conditionals(self.output_parameters, x, past)  # of (n, K, D)
        return full_conditionals_of_mixture(self._log_weights().double(), components).each.double()

    def log_probs(self, *, with_end: bool = True) -> Tensor:
        """``(n, V)`` float64 log-probability of every symbol; where ends are events ``(n, V + 1)``, the end last.

        Without ``with_end`` given that the sequences go on, ``(n, V)``.
        """
        log_probs = self._sum_components(self.observation.log_probs(self.output_parameters.double()))  # (n, V)
        if not with_end or self.log_end is None:
            return log_probs
        log_continue = torch.as_tensor(self.log_continue).double()
        return torch.cat([log_probs + log_continue.unsqueeze(-1), self.log_end.double().unsqueeze(-1)], dim=-1)

    def _sum_components(self, log_prob: Tensor) -> Tensor:
        """The mixture's log-probabilities ``(n, ...)`` of those in each component, ``(n, K, ...)``."""
        if self.log_weights is None:
            return log_prob.squeeze(1)
        log_weights = self.log_weights.view(*self.log_weights.shape, *[1] * (log_prob.ndim - 2))
        return torch.logsumexp(log_weights + log_prob, dim=1)

    @property
    def log_continue(self) -> Tensor | float:
        """``(n,)`` log-probability that the sequence goes on."""
        if self.exact_log_continue is not None:
            return self.exact_log_continue
        return 0.0 if self.log_end is None else torch.log(-torch.expm1(self.log_end))

    @property
    def has_no_next_step(self) -> Tensor:
        """``(n,)`` bool: no next step has any probability (the sequence must end, or is impossible already)."""
        if self.log_weights is None:
            return torch.zeros(len(self.output_parameters), dtype=torch.bool, device=self.output_parameters.device)
        return torch.isneginf(self.log_weights).all(-1)

    def weights(self) -> Tensor:
        """``(n, K)`` of the components; uniform where there is no next step, so that every row can be drawn from."""
        if self.log_weights is None:
            return self.output_parameters.new_ones(len(self.output_parameters), 1)
        return torch.where(self.has_no_next_step.unsqueeze(-1), 1 / self.log_weights.shape[-1], self.log_weights.exp())

    def _log_weights(self) -> Tensor:
        """The logarithm of ``weights``, finite also where a weight underflows."""
        if self.log_weights is None:
            return self.output_parameters.new_zeros(len(self.output_parameters), 1)
        return torch.where(self.has_no_next_step.unsqueeze(-1), -math.log(self.log_weights.shape[-1]), self.log_weights)

    def as_distribution(self, shift: Tensor, scale: Tensor) -> Any:
        """The first sequence's prediction as a Pyro distribution over raw values, on the CPU, where users' values are.

        Symbols whose length is not given have one more category, the last: the end. Vectors: given that they go on. In
        both its ``p_end`` is the probability that the sequence ends here, 0 where lengths are given.
        """
        import pyro.distributions as dist

        if self.output_parameters.device.type != "cpu":
            return self.cpu().as_distribution(shift, scale)
        if self.has_no_next_step[0] and (self.log_end is None or self.log_end[0] < 0):
            raise ValueError("what came before has probability zero, so the model says nothing of what comes next")
        past = None if self.past is None else self.past[:1]
        log_weights = self._log_weights()[0].to(self.output_parameters.dtype)  # an HMM's belief is float64
        try:
            result = self.observation.distribution(
                self.output_parameters[0], log_weights=log_weights, past=past, shift=shift, scale=scale
            )
        except ValueError as error:  # parameters that are no number, or infinite
            raise ValueError(
                "after what came before, what comes next has a distribution that "
                f"{self.output_parameters.dtype} cannot hold; rescale the values that are far from the training data"
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
    """A cursor that knows what follows several steps ahead without drawing what comes between."""

    def predictions_ahead(self, state: CursorState, k: int) -> list[Prediction] | None:
        """The prediction of each of the next k steps, when none of those before it is seen; None: no closed form.

        Each is given that the sequence has this step; its ``log_continue`` is given that it has the one before.
        """


@runtime_checkable
class ReadingCursor(Cursor, Protocol):
    """A cursor that reads many known steps at once, faster than one after the other."""

    def read(self, state: CursorState, x: Tensor) -> CursorState:
        """The state after each sequence's next T steps, ``x (n, T, D)`` or ``(n, T)``, T at least 1."""


@runtime_checkable
class DrawingCursor(Cursor, Protocol):
    """A cursor that draws several symbols in one call, faster than one after the other."""

    def n_drawn_at_once(self, state: CursorState) -> int:
        """How many steps ``draw`` takes from here at most; 0: none, so that it may not be called."""

    def draw(
        self, state: CursorState, x: Tensor, uniform: Tensor, *, may_end: bool
    ) -> tuple[Tensor, Tensor | None, CursorState]:
        """T times: ``advance`` by ``x (n,)``, and draw the next ``x`` from the prediction.

        Args:
            state: before the step of ``x``.
            x: symbols drawn before.
            uniform: ``(T, n)`` float64, at which ``seqmodels.generation.decoding.inverse_cdf`` is taken.
            may_end: without it given that the sequences go on.

        Returns:
            The symbols drawn ``(T, n)``; whether their sequence ended before them ``(T, n)``, None where it never does;
            and the state before the step of the last of them.
        """


class SingleSteps(Protocol):
    """One sequence that is read step by step on the CPU, in the form in which a single step costs least.

    ``At`` is that form, a value: ``advance`` leaves it as it was.
    """

    def enter(self, state: CursorState) -> Any:
        """``state`` of the cursor, of one sequence, in this form."""

    def leave(self, at: Any) -> CursorState:
        """The state of the cursor."""

    def advance(self, at: Any, x: np.ndarray) -> tuple[Any, float]:
        """After the next step, ``x (D,)`` or ``()``, and its log-probability, nats: that it comes, and no end."""


@runtime_checkable
class SteppingCursor(Cursor, Protocol):
    """A cursor that reads one sequence step by step, faster than by ``distribution`` and ``advance``."""

    def single_steps(self) -> SingleSteps | None:
        """How it does; None: it is no faster."""


class StepsOnStates:
    """Single steps in the form of the cursor's own states, for a class that says how to ``advance`` one."""

    def enter(self, state: Any) -> Any:
        """Return ``state``, which is the form that steps are taken in."""
        return state

    def leave(self, at: Any) -> Any:
        """Return ``at``, which is a state of the cursor."""
        return at


class ScoringCursor(Cursor, Protocol):
    """A cursor that tells what a step was worth as it reads it."""

    def advance_and_score(self, state: CursorState, x: Tensor) -> tuple[CursorState, Tensor]:
        """As ``advance``; also ``(n,)`` float64 log p(x_t | x_<t), what ``distribution`` says of the step."""


@dataclass(frozen=True)
class ScoredSteps(StepsOnStates):
    """Single steps by a cursor's ``advance_and_score`` (``SingleSteps``)."""

    cursor: ScoringCursor

    def advance(self, at: CursorState, x: np.ndarray) -> tuple[CursorState, float]:
        """After a next step, and its log p(x_t | x_<t)."""
        after, log_prob = self.cursor.advance_and_score(at, torch.as_tensor(x).unsqueeze(0))
        return after, float(log_prob)


@dataclass(frozen=True)
class StepsOfCursor(StepsOnStates):
    """Single steps of any cursor, by its predictions."""

    cursor: Cursor

    def advance(self, at: CursorState, x: np.ndarray) -> tuple[CursorState, float]:
        """As the prediction says."""
        value, prediction = torch.as_tensor(x).unsqueeze(0), self.cursor.distribution(at)
        nats = float(prediction.log_prob(value.to(prediction.output_parameters.device)))
        return self.cursor.advance(at, value), nats


def single_steps(cursor: Cursor) -> SingleSteps:
    """The fastest single steps of a cursor."""
    steps = cursor.single_steps() if isinstance(cursor, SteppingCursor) else None
    return StepsOfCursor(cursor) if steps is None else steps


def read_steps(cursor: Cursor, state: CursorState, x: Tensor) -> CursorState:
    """The state after known steps ``x (n, T, ...)``; T may be 0."""
    if isinstance(cursor, ReadingCursor):
        for part in x.split(STEPS_AT_ONCE, dim=1) if x.shape[1] else ():
            state = cursor.read(state, part)
        return state
    for step in x.unbind(1):
        state = cursor.advance(state, step)
    return state


def select_rows(state: StateT, index: Tensor) -> StateT:
    """``Cursor.select`` of a state that is a nest of tensors."""
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
    """The state of ``n`` sequences that all begin with ``prefix``."""
    if isinstance(source, list):
        steps = torch.as_tensor(np.asarray(prefix)) if len(prefix) else torch.empty(0)
        return read_steps(cursor, cursor.start(source, n), steps.expand(n, *steps.shape))
    state = cursor.start(source, 1)
    if len(prefix):
        state = read_steps(cursor, state, torch.as_tensor(np.asarray(prefix)).unsqueeze(0))
    return state if n == 1 else cursor.select(state, torch.zeros(n, dtype=torch.int64))


def source_of_each(source: Source, n: int) -> list[np.ndarray | None]:
    """The source of each of ``n`` sequences, of whatever lengths; ``ValueError`` for a list of another number."""
    if not isinstance(source, list):
        return [source] * n
    if len(source) != n:
        raise ValueError(f"{len(source)} sources for {n} sequences; pass one each")
    return [*source]


def stacked_sources(source: Source, n: int) -> Tensor | None:
    """``(n, S, D)`` or ``(n, S)``: the source of each of ``n`` sequences; None where there is none.

    Raises:
        ValueError: a list that has not n sources, or sources of several lengths.
    """
    if source is None:
        return None
    if not isinstance(source, list):
        return torch.as_tensor(source).expand(n, *source.shape)
    lengths = {len(each) for each in source}
    if len(source) != n or len(lengths) != 1:
        raise ValueError(
            f"{len(source)} sources of {sorted(lengths)} steps for {n} sequences; pass one each, all of one length"
        )
    return torch.as_tensor(np.stack(source))
