"""``WeightAverage``: a running mean of the weights over a fixed fraction of the steps taken so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """A running mean of a module's weights, whose window grows with the run (Polyak and Juditsky, 1992).

    After step t it is ``mean += (w - mean) / max(1, fraction · t)`` (Karras et al., 2024).

    Args:
        module: the module whose weights are averaged.
        fraction: fraction of the steps taken so far over which the mean reaches back; 0: no mean is kept.
    """

    def __init__(self, module: nn.Module, fraction: float) -> None:
        self.module = module
        self.fraction = fraction
        self.weights: dict[str, Tensor] = {}
        if fraction:
            self.weights = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, n_steps: int) -> None:
        """Move the mean towards the module's weights after step number ``n_steps``."""
        if not self.weights:
            return
        share = 1 / max(1.0, self.fraction * n_steps)
        current = dict(self.module.named_parameters())
        for name, mean in self.weights.items():
            mean.lerp_(current[name], share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Return a context in which the module has the mean for weights, and no gradients are recorded."""
        with torch.no_grad():
            self.swap()
            try:
                yield
            finally:
                self.swap()

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the mean and the module's weights. Do nothing if no mean is kept."""
        current = dict(self.module.named_parameters())
        for name, mean in self.weights.items():
            weights = current[name].detach().clone()
            current[name].copy_(mean)
            mean.copy_(weights)

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Take the mean from the ``weights`` of a checkpoint; a weight that they lack starts from the module's."""
        current = dict(self.module.named_parameters())
        for name, mean in self.weights.items():
            mean.copy_(weights.get(name, current[name].detach()))
