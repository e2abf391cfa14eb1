"""Buffers that the E-steps of one fit reuse, because fresh memory pages cost as much as writing on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


class Scratch:
    """A store of named buffers that are reused: a second request for a name returns the same memory."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._made: tuple[Tensor, object] | None = None
        self._of_threads: list[Scratch] = []

    def buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return an uninitialised contiguous tensor of the given shape, precision and device.

        A later request for the same ``name`` reuses its memory.
        """
        size, kept = math.prod(shape), self._kept.get(name)
        if kept is None or len(kept) < size or kept.dtype != dtype or kept.device != device:
            kept = self._kept[name] = torch.empty(size, dtype=dtype, device=device)
        return kept[:size].view(shape)

    def like(self, name: str, matrix: Tensor) -> Tensor:
        """Return an uninitialised tensor with the shape, precision and memory layout of ``matrix (..., r, c)``.

        A later request for ``name`` reuses its memory.
        """
        flipped = matrix.stride(-2) == 1
        buffer = self.buffer(name, tuple((matrix.mT if flipped else matrix).shape), matrix.dtype, matrix.device)
        return buffer.mT if flipped else buffer

    def once(self, source: Tensor, make: Callable[[Tensor], Value]) -> Value:
        """Return ``make(source)``, computed again only if ``source`` is another object than at the last call.

        ``make`` must be the same function at every call.
        """
        if self._made is None or self._made[0] is not source:
            self._made = source, make(source)
        return self._made[1]  # type: ignore[return-value]

    def of_threads(self, n: int) -> list[Scratch]:
        """Return ``n`` other ``Scratch`` objects, the same at every call, for threads that work side by side."""
        self._of_threads += [Scratch() for _ in range(n - len(self._of_threads))]
        return self._of_threads[:n]
