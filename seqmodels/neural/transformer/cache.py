"""The key-value cache of a causal Transformer: buffers with spare capacity, written in place.

``KVCache`` is the cache of the network's own forward pass over any number of steps. The faster single steps of
``incremental`` have a cache of their own, ``StepCache``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

KeyValue = tuple[Tensor, Tensor]  # (B, H, capacity, d_head) each
FIRST_CAPACITY = 64  # steps that the first buffer has space for


class FillLevel:
    """The number of steps that are written in some key-value buffers, one object for all states that share the buffers.

    Args:
        steps: the number of steps.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps


# Keys and values of each layer, how many of their steps belong to this state, and the fill level of the buffers. It
# is a network's state: a tuple of tensors with the batch first, an integer and an object handed on as it is. Selecting
# rows of it makes new buffers under the old fill level, which at worst makes the next step copy them.
KVCache = tuple[tuple[KeyValue, ...], int, FillLevel]


@dataclass(frozen=True)
class CacheUpdate:
    """A plan of how one forward pass writes its keys and values to the key-value cache, the same for every layer.

    A state is a value: advanced twice from the same point it must give the same result twice. So a pass writes in place
    only if nothing has been written after this state's last step before, and if no gradient is needed. Otherwise it
    copies.

    Attributes:
        length: number of steps in the cache before the pass.
        new_length: number of steps in the cache after the pass.
        in_place: True to write after the last step, without a copy.
        capacity: number of steps that new buffers have space for, if not ``in_place``.
    """

    length: int
    new_length: int
    in_place: bool
    capacity: int

    def write(self, past: KeyValue | None, new: KeyValue) -> KeyValue:
        """Return buffers of one layer's keys and values to which those of T new steps have been added.

        The new ones themselves are the buffers if there were none.

        Args:
            past: buffers of keys and values before, (B, H, capacity, d_head) each, or None.
            new: new keys and values, (B, H, T, d_head) each.
        """
        if past is None or self.length == 0:
            return new
        if torch.is_grad_enabled():
            return self._join(past[0], new[0]), self._join(past[1], new[1])
        return self._write(past[0], new[0]), self._write(past[1], new[1])

    def steps_from(self, first: int, buffers: KeyValue) -> KeyValue:
        """Return views of one layer's keys and values, (B, H, steps, d_head) each, from step ``first`` on.

        They end with the last step written. ``buffers`` are the keys and values with spare capacity.
        """
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
    """Return the plan for adding ``n_new`` steps to a key-value cache, and the fill level of its buffers afterwards.

    Args:
        cache: keys and values of earlier steps, or None.
        n_new: number of steps to add.
        max_length: how many steps a sequence has at most as a rule; None if unknown.
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
    """Return how many steps a new buffer should have space for, given that ``n_steps`` are there and more may come.

    It is twice ``n_steps`` (at least 64), but not more than ``max_length``, the usual greatest length of a sequence, if
    that is enough.
    """
    # Doubled, so that all copies made for a long sequence together hold less than twice its steps.
    capacity = max(2 * n_steps, FIRST_CAPACITY)
    return capacity if max_length is None or max_length < n_steps else min(capacity, max_length)


def cached_length(cache: KVCache) -> int:
    """Return how many steps a key-value cache holds."""
    return cache[1]


def _fits(buffer: Tensor, n_steps: int) -> bool:
    # A tensor made under inference mode may not be written outside of it.
    return n_steps <= buffer.shape[2] and buffer.is_inference() == torch.is_inference_mode_enabled()
