"""A causal Transformer one step at a time: few operations on plain tensors, keys and values written in place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.neural.network import Memory, Stepper
from seqmodels.neural.transformer.cache import Fill, room_for
from seqmodels.neural.transformer.feedforward import activate
from seqmodels.neural.transformer.gathered import Heads, Layer, Map
from seqmodels.neural.transformer.options import TransformerOptions
from seqmodels.neural.transformer.positions import KEPT, NoPositions, Positions
from seqmodels.neural.transformer.previous import PreviousInputs
from seqmodels.neural.transformer.relative import Rotary

LARGEST_TABLE = 2_048  # inputs, up to which what each adds to later steps is computed before


def can_step(options: TransformerOptions) -> bool:
    """Whether ``TransformerStepper`` knows these options.

    It does not know norms after the sum or on what is added, scores with a bias (ALiBi, T5's) and windows within a layer.
    """
    return options.norm == "pre" and options.positions not in ("alibi", "t5") and options.window is None


@dataclass(frozen=True)
class Cached:
    """What a step needs of the steps before.

    A state is a value, though its buffer is written in place: behind the last step of a state may write who comes first, which
    ``fill`` tells to all that look into the buffer; who comes later writes into a copy.

    Attributes:
        buffer: (L, 2, n, G, room, d_head), for each layer keys and values of each sequence, group of heads and step.
        pending: (n, p d), what is to be added to each of the next p inputs.
        length: steps written for this state.
        fill: how many steps of the buffer are written for somebody.
    """

    buffer: Tensor
    pending: Tensor
    length: int
    fill: Fill

    def with_room(self, limit: int | None) -> Cached:
        """The same, with a place behind the last step that nobody else will write to."""
        mine = self.fill.steps == self.length < self.buffer.shape[4]
        # What was made under inference mode may not be written outside of it.
        if not mine or self.buffer.is_inference() != torch.is_inference_mode_enabled():
            return self.copied(room_for(self.length + 1, limit))
        return self

    def copied(self, room: int) -> Cached:
        """In a buffer of its own."""
        *outer, _, d_head = self.buffer.shape
        buffer = self.buffer.new_empty(*outer, room, d_head)
        buffer.narrow(4, 0, self.length).copy_(self.buffer.narrow(4, 0, self.length))
        return replace(self, buffer=buffer, fill=Fill(self.length))


class Reading:
    """Which inputs are read, ``y_t = x_t + Σ_k W_k x_{t-k}``: each adds to the p after it what ``pending`` holds.

    Args:
        inputs: ``(R, d)``, of which each step names one.
        previous: the matrices ``W_k``, k = 1 .. p.
    """

    def __init__(self, inputs: Tensor, previous: PreviousInputs) -> None:
        self.table, self.d, self.previous = inputs, inputs.shape[1], previous
        self.later: Tensor | None = None
        if previous.map is None:
            return
        later = previous.map.weight.detach().unflatten(1, (-1, self.d)).transpose(0, 1).flatten(0, 1)  # (p d, d)
        self.later, self.all = later, torch.cat([torch.eye(self.d).to(later), later]).t()
        self.from_table = len(inputs) <= LARGEST_TABLE
        if self.from_table:
            self.table = inputs @ self.all  # (R, d + p d)

    def all_at_once(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What is read of ``inputs (n, T, d)`` that come first, and what is pending after them."""
        x, recent = self.previous(inputs, self.previous.start(len(inputs)))
        return x, self.pending(recent)

    def pending(self, recent: Tensor) -> Tensor:
        """What the last p inputs, ``recent (n, p, d)``, oldest first, will add to the next p: ``(n, p d)``."""
        pending = torch.zeros_like(recent).flatten(1)
        if self.later is None:
            return pending
        for x in recent.unbind(1):
            pending = F.pad(pending[:, self.d :], (0, self.d)) + F.linear(x, self.later)
        return pending

    def __call__(self, rows: Tensor, pending: Tensor) -> tuple[Tensor, Tensor]:
        """``rows (n,)`` -> what is read ``(n, d)``, which is the caller's own, and what is pending then."""
        x = self.table.index_select(0, rows)
        if self.later is None:
            return x, pending
        spread = x if self.from_table else x @ self.all  # (n, d + p d)
        spread.narrow(1, 0, pending.shape[1]).add_(pending)
        return spread.narrow(1, 0, self.d), spread.narrow(1, self.d, pending.shape[1])


class TransformerStepper(Stepper):
    """The steps of a causal Transformer in evaluation.

    Args:
        options: of the network; ``can_step`` says which.
        layers: its blocks.
        final_norm: on the last block's states.
        positions: added to inputs.
        rotary: turns of queries and keys, if they are turned.
        reading: what is read.
    """

    def __init__(
        self,
        options: TransformerOptions,
        layers: tuple[Layer, ...],
        final_norm: Map,
        positions: Positions,
        rotary: Rotary | None,
        reading: Reading,
    ) -> None:
        self.options, self.heads, self.layers, self.final_norm = options, heads_of(options), layers, final_norm
        self.positions, self.rotary, self.read = positions, rotary, reading
        self.like = reading.table.new_zeros(1, 1, 1).expand(1, options.max_length or KEPT, options.d_model)
        self.kept_places, self.kept_turns = self._places(self.like, 0), self._turns(self.like, 0)
        self.own = 2, options.key_heads, options.d_head  # a key and a value for each group
        self.widths = options.d_model, math.prod(self.own)

    def begin(self, memory: Memory) -> Cached:
        """From ``TransformerNetwork``'s memory: keys in the order of pairs, beside their values."""
        (layers, length, _), recent = memory
        pairs = [torch.stack([self.heads.pairs(key), value]) for key, value in layers]
        seen = torch.stack(pairs).narrow(4, 0, length)  # (L, 2, n, G, length, d_head)
        return Cached(seen, self.read.pending(recent), length, Fill(length))

    def step(self, rows: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Stepper``."""
        cached: Cached = memory.with_room(self.options.max_length)
        t, buffer = cached.length, cached.buffer
        cached.fill.steps = t + 1  # from now on this is written for nobody else
        x, pending = self.read(rows, cached.pending)
        place, turn = self._between(t, t + 1)
        if place is not None:
            x.add_(place)
        into = buffer.select(4, t).unbind(0)
        for layer, new, key, value in zip(self.layers, into, *self._seen(buffer, t + 1), strict=True):
            x = self._block(layer, x, turn, new, key, value)
        return self.final_norm(x), Cached(buffer, pending, t + 1, cached.fill)

    def enter(self, inputs: Tensor) -> tuple[Tensor, Memory]:
        """See ``Stepper``; of the last block's states only the last are computed."""
        (n, length, d), options = inputs.shape, self.options
        x, pending = self.read.all_at_once(inputs)
        places, turn = self._between(0, length)
        x = (x.clone() if places is None else x + places).flatten(0, 1)  # (n T, d)
        room = room_for(length + 1, options.max_length)
        buffer = inputs.new_empty(len(self.layers), 2, n, options.key_heads, room, options.d_head)
        for layer, new in zip(self.layers, buffer.narrow(4, 0, length).unbind(0), strict=True):
            query, own = self._heads(layer, x, turn)
            new.copy_(own.view(n, length, *self.own).permute(2, 0, 3, 1, 4))
            if layer is not self.layers[-1]:
                self._add(layer, x, self._attended(query.view(n, length, -1), *new))
        x, query = x.view(n, length, d)[:, -1].contiguous(), query.view(n, length, -1)[:, -1]
        keys, values = self._seen(buffer, length)
        x = self._attend(self.layers[-1], x, query, keys[-1], values[-1])
        return self.final_norm(x), Cached(buffer, pending, length, Fill(length))

    def _attended(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Context ``(n T, d)`` of steps that see themselves and those before: ``query (n, T, d)``, the others ``(n, G, T, d_head)``."""
        query = query.unflatten(2, (self.options.n_heads, -1)).transpose(1, 2)
        if query.shape[1] > key.shape[1]:
            key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], 1) for part in (key, value))
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0)
        return context.transpose(1, 2).flatten(2).flatten(0, 1)

    def select(self, memory: Memory, index: Tensor) -> Memory:
        """See ``Stepper``: a copy, under the old mark, which at worst sends the next step to another."""
        buffer, pending = memory.buffer.index_select(2, index), memory.pending.index_select(0, index)
        return replace(memory, buffer=buffer, pending=pending)

    def _seen(self, buffer: Tensor, n_seen: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Of each layer keys ``(n G, d_head, S)`` and values ``(n G, S, d_head)``, without a copy."""
        key, value = buffer.flatten(2, 3).narrow(3, 0, n_seen).unbind(1)
        return key.mT.unbind(0), value.unbind(0)

    def _block(self, layer: Layer, x: Tensor, turn: Tensor | None, new: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """One block: ``x (n, d)`` in place, its key and value into ``new (2, n, G, d_head)``, which those seen look into."""
        query, own = self._heads(layer, x, turn)
        new.copy_(own.view(-1, *self.own).transpose(0, 1))
        return self._attend(layer, x, query, key, value)

    def _heads(self, layer: Layer, x: Tensor, turn: Tensor | None) -> tuple[Tensor, ...]:
        """Queries ``(n, H d_head)``, keys and values ``(n, 2 G d_head)`` of ``x (n, d)``; there are T turns, of which T follow each other in n."""
        heads = layer.project(layer.attention_norm(x))
        if layer.head_norm is not None:
            heads = layer.head_norm(heads)
        if turn is not None:
            heads.view(turn.dtype).view(-1, *turn.shape).mul_(turn)
        return heads.split_with_sizes(self.widths, 1)

    def _attend(self, layer: Layer, x: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What one query a head ``(n, H d_head)`` sees, added to ``x (n, d)``, and what the feed-forward makes of it."""
        query = query.reshape(len(key), -1, key.shape[1])  # (n G, H / G, d_head)
        context = torch.bmm(torch.bmm(query, key).softmax(-1), value)
        return self._add(layer, x, context.view(x.shape))

    def _add(self, layer: Layer, x: Tensor, context: Tensor) -> Tensor:
        layer.output.add_to(x, context)
        return layer.contract.add_to(x, self._activated(layer.expand(layer.feedforward_norm(x))))

    def _activated(self, hidden: Tensor) -> Tensor:
        if self.options.activation != "relu2":
            return activate(hidden, self.options.activation)
        hidden.relu_()  # by hand: a function of autograd's own costs more than its work
        return hidden.mul_(hidden)

    def _between(self, begin: int, end: int) -> tuple[Tensor | None, Tensor | None]:
        """What these positions add to their inputs ``(T, d)``, and their turns ``(T, (H + 2 G) d_head / 2)``."""
        if end <= self.like.shape[1]:
            places, turns = self.kept_places, self.kept_turns
            return None if places is None else places[begin:end], None if turns is None else turns[begin:end]
        like = self.like[:, :1].expand(1, end - begin, -1)
        return self._places(like, begin), self._turns(like, begin)

    def _places(self, like: Tensor, offset: int) -> Tensor | None:
        """``(T, d)`` for inputs ``like (1, T, d)``, zeros."""
        return None if isinstance(self.positions, NoPositions) else self.positions(like, offset)[0].detach()

    def _turns(self, like: Tensor, offset: int) -> Tensor | None:
        return None if self.rotary is None else self.heads.turns(self.rotary(like, offset))


def heads_of(options: TransformerOptions) -> Heads:
    """How heads are laid out."""
    return Heads(options.n_heads, options.key_heads, options.d_head, options.positions == "rotary")
