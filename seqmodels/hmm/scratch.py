"""``Scratch``: memory that the E-steps of one fit use again and again; fresh pages cost as much as what is written on them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Scratch:
    """Tensors by name. Taking a name again gives the same memory: what was there before is lost."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """An uninitialised contiguous tensor."""
        size, kept = math.prod(shape), self._kept.get(name)
        if kept is None or len(kept) < size or kept.dtype != dtype or kept.device != device:
            kept = self._kept[name] = torch.empty(size, dtype=dtype, device=device)
        return kept[:size].view(shape)

    def like(self, name: str, matrix: Tensor) -> Tensor:
        """An uninitialised matrix of the shape of this one, along memory as it is."""
        flipped = matrix.stride(0) == 1
        found = self.take(name, tuple((matrix.T if flipped else matrix).shape), matrix.dtype, matrix.device)
        return found.T if flipped else found
