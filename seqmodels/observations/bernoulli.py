"""Bits: ``p(x) = Π_d p_d^{x_d} (1 - p_d)^{1 - x_d}``, each feature on or off (keys of a piano, pixels)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.observations.exponential_family import ExponentialFamily


@dataclass(eq=False, repr=False)
class Bernoulli(ExponentialFamily):
    """Independent bits; the output parameters of a state are D log-odds.

    Args:
        pseudocount: frames added to a state's expected ones in an M-step (a Beta prior), so that a feature never seen
            on is not impossible; networks do not need it.
        mean: of those frames: a probability, or one for each feature (their frequencies, say). Networks start at the
            mean of their training frames and one such.

    NaN marks a missing bit, which is summed out. In raw units: ``probabilities_ (K, D)``.
    """

    pseudocount: float = 0.0
    mean: float | list[float] = 0.5
    kind = "bits"
    parameter_name = "probabilities_"
    largest_mean = 1.0

    def each(self, natural: Tensor, x: Tensor) -> Tensor:
        return F.logsigmoid((2 * x - 1) * natural)

    def normaliser(self, natural: Tensor) -> Tensor:
        return F.softplus(natural)

    def base(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def expected(self, natural: Tensor) -> Tensor:
        return torch.sigmoid(natural)

    def natural(self, mean: Tensor) -> Tensor:
        return torch.logit(mean)

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        return output_parameters / temperature

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return torch.bernoulli(torch.sigmoid(output_parameters), generator=generator)

    def distribution(
        self, output_parameters: Tensor, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        import pyro.distributions as dist

        # Pyro has no infinite logits; the largest finite ones are as certain.
        each = dist.Bernoulli(logits=torch.nan_to_num(output_parameters), validate_args=True).to_event(1)
        return dist.MixtureSameFamily(
            dist.Categorical(logits=log_weights, validate_args=True), each, validate_args=True
        )
