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
from torch import nn

from seqmodels.neural.transformer.incremental import ArrayStepState, TransformerStepper, claimed_cache
from seqmodels.neural.transformer.layers import Activation, RMSNorm, activate
from seqmodels.neural.transformer.packed_weights import PackedHeadNorm, PackedLinear
from seqmodels.neural.transformer.stack import TransformerStack

ArrayFunction = Callable[[np.ndarray], np.ndarray]  # (d,) -> (d',)


class ArrayBlock(NamedTuple):
    """One block ``x + attention(norm(x))``, ``x + feedforward(norm(x))``; ``head_norm`` is None without ``qk_norm``."""

    attention_norm: ArrayFunction
    project: ArrayFunction
    head_norm: PackedHeadNorm | None
    output: ArrayFunction
    feedforward_norm: ArrayFunction
    expand: ArrayFunction
    contract: ArrayFunction


class TransformerArrayStep:
    """The step of ``plain`` for one sequence, whose weights are those of ``stack``, on arrays (``ArrayStep``)."""

    def __init__(self, plain: TransformerStepper, stack: TransformerStack) -> None:
        self.plain = plain
        self.blocks = [
            ArrayBlock(
                norm_of(block.attention_residual.norm),
                map_of(packed.project),
                packed.head_norm,
                map_of(packed.output),
                norm_of(block.feedforward_residual.norm),
                map_of(packed.expand),
                map_of(packed.contract),
            )
            for block, packed in zip(stack, plain.blocks, strict=True)
        ]
        self.final_norm = norm_of(stack.final_norm)
        self.activation = activation_of(plain.config.activation)
        tables = plain.position_table, plain.rotation_table
        self.position_table, self.rotation_table = (None if table is None else table.numpy() for table in tables)

    def __call__(self, projected: np.ndarray, state: ArrayStepState) -> tuple[np.ndarray, ArrayStepState]:
        """What the input adds ``(d + p d,)`` -> the hidden state ``(d,)`` and the state after."""
        layout, t = self.plain.layout, state.length
        n_queries, n_groups, d_head = layout.n_heads * layout.d_head, layout.n_key_heads, layout.d_head
        cache = claimed_cache(state.cache, t, self.plain.max_length)
        key_value = cache.in_array[:, :, 0]  # (L, 2, G, capacity, d_head)
        x, pending = self._convolved(projected, state.pending)
        position, rotation = self._positions_of(t)
        if position is not None:
            x = x + position
        for block, slots, seen in zip(self.blocks, key_value[:, :, :, t], key_value[:, :, :, : t + 1], strict=True):
            heads = block.project(block.attention_norm(x))  # ((H + 2 G) d_head,): queries, keys, values
            if block.head_norm is not None:
                block.head_norm(torch.from_numpy(heads[None]))  # in place
            if rotation is not None:
                pairs = heads.view(rotation.dtype)  # as complex numbers
                pairs *= rotation
            slots[:] = heads[n_queries:].reshape(2, n_groups, d_head)
            x = x + block.output(attend(heads[:n_queries].reshape(n_groups, -1, d_head), *seen))
            x += block.contract(self.activation(block.expand(block.feedforward_norm(x))))
        return self.final_norm(x), ArrayStepState(cache, t + 1, pending)

    def _convolved(self, projected: np.ndarray, pending: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``IncrementalConvolution``: the input as mapped ``(d + p d,)`` -> the output ``(d,)``, and what is pending."""
        d, total = self.plain.convolution.d, projected.copy()
        total[: len(pending)] += pending
        return total[:d], total[d:]

    def _positions_of(self, t: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """What is added to the input of step t, ``(d,)``, and its rotation factors."""
        position, rotation = self.position_table, self.rotation_table
        if t < self.plain.like.shape[1]:
            return None if position is None else position[t], None if rotation is None else rotation[t]
        added, factors = self.plain.positions_of(t, t + 1)
        return None if added is None else added[0].numpy(), None if factors is None else factors[0].numpy()


def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """``softmax(q kᵀ) v``, ``(H d_head,)``.

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


def map_of(linear: PackedLinear) -> ArrayFunction:
    """The same map of one array, which shares the memory of its weights."""
    weight = linear.weight.numpy()
    if linear.bias is None:
        return lambda x: x.dot(weight)
    bias = linear.bias.numpy()
    return lambda x: x.dot(weight) + bias


def norm_of(norm: nn.Module) -> ArrayFunction:
    """A ``LayerNorm`` or ``RMSNorm`` of one array, ``gain (x - mean) / sqrt(mean square + ε) + shift``."""
    assert isinstance(norm, nn.LayerNorm | RMSNorm), "there are two kinds of norms"
    centres, epsilon = isinstance(norm, nn.LayerNorm), norm.eps if isinstance(norm, nn.LayerNorm) else norm.epsilon
    gain = None if norm.weight is None else norm.weight.detach().numpy()
    bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
    shift = None if bias is None else bias.detach().numpy()

    def normed(x: np.ndarray) -> np.ndarray:
        d = len(x)
        if centres:
            x = x - float(np.add.reduce(x)) / d
        x = x * (1 / math.sqrt(float(x.dot(x)) / d + epsilon))
        if gain is not None:
            x *= gain
        if shift is not None:
            x += shift
        return x

    return normed


def activation_of(activation: Activation) -> ArrayFunction:
    """The nonlinearity of arrays: that of the default in NumPy, the others by torch."""
    if activation != "relu2":
        return lambda hidden: activate(torch.from_numpy(hidden), activation).numpy()

    def squared_relu(hidden: np.ndarray) -> np.ndarray:
        rectified = np.maximum(hidden, 0)
        result: np.ndarray = rectified * rectified
        return result

    return squared_relu
