"""The key-value cache of a causal Transformer: buffers with spare capacity, written in place.

``KVCache`` is that of the network's own forward pass, of any number of steps; the faster single steps of
``incremental`` have a cache of their own, ``StepCache``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

KeyValue = tuple[Tensor, Tensor]  # (B, H, capacity, d_head) each
FIRST_CAPACITY = 64  # steps that the first buffer has space for


class FillLevel:
    """How many steps of some buffers are written; one object for all states that share the buffers."""

    def __init__(self, steps: int) -> None:
        self.steps = steps


# Keys and values of each layer, of which the first `int` steps are this state's, and the fill level of the buffers. It
# is a network's state: a tuple of tensors with the batch first, an integer and an object handed on as it is: selecting
# rows of it makes new buffers under the old fill level, which at worst makes the next step copy them.
KVCache = tuple[tuple[KeyValue, ...], int, FillLevel]


@dataclass(frozen=True)
class CacheUpdate:
    """How one forward pass writes the next steps into the cache; the same for every layer.

    A state is a value: advanced twice from the same point it must give the same result twice. So a pass writes in place
    only if nothing has been written behind this state's last step before, and if no gradient is needed; otherwise it
    copies.

    Attributes:
        length: steps cached before.
        new_length: steps cached after.
        in_place: write behind the last step.
        capacity: of new buffers, where it is not in place.
    """

    length: int
    new_length: int
    in_place: bool
    capacity: int

    def write(self, past: KeyValue | None, new: KeyValue) -> KeyValue:
        """Buffers with the new steps (B, H, T, d_head) in them; the first steps of all are kept without a copy."""
        if past is None or self.length == 0:
            return new
        if torch.is_grad_enabled():
            return self._join(past[0], new[0]), self._join(past[1], new[1])
        return self._write(past[0], new[0]), self._write(past[1], new[1])

    def steps_from(self, first: int, buffers: KeyValue) -> KeyValue:
        """The written steps from ``first`` on, without a copy."""
        n = self.new_length - first
        if n == buffers[0].shape[2]:
            return buffers
        return buffers[0].narrow(2, first, n), buffers[1].narrow(2, first, n)

    def _join(self, past: Tensor, new: Tensor) -> Tensor:
        return torch.cat([past.narrow(2, 0, self.length), new], 2)

    def _write(self, past: Tensor, new: Tensor) -> Tensor:
        buffer = past
        if not self.in_place:
            batch, heads, _, d_head = past.shape
            buffer = past.new_empty(batch, heads, self.capacity, d_head)
            buffer.narrow(2, 0, self.length).copy_(past.narrow(2, 0, self.length))
        buffer.narrow(2, self.length, self.new_length - self.length).copy_(new)
        return buffer


def plan_update(cache: KVCache | None, n_new: int, max_length: int | None = None) -> tuple[CacheUpdate, FillLevel]:
    """How to write ``n_new`` steps, and the fill level of the buffers they will be in.

    ``max_length``: how many steps there will be at most, as a rule.
    """
    if cache is None or cache[1] == 0:
        return CacheUpdate(0, n_new, False, n_new), FillLevel(n_new)
    layers, length, fill = cache
    new_length = length + n_new
    if torch.is_grad_enabled():
        return CacheUpdate(length, new_length, False, new_length), FillLevel(new_length)
    if fill.steps == length and _fits(layers[0][0], new_length):
        fill.steps = new_length  # from now on no other state may write there
        return CacheUpdate(length, new_length, True, new_length), fill
    return CacheUpdate(length, new_length, False, capacity_for(new_length, max_length)), FillLevel(new_length)


def capacity_for(n_steps: int, max_length: int | None) -> int:
    """Of a new buffer for ``n_steps`` steps and more, of which there will be ``max_length`` at most, as a rule."""
    # Doubled, so that all copies made for a long sequence together hold less than twice its steps.
    capacity = max(2 * n_steps, FIRST_CAPACITY)
    return capacity if max_length is None or max_length < n_steps else min(capacity, max_length)


def cached_length(cache: KVCache) -> int:
    """How many steps a cache holds."""
    return cache[1]


def _fits(buffer: Tensor, n_steps: int) -> bool:
    # A tensor made under inference mode may not be written outside of it.
    return n_steps <= buffer.shape[2] and buffer.is_inference() == torch.is_inference_mode_enabled()
