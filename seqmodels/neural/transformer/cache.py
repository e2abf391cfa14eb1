"""The cache of a causal Transformer: keys and values of earlier steps in buffers with room for more, written in place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

KeyValue = tuple[Tensor, Tensor]  # (B, H, room, d_head) each
FIRST_ROOM = 64  # steps that the first buffer has room for


class Fill:
    """How many steps of some buffers are written: one mark for all states that look into them, handed on as it is."""

    def __init__(self, steps: int) -> None:
        self.steps = steps


# Keys and values of each layer, of which the first `int` steps are this state's, and the mark of the buffers. Being a
# tuple of tensors with the batch first, an integer and a mark it is a Memory: whoever selects rows of it gets new buffers
# under the old mark, which at worst sends the next step to a copy.
Cache = tuple[tuple[KeyValue, ...], int, Fill]


@dataclass(frozen=True)
class Extension:
    """How one forward pass takes the next steps into the cache; the same for every layer.

    A state is a value: advanced twice from the same point it must give the same twice. So a pass writes in place only
    if nobody has written behind this state's last step before, and if no gradient is asked for; otherwise it copies.

    Attributes:
        length: steps cached before.
        total: steps cached after.
        in_place: write behind the last step.
        room: of new buffers, where it is not in place.
    """

    length: int
    total: int
    in_place: bool
    room: int

    def place(self, past: KeyValue | None, new: KeyValue) -> KeyValue:
        """Buffers with the new steps (B, H, T, d_head) in them; the first steps of all are kept as they came."""
        if past is None or self.length == 0:
            return new
        if torch.is_grad_enabled():
            return self._join(past[0], new[0]), self._join(past[1], new[1])
        return self._write(past[0], new[0]), self._write(past[1], new[1])

    def seen(self, buffers: KeyValue, first: int) -> KeyValue:
        """The written steps from ``first`` on, without a copy."""
        n = self.total - first
        if n == buffers[0].shape[2]:
            return buffers
        return buffers[0].narrow(2, first, n), buffers[1].narrow(2, first, n)

    def _join(self, past: Tensor, new: Tensor) -> Tensor:
        return torch.cat([past.narrow(2, 0, self.length), new], 2)

    def _write(self, past: Tensor, new: Tensor) -> Tensor:
        buffer = past
        if not self.in_place:
            batch, heads, _, d_head = past.shape
            buffer = past.new_empty(batch, heads, self.room, d_head)
            buffer.narrow(2, 0, self.length).copy_(past.narrow(2, 0, self.length))
        buffer.narrow(2, self.length, self.total - self.length).copy_(new)
        return buffer


def extend(cache: Cache | None, n_new: int, limit: int | None = None) -> tuple[Extension, Fill]:
    """How to take ``n_new`` steps in, and the mark of the buffers they will be in; ``limit``: how many there will be at most, as a rule."""
    if cache is None or cache[1] == 0:
        return Extension(0, n_new, False, n_new), Fill(n_new)
    layers, length, fill = cache
    total = length + n_new
    if torch.is_grad_enabled():
        return Extension(length, total, False, total), Fill(total)
    if fill.steps == length and _has_room(layers[0][0], total):
        fill.steps = total  # from now on this is written for nobody else
        return Extension(length, total, True, total), fill
    return Extension(length, total, False, room_for(total, limit)), Fill(total)


def room_for(total: int, limit: int | None) -> int:
    """Of a new buffer for ``total`` steps and more, of which there will be ``limit`` at most, as a rule."""
    room = max(2 * total, FIRST_ROOM)  # doubled, so that all copies of a long sequence come to less than two of its end
    return room if limit is None or limit < total else min(room, limit)


def _has_room(buffer: Tensor, total: int) -> bool:
    # What was made under inference mode may not be written outside of it.
    return total <= buffer.shape[2] and buffer.is_inference() == torch.is_inference_mode_enabled()
