"""Recurrent networks one step at a time, with what they make of each input computed before.

``U x + b`` of the first layer is a row of a table; what is left to do is one product with h a layer, and the gates.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.network import Memory, Stepper

Layer = tuple[Tensor, Tensor, Tensor]  # U x + b as a table (first layer) or U; V transposed; the bias


class LSTMStepper(Stepper):
    """The steps of ``rnn`` in evaluation, on ``inputs (R, d)``, of which each step names one."""

    def __init__(self, rnn: nn.RNNBase, inputs: Tensor) -> None:
        self.size = rnn.hidden_size
        weights = [[_doubled(w, self.size) for w in (u, v, b + c)] for u, v, b, c in rnn.all_weights]
        self.layers = [_layer(inputs if i == 0 else None, *layer) for i, layer in enumerate(weights)]

    def begin(self, memory: Memory) -> Memory:
        """``(h, c)`` for each layer, ``(n, d)`` each."""
        return tuple(zip(memory[0].unbind(1), memory[1].unbind(1), strict=True))

    def step(self, rows: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        below, after = rows, []
        for i, (layer, (h, c)) in enumerate(zip(self.layers, memory, strict=True)):
            gates = torch.addmm(_driven(layer, below, first=i == 0), h, layer[1]).sigmoid_()  # (n, 4d)
            enter, keep, candidate, leave = gates.chunk(4, dim=1)
            # The candidate is tanh(x) = 2 σ(2x) - 1, so that one pass over all gates serves.
            cell = torch.addcmul(keep * c, enter, candidate, value=2.0).sub_(enter)
            below = leave * cell.tanh()
            after.append((below, cell))
        return below, tuple(after)


class GRUStepper(Stepper):
    """The steps of ``rnn`` in evaluation, on ``inputs (R, d)``, of which each step names one."""

    def __init__(self, rnn: nn.RNNBase, inputs: Tensor) -> None:
        self.size, self.biases = rnn.hidden_size, [c.detach() for *_, c in rnn.all_weights]
        weights = [(u.detach(), v.detach(), b.detach()) for u, v, b, _ in rnn.all_weights]
        self.layers = [_layer(inputs if i == 0 else None, *layer) for i, layer in enumerate(weights)]

    def begin(self, memory: Memory) -> Memory:
        """``h`` of each layer, ``(n, d)``."""
        return memory[0].unbind(1)

    def step(self, rows: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        below, after, two = rows, [], 2 * self.size
        for i, (layer, bias, h) in enumerate(zip(self.layers, self.biases, memory, strict=True)):
            driven = _driven(layer, below, first=i == 0)
            recurrent = torch.addmm(bias, h, layer[1])  # (n, 3d): reset, update, candidate
            reset, update = (driven[:, :two] + recurrent[:, :two]).sigmoid_().chunk(2, dim=1)
            candidate = torch.addcmul(driven[:, two:], reset, recurrent[:, two:]).tanh_()
            below = torch.lerp(candidate, h, update)
            after.append(below)
        return below, tuple(after)


class ElmanStepper(Stepper):
    """The steps of ``rnn`` with any ``activation``, on ``inputs (R, d)``, of which each step names one."""

    def __init__(self, rnn: nn.RNNBase, activation: Callable[[Tensor], Tensor], inputs: Tensor) -> None:
        self.activation = activation
        weights = [(u.detach(), v.detach(), (b + c).detach()) for u, v, b, c in rnn.all_weights]
        self.layers = [_layer(inputs if i == 0 else None, *layer) for i, layer in enumerate(weights)]

    def begin(self, memory: Memory) -> Memory:
        """``h`` of each layer, ``(n, d)``."""
        return memory[0].unbind(1)

    def step(self, rows: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        below, after = rows, []
        for i, (layer, h) in enumerate(zip(self.layers, memory, strict=True)):
            below = self.activation(torch.addmm(_driven(layer, below, first=i == 0), h, layer[1]))
            after.append(below)
        return below, tuple(after)


def _layer(inputs: Tensor | None, u: Tensor, v: Tensor, bias: Tensor) -> Layer:
    """``inputs``: of the first layer, whose table is made of them."""
    return (u if inputs is None else F.linear(inputs, u, bias)), v.t().contiguous(), bias


def _driven(layer: Layer, below: Tensor, *, first: bool) -> Tensor:
    """What a layer adds of its input: ``below`` is rows of the table for the first, states for the others."""
    return layer[0].index_select(0, below) if first else F.linear(below, layer[0], layer[2])


def _doubled(weight: Tensor, size: int) -> Tensor:
    """A copy with the candidate's rows (the third of four gates) doubled."""
    copy = weight.detach().clone()
    copy[2 * size : 3 * size] *= 2
    return copy
