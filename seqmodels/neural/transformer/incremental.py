"""A causal Transformer that runs one step at a time: its state, and its steps.

``StepCache`` is the key-value cache of single steps in evaluation, with all layers in one array that is written in
place. The cache of the network's own forward pass is ``KVCache`` in ``cache``. The weights come from
``packed_weights``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.neural.network import Stepper
from seqmodels.neural.transformer.cache import KVCache, capacity_for
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.layers import activate
from seqmodels.neural.transformer.packed_weights import HeadLayout, PackedBlock, packed_norm
from seqmodels.neural.transformer.positions import DEFAULT_TABLE_LENGTH, NoPositions, Positions
from seqmodels.neural.transformer.short_convolution import IncrementalConvolution
from seqmodels.neural.transformer.stack import TransformerStack

TransformerState = tuple[KVCache, Tensor]  # a ``TransformerNetwork``'s cache, and its last inputs (n, p, d)

# -- the state: keys and values so far -------------------------------------------------------------------------


class StepBuffers:
    """Reusable buffers for the queries, keys and values of one step of n sequences, in each block in turn.

    There are H heads of queries and G heads of keys and values.

    Args:
        n: number of sequences.
        layout: order of the packed projection's outputs.
        like: tensor that gives dtype and device.

    Attributes:
        projected: the outputs of a packed projection, ``(n, (H + 2 G) d_head)``; the next three are views of it.
        complex_pairs: ``projected`` as complex numbers if the layout is ``paired``, else ``projected`` itself.
        query: the queries, ``(n, H, d_head)``.
        key_value: the keys and the values, ``(2, n, G, d_head)``.
        grouped_query: the queries that ``group_queries`` fills in, ``(n G, H / G, d_head)``.
        grouped_context: the contexts, in the same shape; ``context (n, d_model)`` is a view of it.
    """

    def __init__(self, n: int, layout: HeadLayout, like: Tensor) -> None:
        h, g, d = layout.n_heads, layout.n_key_heads, layout.d_head
        self.projected = like.new_empty(n, (h + 2 * g) * d)
        self.complex_pairs = torch.view_as_complex(self.projected.view(n, -1, 2)) if layout.paired else self.projected
        query, key_value = self.projected.split_with_sizes((h * d, 2 * g * d), 1)
        self.query = query.view(n, h, d)
        self.key_value = key_value.view(n, 2, g, d).transpose(0, 1)
        self._copies = n > 1  # the queries of a single input are contiguous as they are
        self.grouped_query = like.new_empty(n * g, h // g, d) if self._copies else self.query.view(g, -1, d)
        self.grouped_context = like.new_empty(n * g, h // g, d)
        self.context = self.grouped_context.view(n, h * d)

    def group_queries(self) -> Tensor:
        """Return the H queries of n sequences, grouped by the G keys that they share, ``(n G, H / G, d_head)``."""
        if self._copies:
            self.grouped_query.view(self.query.shape).copy_(self.query)
        return self.grouped_query


class StepCache:
    """Keys and values of n sequences, with spare capacity, and the buffers for their next step.

    Args:
        key_value: keys and values, as below.
        n_written: how many steps are written.
        layout: order of the packed projection's outputs.

    Attributes:
        key_value: keys and values for each of L layers, sequence, G heads and step, ``(L, 2, n, G, capacity, d_head)``.
        n_written: how many steps are written, by any of the states that share this cache.
        buffers: the buffers for queries, keys and values of a step.
        capacity: how many steps there is space for.
        is_inference: True if the cache was made under torch's inference mode.
    """

    def __init__(self, key_value: Tensor, n_written: int, layout: HeadLayout) -> None:
        self.key_value = key_value
        self.n_written = n_written
        self.layout = layout
        self.capacity, self.is_inference = key_value.shape[4], key_value.is_inference()
        self.buffers = StepBuffers(key_value.shape[2], layout, key_value)

    @cached_property
    def in_array(self) -> np.ndarray:
        """The keys and values as a NumPy array that shares memory with ``key_value``, which must be on the CPU."""
        return self.key_value.numpy()

    def is_free(self, length: int, n_steps: int) -> bool:
        """Return True if nothing has been written after the first ``length`` steps, and ``n_steps`` more have space."""
        return self.n_written == length <= self.capacity - n_steps

    def copied(self, length: int, capacity: int) -> StepCache:
        """Return a cache with space for ``capacity`` steps, and a copy of the first ``length`` steps of this one."""
        *outer, _, d_head = self.key_value.shape
        key_value = self.key_value.new_empty(*outer, capacity, d_head)
        key_value.narrow(4, 0, length).copy_(self.key_value.narrow(4, 0, length))
        return StepCache(key_value, length, self.layout)

    def slots(self, t: int) -> tuple[Tensor, ...]:
        """Return, for each layer, a view of the place of the keys and values of step t, ``(2, n, G, d_head)``.

        It is for n sequences and G heads of keys and values.
        """
        return self.key_value.select(4, t).unbind(0)

    def first_steps(self, length: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return views of each layer's keys ``(n G, d_head, S)`` and values ``(n G, S, d_head)`` of the first S steps.

        S is ``length``; there are n sequences and G heads of keys and values.
        """
        key, value = self.key_value.flatten(2, 3).narrow(3, 0, length).unbind(1)
        return key.mT.unbind(0), value.unbind(0)


@dataclass(frozen=True)
class StepState:
    """The results of earlier steps that the next step of n sequences in a Transformer needs.

    A state is a value, although its cache is written in place: the first state to continue from a step writes after it
    and marks that in the cache, which the states share; any later one writes to a copy.

    Attributes:
        cache: the keys and values; the first ``length`` steps belong to this state.
        length: how many steps came before.
        pending: sums of what the inputs so far contribute to each of the next p steps by the convolution of the inputs,
            ``(n, p d)``; see ``IncrementalConvolution``.
    """

    cache: StepCache
    length: int
    pending: Tensor

    def claimed_cache(self, max_length: int | None, n_steps: int = 1) -> StepCache:
        """Return the key-value cache to which the next steps may be written; no other state may then write there.

        Args:
            max_length: how many steps a sequence has at most as a rule; None if unknown.
            n_steps: number of steps that will be written.
        """
        # A tensor made under inference mode may not be written outside of it.
        is_writable = self.cache.is_inference == torch.is_inference_mode_enabled()
        return claimed_cache(self.cache, self.length, max_length, n_steps, is_writable=is_writable)

    def select(self, index: Tensor) -> StepState:
        key_value = self.cache.key_value.index_select(2, index)
        cache = StepCache(key_value, self.length, self.cache.layout)
        return StepState(cache, self.length, self.pending.index_select(0, index))


def claimed_cache(
    cache: StepCache, length: int, max_length: int | None, n_steps: int = 1, *, is_writable: bool = True
) -> StepCache:
    """Return ``cache``, or a copy of its first ``length`` steps, to which the next ``n_steps`` steps may be written.

    It is a copy if another state has written after these steps, if there is no space, or if ``cache`` is not writable.

    Args:
        cache: keys and values of earlier steps.
        length: how many of its steps belong to the state.
        max_length: how many steps a sequence has at most as a rule; None if unknown.
        n_steps: number of steps that will be written.
        is_writable: False if the cache must not be changed.
    """
    if not (is_writable and cache.is_free(length, n_steps)):
        cache = cache.copied(length, capacity_for(length + n_steps, max_length))
    cache.n_written = length + n_steps
    return cache


class ArrayStepState(NamedTuple):
    """The results of earlier steps that the next step of one sequence needs, as NumPy arrays; see ``StepState``.

    ``pending (p d,)`` is an array; the cache is the same object as in ``StepState``.
    """

    cache: StepCache
    length: int
    pending: np.ndarray


# -- steps -----------------------------------------------------------------------------------------------------


def can_step(config: TransformerConfig) -> bool:
    """Return True if ``TransformerStepper`` can take single steps of a Transformer with this configuration.

    It cannot with ``norm="post"`` and ``"residual"``, biases of scores (ALiBi, T5) and windows within a layer.
    """
    return config.norm == "pre" and config.positions not in ("alibi", "t5") and config.window is None


class TransformerStepper(Stepper[TransformerState, StepState]):
    """Single steps of a causal Transformer in evaluation, with fewer operations than its forward pass.

    Args:
        stack: the blocks, causal and without cross-attention, with a configuration that passes ``can_step``.
        positions: the positions added to the inputs.
        convolution: the causal convolution of the inputs, which also reads a few earlier ones.
    """

    def __init__(self, stack: TransformerStack, positions: Positions, convolution: IncrementalConvolution) -> None:
        self.config = stack.config
        self.max_length = stack.max_length
        self.layout = HeadLayout.from_config(stack.config)
        self.blocks = tuple(PackedBlock.from_block(block, self.layout) for block in stack)
        self.positions = positions
        self.rotary = stack.rotary
        self.convolution = convolution
        length = self.max_length or DEFAULT_TABLE_LENGTH
        d_model = self.config.d_model
        self.input_map = convolution.input_map
        self.like = self.input_map.weight.new_zeros(1, 1, 1).expand(1, length, d_model)
        self.final_norm = packed_norm(stack.final_norm, self.like[0])
        self.position_table = self._added_positions(self.like, 0)
        self.rotation_table = self._rotation_factors(self.like, 0)

    def converted(self, state: TransformerState) -> StepState:
        (layers, length, _), recent = state
        key_values = [torch.stack([self.layout.pair(key), value]) for key, value in layers]
        cached = torch.stack(key_values).narrow(4, 0, length)
        return StepState(StepCache(cached, length, self.layout), length, self.convolution.pending_after(recent))

    def step(self, projected: Tensor, state: StepState) -> tuple[Tensor, StepState]:
        t = state.length
        cache = state.claimed_cache(self.max_length)
        buffers = cache.buffers
        x, pending = self.convolution(projected, state.pending)
        position, rotation = self.positions_of(t, t + 1)
        if position is not None:
            x.add_(position)
        for block, slot, key, value in zip(self.blocks, cache.slots(t), *cache.first_steps(t + 1), strict=True):
            self.project(block, x, rotation, buffers)
            slot.copy_(buffers.key_value)
            x = self._attend(block, x, buffers, key, value)
        return self.final_norm(x), StepState(cache, t + 1, pending)

    def in_arrays(self, state: StepState) -> ArrayStepState:
        return ArrayStepState(state.cache, state.length, state.pending[0].numpy())

    def in_tensors(self, state: ArrayStepState) -> StepState:
        return StepState(state.cache, state.length, torch.from_numpy(state.pending[None]))

    def prefill(self, inputs: Tensor) -> tuple[Tensor, StepState]:
        """Read T inputs that begin n sequences at once, and return the last hidden states and the state after them.

        The last block computes the hidden states of the last step only.

        Args:
            inputs: embedded inputs, ``(n, T, d)``.

        Returns:
            Hidden states of the last step, ``(n, d_model)``, and the state.
        """
        n, length, d = inputs.shape
        x, pending = self.convolution.first_steps(inputs)
        position, rotation = self.positions_of(0, length)
        x = (x.clone() if position is None else x + position).flatten(0, 1)  # (n T, d)
        rotation = None if rotation is None else rotation.repeat(n, 1)
        buffers = StepBuffers(len(x), self.layout, x)
        cache = self.empty_cache(n, length)
        for block, slots in zip(self.blocks, cache.key_value.narrow(4, 0, length).unbind(0), strict=True):
            self.project(block, x, rotation, buffers)
            slots.copy_(buffers.key_value.unflatten(1, (n, length)).transpose(2, 3))  # (2, n, G, T, d_head)
            if block is not self.blocks[-1]:
                self.add(block, x, causal_context(buffers.query.unflatten(0, (n, length)), *slots))
        cache.buffers.query.copy_(buffers.query.unflatten(0, (n, length))[:, -1])
        x = x.view(n, length, d)[:, -1].contiguous()
        keys, values = cache.first_steps(length)
        x = self._attend(self.blocks[-1], x, cache.buffers, keys[-1], values[-1])
        return self.final_norm(x), StepState(cache, length, pending)

    def select(self, state: StepState, index: Tensor) -> StepState:
        return state.select(index)

    def project(self, block: PackedBlock, x: Tensor, rotation: Tensor | None, buffers: StepBuffers) -> None:
        """Write the queries, keys and values of a block, for n inputs, to the buffers.

        Args:
            block: packed weights of the block.
            x: inputs of the block, ``(n, d)``.
            rotation: complex factors of rotary embedding of one position for all rows, or of one for each row; None
                without rotary embedding.
            buffers: result.
        """
        block.project.write(block.attention_norm(x), buffers.projected)
        if block.head_norm is not None:
            block.head_norm(buffers.projected)
        if rotation is not None:
            buffers.complex_pairs.mul_(rotation)

    def _attend(self, block: PackedBlock, x: Tensor, buffers: StepBuffers, key: Tensor, value: Tensor) -> Tensor:
        """Return the output ``(n, d)`` of a block for n sequences, given the queries in the buffers.

        Args:
            block: packed weights of the block.
            x: input of the block, ``(n, d)``, which is overwritten.
            buffers: the queries of the step.
            key: keys of all S steps so far in G heads, ``(n G, d_head, S)``.
            value: values of these steps, ``(n G, S, d_head)``.
        """
        weights = torch.bmm(buffers.group_queries(), key).softmax(-1)  # (n G, H / G, S)
        torch.bmm(weights, value, out=buffers.grouped_context)
        return self.add(block, x, buffers.context)

    def add(self, block: PackedBlock, x: Tensor, context: Tensor) -> Tensor:
        """Return the output ``(n, d)`` of a block, given its input and the contexts of its attention.

        It is x plus the output map of the context, plus the feed-forward of that.

        Args:
            block: packed weights of the block.
            x: input of the block, ``(n, d)``, which is overwritten.
            context: contexts of all heads side by side, ``(n, H d_head)`` for H heads.
        """
        block.output.add_to(x, context)
        return block.contract.add_to(x, self._activated(block.expand(block.feedforward_norm(x))))

    def _activated(self, hidden: Tensor) -> Tensor:
        if self.config.activation != "relu2":
            return activate(hidden, self.config.activation)
        hidden.relu_()  # in place: an autograd Function costs more than the operation itself
        return hidden.mul_(hidden)

    def empty_cache(self, n: int, length: int) -> StepCache:
        """Return a key-value cache for n sequences that counts ``length`` steps as written; the caller writes them."""
        layout = self.layout
        shape = len(self.blocks), 2, n, layout.n_key_heads, capacity_for(length + 1, self.max_length), layout.d_head
        return StepCache(self.like.new_empty(shape), length, layout)

    def positions_of(self, begin: int, end: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the positions that are added to the inputs of steps ``begin .. end - 1``, ``(T, d)``, and rotations.

        The rotations of rotary embedding are complex factors, one for each pair of outputs of the packed projection.
        Either is None if the network does not use it.
        """
        if end <= self.like.shape[1]:
            added = self.position_table
            rotation = self.rotation_table
            return None if added is None else added[begin:end], None if rotation is None else rotation[begin:end]
        like = self.like[:, :1].expand(1, end - begin, -1)
        return self._added_positions(like, begin), self._rotation_factors(like, begin)

    def _added_positions(self, like: Tensor, offset: int) -> Tensor | None:
        """Return the positions ``(T, d)`` that are added to T inputs from step ``offset`` on; None if none are added.

        ``like (1, T, d)`` is a tensor with the shape, dtype and device of the inputs.
        """
        return None if isinstance(self.positions, NoPositions) else self.positions(like, offset)[0].detach()

    def _rotation_factors(self, like: Tensor, offset: int) -> Tensor | None:
        """Return the complex rotation factors of T steps from ``offset`` on, ``(T, (H + 2 G) d_head / 2)``; or None.

        There is one for each pair of entries of H queries, G keys and G values; None without rotary embedding.
        """
        return None if self.rotary is None else self.layout.rotation_factors(self.rotary(like, offset))


def causal_context(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return the attention contexts ``(n T, d)`` of T steps of n sequences that see themselves and the steps before.

    Args:
        query: the queries of H heads, scaled already, ``(n, T, H, d_head)``.
        key: the keys of G heads, ``(n, G, T, d_head)``.
        value: the values, ``(n, G, T, d_head)``.
    """
    n_shared = query.shape[2] // key.shape[1]
    if n_shared > 1:
        key, value = key.repeat_interleave(n_shared, 1), value.repeat_interleave(n_shared, 1)
    context = F.scaled_dot_product_attention(query.transpose(1, 2), key, value, is_causal=True, scale=1.0)
    return context.transpose(1, 2).flatten(2).flatten(0, 1)
