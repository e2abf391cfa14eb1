"""``Scratch``: memory that the E-steps of one fit reuse; fresh pages cost as much as what is written on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


class Scratch:
    """Buffers by name. Asking for a name again gives the same memory: what was there before is lost."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._made: tuple[Tensor, object] | None = None
        self._of_threads: list[Scratch] = []

    def buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """An uninitialised contiguous tensor."""
        size, kept = math.prod(shape), self._kept.get(name)
        if kept is None or len(kept) < size or kept.dtype != dtype or kept.device != device:
            kept = self._kept[name] = torch.empty(size, dtype=dtype, device=device)
        return kept[:size].view(shape)

    def like(self, name: str, matrix: Tensor) -> Tensor:
        """An uninitialised matrix, or a run of them, of the shape of this, along memory as it is."""
        flipped = matrix.stride(-2) == 1
        buffer = self.buffer(name, tuple((matrix.mT if flipped else matrix).shape), matrix.dtype, matrix.device)
        return buffer.mT if flipped else buffer

    def once(self, source: Tensor, make: Callable[[Tensor], Value]) -> Value:
        """``make(source)``, from before if the source is that of the last call; ``make`` must always be the same."""
        if self._made is None or self._made[0] is not source:
            self._made = source, make(source)
        return self._made[1]  # type: ignore[return-value]

    def of_threads(self, n: int) -> list[Scratch]:
        """``n`` others, the same at every call, for threads that are at work side by side."""
        self._of_threads += [Scratch() for _ in range(n - len(self._of_threads))]
        return self._of_threads[:n]
