"""One step of a causal Transformer on NumPy arrays, where a call costs a third of what it costs in torch.

``TransformerStepper`` takes the same step in about fifty operations of torch, which for one sequence cost more than the
arithmetic in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.neural.transformer.incremental import ArrayStepState, TransformerStepper, claimed_cache
from seqmodels.neural.transformer.layers import Activation, activate
from seqmodels.neural.transformer.packed_weights import PackedBlock, PackedHeadNorm, PackedLinear, gain_and_shift
from seqmodels.neural.transformer.stack import TransformerBlock, TransformerStack

ArrayFunction = Callable[[np.ndarray], np.ndarray]  # (d,) -> (d',)
ARRAYS_UP_TO = 10_000_000  # weights, a copy of which is made; of more, products take nearly all of a step's time


class ArrayBlock(NamedTuple):
    """One block ``x + attention(normalised x)``, ``x + feedforward(normalised x)``, with what norms do in its maps.

    Norms subtract the mean, and nothing but norms reads ``x``. What is added to it has its mean subtracted here
    beforehand, so that x has mean 0 throughout; and gain and shift are part of the map that reads the norm.
    ``head_norm`` is None without ``qk_norm``.
    """

    project: ArrayFunction
    head_norm: PackedHeadNorm | None
    output: ArrayFunction
    expand: ArrayFunction
    contract: ArrayFunction

    @classmethod
    def from_packed(cls, packed: PackedBlock, block: TransformerBlock) -> ArrayBlock:
        """Return the weights of one block: of its maps as ``packed``, and of its norms from ``block``."""
        attention_norm, feedforward_norm = block.attention_residual.norm, block.feedforward_residual.norm
        return cls(
            map_after(attention_norm, packed.project),
            packed.head_norm,
            map_before(attention_norm, packed.output),
            map_after(feedforward_norm, packed.expand),
            map_before(attention_norm, packed.contract),
        )


class TransformerArrayStep:
    """The step of ``plain`` for one sequence, whose weights are those of ``stack``, on arrays (``ArrayStep``)."""

    def __init__(self, plain: TransformerStepper, stack: TransformerStack) -> None:
        self.plain = plain
        self.blocks = [ArrayBlock.from_packed(packed, block) for packed, block in zip(plain.blocks, stack, strict=True)]
        self.centres, self.epsilon = isinstance(stack.final_norm, nn.LayerNorm), plain.config.norm_epsilon
        gain, shift = gain_and_shift(stack.final_norm, plain.like[0, 0])
        self.gain, self.shift, self.average = gain.numpy(), shift.numpy(), torch.full_like(gain, 1 / len(gain)).numpy()
        self.activation = activation_of(plain.config.activation)
        tables = plain.position_table, plain.rotation_table
        self.position_table, self.rotation_table = (None if table is None else table.numpy() for table in tables)

    def __call__(self, projected: np.ndarray, state: ArrayStepState) -> tuple[np.ndarray, ArrayStepState]:
        """Return the hidden state ``(d,)`` and the state after a step of an input as mapped, ``(d + p d,)``."""
        layout, t = self.plain.layout, state.length
        n_queries, n_groups, d_head = layout.n_heads * layout.d_head, layout.n_key_heads, layout.d_head
        cache = claimed_cache(state.cache, t, self.plain.max_length)
        key_value = cache.in_array[:, :, 0]  # (L, 2, G, capacity, d_head)
        x, pending = self._convolved(projected, state.pending)
        position, rotation = self._positions_of(t)
        if position is not None:
            x = x + position
        if self.centres:
            x = x - x.dot(self.average)
        for block, slots, seen in zip(self.blocks, key_value[:, :, :, t], key_value[:, :, :, : t + 1], strict=True):
            heads = block.project(self._scaled(x))  # ((H + 2 G) d_head,): queries, keys, values
            if block.head_norm is not None:
                block.head_norm(torch.from_numpy(heads[None]))  # in place
            if rotation is not None:
                pairs = heads.view(rotation.dtype)  # as complex numbers
                pairs *= rotation
            slots[:] = heads[n_queries:].reshape(2, n_groups, d_head)
            x = x + block.output(attend(heads[:n_queries].reshape(n_groups, -1, d_head), *seen))
            x += block.contract(self.activation(block.expand(self._scaled(x))))
        return self._scaled(x) * self.gain + self.shift, ArrayStepState(cache, t + 1, pending)

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        """Return ``x (d,)`` divided by its root mean square: the norm, but for what the maps do."""
        return x * (1 / math.sqrt(float(x.dot(x)) / len(x) + self.epsilon))

    def _convolved(self, projected: np.ndarray, pending: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the convolution's output ``(d,)`` and what is then pending, as ``IncrementalConvolution`` does."""
        d, total = self.plain.convolution.d, projected.copy()
        total[: len(pending)] += pending
        return total[:d], total[d:]

    def _positions_of(self, t: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return what is added to the input of step t, ``(d,)``, and its rotation factors; None: there are none."""
        position, rotation = self.position_table, self.rotation_table
        if t < self.plain.like.shape[1]:
            return None if position is None else position[t], None if rotation is None else rotation[t]
        added, factors = self.plain.positions_of(t, t + 1)
        return None if added is None else added[0].numpy(), None if factors is None else factors[0].numpy()


def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return ``softmax(q kᵀ) v`` of all heads, ``(H d_head,)``.

    Args:
        query: scaled queries, those that share keys together, ``(G, H / G, d_head)``.
        key: ``(G, S, d_head)``.
        value: ``(G, S, d_head)``.
    """
    scores = query @ key.swapaxes(1, 2)  # (G, H / G, S)
    scores -= np.maximum.reduce(scores, 2, keepdims=True)
    weights = np.exp(scores)
    context: np.ndarray = (weights @ value) / np.add.reduce(weights, 2, keepdims=True)
    return context.ravel()


def map_after(norm: nn.Module, linear: PackedLinear) -> ArrayFunction:
    """Return the map of what ``norm`` makes of an array, as a map of that array divided by its root mean square."""
    gain, shift = gain_and_shift(norm, linear.weight[:, 0])
    bias = shift @ linear.weight if linear.bias is None else torch.addmv(linear.bias, linear.weight.t(), shift)
    return array_map(gain.unsqueeze(1) * linear.weight, bias)


def map_before(norm: nn.Module, linear: PackedLinear) -> ArrayFunction:
    """Return a map to what ``norm`` reads, the mean of its result subtracted if that is what the norm begins with."""
    weight, bias = (
        linear.weight,
        linear.weight.new_zeros(linear.weight.shape[1]) if linear.bias is None else linear.bias,
    )
    if isinstance(norm, nn.LayerNorm):
        weight, bias = weight - weight.mean(1, keepdim=True), bias - bias.mean()
    return array_map(weight, bias)


def array_map(weight: Tensor, bias: Tensor) -> ArrayFunction:
    """Return ``x W + b`` as a function of one array, ``weight (in, out)``."""
    w, b = weight.contiguous().numpy(), bias.numpy()
    if not b.any():
        return lambda x: x.dot(w)
    return lambda x: x.dot(w) + b


def activation_of(activation: Activation) -> ArrayFunction:
    """Return the nonlinearity as a function of an array: the default in NumPy, the others by torch."""
    if activation != "relu2":
        return lambda hidden: activate(torch.from_numpy(hidden), activation).numpy()

    def squared_relu(hidden: np.ndarray) -> np.ndarray:
        rectified = np.maximum(hidden, 0)
        result: np.ndarray = rectified * rectified
        return result

    return squared_relu
