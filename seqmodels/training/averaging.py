"""A running mean of the weights during training (Polyak and Juditsky, 1992), over a fixed share of the steps so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """A running mean of a module's weights, over a window that grows with training (Karras et al., 2024).

    After step t, ``mean += (w - mean) / max(1, fraction · t)`` for each weight w.

    Args:
        module: the module whose weights are averaged.
        fraction: length of the window as a fraction of the steps taken so far; 0 keeps no mean.
    """

    def __init__(self, module: nn.Module, fraction: float) -> None:
        self.module = module
        self.fraction = fraction
        self.weights: dict[str, Tensor] = {}
        if fraction:
            self.weights = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, n_steps: int) -> None:
        """Update the running mean by the module's present weights after step number ``n_steps``, counted from 1."""
        if not self.weights:
            return
        share = 1 / max(1.0, self.fraction * n_steps)
        current = dict(self.module.named_parameters())
        for name, mean in self.weights.items():
            mean.lerp_(current[name], share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Return a context in which the module has the running mean for weights, and no gradients are recorded."""
        with torch.no_grad():
            self.swap()
            try:
                yield
            finally:
                self.swap()

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the running mean and the module's weights; do nothing if no mean is kept."""
        current = dict(self.module.named_parameters())
        for name, mean in self.weights.items():
            weights = current[name].detach().clone()
            current[name].copy_(mean)
            mean.copy_(weights)

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Load the running mean from a checkpoint; weights that are missing there start as they are in the module.

        Args:
            weights: the mean of each weight, by name.
        """
        current = dict(self.module.named_parameters())
        for name, mean in self.weights.items():
            mean.copy_(weights.get(name, current[name].detach()))
