"""Recurrent networks: ``h_t = f(h_{t-1}, x_t)``, one vector that carries the whole past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqmodels.neural.network import Memory, Network, Source, Stepper
from seqmodels.neural.stepper import ElmanStepper, GRUStepper, LSTMStepper

Nonlinearity = Literal["tanh", "sigmoid", "relu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}


class ElmanNetwork(Network):
    """``h_t = σ(V h_{t-1} + U x_t + b)``, from ``h_0 = 0`` (Elman, 1990).

    ``b`` is kept as torch keeps it, as a sum of two vectors. ``V`` starts orthogonal, so that at first the past
    neither fades nor explodes; with the sigmoid the network starts as one with tanh, in other units.

    Args:
        d_model: width of inputs and of ``h``.
        n_layers: each layer reads the states of the one below.
        nonlinearity: ``σ``; ``"sigmoid"`` is Elman's own, and slower: torch has no fused kernel for it.
        dropout: on the states of every layer, upwards only, never along time.
    """

    def __init__(
        self, d_model: int, n_layers: int = 1, *, nonlinearity: Nonlinearity = "tanh", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if nonlinearity not in get_args(Nonlinearity):
            raise ValueError(f'nonlinearity is {nonlinearity!r}; pass "tanh", "sigmoid" or "relu"')
        self.d_model = d_model
        self.nonlinearity = nonlinearity
        kernel = "tanh" if nonlinearity == "sigmoid" else nonlinearity  # with the sigmoid it only holds the weights
        self.rnn = nn.RNN(d_model, d_model, n_layers, kernel, batch_first=True, dropout=between(dropout, n_layers))
        self.dropout = nn.Dropout(dropout)
        for _, recurrent, *_ in self.rnn.all_weights:
            nn.init.orthogonal_(recurrent)
        if nonlinearity == "sigmoid":
            from_tanh_to_sigmoid(self.rnn)

    def start(self, n: int, source: Source | None = None) -> Memory:
        """``(h,)``, zeros (n, n_layers, d_model)."""
        return (zeros(n, self.rnn),)

    def forward(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``."""
        state = layers_first(memory[0])
        if self.nonlinearity == "sigmoid":
            hidden, state = elman_loop(self.rnn, inputs, state, torch.sigmoid)
        else:
            hidden, state = self.rnn(inputs, state)
        return self.dropout(hidden), (layers_first(state),)

    def stepper(self, inputs: Tensor) -> Stepper:
        """See ``Network``."""
        return ElmanStepper(self.rnn, ACTIVATIONS[self.nonlinearity], inputs)


class LSTMNetwork(Network):
    """``c_t = f c_{t-1} + i tanh(g)``, ``h_t = o tanh(c_t)``, gates from ``x_t`` and ``h_{t-1}``, from zero.

    Long short-term memory (Hochreiter and Schmidhuber, 1997) with forget gates (Gers et al., 2000), whose bias starts at
    one: remember first (Jozefowicz et al., 2015).

    Args:
        d_model: width of inputs, of ``h`` and of ``c``.
        n_layers: each layer reads the states of the one below.
        dropout: on the states of every layer, upwards only, never along time.
    """

    def __init__(self, d_model: int, n_layers: int = 1, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.d_model = d_model
        self.rnn = nn.LSTM(d_model, d_model, n_layers, batch_first=True, dropout=between(dropout, n_layers))
        self.dropout = nn.Dropout(dropout)
        open_forget_gates(self.rnn)

    def start(self, n: int, source: Source | None = None) -> Memory:
        """``(h, c)``, zeros (n, n_layers, d_model) each."""
        return zeros(n, self.rnn), zeros(n, self.rnn)

    def forward(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``."""
        hidden, (h, c) = self.rnn(inputs, (layers_first(memory[0]), layers_first(memory[1])))
        return self.dropout(hidden), (layers_first(h), layers_first(c))

    def stepper(self, inputs: Tensor) -> Stepper:
        """See ``Network``."""
        return LSTMStepper(self.rnn, inputs)


class GRUNetwork(Network):
    """``h_t = z h_{t-1} + (1 - z) tanh(U x_t + b + r (V h_{t-1} + b'))``, gates z and r, from zero.

    Gated recurrent units (Cho et al., 2014), with the reset gate after the product, as in cuDNN.

    Args:
        d_model: width of inputs and of ``h``.
        n_layers: each layer reads the states of the one below.
        dropout: on the states of every layer, upwards only, never along time.
    """

    def __init__(self, d_model: int, n_layers: int = 1, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.d_model = d_model
        self.rnn = nn.GRU(d_model, d_model, n_layers, batch_first=True, dropout=between(dropout, n_layers))
        self.dropout = nn.Dropout(dropout)

    def start(self, n: int, source: Source | None = None) -> Memory:
        """``(h,)``, zeros (n, n_layers, d_model)."""
        return (zeros(n, self.rnn),)

    def forward(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``."""
        hidden, state = self.rnn(inputs, layers_first(memory[0]))
        return self.dropout(hidden), (layers_first(state),)

    def stepper(self, inputs: Tensor) -> Stepper:
        """See ``Network``."""
        return GRUStepper(self.rnn, inputs)


def elman_loop(
    rnn: nn.RNN, inputs: Tensor, state: Tensor, activation: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """What ``rnn`` computes, with any activation: inputs (B, T, d), state (L, B, d) -> hidden (B, T, d), last state."""
    last = []
    for layer, (u, v, b, b_recurrent) in enumerate(rnn.all_weights):
        below = inputs if layer == 0 else F.dropout(inputs, rnn.dropout, rnn.training)
        h, states = state[layer], []
        for driven in F.linear(below, u, b + b_recurrent).unbind(1):
            h = activation(torch.addmm(driven, h, v.t()))
            states.append(h)
        inputs = torch.stack(states, 1)
        last.append(h)
    return inputs, torch.stack(last)


def from_tanh_to_sigmoid(rnn: nn.RNN) -> None:
    """Change weights so that with the sigmoid states are ``(1 + t) / 2``, where t were those with tanh.

    For ``σ(z) = (1 + tanh(z / 2)) / 2``. The sigmoid's slope is a quarter and its middle one half: with weights that
    suit tanh the past would fade fourfold at every step.
    """
    with torch.no_grad():
        for layer, (u, v, b, b_recurrent) in enumerate(rnn.all_weights):
            b.mul_(2.0)
            b_recurrent.mul_(2.0)
            for weight in (v,) if layer == 0 else (v, u):  # the weights of states
                weight.mul_(4.0)
                b.sub_(weight.sum(1) / 2)
            if layer == 0:
                u.mul_(2.0)


def open_forget_gates(lstm: nn.LSTM) -> None:
    """Start the bias of every forget gate at one (torch adds two biases: the other starts at zero)."""
    gates = slice(lstm.hidden_size, 2 * lstm.hidden_size)
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if name.startswith("bias"):
                parameter[gates] = float(name.startswith("bias_ih"))


def between(dropout: float, n_layers: int) -> float:
    """Dropout between layers: torch warns of it where there is only one."""
    return dropout if n_layers > 1 else 0.0


def zeros(n: int, rnn: nn.RNNBase) -> Tensor:
    """A zero state (n, n_layers, d) with the type and device of the weights."""
    return next(rnn.parameters()).new_zeros(n, rnn.num_layers, rnn.hidden_size)


def layers_first(state: Tensor) -> Tensor:
    """(B, L, d) <-> (L, B, d): torch's kernels want the layers first, a memory the batch."""
    return state.transpose(0, 1).contiguous()
