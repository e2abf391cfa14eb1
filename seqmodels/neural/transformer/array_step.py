"""One step of a causal Transformer on NumPy arrays, where a call costs a third of what it costs in torch.

``TransformerStepper`` takes the same step in about fifty operations of torch, which for one sequence cost more than the
arithmetic in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from seqmodels.neural.transformer.incremental import StepState, TransformerStepper
from seqmodels.neural.transformer.layers import Activation, RMSNorm, activate
from seqmodels.neural.transformer.packed_weights import PackedHeadNorm, PackedLinear
from seqmodels.neural.transformer.stack import TransformerStack

ArrayFunction = Callable[[np.ndarray], np.ndarray]  # (n, d) -> (n, d')


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
    """The step of ``plain``, whose weights are those of ``stack``, on arrays (``ArrayStep``)."""

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

    def __call__(self, projected: np.ndarray, state: StepState) -> tuple[np.ndarray, StepState]:
        """What the inputs add ``(n, d + p d)`` -> hidden states ``(n, d)`` and the state after."""
        layout, n, t = self.plain.layout, len(projected), state.length
        n_queries, n_groups, d_head = layout.n_heads * layout.d_head, layout.n_key_heads, layout.d_head
        cache = state.claimed_cache(self.plain.max_length)
        x, pending = self._convolved(projected, state.pending.numpy())
        position, rotation = self._positions_of(t)
        if position is not None:
            x = x + position
        for block, (keys, values) in zip(self.blocks, cache.key_value.numpy(), strict=True):  # (n, G, capacity, d_head)
            heads = block.project(block.attention_norm(x))  # (n, (H + 2 G) d_head): queries, keys, values
            if block.head_norm is not None:
                block.head_norm(torch.from_numpy(heads))  # in place
            if rotation is not None:
                pairs = heads.view(rotation.dtype)  # as complex numbers
                pairs *= rotation
            query = heads[:, :n_queries].reshape(n, n_groups, -1, d_head)
            keys[:, :, t], values[:, :, t] = heads[:, n_queries:].reshape(n, 2, n_groups, d_head).swapaxes(0, 1)
            x = x + block.output(attend(query, keys[:, :, : t + 1], values[:, :, : t + 1]))
            x = x + block.contract(self.activation(block.expand(block.feedforward_norm(x))))
        return self.final_norm(x), StepState(cache, t + 1, torch.from_numpy(pending))

    def _convolved(self, projected: np.ndarray, pending: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``IncrementalConvolution``: inputs as mapped ``(n, d + p d)`` -> the output ``(n, d)``, and what is pending."""
        d, total = self.plain.convolution.d, projected.copy()
        total[:, : pending.shape[1]] += pending
        return total[:, :d], total[:, d:]

    def _positions_of(self, t: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """What is added to the inputs of step t, ``(d,)``, and its rotation factors."""
        position, rotation = self.position_table, self.rotation_table
        if t < self.plain.like.shape[1]:
            return None if position is None else position[t], None if rotation is None else rotation[t]
        added, factors = self.plain.positions_of(t, t + 1)
        return None if added is None else added[0].numpy(), None if factors is None else factors[0].numpy()


def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """``softmax(q kᵀ) v``, ``(n, H d_head)``.

    Args:
        query: scaled queries, those that share keys together, ``(n, G, H / G, d_head)``.
        key: ``(n, G, S, d_head)``.
        value: ``(n, G, S, d_head)``.
    """
    scores = query @ key.swapaxes(-1, -2)  # (n, G, H / G, S)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    context: np.ndarray = (weights @ value) / weights.sum(-1, keepdims=True)
    return context.reshape(len(query), -1)


def map_of(linear: PackedLinear) -> ArrayFunction:
    """The same map of arrays, which shares the memory of its weights."""
    weight = linear.weight.numpy()
    if linear.bias is None:
        return lambda x: x @ weight
    bias = linear.bias.numpy()
    return lambda x: x @ weight + bias


def norm_of(norm: nn.Module) -> ArrayFunction:
    """A ``LayerNorm`` or ``RMSNorm`` of arrays, ``gain (x - mean) / sqrt(mean square + ε) + shift``."""
    assert isinstance(norm, nn.LayerNorm | RMSNorm), "there are two kinds of norms"
    centres, epsilon = isinstance(norm, nn.LayerNorm), norm.eps if isinstance(norm, nn.LayerNorm) else norm.epsilon
    gain = None if norm.weight is None else norm.weight.detach().numpy()
    bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
    shift = None if bias is None else bias.detach().numpy()

    def normed(x: np.ndarray) -> np.ndarray:
        if centres:
            x = x - np.add.reduce(x, 1, keepdims=True) / x.shape[1]
        x = x / np.sqrt(np.add.reduce(x * x, 1, keepdims=True) / x.shape[1] + epsilon)
        x = x if gain is None else x * gain
        return x if shift is None else x + shift

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
