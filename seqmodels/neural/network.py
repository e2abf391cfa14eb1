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
    """The input of an encoder: embedded steps ``values (B, S, d_model)``, and ``mask (B, S)``, False at padding."""

    values: Tensor
    mask: Tensor


@dataclass(frozen=True)
class InputMap:
    """An affine map ``x W + b`` of d inputs to m numbers, with which a single step of a network begins.

    In a recurrent network, for example, m is the number of units of all gates.

    Attributes:
        weight: W, ``(d, m)``.
        bias: b, ``(m,)``.
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


@dataclass(frozen=True)
class SymbolHead:
    """The output layer ``W hidden + b``: logits of V symbols and, if ends can be drawn, of the end after them.

    Attributes:
        weight: W, ``(P, d_model)``, for P outputs.
        bias: b, ``(P,)``; P may be more than the number of symbols and ends that are drawn from.
        n_symbols: number of symbols, V.
        may_end: True if ends are drawn.
        projected_inputs: the first affine map of a step (``Stepper.input_map``) applied to each symbol's embedding,
            ``(V, m)``, for the step that reads the symbol.
    """

    weight: Tensor
    bias: Tensor
    n_symbols: int
    may_end: bool
    projected_inputs: Tensor


@dataclass(frozen=True)
class StepperDraws(Generic[StepperState]):
    """The symbols that a ``Stepper`` (fast single steps) draws in T steps of n sequences, and the state after them.

    Attributes:
        symbols: drawn symbols, ``(T, n)``; the number of symbols V stands for an end.
        outputs: P logits from which the last symbols were drawn, ``(n, P)``.
        state: state before the step that reads the last symbols.
        ahead: state at the same step in the next, overlapping window, if that window is read alongside; otherwise None.
    """

    symbols: Tensor
    outputs: Tensor
    state: StepperState
    ahead: StepperState | None


class Stepper(ABC, Generic[State, StepperState]):
    """A faster way to take single steps of a network for n sequences, in evaluation.

    It computes the same hidden states as ``Network.forward``. A step begins with an affine map of its input, to m
    numbers, which the caller applies, beforehand to all symbols if there are few. To add one, set ``input_map`` and
    define ``converted`` and ``step``.

    Attributes:
        input_map: the affine map of inputs, ``(n, d_model)`` to ``(n, m)``.
        array_step: function that takes a step of one sequence on the CPU, on arrays, from a state that ``in_arrays``
            returned; None: there is none.
    """

    input_map: InputMap
    array_step: ArrayStep | None = None

    @abstractmethod
    def converted(self, state: State) -> StepperState:
        """Return a state of ``Network.forward`` in the form in which this stepper keeps its state."""

    def reverted(self, state: StepperState) -> State | None:
        """Return a state of this stepper in the form that ``Network.forward`` takes, the inverse of ``converted``.

        Return None if it cannot be converted, or if ``Network.forward`` reads one sequence no faster than single steps
        do.
        """
        return None

    @abstractmethod
    def step(self, projected: Tensor, state: StepperState) -> tuple[Tensor, StepperState]:
        """Take one step of n sequences and return hidden states ``(n, d_model)`` and the state after it.

        Args:
            projected: ``input_map`` of the step's inputs, ``(n, m)``; it may be overwritten.
            state: state before the step.
        """

    def in_arrays(self, state: StepperState) -> Any:
        """Return the state of one sequence as ``array_step`` takes it: arrays of its memory, without a batch axis."""
        return map_state(lambda tensor: tensor[0].numpy(), state)

    def in_tensors(self, state: Any) -> StepperState:
        """Return a state of NumPy arrays, as ``in_arrays`` returns it, as tensors with a batch axis of 1."""
        return cast(StepperState, map_state(lambda array: torch.from_numpy(array[None]), state))

    def prefill(self, inputs: Tensor) -> tuple[Tensor, StepperState] | None:
        """Read the T first inputs of a window at once, and return the last hidden states and the state after them.

        Return None if this is no faster than ``Network.forward``.

        Args:
            inputs: embedded inputs of n sequences, ``(n, T, d_model)``.

        Returns:
            Hidden states of the last step, ``(n, d_model)``, and the state after it.
        """
        return None

    def begin_ahead(self, n: int) -> StepperState | None:
        """Return the state of ``n`` sequences before the next window, so that its steps can be taken alongside.

        Windows overlap, so the next one has read its context when this one ends. Return None if ``prefill`` at the end
        of this window is as fast.
        """
        return None

    def step_ahead(
        self, projected: Tensor, state: StepperState, ahead: StepperState
    ) -> tuple[Tensor, StepperState, StepperState]:
        """Take a step with the same inputs in two overlapping windows, from ``state`` and from ``ahead``.

        Args:
            projected: ``input_map`` of the step's inputs, ``(n, m)``; it may be overwritten.
            state: state before the step in the current window.
            ahead: state before the step in the next window.

        Returns:
            Hidden states after the step from ``state``, ``(n, d_model)``, and both states after it.
        """
        hidden, state = self.step(projected.clone(), state)
        return hidden, state, self.step(projected, ahead)[1]

    def n_drawn_at_once(self, state: StepperState) -> int:
        """Return how many symbols ``draw`` can draw in one call from ``state``, at most; 0 if it must not be called."""
        return 0

    def draw(
        self, row_ids: Tensor, state: StepperState, ahead: StepperState | None, head: SymbolHead, uniform: Tensor
    ) -> StepperDraws[StepperState]:
        """Draw T symbols of each of n sequences, each of which is read at the next step.

        Args:
            row_ids: symbols that the first step reads, ``(n,)``.
            state: state before that step.
            ahead: state in the next, overlapping window, which is then read alongside; None: there is none.
            head: map from hidden states to logits.
            uniform: random numbers from 0 to 1, to which the inverse cdf is applied, ``(T, n)``.

        Raises:
            NotImplementedError: unless a subclass defines it; then ``n_drawn_at_once`` is above 0.
        """
        raise NotImplementedError(f"{type(self).__name__} takes one step at a time")

    def select(self, state: StepperState, index: Tensor) -> StepperState:
        return select(state, index)


class FasterStepper(Stepper[State, StepperState], ABC):
    """A ``Stepper`` that takes single steps faster than another one, ``plain``, and leaves everything else to it.

    To add one, define ``step``.
    """

    plain: Stepper[State, StepperState]

    @property
    def input_map(self) -> InputMap:  # type: ignore[override]
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
    """A module that maps the inputs of a sequence, and a source if it reads one, to hidden states.

    ``hidden_t = f(input_1 .. input_t, source)``.

    To add one, define ``start`` and ``forward``. ``forward`` continues from a state, so batched and incremental
    evaluation are the same code: reading T steps at once, or one by one with the state handed on, gives the same hidden
    states. Nothing depends on later inputs. Sequences are padded on the right; what is computed at padded steps is
    ignored by the caller.

    Attributes:
        d_model: width of inputs and of hidden states.
        reads_source: True if the network has an encoder, which reads the source.
        aligned: True if ``hidden_t`` is computed from step t of the source, so that there are as many steps as the
            source has.
        reads_past: False if ``hidden_t`` depends on the source alone; ``inputs`` are then ignored.
        reads_at_once: True if all steps of a sequence are computed in parallel, so that small batches are as fast as
            large ones.
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
        """The blocks of the network that compute one after the other, by calls of their ``forward`` alone.

        If several processes hold shards of the weights, the weights of each unit are gathered only while it computes,
        and all others for the whole of a training step.
        """
        return []

    @abstractmethod
    def start(self, n: int, source: Source | None = None) -> State:
        """Return the state before the first step of ``n`` sequences.

        Args:
            n: number of sequences in the batch.
            source: embedded sources, which an encoder reads here; None: there are none.
        """

    @abstractmethod
    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Run B sequences over T steps, from a state that earlier steps left.

        Args:
            inputs: embedded inputs, ``(B, T, d_model)``.
            state: state before the first of them, from ``start`` or an earlier call.

        Returns:
            The hidden states, ``(B, T, d_model)``, and the state after the last step.
        """

    def forward_rows(self, table: Tensor, row_ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the result of ``forward`` for inputs that are rows of a table, such as embeddings of symbols.

        A network may compute it faster, from products with the table instead of with the inputs.

        Args:
            table: R possible inputs, ``(R, d_model)``.
            row_ids: row of the table that each step of B sequences reads, ``(B, T)``.
            state: state before the first step.
        """
        return self(F.embedding(row_ids, table), state)

    def stepper(self) -> Stepper[State, Any] | None:
        """Return a ``Stepper``, which takes single steps faster than ``forward``, or None if the network has none."""
        return None

    def compiled_stepper(self) -> Stepper[State, Any] | None:
        """Return a ``Stepper`` whose steps numba compiles, equal up to rounding; without one, ``stepper()``."""
        return self.stepper()


class AttentiveNetwork(Network[State], ABC):
    """A network with an encoder of a source, to which its decoder attends and whose attention weights it can return.

    To add one, define ``attention_weights`` besides what ``Network`` asks for.
    """

    reads_source = True

    @abstractmethod
    def attention_weights(self, inputs: Tensor, state: State) -> Tensor:
        """Return the attention weights of T steps on the S steps of the source, ``(B, T, S)``.

        Args:
            inputs: embedded inputs of the steps, ``(B, T, d_model)``.
            state: state before the first of them.
        """


def map_state(function: Callable[[Any], Any], state: State) -> State:
    """Apply ``function`` to every tensor, or array, of a state: ``map_state(torch.Tensor.detach, state)``.

    A state is nested tuples of tensors and other objects; objects that are no tensor, array or tuple stay as they are.
    """
    if isinstance(state, Tensor | np.ndarray):
        return cast(State, function(state))
    if isinstance(state, tuple):
        return cast(State, tuple(map_state(function, part) for part in state))
    return state


def silent_overflow() -> np.errstate:
    """Return a context in which NumPy, like torch, does not warn of overflow."""
    return np.errstate(over="ignore", invalid="ignore")


def select(state: State, index: Tensor) -> State:
    """Return the state of only the sequences ``index (m,)`` of a batch, in this order.

    A state is nested tuples of tensors, whose first axis is the batch.
    """
    return map_state(lambda tensor: torch.index_select(tensor, 0, index.to(tensor.device)), state)
