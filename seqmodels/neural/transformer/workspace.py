"""Where single steps of a Transformer write: keys and values of all steps so far, and what one step needs meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.neural.transformer.cache import room_for
from seqmodels.neural.transformer.gathered import Heads


class Desk:
    """Room for the projections of n inputs, and the ways to look at them. Nothing stays on it from one block to the next.

    Attributes:
        heads: ``(n, (H + 2 G) d_head)``, a projection as it comes; the others are views of it.
        pairs: ``heads`` as complex numbers, if they are ``paired``.
        query: ``(n, H, d_head)``.
        own: ``(2, n, G, d_head)``, keys and values.
        asked: ``(n G, H / G, d_head)``, where ``ask`` puts the queries.
        answer: like ``asked``, for contexts; ``context (n, d_model)`` is the same.
    """

    def __init__(self, n: int, heads: Heads, like: Tensor) -> None:
        h, g, d = heads.n_heads, heads.n_groups, heads.d_head
        self.heads = like.new_empty(n, (h + 2 * g) * d)
        self.pairs = torch.view_as_complex(self.heads.view(n, -1, 2)) if heads.paired else self.heads
        query, own = self.heads.split_with_sizes((h * d, 2 * g * d), 1)
        self.query, self.own = query.view(n, h, d), own.view(n, 2, g, d).transpose(0, 1)
        self._copies = n > 1  # else all queries stand one behind the other as they are
        self.asked = like.new_empty(n * g, h // g, d) if self._copies else self.query.view(g, -1, d)
        self.answer = like.new_empty(n * g, h // g, d)
        self.context = self.answer.view(n, h * d)

    def ask(self) -> Tensor:
        """The queries, those that share keys side by side."""
        if self._copies:
            self.asked.view(self.query.shape).copy_(self.query)
        return self.asked


class Workspace:
    """The cache of n sequences and a desk for their steps.

    Attributes:
        cache: ``(L, 2, n, G, room, d_head)``, for each layer keys and values of each sequence, group of heads and step.
        steps: how many steps of it are written, for whomever: a mark for all states that look into it.
    """

    def __init__(self, cache: Tensor, steps: int, heads: Heads) -> None:
        self.cache, self.steps, self.layout = cache, steps, heads
        self.desk = Desk(cache.shape[2], heads, cache)

    def takes(self, length: int) -> bool:
        """Whether a state of this length may write its next step here."""
        free = self.steps == length < self.cache.shape[4]
        # What was made under inference mode may not be written outside of it.
        return free and self.cache.is_inference() == torch.is_inference_mode_enabled()

    def copied(self, length: int, room: int) -> Workspace:
        """Another of the first steps, with room for more."""
        *outer, _, d_head = self.cache.shape
        cache = self.cache.new_empty(*outer, room, d_head)
        cache.narrow(4, 0, length).copy_(self.cache.narrow(4, 0, length))
        return Workspace(cache, length, self.layout)

    def new(self, t: int) -> tuple[Tensor, ...]:
        """Where each layer's keys and values of step t belong, ``(2, n, G, d_head)``."""
        return self.cache.select(4, t).unbind(0)

    def seen(self, length: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Each layer's keys ``(n G, d_head, S)`` and values ``(n G, S, d_head)`` of the first S steps, without a copy."""
        key, value = self.cache.flatten(2, 3).narrow(3, 0, length).unbind(1)
        return key.mT.unbind(0), value.unbind(0)


@dataclass(frozen=True)
class Cached:
    """What a step needs of the steps before.

    A state is a value, though what it looks into is written in place: behind the last step of a state may write who comes first,
    which the workspace tells to all that share it; who comes later writes into a copy.

    Attributes:
        workspace: whose first ``length`` steps are this state's.
        length: steps before.
        pending: ``(n, p d)``, what is to be added to each of the next p inputs.
    """

    workspace: Workspace
    length: int
    pending: Tensor

    def claimed(self, limit: int | None) -> Workspace:
        """Where the next step is written; from now on nobody else will write there."""
        space = self.workspace
        if not space.takes(self.length):
            space = space.copied(self.length, room_for(self.length + 1, limit))
        space.steps = self.length + 1
        return space

    def select(self, index: Tensor) -> Cached:
        """Of the sequences ``index (m,)``: a copy."""
        cache = self.workspace.cache.index_select(2, index)
        space = Workspace(cache, self.length, self.workspace.layout)
        return Cached(space, self.length, self.pending.index_select(0, index))
