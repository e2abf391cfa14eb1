"""Elman's recurrence: ``h_t = σ(V h_{t-1} + U x_t + b)`` (Elman 1990)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.network import Stepper
from seqmodels.neural.ops.scan import Nonlinearity, elman_scan
from seqmodels.neural.recurrent.cell import Cell
from seqmodels.neural.recurrent.stack import (
    NO_OPTIONS,
    RecurrentOptions,
    ScannedNetwork,
    States,
    StepWeights,
    Weights,
    dropout_between,
    sigmoid,
    stepper_of,
)

ACTIVATIONS: dict[Nonlinearity, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "relu6": F.relu6,
}
ARRAY_ACTIVATIONS: dict[Nonlinearity, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "relu": lambda z: np.maximum(z, 0),
    "relu6": lambda z: np.minimum(np.maximum(z, 0), 6),
}
KERNELS: dict[Nonlinearity, str] = {"tanh": "tanh", "relu": "relu"}  # torch has none for the others


class ElmanCell(Cell[Tensor]):
    """One step of Elman's recurrence, ``h_t = σ(V h_{t-1} + U x_t + b)``, where ``V`` starts orthogonal.

    As in torch, ``b`` is the sum of two bias vectors.

    Args:
        d_in: width of ``x``.
        d_hidden: width of ``h``.
        nonlinearity: name of ``σ``.
    """

    recurrent_weights = ("weight_hh",)

    def __init__(self, d_in: int, d_hidden: int, nonlinearity: Nonlinearity = "tanh") -> None:
        super().__init__()
        self.activation = ACTIVATIONS[nonlinearity]
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = nn.RNNCell(d_in, d_hidden).parameters()
        nn.init.orthogonal_(self.weight_hh)

    def initial_state(self, n: int) -> Tensor:
        return self.weight_hh.new_zeros(n, self.weight_hh.shape[1])

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        h = self.activation(inputs @ self.weight_ih.t() + self.bias_ih + state @ self.weight_hh.t() + self.bias_hh)
        return h, h


class ElmanNetwork(ScannedNetwork):
    """Layers of Elman's recurrence ``h_t = σ(V h_{t-1} + U x_t + b)``, computed faster than by ``ElmanCell``.

    One product projects the inputs of all steps, and ``elman_scan`` runs the steps. ``V`` starts orthogonal, so that at
    first the past neither fades nor explodes. With the sigmoid, the weights start so that states are those of a tanh
    network mapped to 0 .. 1.

    Args:
        d_model: width of inputs and of ``h``.
        n_layers: number of layers, each of which reads the states of the one below.
        nonlinearity: name of ``σ``; ``"sigmoid"`` is Elman's own; ``"relu6"`` is ``min(max(z, 0), 6)`` (Krizhevsky,
            2010), whose states cannot grow without bound as under ``"relu"``.
        dropout: fraction of each layer's outputs that is dropped in training.
        options: further dropout, layer norm and residual connections.

    Raises:
        ValueError: if ``nonlinearity`` is unknown.
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int = 1,
        *,
        nonlinearity: Nonlinearity = "tanh",
        dropout: float = 0.0,
        options: RecurrentOptions = NO_OPTIONS,
    ) -> None:
        if nonlinearity not in get_args(Nonlinearity):
            raise ValueError(f'nonlinearity is {nonlinearity!r}; pass "tanh", "sigmoid", "relu" or "relu6"')
        kernel = KERNELS.get(nonlinearity, "tanh")  # other nonlinearities use only its weights
        between = dropout_between(dropout, n_layers)
        rnn = nn.RNN(d_model, d_model, n_layers, kernel, batch_first=True, dropout=between)
        super().__init__(rnn, dropout, options)
        self.nonlinearity = nonlinearity
        for _, recurrent, *_ in rnn.all_weights:
            nn.init.orthogonal_(recurrent)
        if nonlinearity == "sigmoid":
            from_tanh_to_sigmoid(rnn)

    def is_fused(self, device: torch.device) -> bool:
        return device.type != "cpu" and self.nonlinearity in KERNELS

    def project(self, inputs: Tensor, weights: Weights) -> Tensor:
        """Return the contribution ``U x + b`` of inputs x to the steps of a layer, ``(..., d)``.

        Args:
            inputs: x, ``(..., d)``.
            weights: the layer's U, V and two biases, whose sum is b.
        """
        u, _, b, b_recurrent = weights
        return F.linear(inputs, u, b + b_recurrent)

    def scan(self, projected: Tensor, state: Tensor, weights: Weights) -> Tensor:
        return elman_scan(projected, state, weights[1].to(projected.dtype), self.nonlinearity)

    def stepper(self) -> Stepper[States, Any] | None:
        weights = [tuple(weight.detach() for weight in layer) for layer in self.rnn.all_weights]
        layers = [StepWeights(u.t(), b + c, v.t(), b[:0]) for u, v, b, c in weights]
        return stepper_of(
            self,
            layers,
            partial(tensor_elman_step, ACTIVATIONS[self.nonlinearity]),
            partial(elman_step, ARRAY_ACTIVATIONS[self.nonlinearity]),
        )


def elman_step(
    activation: Callable[[np.ndarray], np.ndarray],
    z: np.ndarray,
    state: tuple[np.ndarray, ...],
    weights: StepWeights[np.ndarray],
) -> tuple[np.ndarray]:
    """Return the state ``h' = σ(z + V h)`` after one step of one sequence and one layer, on arrays.

    Args:
        activation: σ.
        z: contribution of the input, ``U x + b``, ``(d,)``.
        state: the state before, ``(h,)`` with h ``(d,)``.
        weights: the layer's weights, among them V.
    """
    return (activation(z + state[0].dot(weights.recurrent)),)


def tensor_elman_step(
    activation: Callable[[Tensor], Tensor], z: Tensor, state: States, weights: StepWeights[Tensor]
) -> States:
    """Return the state ``h' = σ(z + V h)`` after one step of n sequences of one layer, on tensors.

    Args:
        activation: σ.
        z: contribution of the input, ``U x + b``, ``(n, d)``.
        state: the state before, ``(h,)`` with h ``(n, d)``.
        weights: the layer's weights, among them V.
    """
    return (activation(torch.addmm(z, state[0], weights.recurrent)),)


def from_tanh_to_sigmoid(rnn: nn.RNN) -> None:
    """Change the weights of a tanh network in place for the sigmoid: its states are then ``(1 + t) / 2`` instead of t.

    This uses ``σ(z) = (1 + tanh(z / 2)) / 2``. The sigmoid's slope is a quarter and its middle one half, so that with
    weights that suit tanh the past would fade fourfold at every step.
    """
    with torch.no_grad():
        for layer, (u, v, b, b_recurrent) in enumerate(rnn.all_weights):
            b.mul_(2.0)
            b_recurrent.mul_(2.0)
            for weight in (v,) if layer == 0 else (v, u):  # weights that multiply states
                weight.mul_(4.0)
                b.sub_(weight.sum(1) / 2)
            if layer == 0:
                u.mul_(2.0)
