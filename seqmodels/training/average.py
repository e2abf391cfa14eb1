"""A running mean of the weights (Polyak and Juditsky, 1992), over a fixed part of the steps taken so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """``mean += (w - mean) / max(1, part · t)`` after step t: its memory grows with the run (Karras et al., 2024).

    Args:
        module: whose weights are averaged.
        part: of the steps taken, over which the mean reaches back; 0: no mean is kept.
    """

    def __init__(self, module: nn.Module, part: float) -> None:
        self.module, self.part = module, part
        self.weights: dict[str, Tensor] = {}
        if part:
            self.weights = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, taken: int) -> None:
        """After a step."""
        if not self.weights:
            return
        share = 1 / max(1.0, self.part * taken)
        current = dict(self.module.named_parameters())
        for name, mean in self.weights.items():
            mean.lerp_(current[name], share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the module has the mean for weights."""
        with torch.no_grad():
            self._swap()
            try:
                yield
            finally:
                self._swap()

    def settle(self) -> None:
        """The module takes the mean for good."""
        with torch.no_grad():
            self._swap()

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        for name, mean in self.weights.items():
            mean.copy_(weights[name])

    def _swap(self) -> None:
        current = dict(self.module.named_parameters())
        for name, mean in self.weights.items():
            kept = current[name].detach().clone()
            current[name].copy_(mean)
            mean.copy_(kept)
