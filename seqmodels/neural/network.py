"""``Network``: history (and source) -> hidden state, one step or many at a time, by the same code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

# The state of a network between steps: nested tuples of tensors whose first axis is the batch, of None, of plain
# integers, and of other objects that are handed on as they are. Each network says which.
State = TypeVar("State")
# The same in the form in which a ``Stepper`` hands it on.
StepperState = TypeVar("StepperState")
# A step of one sequence on arrays: what the input adds (m,), which is not changed, and a stepper's state of arrays
# without the axis of the batch -> the hidden state (d_model,), and the state after.
ArrayStep = Callable[[np.ndarray, Any], tuple[np.ndarray, Any]]


@dataclass(frozen=True)
class Source:
    """The input of an encoder: embedded steps ``values`` (B, S, d_model) and ``mask`` (B, S), True where real."""

    values: Tensor
    mask: Tensor


@dataclass(frozen=True)
class InputMap:
    """The affine map ``x W + b`` with which a step of a network begins: ``weight (d, m)``, ``bias (m,)``."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Return what inputs ``(n, d)`` add to a step, ``(n, m)``."""
        return torch.addmm(self.bias, x, self.weight)


@dataclass(frozen=True)
class SymbolHead:
    """``W hidden + b``: the logits of V symbols and, where ends are drawn, of the end after them.

    Attributes:
        weight: (P, d_model).
        bias: (P,); P may be more than what is drawn from.
        n_symbols: V.
        may_end: whether ends are drawn.
        projected_inputs: (V, m), what each symbol adds to the step that reads it.
    """

    weight: Tensor
    bias: Tensor
    n_symbols: int
    may_end: bool
    projected_inputs: Tensor


@dataclass(frozen=True)
class StepperDraws(Generic[StepperState]):
    """What a ``Stepper`` draws in several steps of n sequences.

    Attributes:
        symbols: (T, n), V for an end.
        outputs: (n, P), of which the last symbols are drawn.
        state: before the step that reads the last symbols.
        ahead: the same in the next window, if it is read alongside.
    """

    symbols: Tensor
    outputs: Tensor
    state: StepperState
    ahead: StepperState | None


class Stepper(ABC, Generic[State, StepperState]):
    """Single steps of a network for n sequences, in evaluation.

    The same hidden states as ``Network.forward``. A step begins with an affine map of its input, which the caller
    computes: beforehand, where there are few inputs to choose from. To add one, set ``input_map`` and define
    ``converted`` and ``step``.

    Attributes:
        input_map: maps inputs ``(n, d_model)`` to what they add to a step, ``(n, m)``.
        array_step: ``step`` of one sequence on the CPU, on arrays, from a state ``in_arrays``; None: there is none.
    """

    input_map: InputMap
    array_step: ArrayStep | None = None

    @abstractmethod
    def converted(self, state: State) -> StepperState:
        """A network's state in the form that ``step`` takes."""

    def reverted(self, state: StepperState) -> State | None:
        """Return the network's state, from the form that ``step`` takes.

        None where that does not tell it, or where the network reads one sequence no faster than single steps do.
        """
        return None

    @abstractmethod
    def step(self, projected: Tensor, state: StepperState) -> tuple[Tensor, StepperState]:
        """Return hidden states ``(n, d_model)`` and the state after a step to which inputs add ``projected (n, m)``.

        What it computes may be written in the place of ``projected``.
        """

    def in_arrays(self, state: StepperState) -> Any:
        """Return the state of one sequence as ``array_step`` takes it: arrays of its memory, without a batch axis."""
        return map_state(lambda tensor: tensor[0].numpy(), state)

    def in_tensors(self, state: Any) -> StepperState:
        """Return the state whose arrays these are, as ``in_arrays`` returned them."""
        return cast(StepperState, map_state(lambda array: torch.from_numpy(array[None]), state))

    def prefill(self, inputs: Tensor) -> tuple[Tensor, StepperState] | None:
        """The last hidden states ``(n, d_model)`` of ``inputs (n, T, d_model)`` from a start, and the state after.

        None: there is no faster way to them than the network's own.
        """
        return None

    def begin_ahead(self, n: int) -> StepperState | None:
        """The state before the first step of a next window, to be read alongside; None: ``prefill`` is as fast."""
        return None

    def step_ahead(
        self, projected: Tensor, state: StepperState, ahead: StepperState
    ) -> tuple[Tensor, StepperState, StepperState]:
        """``step`` from ``state`` and, of the same inputs, from ``ahead``; the hidden states are the former's."""
        hidden, state = self.step(projected.clone(), state)
        return hidden, state, self.step(projected, ahead)[1]

    def n_drawn_at_once(self, state: StepperState) -> int:
        """How many steps ``draw`` takes at most; 0: none, so that it may not be called."""
        return 0

    def draw(
        self, row_ids: Tensor, state: StepperState, ahead: StepperState | None, head: SymbolHead, uniform: Tensor
    ) -> StepperDraws[StepperState]:
        """Take ``step`` or ``step_ahead`` T times: of the symbols ``row_ids (n,)``, and then of those that are drawn.

        ``uniform (T, n)`` are the numbers to draw by, see ``seqmodels.generation.decoding.inverse_cdf``.
        """
        raise NotImplementedError(f"{type(self).__name__} takes one step at a time")

    def select(self, state: StepperState, index: Tensor) -> StepperState:
        """The state of the sequences ``index (m,)``, in this order."""
        return select(state, index)


class FasterStepper(Stepper[State, StepperState], ABC):
    """Takes single steps faster than ``plain``, to which it leaves all else. To add one, define ``step``."""

    plain: Stepper[State, StepperState]

    @property
    def input_map(self) -> InputMap:  # type: ignore[override]
        """The input map of ``plain``."""
        return self.plain.input_map

    def converted(self, state: State) -> StepperState:
        return self.plain.converted(state)

    def reverted(self, state: StepperState) -> State | None:
        return self.plain.reverted(state)

    def in_arrays(self, state: StepperState) -> Any:
        return self.plain.in_arrays(state)

    def in_tensors(self, state: Any) -> StepperState:
        return self.plain.in_tensors(state)

    def prefill(self, inputs: Tensor) -> tuple[Tensor, StepperState] | None:
        return self.plain.prefill(inputs)

    def select(self, state: StepperState, index: Tensor) -> StepperState:
        return self.plain.select(state, index)


class Network(nn.Module, ABC, Generic[State]):
    """``hidden_t = f(input_1 .. input_t, source)``.

    To add one, define ``start`` and ``forward``. ``forward`` continues from a state, so batched and incremental
    evaluation are the same code: reading T steps at once, or one by one with the state handed on, gives the same
    hidden states. Nothing depends on later inputs. Sequences are padded on the right; what is computed at padded
    steps is ignored by the caller.

    Attributes:
        d_model: width of inputs and of hidden states.
        reads_source: True if the network has an encoder.
        aligned: True if ``hidden_t`` is made of step t of the source, so that there are as many steps as the source
            has.
        reads_past: False if ``hidden_t`` depends on the source alone; ``inputs`` are then ignored.
        reads_at_once: True if all steps are computed side by side, so that few sequences are as fast as many.
    """

    d_model: int
    reads_source: bool = False
    aligned: bool = False
    reads_past: bool = True
    reads_at_once: bool = False

    if TYPE_CHECKING:  # nn.Module's own takes and returns anything

        def __call__(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
            """Calls ``forward``, after the hooks of the module."""

    @property
    def units(self) -> list[nn.Module]:
        """Parts that compute by their ``forward`` alone and one after the other.

        Where several processes hold shards of the weights, those of a unit are gathered for it alone, and all others
        for the whole of a step.
        """
        return []

    @abstractmethod
    def start(self, n: int, source: Source | None = None) -> State:
        """The state before the first step, for a batch of ``n``; an encoder reads its source here."""

    @abstractmethod
    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """``inputs`` (B, T, d_model) -> hidden states (B, T, d_model) and the state after the last step."""

    def forward_rows(self, table: Tensor, row_ids: Tensor, state: State) -> tuple[Tensor, State]:
        """``forward`` of the rows ``row_ids (B, T)`` of ``table (R, d_model)``, which may be cheaper."""
        return self(F.embedding(row_ids, table), state)

    def stepper(self) -> Stepper[State, Any] | None:
        """A faster way to many single steps; None: there is none."""
        return None

    def compiled_stepper(self) -> Stepper[State, Any] | None:
        """``stepper``, its steps compiled by numba where the network has such; the same but for rounding."""
        return self.stepper()


class AttentiveNetwork(Network[State], ABC):
    """A network with an encoder to which its decoder attends.

    To add one, define ``attention_weights`` besides what ``Network`` asks for.
    """

    reads_source = True

    @abstractmethod
    def attention_weights(self, inputs: Tensor, state: State) -> Tensor:
        """Inputs (B, T, d_model) and the state before them -> how much step t weighs step s of the source (B, T, S)."""


def map_state(function: Callable[[Any], Any], state: State) -> State:
    """Apply ``function`` to every tensor, or array, of a state: ``map_state(torch.Tensor.detach, state)``."""
    if isinstance(state, Tensor | np.ndarray):
        return cast(State, function(state))
    if isinstance(state, tuple):
        return cast(State, tuple(map_state(function, part) for part in state))
    return state


def silent_overflow() -> np.errstate:
    """Return a context in which NumPy says no more than torch of numbers that overflow: nothing."""
    return np.errstate(over="ignore", invalid="ignore")


def select(state: State, index: Tensor) -> State:
    """The state of these batch rows, in this order (beams, subsets)."""
    return map_state(lambda tensor: torch.index_select(tensor, 0, index.to(tensor.device)), state)
