"""Gated recurrent units (Cho et al. 2014): ``h_t = z h_{t-1} + (1 - z) tanh(U x_t + b + r (V h_{t-1} + b'))``."""

from __future__ import annotations

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
)


class GRUCell(Cell[Tensor]):
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
        return device.type != "cpu"

    def project(self, inputs: Tensor, weights: Weights) -> Tensor:
        """``U x + b``, with what of ``b'`` no gate multiplies."""
        u, _, b, b_recurrent = weights
        split = 2 * self.d_model
        ungated = torch.cat([b_recurrent[:split], torch.zeros_like(b_recurrent[split:])])
        return F.linear(inputs, u, b + ungated)

    def scan(self, projected: Tensor, state: Tensor, weights: Weights) -> Tensor:
        gated = weights[3][2 * self.d_model :]
        return gru_scan(projected, state, weights[1].to(projected.dtype), gated.to(projected.dtype))

    def stepper(self, table: Tensor) -> Stepper[States, States] | None:
        return None if self.options.is_active(training=False) else GRUStepper(self.rnn, table)


class GRUStepper(Stepper[States, States]):
    """The steps of ``rnn`` in evaluation, on the rows of ``table (R, d)``, which each step names by number.

    The table is projected beforehand.
    """

    def __init__(self, rnn: nn.RNNBase, table: Tensor) -> None:
        self.gate_width = 2 * rnn.hidden_size  # reset and update gates | candidate
        self.biases = [c.detach() for *_, c in rnn.all_weights]
        weights = [(u.detach(), v.detach(), b.detach()) for u, v, b, _ in rnn.all_weights]
        self.layers = [StepWeights.from_layer(table if i == 0 else None, *layer) for i, layer in enumerate(weights)]

    def converted(self, state: States) -> States:
        """``h`` of each layer, ``(n, d)``."""
        return state[0].unbind(1)

    def step(self, row_ids: Tensor, state: States) -> tuple[Tensor, States]:
        split = self.gate_width
        new_states: list[Tensor] = []
        for layer, bias, h in zip(self.layers, self.biases, state, strict=True):
            projected = layer.project(new_states[-1]) if new_states else layer.project_rows(row_ids)
            recurrent = torch.addmm(bias, h, layer.recurrent)  # (n, 3d): reset, update, candidate
            reset, update = (projected[:, :split] + recurrent[:, :split]).sigmoid_().chunk(2, dim=1)
            candidate = torch.addcmul(projected[:, split:], reset, recurrent[:, split:]).tanh_()
            new_states.append(torch.lerp(candidate, h, update))
        return new_states[-1], tuple(new_states)
