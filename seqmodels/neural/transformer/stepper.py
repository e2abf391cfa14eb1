"""A causal Transformer one step at a time: few operations on plain tensors, keys and values written in place."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.neural.network import Memory, Stepper
from seqmodels.neural.transformer.cache import room_for
from seqmodels.neural.transformer.feedforward import activate
from seqmodels.neural.transformer.gathered import Heads, Layer, Map
from seqmodels.neural.transformer.options import TransformerOptions
from seqmodels.neural.transformer.positions import KEPT, NoPositions, Positions
from seqmodels.neural.transformer.reading import Reading
from seqmodels.neural.transformer.relative import Rotary
from seqmodels.neural.transformer.workspace import Cached, Desk, Workspace


def can_step(options: TransformerOptions) -> bool:
    """Whether ``TransformerStepper`` knows these options.

    It does not know norms after the sum or on what is added, scores with a bias (ALiBi, T5's) and windows within a layer.
    """
    return options.norm == "pre" and options.positions not in ("alibi", "t5") and options.window is None


def heads_of(options: TransformerOptions) -> Heads:
    """How heads are laid out."""
    return Heads(options.n_heads, options.key_heads, options.d_head, options.positions == "rotary")


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

    def begin(self, memory: Memory) -> Cached:
        """From ``TransformerNetwork``'s memory: keys in the order of pairs, with their values."""
        (layers, length, _), recent = memory
        pairs = [torch.stack([self.heads.pairs(key), value]) for key, value in layers]
        seen = torch.stack(pairs).narrow(4, 0, length)
        return Cached(Workspace(seen, length, self.heads), length, self.read.pending(recent))

    def step(self, rows: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """See ``Stepper``."""
        cached: Cached = memory
        t, space = cached.length, cached.claimed(self.options.max_length)
        x, pending = self.read(rows, cached.pending)
        place, turn = self._between(t, t + 1)
        if place is not None:
            x.add_(place)
        for layer, new, key, value in zip(self.layers, space.new(t), *space.seen(t + 1), strict=True):
            self._project(layer, x, turn, space.desk)
            new.copy_(space.desk.own)
            x = self._attend(layer, x, space.desk, key, value)
        return self.final_norm(x), Cached(space, t + 1, pending)

    def enter(self, inputs: Tensor) -> tuple[Tensor, Memory]:
        """See ``Stepper``; of the last block's states only the last are computed."""
        n, length, d = inputs.shape
        x, pending = self.read.at_once(inputs)
        places, turns = self._between(0, length)
        x = (x.clone() if places is None else x + places).flatten(0, 1)  # (n T, d)
        turns = None if turns is None else turns.repeat(n, 1)
        desk, space = Desk(len(x), self.heads, x), self._empty(n, length)
        for layer, new in zip(self.layers, space.cache.narrow(4, 0, length).unbind(0), strict=True):
            self._project(layer, x, turns, desk)
            new.copy_(desk.own.unflatten(1, (n, length)).transpose(2, 3))  # (2, n, G, T, d_head)
            if layer is not self.layers[-1]:
                self._add(layer, x, attended(desk.query.unflatten(0, (n, length)), *new))
        space.desk.query.copy_(desk.query.unflatten(0, (n, length))[:, -1])
        x, (keys, values) = x.view(n, length, d)[:, -1].contiguous(), space.seen(length)
        x = self._attend(self.layers[-1], x, space.desk, keys[-1], values[-1])
        return self.final_norm(x), Cached(space, length, pending)

    def select(self, memory: Memory, index: Tensor) -> Memory:
        """See ``Stepper``."""
        cached: Cached = memory
        return cached.select(index)

    def _project(self, layer: Layer, x: Tensor, turns: Tensor | None, desk: Desk) -> None:
        """Queries, keys and values of ``x (n, d)`` onto the desk; turns of one step, or of each of n."""
        layer.project.into(layer.attention_norm(x), desk.heads)
        if layer.head_norm is not None:
            layer.head_norm(desk.heads)
        if turns is not None:
            desk.pairs.mul_(turns)

    def _attend(self, layer: Layer, x: Tensor, desk: Desk, key: Tensor, value: Tensor) -> Tensor:
        """What the queries on the desk see, added to ``x (n, d)`` in place, and what the feed-forward makes of it."""
        weights = torch.bmm(desk.ask(), key).softmax(-1)  # (n G, H / G, S)
        torch.bmm(weights, value, out=desk.answer)
        return self._add(layer, x, desk.context)

    def _add(self, layer: Layer, x: Tensor, context: Tensor) -> Tensor:
        layer.output.add_to(x, context)
        return layer.contract.add_to(x, self._activated(layer.expand(layer.feedforward_norm(x))))

    def _activated(self, hidden: Tensor) -> Tensor:
        if self.options.activation != "relu2":
            return activate(hidden, self.options.activation)
        hidden.relu_()  # by hand: a function of autograd's own costs more than its work
        return hidden.mul_(hidden)

    def _empty(self, n: int, length: int) -> Workspace:
        """Of n sequences, the first steps of which are about to be written."""
        room, o = room_for(length + 1, self.options.max_length), self.options
        return Workspace(self.like.new_empty(o.n_layers, 2, n, o.key_heads, room, o.d_head), length, self.heads)

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


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Context ``(n T, d)`` of steps that see themselves and those before: ``(n, T, H, d_head)``, the others ``(n, G, T, d_head)``.

    Queries are scaled already.
    """
    shared = query.shape[2] // key.shape[1]
    if shared > 1:
        key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    context = F.scaled_dot_product_attention(query.transpose(1, 2), key, value, is_causal=True, scale=1.0)
    return context.transpose(1, 2).flatten(2).flatten(0, 1)
