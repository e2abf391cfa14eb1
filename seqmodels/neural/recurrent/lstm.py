"""Long short-term memory: ``c_t = f c_{t-1} + i tanh(g)``, ``h_t = o tanh(c_t)`` (Hochreiter and Schmidhuber 1997)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.common.randomness import fit_generator, torch_dropout
from seqmodels.neural.network import Stepper
from seqmodels.neural.ops.precision import lacks_lstm, lstm_layer, without_tf32
from seqmodels.neural.recurrent.cell import Cell
from seqmodels.neural.recurrent.stack import (
    NO_OPTIONS,
    KernelNetwork,
    RecurrentOptions,
    States,
    StepWeights,
    Weights,
    dropout_between,
    sigmoid,
    stepper_of,
)

HiddenAndCell = tuple[Tensor, Tensor]  # (h, c), (n, d) each


class LSTMCell(Cell[HiddenAndCell]):
    """One step of an LSTM: ``c_t = f c_{t-1} + i tanh(g)``, ``h_t = o tanh(c_t)``.

    The gates ``i, f, o = σ(..)`` before the sigmoid, and ``g``, are linear in ``x_t`` and ``h_{t-1}``. The bias of the
    forget gates (Gers et al., 2000) starts at one, so that the cell remembers at first (Jozefowicz et al., 2015). The
    rows of the weights belong to i, f, g and o in this order, as in torch.

    Args:
        d_in: width of ``x``.
        d_hidden: width of ``h`` and of ``c``.
    """

    recurrent_weights = ("weight_hh",)

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        cell = nn.LSTMCell(d_in, d_hidden)
        open_forget_gates(cell)
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = cell.parameters()

    def initial_state(self, n: int) -> HiddenAndCell:
        """Return the state ``(h, c)`` of n sequences before the first step, zeros ``(n, d_hidden)`` each."""
        zero = self.weight_hh.new_zeros(n, self.weight_hh.shape[1])
        return zero, zero

    def forward(self, inputs: Tensor, state: HiddenAndCell) -> tuple[Tensor, HiddenAndCell]:
        h, c = state
        gates = inputs @ self.weight_ih.t() + self.bias_ih + h @ self.weight_hh.t() + self.bias_hh  # (n, 4 d)
        i, f, g, o = gates.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h, (h, c)


class LSTMNetwork(KernelNetwork):
    """Layers of long short-term memory (LSTM), computed by torch's kernel.

    Args:
        d_model: width of inputs, of ``h`` and of ``c``.
        n_layers: number of layers, each of which reads the states of the one below.
        dropout: fraction of each layer's outputs that is dropped in training.
        options: further dropout, layer norm and residual connections.
    """

    n_states = 2

    def __init__(
        self, d_model: int, n_layers: int = 1, *, dropout: float = 0.0, options: RecurrentOptions = NO_OPTIONS
    ) -> None:
        rnn = nn.LSTM(d_model, d_model, n_layers, batch_first=True, dropout=dropout_between(dropout, n_layers))
        super().__init__(rnn, dropout, options)
        open_forget_gates(rnn)

    def is_fused(self, device: torch.device) -> bool:
        return True

    def all_layers(self, inputs: Tensor, states: States) -> tuple[Tensor, States]:
        assert isinstance(self.rnn, nn.LSTM)
        return lstm(self.rnn, inputs, states)

    def one_layer(self, inputs: Tensor, states: States, *, weights: Weights) -> tuple[Tensor, States]:
        hidden, h, c = lstm_layer(inputs, (states[0], states[1]), weights, training=self.training)
        return hidden, (h, c)

    def stepper(self) -> Stepper[States, Any] | None:
        layers = []
        for u, v, b, c in self.rnn.all_weights:
            weight, bias, recurrent = (with_doubled_candidate(w, self.d_model) for w in (u.t(), b + c, v.t()))
            layers.append(StepWeights(weight, bias, recurrent, bias[:0]))
        return stepper_of(self, layers, tensor_lstm_step, lstm_step)


def lstm_step(
    z: np.ndarray, state: tuple[np.ndarray, ...], weights: StepWeights[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the state ``c' = f c + i tanh(g)``, ``h' = o tanh(c')`` after one step of one sequence, on arrays.

    Args:
        z: contribution of the input to i, f, g and o, ``U x + b``, ``(4 d,)``.
        state: the state before, ``(h, c)``, each ``(d,)``.
        weights: the layer's weights; those of g are doubled, because ``tanh(g) = 2 σ(2g) - 1``.

    Returns:
        ``(h', c')``.
    """
    h, c = state
    d = len(c)
    gates = sigmoid(z + h.dot(weights.recurrent))  # (4d,)
    i, f, g, o = gates[:d], gates[d : 2 * d], gates[2 * d : 3 * d], gates[3 * d :]
    c = f * c + i * (2 * g - 1)
    return o * np.tanh(c), c


def tensor_lstm_step(z: Tensor, state: States, weights: StepWeights[Tensor]) -> States:
    """Return the state ``c' = f c + i tanh(g)``, ``h' = o tanh(c')`` after one step of n sequences, on tensors.

    Args:
        z: contribution of the input to i, f, g and o, ``U x + b``, ``(n, 4 d)``.
        state: the state before, ``(h, c)``, each ``(n, d)``.
        weights: the layer's weights; those of g are doubled, because ``tanh(g) = 2 σ(2g) - 1``.

    Returns:
        ``(h', c')``.
    """
    h, c = state
    i, f, g, o = torch.addmm(z, h, weights.recurrent).sigmoid_().chunk(4, 1)  # (n, d) each
    c = torch.addcmul(f * c, i, g, value=2.0).sub_(i)
    return o * c.tanh(), c


def lstm(rnn: nn.LSTM, inputs: Tensor, states: States | None = None) -> tuple[Tensor, States]:
    """Run torch's LSTM on B sequences of T steps, with dropout that draws from the fit's own generator.

    Because torch's kernel takes no generator, layers are run one by one if there is dropout; the result is the same up
    to rounding.

    Args:
        rnn: the layers and their weights.
        inputs: inputs of m features, ``(B, T, m)``.
        states: h and c before the first step, each ``(directions L, B, d)`` for L layers; None means zeros.

    Returns:
        The outputs, ``(B, T, directions d)``, and h and c after the last step.
    """
    if lacks_lstm(inputs):
        with torch.autocast(inputs.device.type, enabled=False):
            return lstm(rnn, inputs.float(), None if states is None else (states[0].float(), states[1].float()))
    if not (rnn.training and rnn.dropout) or fit_generator() is None:
        with without_tf32(inputs):
            result: tuple[Tensor, States] = rnn(inputs, states)
        return result
    n_directions = 2 if rnn.bidirectional else 1
    if states is None:
        states = (inputs.new_zeros(n_directions * rnn.num_layers, len(inputs), rnn.hidden_size),) * 2
    outputs, last = inputs, []
    for k in range(0, n_directions * rnn.num_layers, n_directions):
        if k:
            outputs = torch_dropout(outputs, rnn.dropout)
        weights: list[Tensor] = [weight for one in rnn.all_weights[k : k + n_directions] for weight in one]
        layer_states = tuple(state[k : k + n_directions] for state in states)
        outputs, *new_states = lstm_layer(
            outputs, (layer_states[0], layer_states[1]), weights, training=True, bidirectional=n_directions > 1
        )
        last.append(new_states)
    return outputs, tuple(map(torch.cat, zip(*last, strict=True)))


def open_forget_gates(lstm: nn.LSTM | nn.LSTMCell) -> None:
    """Set the bias of every forget gate to one: torch has two bias vectors, of which one is set to 1 and one to 0."""
    gates = slice(lstm.hidden_size, 2 * lstm.hidden_size)
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if name.startswith("bias"):
                parameter[gates] = float(name.startswith("bias_ih"))


def with_doubled_candidate(weight: Tensor, size: int) -> Tensor:
    """Return a contiguous copy of an LSTM's weights in which the weights of the candidate g are doubled.

    The last axis has four parts of the given ``size``, of which g is the third. One sigmoid then serves all four,
    because ``tanh(g) = 2 σ(2g) - 1``.
    """
    copy = weight.detach().clone(memory_format=torch.contiguous_format)
    copy[..., 2 * size : 3 * size] *= 2
    return copy
