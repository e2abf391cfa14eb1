"""Gated recurrent units (Cho et al. 2014): ``h_t = z h_{t-1} + (1 - z) tanh(U x_t + b + r (V h_{t-1} + b'))``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.network import CarriedState, Stepper
from seqmodels.neural.ops.scan import gru_scan
from seqmodels.neural.recurrent.cell import Cell
from seqmodels.neural.recurrent.stack import (
    NO_OPTIONS,
    RecurrentOptions,
    ScannedNetwork,
    StepWeights,
    Weights,
    dropout_between,
)


class GRUCell(Cell):
    """``h_t = z h_{t-1} + (1 - z) tanh(U x_t + b + r (V h_{t-1} + b'))``.

    ``r, z = σ(..)`` of what is linear in ``x_t`` and ``h_{t-1}``.

    The reset gate r comes after the product, as in cuDNN. The rows of the weights are those of r, z and the candidate,
    as torch keeps them.

    Args:
        d_in: width of ``x``.
        d_hidden: width of ``h``.
    """

    recurrent_weights = ("weight_hh",)

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = nn.GRUCell(d_in, d_hidden).parameters()

    def initial_state(self, n: int) -> Tensor:
        """Zeros (n, d_hidden)."""
        return self.weight_hh.new_zeros(n, self.weight_hh.shape[1])

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Cell``."""
        driven = (inputs @ self.weight_ih.t() + self.bias_ih).chunk(3, -1)
        recurrent = (state @ self.weight_hh.t() + self.bias_hh).chunk(3, -1)
        r = torch.sigmoid(driven[0] + recurrent[0])
        z = torch.sigmoid(driven[1] + recurrent[1])
        candidate = torch.tanh(driven[2] + r * recurrent[2])
        h = z * state + (1 - z) * candidate
        return h, h


class GRUNetwork(ScannedNetwork):
    """Layers of ``GRUCell``, faster: what inputs add is one product for all steps, and the steps are ``gru_scan``.

    Args:
        d_model: width of inputs and of ``h``.
        n_layers: each layer reads the states of the one below.
        dropout, options: see ``RecurrentNetwork``.
    """

    def __init__(
        self, d_model: int, n_layers: int = 1, *, dropout: float = 0.0, options: RecurrentOptions = NO_OPTIONS
    ) -> None:
        rnn = nn.GRU(d_model, d_model, n_layers, batch_first=True, dropout=dropout_between(dropout, n_layers))
        super().__init__(rnn, dropout, options)

    def is_fused(self, device: torch.device) -> bool:
        """See ``KernelNetwork``."""
        return device.type != "cpu"

    def drive(self, inputs: Tensor, weights: Weights) -> Tensor:
        """``U x + b``, with what of ``b'`` no gate multiplies."""
        u, _, b, b_recurrent = weights
        split = 2 * self.d_model
        ungated = torch.cat([b_recurrent[:split], torch.zeros_like(b_recurrent[split:])])
        return F.linear(inputs, u, b + ungated)

    def scan(self, driven: Tensor, state: Tensor, weights: Weights) -> Tensor:
        """See ``ScannedNetwork``."""
        gated = weights[3][2 * self.d_model :]
        return gru_scan(driven, state, weights[1].to(driven.dtype), gated.to(driven.dtype))

    def stepper(self, inputs: Tensor) -> Stepper | None:
        """See ``Network``."""
        return None if self.options.is_active(training=False) else GRUStepper(self.rnn, inputs)


class GRUStepper(Stepper):
    """The steps of ``rnn`` in evaluation, on ``inputs (R, d)``, of which each step names one."""

    def __init__(self, rnn: nn.RNNBase, inputs: Tensor) -> None:
        self.split = 2 * rnn.hidden_size  # reset and update gates | candidate
        self.biases = [c.detach() for *_, c in rnn.all_weights]
        weights = [(u.detach(), v.detach(), b.detach()) for u, v, b, _ in rnn.all_weights]
        self.layers = [StepWeights.of(inputs if i == 0 else None, *layer) for i, layer in enumerate(weights)]

    def begin(self, memory: CarriedState) -> CarriedState:
        """``h`` of each layer, ``(n, d)``."""
        return memory[0].unbind(1)

    def step(self, rows: Tensor, memory: CarriedState) -> tuple[Tensor, CarriedState]:
        """See ``Stepper``."""
        below, after, split = rows, [], self.split
        for i, (layer, bias, h) in enumerate(zip(self.layers, self.biases, memory, strict=True)):
            driven = layer.drive(below, first=i == 0)
            recurrent = torch.addmm(bias, h, layer.recurrent)  # (n, 3d): reset, update, candidate
            reset, update = (driven[:, :split] + recurrent[:, :split]).sigmoid_().chunk(2, dim=1)
            candidate = torch.addcmul(driven[:, split:], reset, recurrent[:, split:]).tanh_()
            below = torch.lerp(candidate, h, update)
            after.append(below)
        return below, tuple(after)
