"""A Pyro distribution that Pyro lacks: a mixture whose components are products over groups of features."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints


class MixtureOfProducts(TorchDistribution):
    """``p(x) = Σ_k w_k Π_g p_kg(x_g)`` over vectors.

    Args:
        log_weights: ``(K,)``, normalised.
        components: for each k one distribution over vectors for each group of features, without batch axes.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (torch declares it so)
    support = constraints.real_vector

    def __init__(self, log_weights: Tensor, components: list[list[Any]]) -> None:
        self.log_weights, self.weights, self.components = log_weights, log_weights.exp(), components
        self.sizes = [part.event_shape[0] for part in components[0]]
        super().__init__(event_shape=torch.Size([sum(self.sizes)]), validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        groups = value.split(self.sizes, dim=-1)
        each = [sum(p.log_prob(x) for p, x in zip(parts, groups, strict=True)) for parts in self.components]
        return torch.logsumexp(torch.stack(each, dim=-1) + self.log_weights, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        chosen = torch.multinomial(self.weights, max(1, shape.numel()), replacement=True).tolist()
        draws = [torch.cat([part.sample() for part in self.components[k]]) for k in chosen]
        return torch.stack(draws).view(*shape, -1)

    @property
    def mean(self) -> Tensor:
        """``(D,)``."""
        return self.weights @ self._moments("mean")

    @property
    def variance(self) -> Tensor:
        """``(D,)``."""
        means = self._moments("mean")
        return self.weights @ (self._moments("variance") + means.square()) - self.mean.square()

    def _moments(self, name: str) -> Tensor:
        return torch.stack([torch.cat([getattr(part, name) for part in parts]) for parts in self.components])
