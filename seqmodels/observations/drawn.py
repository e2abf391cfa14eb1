"""A Pyro distribution made of an observation's own density and draws, where Pyro has none like it."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from seqmodels.observations.base import Observation


class MixtureOfObservations(TorchDistribution):
    """``p(x) = Σ_k w_k p(x | parameters_k)`` over vectors of ``size`` features, for an observation that looks at no past.

    Its mean and variance are not known in closed form, so it has none.

    Args:
        output_parameters: ``(K, P)``.
        log_weights: ``(K,)``, normalised.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (torch declares it so)
    support = constraints.real_vector

    def __init__(self, observation: Observation, output_parameters: Tensor, log_weights: Tensor, size: int) -> None:
        self.observation = observation
        self.output_parameters = output_parameters
        self.log_weights = log_weights
        super().__init__(event_shape=torch.Size([size]), validate_args=False)

    @torch.no_grad()
    def log_prob(self, value: Tensor) -> Tensor:
        x = value.to(self.output_parameters.dtype).unsqueeze(-2)
        each = self.observation.log_prob(self.output_parameters, x)  # (..., K)
        return torch.logsumexp(each + self.log_weights, dim=-1)

    @torch.no_grad()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Independent draws, seeded by torch's (and so Pyro's) generator."""
        shape = torch.Size(sample_shape)
        chosen = torch.multinomial(self.log_weights.exp(), max(1, shape.numel()), replacement=True)
        generator = torch.Generator(self.log_weights.device).manual_seed(int(torch.randint(2**31, ())))
        return self.observation.sample(self.output_parameters[chosen], None, generator).view(*shape, -1)
