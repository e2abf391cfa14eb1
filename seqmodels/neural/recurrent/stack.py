"""Stacked layers of one recurrence, with options for dropout and normalisation between and inside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from seqmodels.common.display import a_or_an
from seqmodels.common.randomness import torch_dropout
from seqmodels.neural.network import InputMap, Network, Source, State, Stepper
from seqmodels.neural.ops.dropout import dropout as apply_dropout
from seqmodels.neural.ops.precision import without_tf32
from seqmodels.neural.recurrent.cell import Cell, CellState

States = tuple[Tensor, ...]  # (h,) or (h, c)
Weights = tuple[Tensor, ...]  # one layer's U for inputs, V for states, and two biases
LayerState = TypeVar("LayerState")
Values = TypeVar("Values")  # tensors or arrays
Layer = Callable[[Tensor, LayerState], tuple[Tensor, LayerState]]  # inputs, state before -> outputs, state after


@dataclass(frozen=True)
class RecurrentOptions:
    """The options of recurrent layers for dropout, layer norm and residual connections, all off by default.

    Fractions are dropped in training only; what is left is scaled up, so that means stay the same.

    Args:
        recurrent_dropout: fraction for variational dropout (Gal & Ghahramani 2016), with the same mask at every step of
            a window: on the inputs of each layer and the outputs of the last, with a mask for each sequence, and on the
            states ``h_{t-1}``, with one mask for the batch. Only with one mask is this the same as dropping columns of
            the recurrent matrix, which torch's kernels allow.
        embedding_dropout: fraction of input steps that are dropped whole, so that the past has to make up for them.
        weight_drop: fraction of entries of the recurrent matrices that are dropped, the same at every step of a window
            (Merity et al. 2018).
        layer_norm: True to normalise the outputs of each layer (Ba et al. 2016, who normalise inside the cell, which
            takes a kernel call for every step and is many times slower). States are passed on through time without
            normalisation.
        residual: True if every layer from the second on adds to its input; it changes nothing with one layer.

    Raises:
        ValueError: If a fraction is negative, or 1 or more.
    """

    recurrent_dropout: float = 0.0
    embedding_dropout: float = 0.0
    weight_drop: float = 0.0
    layer_norm: bool = False
    residual: bool = False

    def __post_init__(self) -> None:
        for field in fields(self)[:3]:
            value = getattr(self, field.name)
            if not 0 <= value < 1:
                raise ValueError(f"{field.name} is {value}; pass a fraction from 0 up to 1")

    def is_active(self, training: bool) -> bool:
        """Return True if any option has an effect, so that layers must be run one by one; False: none has.

        Args:
            training: True in training, where dropout has an effect too.
        """
        drops = self.recurrent_dropout or self.embedding_dropout or self.weight_drop
        return self.layer_norm or self.residual or bool(training and drops)

    def drop_weights(self, recurrent: Tensor, training: bool) -> Tensor:
        """Return a recurrent matrix ``(m, d)`` with columns (states) and entries dropped at random, if ``training``.

        It is drawn once for each window of steps. The fractions are ``recurrent_dropout`` and ``weight_drop``.
        """
        kept = broadcast_dropout(recurrent, (1, recurrent.shape[1]), self.recurrent_dropout, training)
        return broadcast_dropout(kept, recurrent.shape, self.weight_drop, training)

    def variational_dropout(self, steps: Tensor, training: bool) -> Tensor:
        """Return T steps of B sequences, ``(B, T, d)``, with the same features dropped at every step, if ``training``.

        The fraction is ``recurrent_dropout``.
        """
        return broadcast_dropout(steps, (len(steps), 1, steps.shape[2]), self.recurrent_dropout, training)

    def drop_steps(self, inputs: Tensor, training: bool) -> Tensor:
        """Return the inputs of T steps of B sequences, ``(B, T, d)``, with whole steps dropped, if ``training``.

        The fraction is ``embedding_dropout``.
        """
        return broadcast_dropout(inputs, (*inputs.shape[:2], 1), self.embedding_dropout, training)


NO_OPTIONS = RecurrentOptions()


def broadcast_dropout(values: Tensor, shape: Sequence[int], fraction: float, training: bool) -> Tensor:
    """Return ``values`` with dropout by one random mask that is broadcast to them, if ``training``; else unchanged.

    Args:
        values: tensor of any shape.
        shape: shape of the mask, with 1 for axes along which the same is dropped.
        fraction: fraction that is dropped; the rest is scaled up.
        training: True in training.
    """
    return values * torch_dropout(values.new_ones(shape), fraction) if training and fraction else values


class RecurrentNetwork(Network[State], ABC, Generic[State, LayerState]):
    """Layers of one recurrence, each of which reads the outputs of the one below.

    To add one, set the attributes below and define ``start``, ``forward`` (by ``run_layers``) and ``layers``.

    Attributes:
        dropout: fraction of every layer's outputs that is dropped in training, drawn afresh at every step. States that
            are passed from step to step are not dropped.
        options: further dropout, layer norm and residual connections.
        norms: normalisation of each layer's outputs, made by ``make_norms``.
    """

    dropout: float
    options: RecurrentOptions
    norms: nn.ModuleList

    @abstractmethod
    def layers(self) -> Iterator[Layer[LayerState]]:
        """Yield a function for each layer, from the lowest, that runs it over a window of steps.

        It takes inputs ``(B, T, d)`` and the state before, and returns outputs and the state after. A layer's weights
        to drop are drawn when its function is yielded.
        """

    def run_layers(
        self, layers: Iterable[Layer[LayerState]], inputs: Tensor, states: Iterable[LayerState]
    ) -> tuple[Tensor, list[LayerState]]:
        """Run the layers over T steps of B sequences, with the dropout, norms and residual connections between them.

        Args:
            layers: functions that run one layer, from the lowest, as ``layers`` yields them.
            inputs: inputs of the lowest layer, to which dropout has been applied, ``(B, T, d)``.
            states: each layer's state before the first step.

        Returns:
            The outputs of the last layer, ``(B, T, d)``, and each layer's state after the last step.
        """
        options, training = self.options, self.training
        last: list[LayerState] = []
        output: Tensor | None = None  # output of the layers so far
        for i, (layer, state) in enumerate(zip(layers, states, strict=True)):
            if output is not None:
                inputs = options.variational_dropout(apply_dropout(output, self.dropout, training), training)
            hidden, new_state = layer(inputs, state)
            hidden = self.norms[i](hidden) if options.layer_norm else hidden
            output = output + hidden if options.residual and output is not None else hidden
            last.append(new_state)
        assert output is not None, "a network has a layer"
        return options.variational_dropout(output, training), last

    def drop_inputs(self, inputs: Tensor) -> Tensor:
        """Return the inputs of the first layer, ``(B, T, d)``, with steps and features dropped, in training only."""
        return self.options.variational_dropout(self.options.drop_steps(inputs, self.training), self.training)


def make_norms(d_model: int, n_layers: int, options: RecurrentOptions) -> nn.ModuleList:
    """Return a layer norm for the outputs of each layer if ``options.layer_norm``, else an empty list.

    ``d_model`` is the width of the outputs.
    """
    return nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers if options.layer_norm else 0))


class CellStack(RecurrentNetwork[tuple[CellState, ...], CellState]):
    """Layers of any ``Cell`` (one step of a recurrence); the state is the tuple of the layers' states.

    Args:
        make_cell: function that makes a layer's cell from ``(d_in, d_hidden)``.
        d_model: width of inputs and of outputs.
        n_layers: number of layers, each of which reads the outputs of the one below.
        dropout: fraction of each layer's outputs that is dropped in training.
        options: further dropout, layer norm and residual connections.

    Raises:
        ValueError: If ``make_cell`` makes something else than a ``Cell``. From ``forward`` in training, if ``options``
            have ``recurrent_dropout`` or ``weight_drop``, but the cell's attribute ``recurrent_weights`` is empty.
    """

    def __init__(
        self,
        make_cell: Callable[[int, int], Cell[CellState]],
        d_model: int,
        n_layers: int = 1,
        *,
        dropout: float = 0.0,
        options: RecurrentOptions = NO_OPTIONS,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.dropout = dropout
        self.options = options
        self.unrolled = nn.ModuleList(_Unrolled(make_cell(d_model, d_model)) for _ in range(n_layers))
        self.norms = make_norms(d_model, n_layers, options)

    def start(self, n: int, source: Source | None = None) -> tuple[CellState, ...]:
        """Return the state of each layer's cell before the first step, for ``n`` sequences."""
        return tuple(layer.cell.initial_state(n) for layer in self._unrolled_cells())

    def forward(self, inputs: Tensor, state: tuple[CellState, ...]) -> tuple[Tensor, tuple[CellState, ...]]:
        hidden, states = self.run_layers(self.layers(), self.drop_inputs(inputs), state)
        return apply_dropout(hidden, self.dropout, self.training), tuple(states)

    def layers(self) -> Iterator[Layer[CellState]]:
        drops = self.training and (self.options.recurrent_dropout or self.options.weight_drop)
        for layer in self._unrolled_cells():
            if not drops:
                yield layer
                continue
            names = layer.cell.recurrent_weights
            if not names:
                raise ValueError(
                    f"{type(layer.cell).__name__} names no recurrent_weights for recurrent_dropout and weight_drop; "
                    "name them in the class, or leave both at 0"
                )
            weights = {f"cell.{name}": self.options.drop_weights(getattr(layer.cell, name), True) for name in names}
            yield partial(_with_weights, layer, weights)

    def _unrolled_cells(self) -> Iterator[_Unrolled[CellState]]:
        for layer in self.unrolled:
            assert isinstance(layer, _Unrolled)
            yield layer


class _Unrolled(nn.Module, Generic[CellState]):
    """A cell that reads all steps, as a module, so that torch's ``functional_call`` can run it with dropped weights.

    It computes in the precision of its weights even under autocast, unless ``Cell.takes_autocast``, because not every
    operation accepts inputs and weights of different precisions.

    Args:
        cell: one step of a recurrence.
    """

    def __init__(self, cell: Cell[CellState]) -> None:
        super().__init__()
        if not isinstance(cell, Cell):
            raise ValueError(
                f"the cell is {a_or_an(type(cell))}; pass a subclass of neural.Cell, or a function that makes one"
            )
        self.cell = cell

    def forward(self, inputs: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        if self.cell.takes_autocast:
            return self.cell.unroll(inputs, state)
        with torch.autocast(inputs.device.type, enabled=False):
            return self.cell.unroll(inputs.to(torch.promote_types(inputs.dtype, torch.float32)), state)


def _with_weights(
    layer: _Unrolled[CellState], weights: dict[str, Tensor], inputs: Tensor, state: CellState
) -> tuple[Tensor, CellState]:
    result: tuple[Tensor, CellState] = functional_call(layer, weights, (inputs, state))
    return result


class KernelNetwork(RecurrentNetwork[States, States], ABC):
    """A recurrence whose weights are torch's (``rnn``), computed by one kernel call for each layer, or for all.

    Its state is ``(h,)`` or ``(h, c)`` of B sequences, each ``(B, n_layers, d)``, and starts at zero. All layers are
    one call if a fused kernel computes them together and no option is active. To add one, define ``is_fused``,
    ``one_layer`` and ``n_states``, the number of vectors in a layer's state; and ``stepper``, by ``stepper_of``, for
    single steps that do not call a kernel each.

    Args:
        rnn: torch's layers, which hold the weights; inputs and states have the same width.
        dropout: fraction of each layer's outputs that is dropped in training.
        options: further dropout, layer norm and residual connections.
    """

    n_states: int = 1

    def __init__(self, rnn: nn.RNNBase, dropout: float, options: RecurrentOptions) -> None:
        super().__init__()
        self.d_model = rnn.hidden_size
        self.dropout = dropout
        self.options = options
        self.rnn = rnn
        self.norms = make_norms(self.d_model, rnn.num_layers, options)

    @abstractmethod
    def is_fused(self, device: torch.device) -> bool:
        """Return True if torch's layers ``rnn`` compute this recurrence on the device themselves, by a fast kernel."""

    @abstractmethod
    def one_layer(self, inputs: Tensor, states: States, *, weights: Weights) -> tuple[Tensor, States]:
        """Run one layer with the given weights over T steps of B sequences.

        Args:
            inputs: inputs of the layer, ``(B, T, d)``.
            states: h (and c) before the first step, each ``(1, B, d)``.
            weights: the layer's weights, in torch's order: for inputs, for states, and two biases.

        Returns:
            The hidden states, ``(B, T, d)``, and h (and c) after the last step.
        """

    def all_layers(self, inputs: Tensor, states: States) -> tuple[Tensor, States]:
        """Run all L layers over T steps of B sequences by one fused kernel.

        Args:
            inputs: inputs of the first layer, ``(B, T, d)``.
            states: h (and c) before the first step, each ``(L, B, d)``.

        Returns:
            The hidden states of the last layer, ``(B, T, d)``, and h (and c) after the last step, each ``(L, B, d)``.
        """
        with without_tf32(inputs):
            hidden, last = self.rnn(inputs, states[0])
        return hidden, (last,)

    def start(self, n: int, source: Source | None = None) -> States:
        """Return zero states (h, or h and c) for ``n`` sequences, ``(n, n_layers, d)`` each. ``source`` is ignored."""
        return tuple(zeros(n, self.rnn) for _ in range(self.n_states))

    def forward(self, inputs: Tensor, state: States) -> tuple[Tensor, States]:
        states = tuple(map(layers_first, state))
        if self.is_fused(inputs.device) and not self.options.is_active(self.training):
            hidden, states = self.all_layers(inputs, states)
        else:
            hidden, states = self.layer_by_layer(self.layers(), self.drop_inputs(inputs), states)
        return apply_dropout(hidden, self.dropout, self.training), tuple(map(layers_first, states))

    def layers(self, first: Callable[..., tuple[Tensor, States]] | None = None) -> Iterator[Layer[States]]:
        """Yield a function for each layer, from the lowest, that runs it over a window of steps.

        Args:
            first: function that runs the lowest layer instead of ``one_layer``; None: all layers are run by
                ``one_layer``.
        """
        for i, (u, v, *biases) in enumerate(self.rnn.all_weights):
            weights = (u, self.options.drop_weights(v, self.training), *biases)
            yield partial(first if i == 0 and first is not None else self.one_layer, weights=weights)

    def layer_by_layer(self, layers: Iterator[Layer[States]], inputs: Tensor, states: States) -> tuple[Tensor, States]:
        """Run the L layers one by one over T steps of B sequences.

        Args:
            layers: functions that run one layer each, from the lowest.
            inputs: inputs of the first layer, ``(B, T, d)``.
            states: h (and c) before the first step, each ``(L, B, d)``.

        Returns:
            The hidden states of the last layer, ``(B, T, d)``, and h (and c) after the last step, each ``(L, B, d)``.
        """
        by_layer = (tuple(part[i : i + 1] for part in states) for i in range(self.rnn.num_layers))
        hidden, last = self.run_layers(layers, inputs, by_layer)
        return hidden, tuple(map(torch.cat, zip(*last, strict=True)))


class ScannedNetwork(KernelNetwork, ABC):
    """A recurrence whose steps add a linear map of the input, which is computed for all steps before the first.

    To add one, define ``project`` (the linear map), ``scan`` (the steps) and ``is_fused``.
    """

    @abstractmethod
    def project(self, inputs: Tensor, weights: Weights) -> Tensor:
        """Return the contribution of inputs and biases to each step of a layer, ``(..., m)``.

        m is the number of units of all gates.

        Args:
            inputs: inputs of the layer, ``(..., d)``.
            weights: the layer's weights: for inputs, for states, and two biases.
        """

    @abstractmethod
    def scan(self, projected: Tensor, state: Tensor, weights: Weights) -> Tensor:
        """Return the states after each of T steps of one layer, for B sequences, ``(T, B, d)``.

        Args:
            projected: contribution of the inputs to each step, which ``project`` computed, ``(T, B, m)``.
            state: the state before the first step, ``(B, d)``.
            weights: the layer's weights: for inputs, for states, and two biases.
        """

    def one_layer(self, inputs: Tensor, states: States, *, weights: Weights) -> tuple[Tensor, States]:
        return self._scan_projected(self.project(inputs, weights).transpose(0, 1), states, weights=weights)

    def forward_rows(self, table: Tensor, row_ids: Tensor, state: States) -> tuple[Tensor, States]:
        """Return the hidden states of B sequences, ``(B, T, d)``, and the last state, for T inputs from a table.

        The contribution of a row is computed once, instead of at every step that reads it.

        Args:
            table: R possible inputs, ``(R, d)``.
            row_ids: row of the table that each step reads, ``(B, T)``.
            state: the state before the first step.
        """
        options = self.options
        if self.is_fused(table.device) or (self.training and (options.recurrent_dropout or options.embedding_dropout)):
            return super().forward_rows(table, row_ids, state)
        projected = self.project(table, tuple(self.rnn.all_weights[0]))
        accumulation_dtype = torch.promote_types(projected.dtype, torch.float32)  # to sum a row's gradients in
        projected = F.embedding(row_ids.t(), projected.to(accumulation_dtype)).to(projected.dtype)  # (T, B, m)
        states = tuple(map(layers_first, state))
        hidden, states = self.layer_by_layer(self.layers(self._scan_projected), projected, states)
        return apply_dropout(hidden, self.dropout, self.training), tuple(map(layers_first, states))

    def _scan_projected(self, projected: Tensor, states: States, *, weights: Weights) -> tuple[Tensor, States]:
        hidden = self.scan(projected, states[0][0], weights)
        return hidden.transpose(0, 1), (hidden[-1:],)


def dropout_between(dropout: float, n_layers: int) -> float:
    """Return ``dropout`` for torch's constructors of recurrent layers; 0 for one layer, for which they would warn."""
    return dropout if n_layers > 1 else 0.0


def zeros(n: int, rnn: nn.RNNBase) -> Tensor:
    """Return a zero state ``(n, n_layers, d)`` of n sequences, with the dtype and device of the weights of ``rnn``."""
    return next(rnn.parameters()).new_zeros(n, rnn.num_layers, rnn.hidden_size)


def layers_first(state: Tensor) -> Tensor:
    """Swap the first two axes of a state: ``(B, L, d)``, as a network has it, to ``(L, B, d)``, or back.

    Torch's kernels take it with the L layers first.
    """
    return state.transpose(0, 1).contiguous()


# -- single steps ---------------------------------------------------------------------------------------------


class StepWeights(NamedTuple, Generic[Values]):
    """Weights of one recurrent layer for single steps, as tensors or arrays; m is d times the number of gates.

    Attributes:
        weight: input weights U transposed, ``(d, m)``.
        bias: sum of both biases, without the part that a gate multiplies, ``(m,)``.
        recurrent: recurrent weights V transposed, ``(d, m)``.
        gated_bias: bias that a GRU's reset gate multiplies, ``(d,)``; ``(0,)`` for other cells.
    """

    weight: Values
    bias: Values
    recurrent: Values
    gated_bias: Values


# One step of a layer: takes its input's contribution (n, m), state and weights; returns the state after, ``h`` first.
# On arrays, it runs one sequence, without a batch axis.
LayerStep = Callable[[Any, Any, StepWeights[Any]], tuple[Any, ...]]


class RecurrentArrayStep:
    """One step of all layers of a recurrent network for one sequence, computed on NumPy arrays.

    Args:
        layers: weights of each layer.
        step: function that computes one step of one layer.
    """

    def __init__(self, layers: Sequence[StepWeights[np.ndarray]], step: LayerStep) -> None:
        self.layers, self.step_layer = layers, step

    def __call__(
        self, projected: np.ndarray, states: tuple[tuple[np.ndarray, ...], ...]
    ) -> tuple[np.ndarray, tuple[tuple[np.ndarray, ...], ...]]:
        """Return the hidden state of the last layer, ``(d,)``, and each layer's state after one step of one sequence.

        Args:
            projected: contribution ``U x + b`` of the input to the m units of the first layer's gates, ``(m,)``.
            states: each layer's state before the step.
        """
        after: list[tuple[np.ndarray, ...]] = []
        for weights, state in zip(self.layers, states, strict=True):
            z = after[-1][0].dot(weights.weight) + weights.bias if after else projected
            after.append(self.step_layer(z, state, weights))
        return after[-1][0], tuple(after)


class RecurrentStepper(Stepper[States, tuple[States, ...]]):
    """Single steps of a recurrent network in evaluation; the state is each layer's ``(h,)`` or ``(h, c)``.

    h and c are ``(n, d)`` each, for n sequences.

    Args:
        layers: weights of each layer.
        step: function that computes one step of one layer.
        is_fused: True if the network reads many steps by one kernel, which is then faster than single steps.
    """

    def __init__(self, layers: Sequence[StepWeights[Tensor]], step: LayerStep, *, is_fused: bool) -> None:
        self.layers, self.step_layer, self.is_fused = layers, step, is_fused
        self.input_map = InputMap(layers[0].weight, layers[0].bias)

    def converted(self, state: States) -> tuple[States, ...]:
        return tuple(zip(*(part.unbind(1) for part in state), strict=True))

    def reverted(self, state: tuple[States, ...]) -> States | None:
        if not self.is_fused:
            return None
        return tuple(torch.stack(part, 1) for part in zip(*state, strict=True))

    def step(self, projected: Tensor, state: tuple[States, ...]) -> tuple[Tensor, tuple[States, ...]]:
        after: list[States] = []
        for weights, before in zip(self.layers, state, strict=True):
            z = torch.addmm(weights.bias, after[-1][0], weights.weight) if after else projected
            after.append(self.step_layer(z, before, weights))
        return after[-1][0], tuple(after)


def stepper_of(
    network: KernelNetwork, layers: Sequence[StepWeights[Tensor]], step: LayerStep, array_step: LayerStep
) -> Stepper[States, tuple[States, ...]] | None:
    """Return the ``Stepper`` of a network, or None if its options change what a layer passes on.

    Args:
        network: the network.
        layers: weights of each layer.
        step: computes one step of one layer for n sequences on tensors.
        array_step: the same for one sequence on arrays, which is used on the CPU.
    """
    if network.options.is_active(training=False):
        return None
    device = layers[0].weight.device
    stepper = RecurrentStepper(layers, step, is_fused=network.is_fused(device))
    if device.type == "cpu":
        arrays = [StepWeights(*(tensor.numpy() for tensor in weights)) for weights in layers]
        stepper.array_step = RecurrentArrayStep(arrays, array_step)
    return stepper


def sigmoid(z: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-z))``, computed by the hyperbolic tangent, which does not overflow."""
    result: np.ndarray = 0.5 + 0.5 * np.tanh(0.5 * z)
    return result
