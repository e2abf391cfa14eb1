"""One step of a causal Transformer on NumPy arrays, where a call costs a third of what it costs in torch.

``TransformerStepper`` takes the same step in about fifty operations of torch. For one sequence, calling them costs more
than the arithmetic in them.
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
ARRAYS_UP_TO = 10_000_000  # weights, which are copied; with more, products take nearly all of a step's time


class ArrayBlock(NamedTuple):
    """One Transformer block, ``x + attention(norm(x))`` and ``x + feedforward(norm(x))``, as functions of NumPy arrays.

    The gain and shift of a norm are part of the map that reads it. A layer norm also subtracts the mean of ``x``;
    instead, everything that is added to ``x`` has its mean subtracted beforehand, which keeps the mean of ``x`` at 0.
    So what is left of a norm is the division by the root mean square.

    Attributes:
        project: map to queries, keys and values.
        head_norm: norm of each head's query and key; None without ``qk_norm``.
        output: map from the heads' contexts to what is added to ``x``.
        expand: first map of the feed-forward.
        contract: second map of the feed-forward.
    """

    project: ArrayFunction
    head_norm: PackedHeadNorm | None
    output: ArrayFunction
    expand: ArrayFunction
    contract: ArrayFunction

    @classmethod
    def from_packed(cls, packed: PackedBlock, block: TransformerBlock) -> ArrayBlock:
        attention_norm, feedforward_norm = block.attention_residual.norm, block.feedforward_residual.norm
        return cls(
            map_after(attention_norm, packed.project),
            packed.head_norm,
            map_before(attention_norm, packed.output),
            map_after(feedforward_norm, packed.expand),
            map_before(attention_norm, packed.contract),
        )


class TransformerArrayStep:
    """One step of a causal Transformer for one sequence, computed on NumPy arrays.

    It is the ``array_step`` of a ``TransformerStepper``.

    Args:
        plain: the same step in torch.
        stack: the blocks, whose weights are used.
    """

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
        """Return the hidden state ``(d,)`` and the state after one step of one sequence.

        Args:
            projected: contributions of the input to this step and, by the convolution of the inputs, to the next p,
                ``(d + p d,)``.
            state: keys and values of earlier steps, and their contributions to the next p steps.
        """
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
        """Return ``x (d,)`` divided by its root mean square, which is a norm without its gain and shift."""
        return x * (1 / math.sqrt(float(x.dot(x)) / len(x) + self.epsilon))

    def _convolved(self, projected: np.ndarray, pending: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the output of the convolution of the inputs at one step, ``(d,)``, and its state after it, ``(p d,)``.

        Args:
            projected: contributions of the input to this step and to the next p, ``(d + p d,)``.
            pending: state: what earlier inputs contribute to each of the next p steps, ``(p d,)``.
        """
        d, total = self.plain.convolution.d, projected.copy()
        total[: len(pending)] += pending
        return total[:d], total[d:]

    def _positions_of(self, t: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the position that is added to the input of step t, ``(d,)``, and the factors of rotary embedding.

        The factors are complex, one for each pair of outputs of the packed projection. Either is None if it is not
        used.
        """
        position, rotation = self.position_table, self.rotation_table
        if t < self.plain.like.shape[1]:
            return None if position is None else position[t], None if rotation is None else rotation[t]
        added, factors = self.plain.positions_of(t, t + 1)
        return None if added is None else added[0].numpy(), None if factors is None else factors[0].numpy()


def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return the attention contexts ``softmax(q kᵀ) v`` of all H heads for one query each, ``(H d_head,)``.

    There are G heads of keys, each shared by H / G heads of queries.

    Args:
        query: queries, scaled already, ``(G, H / G, d_head)``.
        key: the keys of all S steps, ``(G, S, d_head)``.
        value: the values of all S steps, ``(G, S, d_head)``.
    """
    scores = query @ key.swapaxes(1, 2)  # (G, H / G, S)
    scores -= np.maximum.reduce(scores, 2, keepdims=True)
    weights = np.exp(scores)
    context: np.ndarray = (weights @ value) / np.add.reduce(weights, 2, keepdims=True)
    return context.ravel()


def map_after(norm: nn.Module, linear: PackedLinear) -> ArrayFunction:
    """Return ``linear`` after ``norm`` as one map of an array that is already divided by its root mean square.

    The norm's gain and shift become part of the map's weight and bias.
    """
    gain, shift = gain_and_shift(norm, linear.weight[:, 0])
    bias = shift @ linear.weight if linear.bias is None else torch.addmv(linear.bias, linear.weight.t(), shift)
    return array_map(gain.unsqueeze(1) * linear.weight, bias)


def map_before(norm: nn.Module, linear: PackedLinear) -> ArrayFunction:
    """Return ``linear`` as a map of an array; if ``norm`` is a layer norm, the mean of its result is subtracted.

    A layer norm that reads the result later then has no mean to subtract.
    """
    weight, bias = (
        linear.weight,
        linear.weight.new_zeros(linear.weight.shape[1]) if linear.bias is None else linear.bias,
    )
    if isinstance(norm, nn.LayerNorm):
        weight, bias = weight - weight.mean(1, keepdim=True), bias - bias.mean()
    return array_map(weight, bias)


def array_map(weight: Tensor, bias: Tensor) -> ArrayFunction:
    """Return the map ``x W + b`` of an array ``x (in,)``, with ``weight`` W ``(in, out)`` and ``bias`` b ``(out,)``."""
    w, b = weight.contiguous().numpy(), bias.numpy()
    if not b.any():
        return lambda x: x.dot(w)
    return lambda x: x.dot(w) + b


def activation_of(activation: Activation) -> ArrayFunction:
    """Return a feed-forward layer's activation of this name as a function of an array.

    ``"relu2"`` runs in NumPy, all others in torch.
    """
    if activation != "relu2":
        return lambda hidden: activate(torch.from_numpy(hidden), activation).numpy()

    def squared_relu(hidden: np.ndarray) -> np.ndarray:
        rectified = np.maximum(hidden, 0)
        result: np.ndarray = rectified * rectified
        return result

    return squared_relu
