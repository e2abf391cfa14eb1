"""Recurrent networks: ``h_t = f(h_{t-1}, x_t)``, one vector that carries the whole past."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqmodels.neural.network import Stepper
from seqmodels.neural.ops.scan import Nonlinearity, elman_scan, gru_scan
from seqmodels.neural.recurrent.layers import RecurrentNetwork, ScannedNetwork, States, Weights, between
from seqmodels.neural.recurrent.options import RecurrentOptions
from seqmodels.neural.recurrent.stepper import ElmanStepper, GRUStepper, LSTMStepper

ACTIVATIONS: dict[Nonlinearity, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "relu6": F.relu6,
}
KERNELS: dict[Nonlinearity, str] = {"tanh": "tanh", "relu": "relu"}  # torch has none for the others
PLAIN = RecurrentOptions()


class ElmanNetwork(ScannedNetwork):
    """``h_t = σ(V h_{t-1} + U x_t + b)``, from ``h_0 = 0`` (Elman, 1990).

    ``b`` is kept as torch keeps it, as a sum of two vectors. ``V`` starts orthogonal, so that at first the past
    neither fades nor explodes; with the sigmoid the network starts as one with tanh, in other units.

    Args:
        d_model: width of inputs and of ``h``.
        n_layers: each layer reads the states of the one below.
        nonlinearity: ``σ``; ``"sigmoid"`` is Elman's own; ``"relu6"`` is ``min(max(z, 0), 6)`` (Krizhevsky, 2010), whose
            states cannot grow without bound, as those of ``"relu"`` can.
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
            raise ValueError(f'nonlinearity is {nonlinearity!r}; pass "tanh", "sigmoid", "relu" or "relu6"')
        kernel = KERNELS.get(nonlinearity, "tanh")  # of which the others use the weights alone
        rnn = nn.RNN(d_model, d_model, n_layers, kernel, batch_first=True, dropout=between(dropout, n_layers))
        super().__init__(rnn, dropout, options)
        self.nonlinearity = nonlinearity
        for _, recurrent, *_ in rnn.all_weights:
            nn.init.orthogonal_(recurrent)
        if nonlinearity == "sigmoid":
            from_tanh_to_sigmoid(rnn)

    def is_fused(self, device: torch.device) -> bool:
        """See ``RecurrentNetwork``."""
        return device.type != "cpu" and self.nonlinearity in KERNELS

    def drive(self, inputs: Tensor, weights: Weights) -> Tensor:
        """See ``ScannedNetwork``."""
        u, _, b, b_recurrent = weights
        return F.linear(inputs, u, b + b_recurrent)

    def scan(self, driven: Tensor, state: Tensor, weights: Weights) -> Tensor:
        """See ``ScannedNetwork``."""
        return elman_scan(driven, state, weights[1].to(driven.dtype), self.nonlinearity)

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


class GRUNetwork(ScannedNetwork):
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

    def drive(self, inputs: Tensor, weights: Weights) -> Tensor:
        """See ``ScannedNetwork``."""
        (u, _, b, b_recurrent), split = weights, 2 * self.d_model
        outside = torch.cat([b_recurrent[:split], torch.zeros_like(b_recurrent[split:])])
        return F.linear(inputs, u, b + outside)

    def scan(self, driven: Tensor, state: Tensor, weights: Weights) -> Tensor:
        """See ``ScannedNetwork``."""
        inside = weights[3][2 * self.d_model :]
        return gru_scan(driven, state, weights[1].to(driven.dtype), inside.to(driven.dtype))

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
