"""Gated recurrent units (Cho et al. 2014): ``h_t = z h_{t-1} + (1 - z) tanh(U x_t + b + r (V h_{t-1} + b'))``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.network import Stepper
from seqmodels.neural.ops.scan import gru_scan
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


class GRUCell(Cell[Tensor]):
    """One step of a GRU: ``h_t = z h_{t-1} + (1 - z) tanh(U x_t + b + r (V h_{t-1} + b'))``.

    The update gate z and the reset gate r are ``σ(..)`` of linear maps of ``x_t`` and ``h_{t-1}``. The reset gate is
    applied after the product with V, as in cuDNN. The rows of the weights belong to r, z and the candidate (the tanh)
    in this order, as in torch.

    Args:
        d_in: width of ``x``.
        d_hidden: width of ``h``.
    """

    recurrent_weights = ("weight_hh",)

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = nn.GRUCell(d_in, d_hidden).parameters()

    def initial_state(self, n: int) -> Tensor:
        return self.weight_hh.new_zeros(n, self.weight_hh.shape[1])

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        projected = (inputs @ self.weight_ih.t() + self.bias_ih).chunk(3, -1)
        recurrent = (state @ self.weight_hh.t() + self.bias_hh).chunk(3, -1)
        r = torch.sigmoid(projected[0] + recurrent[0])
        z = torch.sigmoid(projected[1] + recurrent[1])
        candidate = torch.tanh(projected[2] + r * recurrent[2])
        h = z * state + (1 - z) * candidate
        return h, h


class GRUNetwork(ScannedNetwork):
    """Layers of gated recurrent units (GRUs), computed faster than by ``GRUCell``.

    One product projects the inputs of all steps, and ``gru_scan`` runs the steps.

    Args:
        d_model: width of inputs and of ``h``.
        n_layers: number of layers, each of which reads the states of the one below.
        dropout: fraction of each layer's outputs that is dropped in training.
        options: further dropout, layer norm and residual connections.
    """

    def __init__(
        self, d_model: int, n_layers: int = 1, *, dropout: float = 0.0, options: RecurrentOptions = NO_OPTIONS
    ) -> None:
        rnn = nn.GRU(d_model, d_model, n_layers, batch_first=True, dropout=dropout_between(dropout, n_layers))
        super().__init__(rnn, dropout, options)

    def is_fused(self, device: torch.device) -> bool:
        return device.type != "cpu"

    def project(self, inputs: Tensor, weights: Weights) -> Tensor:
        """Return the contribution ``U x + b`` of inputs to r, z and the candidate of a layer, ``(..., 3 d)``.

        r and z are the reset and the update gate. The result includes the part of the second bias b' that the reset
        gate does not multiply.

        Args:
            inputs: x, ``(..., d)``.
            weights: the layer's U, V and two biases.
        """
        return F.linear(inputs, weights[0], self._ungated_bias(weights))

    def scan(self, projected: Tensor, state: Tensor, weights: Weights) -> Tensor:
        gated = weights[3][2 * self.d_model :]
        return gru_scan(projected, state, weights[1].to(projected.dtype), gated.to(projected.dtype))

    def _ungated_bias(self, weights: Weights) -> Tensor:
        """Return the sum of a layer's two biases, ``(3 d,)``, without the part that the reset gate multiplies.

        That is the last third of the second bias.
        """
        _, _, b, b_recurrent = weights
        split = 2 * self.d_model
        return b + torch.cat([b_recurrent[:split], torch.zeros_like(b_recurrent[split:])])

    def stepper(self) -> Stepper[States, Any] | None:
        weights = [tuple(weight.detach() for weight in layer) for layer in self.rnn.all_weights]
        layers = [StepWeights(w[0].t(), self._ungated_bias(w), w[1].t(), w[3][2 * self.d_model :]) for w in weights]
        return stepper_of(self, layers, tensor_gru_step, gru_step)


def gru_step(z: np.ndarray, state: tuple[np.ndarray, ...], weights: StepWeights[np.ndarray]) -> tuple[np.ndarray]:
    """Return the state ``h' = u h + (1 - u) tanh(z_c + r (V_c h + b'))`` after one step of one sequence, on arrays.

    r is the reset gate. The update gate is called u here, because z is the contribution of the input.

    Args:
        z: ``U x + b`` for r, u and the candidate c, ``(3 d,)``.
        state: the state before, ``(h,)`` with h ``(d,)``.
        weights: the layer's weights, among them V and b'.
    """
    (h,) = state
    d = len(h)
    v = h.dot(weights.recurrent)  # (3d,): of r, u and the candidate c
    gates = sigmoid(z[: 2 * d] + v[: 2 * d])
    r, u = gates[:d], gates[d:]
    candidate = np.tanh(z[2 * d :] + r * (v[2 * d :] + weights.gated_bias))
    return (candidate + u * (h - candidate),)


def tensor_gru_step(z: Tensor, state: States, weights: StepWeights[Tensor]) -> States:
    """Return the state ``h' = u h + (1 - u) tanh(z_c + r (V_c h + b'))`` after one step of n sequences, on tensors.

    r is the reset gate and u the update gate.

    Args:
        z: contribution ``U x + b`` of the input to r, u and the candidate c, ``(n, 3 d)``.
        state: the state before, ``(h,)`` with h ``(n, d)``.
        weights: the layer's weights, among them V and b'.
    """
    (h,) = state
    d = h.shape[1]
    v = h @ weights.recurrent  # (n, 3d)
    r, u = (z[:, : 2 * d] + v[:, : 2 * d]).sigmoid_().chunk(2, 1)
    candidate = torch.addcmul(z[:, 2 * d :], r, v[:, 2 * d :] + weights.gated_bias).tanh_()
    return (torch.lerp(candidate, h, u),)
