"""Recurrent networks: ``h_t = f(h_{t-1}, x_t)``, one vector that carries the whole past."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqmodels.neural.dropout import dropout as apply_dropout
from seqmodels.neural.network import Memory, Network, Source, Stepper
from seqmodels.neural.recurrent.options import RecurrentOptions
from seqmodels.neural.recurrent.scan import Nonlinearity, elman_scan, gru_scan
from seqmodels.neural.recurrent.stepper import ElmanStepper, GRUStepper, LSTMStepper

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}
States = tuple[Tensor, ...]  # (h,) or (h, c)
Weights = tuple[Tensor, ...]  # of one layer: of inputs, of states, and the two biases
PLAIN = RecurrentOptions()


class RecurrentNetwork(Network):
    """Layers of one recurrence, from zero states.

    Each layer is one call of a kernel, or all of them where a fused kernel takes them together and there are no options.

    Args:
        rnn: torch's layers, which hold the weights; inputs and states of one width.
        drop: fraction dropped of the states of every layer, upwards only, never along time, afresh at every step.
        options: further ones.

    To add one, define the two methods below, and ``n_states``, how many vectors a layer remembers.
    """

    n_states: int = 1

    def __init__(self, rnn: nn.RNNBase, drop: float, options: RecurrentOptions) -> None:
        super().__init__()
        self.d_model, self.options = rnn.hidden_size, options
        self.rnn = rnn
        self.drop = drop
        self.norms = nn.ModuleList(nn.LayerNorm(self.d_model) for _ in range(options.layer_norm * rnn.num_layers))

    @abstractmethod
    def is_fused(self, device: torch.device) -> bool:
        """Whether ``rnn`` itself computes this recurrence, and fast."""

    @abstractmethod
    def one_layer(self, inputs: Tensor, states: States, weights: Weights) -> tuple[Tensor, States]:
        """Inputs (B, T, d), states (1, B, d) -> hidden (B, T, d), last states, by one layer of these weights."""

    def start(self, n: int, source: Source | None = None) -> Memory:
        """Zeros (n, n_layers, d_model), ``(h,)`` or ``(h, c)``."""
        return tuple(zeros(n, self.rnn) for _ in range(self.n_states))

    def forward(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``."""
        fused = self.is_fused(inputs.device) and not self.options.acts(self.training)
        hidden, states = (self._at_once if fused else self._in_turn)(inputs, tuple(map(layers_first, memory)))
        return apply_dropout(hidden, self.drop, self.training), tuple(map(layers_first, states))

    def _at_once(self, inputs: Tensor, states: States) -> tuple[Tensor, States]:
        hidden, last = self.rnn(inputs, states if self.n_states > 1 else states[0])
        return hidden, last if self.n_states > 1 else (last,)

    def _in_turn(self, inputs: Tensor, states: States) -> tuple[Tensor, States]:
        options, training, last = self.options, self.training, []
        below = options.skip_steps(inputs, training)
        for layer, (u, v, *biases) in enumerate(self.rnn.all_weights):
            entering = apply_dropout(below, self.rnn.dropout, training) if layer else below
            before = tuple(part[layer : layer + 1] for part in states)
            weights = (u, options.thin(v, training), *biases)
            hidden, after = self.one_layer(options.lock(entering, training), before, weights)
            hidden = self.norms[layer](hidden) if options.layer_norm else hidden
            below = below + hidden if options.residual and layer else hidden
            last.append(after)
        return options.lock(below, training), tuple(map(torch.cat, zip(*last, strict=True)))


class ElmanNetwork(RecurrentNetwork):
    """``h_t = σ(V h_{t-1} + U x_t + b)``, from ``h_0 = 0`` (Elman, 1990).

    ``b`` is kept as torch keeps it, as a sum of two vectors. ``V`` starts orthogonal, so that at first the past
    neither fades nor explodes; with the sigmoid the network starts as one with tanh, in other units.

    Args:
        d_model: width of inputs and of ``h``.
        n_layers: each layer reads the states of the one below.
        nonlinearity: ``σ``; ``"sigmoid"`` is Elman's own.
        dropout, options: see ``RecurrentNetwork``, where the first is ``drop``.
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int = 1,
        *,
        nonlinearity: Nonlinearity = "tanh",
        dropout: float = 0.0,
        options: RecurrentOptions = PLAIN,
    ) -> None:
        if nonlinearity not in get_args(Nonlinearity):
            raise ValueError(f'nonlinearity is {nonlinearity!r}; pass "tanh", "sigmoid" or "relu"')
        kernel = "tanh" if nonlinearity == "sigmoid" else nonlinearity  # with the sigmoid it only holds the weights
        rnn = nn.RNN(d_model, d_model, n_layers, kernel, batch_first=True, dropout=between(dropout, n_layers))
        super().__init__(rnn, dropout, options)
        self.nonlinearity = nonlinearity
        for _, recurrent, *_ in rnn.all_weights:
            nn.init.orthogonal_(recurrent)
        if nonlinearity == "sigmoid":
            from_tanh_to_sigmoid(rnn)

    def is_fused(self, device: torch.device) -> bool:
        """See ``RecurrentNetwork``."""
        return device.type != "cpu" and self.nonlinearity != "sigmoid"

    def one_layer(self, inputs: Tensor, states: States, weights: Weights) -> tuple[Tensor, States]:
        """See ``RecurrentNetwork``."""
        u, v, b, b_recurrent = weights
        driven = F.linear(inputs, u, b + b_recurrent).transpose(0, 1)
        hidden = elman_scan(driven, states[0][0], v.to(driven.dtype), self.nonlinearity)
        return hidden.transpose(0, 1), (hidden[-1:],)

    def stepper(self, inputs: Tensor) -> Stepper | None:
        """See ``Network``."""
        return (
            None
            if self.options.acts(training=False)
            else ElmanStepper(self.rnn, ACTIVATIONS[self.nonlinearity], inputs)
        )


class LSTMNetwork(RecurrentNetwork):
    """``c_t = f c_{t-1} + i tanh(g)``, ``h_t = o tanh(c_t)``, gates from ``x_t`` and ``h_{t-1}``, from zero.

    Long short-term memory (Hochreiter and Schmidhuber, 1997) with forget gates (Gers et al., 2000), whose bias starts at
    one: remember first (Jozefowicz et al., 2015).

    Args:
        d_model: width of inputs, of ``h`` and of ``c``.
        n_layers: each layer reads the states of the one below.
        dropout, options: see ``RecurrentNetwork``, where the first is ``drop``.
    """

    n_states = 2

    def __init__(
        self, d_model: int, n_layers: int = 1, *, dropout: float = 0.0, options: RecurrentOptions = PLAIN
    ) -> None:
        rnn = nn.LSTM(d_model, d_model, n_layers, batch_first=True, dropout=between(dropout, n_layers))
        super().__init__(rnn, dropout, options)
        open_forget_gates(rnn)

    def is_fused(self, device: torch.device) -> bool:
        """See ``RecurrentNetwork``."""
        return True

    def one_layer(self, inputs: Tensor, states: States, weights: Weights) -> tuple[Tensor, States]:
        """See ``RecurrentNetwork``."""
        hidden, h, c = torch.lstm(inputs, states, weights, True, 1, 0.0, self.training, False, True)
        return hidden, (h, c)

    def stepper(self, inputs: Tensor) -> Stepper | None:
        """See ``Network``."""
        return None if self.options.acts(training=False) else LSTMStepper(self.rnn, inputs)


class GRUNetwork(RecurrentNetwork):
    """``h_t = z h_{t-1} + (1 - z) tanh(U x_t + b + r (V h_{t-1} + b'))``, gates z and r, from zero.

    Gated recurrent units (Cho et al., 2014), with the reset gate after the product, as in cuDNN.

    Args:
        d_model: width of inputs and of ``h``.
        n_layers: each layer reads the states of the one below.
        dropout, options: see ``RecurrentNetwork``, where the first is ``drop``.
    """

    def __init__(
        self, d_model: int, n_layers: int = 1, *, dropout: float = 0.0, options: RecurrentOptions = PLAIN
    ) -> None:
        rnn = nn.GRU(d_model, d_model, n_layers, batch_first=True, dropout=between(dropout, n_layers))
        super().__init__(rnn, dropout, options)

    def is_fused(self, device: torch.device) -> bool:
        """See ``RecurrentNetwork``."""
        return device.type != "cpu"

    def one_layer(self, inputs: Tensor, states: States, weights: Weights) -> tuple[Tensor, States]:
        """See ``RecurrentNetwork``."""
        (u, v, b, b_recurrent), split = weights, 2 * self.d_model
        outside = torch.cat([b_recurrent[:split], torch.zeros_like(b_recurrent[split:])])
        driven = F.linear(inputs, u, b + outside).transpose(0, 1)
        hidden = gru_scan(driven, states[0][0], v.to(driven.dtype), b_recurrent[split:].to(driven.dtype))
        return hidden.transpose(0, 1), (hidden[-1:],)

    def stepper(self, inputs: Tensor) -> Stepper | None:
        """See ``Network``."""
        return None if self.options.acts(training=False) else GRUStepper(self.rnn, inputs)


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
