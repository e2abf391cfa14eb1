"""Counts: ``p(x) = Π_d λ_d^{x_d} e^{-λ_d} / x_d!``."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from seqmodels.observations.exponential_family import ExponentialFamily


@dataclass(eq=False, repr=False)
class Poisson(ExponentialFamily):
    """Independent counts; the output parameters of a state are D log-rates.

    Args:
        pseudocount: frames added to a state's expected ones in an M-step (a Gamma prior), so that no rate becomes 0.
        mean: of those frames: a rate, or one for each feature. Networks start at the mean of their training frames and
            one such.

    NaN marks a missing count, which is summed out. In raw units: ``rates_ (K, D)``, counts a frame. Reference:
    Zucchini, MacDonald and Langrock (2016), *Hidden Markov models for time series*.
    """

    pseudocount: float = 0.0
    mean: float | list[float] = 1.0
    kind = "counts"
    parameter_name = "rates_"
    largest_mean = inf

    def each(self, natural: Tensor, x: Tensor) -> Tensor:
        # 0 · -inf is 0 here: a rate of zero is certain of the count 0.
        return torch.where(x == 0, 0.0, x * natural) - natural.exp() + self.base(x)

    def normaliser(self, natural: Tensor) -> Tensor:
        return natural.exp()

    def base(self, x: Tensor) -> Tensor:
        return -torch.lgamma(x + 1)

    def expected(self, natural: Tensor) -> Tensor:
        return natural.exp()

    def natural(self, mean: Tensor) -> Tensor:
        return mean.log()

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return torch.poisson(output_parameters.exp(), generator=generator)

    def distribution(
        self, output_parameters: Tensor, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        import pyro.distributions as dist

        each = dist.Poisson(output_parameters.exp(), validate_args=True).to_event(1)
        return dist.MixtureSameFamily(
            dist.Categorical(logits=log_weights, validate_args=True), each, validate_args=True
        )
