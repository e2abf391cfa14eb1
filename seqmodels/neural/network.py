"""``Network``: the module that maps history (and source) to hidden states, one step or many at a time."""

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
    """The input of an encoder: embedded steps ``values (B, S, d_model)``, and ``mask (B, S)``, True where real."""

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
    """The affine map ``W hidden + b`` to the logits of V symbols and, if ends are drawn, of the end after them.

    Attributes:
        weight: W, ``(P, d_model)``.
        bias: b, ``(P,)``; P may be more than the number of symbols and ends that are drawn from.
        n_symbols: number of symbols, V.
        may_end: whether ends are drawn.
        projected_inputs: what each symbol adds to the step that reads it, ``(V, m)``.
    """

    weight: Tensor
    bias: Tensor
    n_symbols: int
    may_end: bool
    projected_inputs: Tensor


@dataclass(frozen=True)
class StepperDraws(Generic[StepperState]):
    """The symbols that a ``Stepper`` draws in T steps of n sequences, and the state after them.

    Attributes:
        symbols: drawn symbols, ``(T, n)``; V stands for an end.
        outputs: logits from which the last symbols were drawn, ``(n, P)``.
        state: state before the step that reads the last symbols.
        ahead: state at the same step in the next window, if it is read alongside; otherwise None.
    """

    symbols: Tensor
    outputs: Tensor
    state: StepperState
    ahead: StepperState | None


class Stepper(ABC, Generic[State, StepperState]):
    """A faster way to take single steps of a network for n sequences, in evaluation.

    It gives the hidden states of ``Network.forward``. A step begins with an affine map of its input, which the caller
    computes: beforehand, where there are few inputs to choose from. To add one, set ``input_map`` and define
    ``converted`` and ``step``.

    Attributes:
        input_map: map from inputs, ``(n, d_model)``, to what they add to a step, ``(n, m)``.
        array_step: function that takes a step of one sequence on the CPU, on arrays, from a state that ``in_arrays``
            returned; None: there is none.
    """

    input_map: InputMap
    array_step: ArrayStep | None = None

    @abstractmethod
    def converted(self, state: State) -> StepperState:
        """Return a network's state in the form that ``step`` takes."""

    def reverted(self, state: StepperState) -> State | None:
        """Return the network's state from the form that ``step`` takes.

        Return None if that form does not determine it, or if the network reads one sequence no faster than single steps
        do.
        """
        return None

    @abstractmethod
    def step(self, projected: Tensor, state: StepperState) -> tuple[Tensor, StepperState]:
        """Return hidden states ``(n, d_model)`` and the state after a step to which inputs add ``projected (n, m)``.

        The step may overwrite ``projected``.
        """

    def in_arrays(self, state: StepperState) -> Any:
        """Return the state of one sequence as ``array_step`` takes it: arrays of its memory, without a batch axis."""
        return map_state(lambda tensor: tensor[0].numpy(), state)

    def in_tensors(self, state: Any) -> StepperState:
        """Return the state whose arrays these are, as ``in_arrays`` returned them."""
        return cast(StepperState, map_state(lambda array: torch.from_numpy(array[None]), state))

    def prefill(self, inputs: Tensor) -> tuple[Tensor, StepperState] | None:
        """Return hidden states ``(n, d_model)`` and the state after ``inputs (n, T, d_model)`` from a start.

        Return None if there is no faster way to them than the network's own.
        """
        return None

    def begin_ahead(self, n: int) -> StepperState | None:
        """Return the state before a next window, to be read alongside, or None if ``prefill`` is as fast."""
        return None

    def step_ahead(
        self, projected: Tensor, state: StepperState, ahead: StepperState
    ) -> tuple[Tensor, StepperState, StepperState]:
        """Take ``step`` from ``state`` and, with the same inputs, from ``ahead``.

        Return the hidden states after the step from ``state``, ``(n, d_model)``, and both states.
        """
        hidden, state = self.step(projected.clone(), state)
        return hidden, state, self.step(projected, ahead)[1]

    def n_drawn_at_once(self, state: StepperState) -> int:
        """Return the greatest number of steps that ``draw`` takes from ``state``; 0 if it may not be called."""
        return 0

    def draw(
        self, row_ids: Tensor, state: StepperState, ahead: StepperState | None, head: SymbolHead, uniform: Tensor
    ) -> StepperDraws[StepperState]:
        """Take T steps that read the symbols ``row_ids (n,)`` first, and then the symbols that are drawn.

        Args:
            row_ids: symbols that the first step reads, ``(n,)``.
            state: state before that step.
            ahead: state of the next window, which is then read alongside; None: there is none.
            head: map from hidden states to logits.
            uniform: numbers from 0 to 1 by which symbols are drawn (``decoding.inverse_cdf``), ``(T, n)``.
        """
        raise NotImplementedError(f"{type(self).__name__} takes one step at a time")

    def select(self, state: StepperState, index: Tensor) -> StepperState:
        """Return the state of the sequences ``index (m,)``, in this order."""
        return select(state, index)


class FasterStepper(Stepper[State, StepperState], ABC):
    """A stepper that takes steps faster than ``plain`` and leaves all else to it. To add one, define ``step``."""

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
    """A module that maps a history, and a source if it reads one, to hidden states.

    ``hidden_t = f(input_1 .. input_t, source)``.

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
            """Call ``forward``, after the hooks of the module."""

    @property
    def units(self) -> list[nn.Module]:
        """Parts of the network that compute by their ``forward`` alone and one after the other.

        Where several processes hold shards of the weights, the weights of a unit are gathered for it alone, and all
        others for the whole of a step.
        """
        return []

    @abstractmethod
    def start(self, n: int, source: Source | None = None) -> State:
        """Return the state before the first step of a batch of ``n`` sequences. An encoder reads ``source`` here."""

    @abstractmethod
    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the hidden states ``(B, T, d_model)`` of ``inputs (B, T, d_model)``, and the state after the last."""

    def forward_rows(self, table: Tensor, row_ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Return what ``forward`` returns for the rows ``row_ids (B, T)`` of ``table (R, d_model)``, perhaps sooner."""
        return self(F.embedding(row_ids, table), state)

    def stepper(self) -> Stepper[State, Any] | None:
        """Return a faster way to take many single steps, or None if there is none."""
        return None

    def compiled_stepper(self) -> Stepper[State, Any] | None:
        """Return a stepper whose steps numba compiles, equal but for rounding, or ``stepper()`` if there is none."""
        return self.stepper()


class AttentiveNetwork(Network[State], ABC):
    """A network with an encoder to which its decoder attends.

    To add one, define ``attention_weights`` besides what ``Network`` asks for.
    """

    reads_source = True

    @abstractmethod
    def attention_weights(self, inputs: Tensor, state: State) -> Tensor:
        """Return how much each step of ``inputs (B, T, d_model)`` weighs each step of the source, ``(B, T, S)``.

        ``state`` is the state before the inputs.
        """


def map_state(function: Callable[[Any], Any], state: State) -> State:
    """Apply ``function`` to every tensor, or array, of a state: ``map_state(torch.Tensor.detach, state)``."""
    if isinstance(state, Tensor | np.ndarray):
        return cast(State, function(state))
    if isinstance(state, tuple):
        return cast(State, tuple(map_state(function, part) for part in state))
    return state


def silent_overflow() -> np.errstate:
    """Return a context in which NumPy does not warn of numbers that overflow, as torch does not."""
    return np.errstate(over="ignore", invalid="ignore")


def select(state: State, index: Tensor) -> State:
    """Return the state of the batch rows ``index``, in this order (for beams and subsets)."""
    return map_state(lambda tensor: torch.index_select(tensor, 0, index.to(tensor.device)), state)
