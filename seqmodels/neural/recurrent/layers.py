"""Layers of one recurrence, one upon the other, and what they read: inputs, or rows of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqmodels.neural.network import Memory, Network, Source
from seqmodels.neural.ops.dropout import dropout as apply_dropout
from seqmodels.neural.recurrent.options import RecurrentOptions
from seqmodels.randomness import fit_generator, torch_dropout

States = tuple[Tensor, ...]  # (h,) or (h, c)
Weights = tuple[Tensor, ...]  # of one layer: of inputs, of states, and the two biases
Layer = Callable[[States, Weights], tuple[Tensor, States]]


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
        if isinstance(self.rnn, nn.LSTM):
            return lstm(self.rnn, inputs, states)
        hidden, last = self.rnn(inputs, states[0])
        return hidden, (last,)

    def _in_turn(self, inputs: Tensor, states: States) -> tuple[Tensor, States]:
        entering = self.options.lock(self.options.skip_steps(inputs, self.training), self.training)
        return self._upwards(partial(self.one_layer, entering), states)

    def _upwards(self, first: Layer, states: States) -> tuple[Tensor, States]:
        """Layer by layer, of which the first has its inputs already."""
        options, training, last = self.options, self.training, []
        below: Tensor | None = None
        for i, (u, v, *biases) in enumerate(self.rnn.all_weights):
            before, weights = tuple(part[i : i + 1] for part in states), (u, options.thin(v, training), *biases)
            if below is None:
                hidden, after = first(before, weights)
            else:
                entering = options.lock(apply_dropout(below, self.rnn.dropout, training), training)
                hidden, after = self.one_layer(entering, before, weights)
            hidden = self.norms[i](hidden) if options.layer_norm else hidden
            below = below + hidden if options.residual and below is not None else hidden
            last.append(after)
        assert below is not None, "a network has a layer"
        return options.lock(below, training), tuple(map(torch.cat, zip(*last, strict=True)))


class ScannedNetwork(RecurrentNetwork, ABC):
    """A recurrence whose inputs add something linear to each step: it is known for all steps before the first is taken.

    To add one, define the two methods below, and ``is_fused``.
    """

    @abstractmethod
    def drive(self, inputs: Tensor, weights: Weights) -> Tensor:
        """What inputs (..., d) and biases add, (..., m)."""

    @abstractmethod
    def scan(self, driven: Tensor, state: Tensor, weights: Weights) -> Tensor:
        """``driven`` (T, B, m) and the state before (B, d) -> states (T, B, d)."""

    def one_layer(self, inputs: Tensor, states: States, weights: Weights) -> tuple[Tensor, States]:
        """See ``RecurrentNetwork``."""
        return self._scanned(self.drive(inputs, weights).transpose(0, 1), states, weights)

    def read(self, table: Tensor, rows: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Network``: what a row adds is computed once, not at every step that it is read."""
        options = self.options
        if self.is_fused(table.device) or (self.training and (options.recurrent_dropout or options.embedding_dropout)):
            return super().read(table, rows, memory)
        driven = self.drive(table, tuple(self.rnn.all_weights[0]))
        exact = torch.promote_types(driven.dtype, torch.float32)  # in which gradients of a row are added up
        driven = F.embedding(rows.t(), driven.to(exact)).to(driven.dtype)  # (T, B, m)
        hidden, states = self._upwards(partial(self._scanned, driven), tuple(map(layers_first, memory)))
        return apply_dropout(hidden, self.drop, self.training), tuple(map(layers_first, states))

    def _scanned(self, driven: Tensor, states: States, weights: Weights) -> tuple[Tensor, States]:
        hidden = self.scan(driven, states[0][0], weights)
        return hidden.transpose(0, 1), (hidden[-1:],)


def lstm(rnn: nn.LSTM, inputs: Tensor, states: States | None = None) -> tuple[Tensor, States]:
    """``rnn`` of inputs (B, T, m) and states (directions L, B, d) twice, None: zeros; its dropout draws from the fit's generator.

    Its own kernel takes no generator. Layer by layer it computes the same, to the bit.
    """
    if not (rnn.training and rnn.dropout) or fit_generator() is None:
        found: tuple[Tensor, States] = rnn(inputs, states)
        return found
    n_ways = 2 if rnn.bidirectional else 1
    if states is None:
        states = (inputs.new_zeros(n_ways * rnn.num_layers, len(inputs), rnn.hidden_size),) * 2
    below, last = inputs, []
    for k in range(0, n_ways * rnn.num_layers, n_ways):
        if k:
            below = torch_dropout(below, rnn.dropout)
        weights: list[Tensor] = [weight for way in rnn.all_weights[k : k + n_ways] for weight in way]
        before = tuple(state[k : k + n_ways] for state in states)
        below, *after = torch.lstm(below, before, weights, True, 1, 0.0, True, n_ways > 1, True)
        last.append(after)
    return below, tuple(map(torch.cat, zip(*last, strict=True)))


def between(dropout: float, n_layers: int) -> float:
    """Dropout between layers: torch warns of it where there is only one."""
    return dropout if n_layers > 1 else 0.0


def zeros(n: int, rnn: nn.RNNBase) -> Tensor:
    """A zero state (n, n_layers, d) with the type and device of the weights."""
    return next(rnn.parameters()).new_zeros(n, rnn.num_layers, rnn.hidden_size)


def layers_first(state: Tensor) -> Tensor:
    """(B, L, d) <-> (L, B, d): torch's kernels want the layers first, a memory the batch."""
    return state.transpose(0, 1).contiguous()
