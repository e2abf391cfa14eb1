"""Bits and counts as independent exponential families: ``log p(x) = Σ_d x_d η_d - A(η_d) + h(x_d)``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodels.common.parameters import NotNegativeFloat, refuse_wrong_arguments
from seqmodels.observations.base import FullConditionals, Observation, full_conditionals_of_independent
from seqmodels.observations.special_functions import poisson_cdf
from seqmodels.sequences.measure import Values


class ExponentialFamily(Observation, ABC):
    """The base class of independent one-parameter exponential families, such as Bernoulli and Poisson distributions.

    The density of feature d is ``exp(x_d η_d - A(η_d) + h(x_d))``. The output parameters are the natural parameters
    ``η (D,)`` of D features. An infinite natural parameter gives one value probability one. NaN in x is a missing
    value, which is marginalised out.

    ``pseudocount`` and ``mean`` define the conjugate prior of an M-step, ``pseudocount · (mean · η - A(η))`` for each
    feature (Diaconis and Ylvisaker 1979): it acts as if a state had emitted ``pseudocount`` more frames with mean
    ``mean``.

    To add one, define ``kind``, ``parameter_name`` and the methods below; EM needs nothing else.
    """

    pseudocount: NotNegativeFloat
    mean: float | list[float]
    emits = "vectors"
    kind: ClassVar[Values]
    parameter_name: ClassVar[str]  # attribute under which users read the expected values
    largest_mean: ClassVar[float]

    # -- what a family defines -----------------------------------------------------------------------------

    @abstractmethod
    def feature_log_prob(self, natural: Tensor, x: Tensor) -> Tensor:
        """Return the log-probability of each value under an exponential family in nats, elementwise.

        It must be exact also for infinite natural parameters, which give one value probability one.

        Args:
            natural: natural parameter η of the distribution of each value, any shape that broadcasts with ``x``.
            x: the values, none missing.
        """

    @abstractmethod
    def log_normaliser(self, natural: Tensor) -> Tensor:
        """Return ``A(η)``, the log-normaliser of the density ``exp(x η - A(η) + h(x))``, elementwise.

        Args:
            natural: natural parameters η, any shape.
        """

    @abstractmethod
    def log_base_measure(self, x: Tensor) -> Tensor:
        """Return ``h(x)``, the log of the base measure in ``exp(x η - A(η) + h(x))``, for each value x, elementwise."""

    @abstractmethod
    def expected_value(self, natural: Tensor) -> Tensor:
        """Return the mean of the distribution with each natural parameter, elementwise.

        Args:
            natural: natural parameter η of each distribution, any shape.
        """

    @abstractmethod
    def natural_parameter(self, mean: Tensor) -> Tensor:
        """Return the natural parameter η of the distribution with each mean, elementwise.

        It is the inverse of ``expected_value``.

        Args:
            mean: mean of each distribution, any shape.
        """

    @abstractmethod
    def feature_cdf(self, mean: Tensor, x: Tensor) -> Tensor:
        """Return the cumulative probability ``P(X <= x)`` of the distributions with given means, elementwise.

        Args:
            mean: mean of each distribution, float64 on the CPU.
            x: the values, float64 on the CPU.
        """

    # -- Observation ---------------------------------------------------------------------------------------

    @property
    def sums_out_missing(self) -> bool:
        return True

    def values(self, size: int) -> tuple[Values, ...]:
        return (self.kind,) * size

    def check(self, size: int) -> None:
        refuse_wrong_arguments(self)
        means = np.asarray(self.mean, dtype=np.float64)
        if means.shape not in ((), (size,)):
            raise ValueError(
                f"mean has shape {means.shape} but there are {size} features; pass one number, or one for each"
            )
        if not ((means > 0) & (means < self.largest_mean)).all():
            raise ValueError(f"mean is {self.mean}; pass numbers above 0 and below {self.largest_mean}")

    def locations(self, size: int) -> list[slice]:
        return [slice(0, size)]

    def n_output_parameters(self, size: int) -> int:
        return size

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        return self.expected_value(table).isfinite()

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        return self._terms(output_parameters, x).sum(-1)

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        return full_conditionals_of_independent(self._terms(output_parameters, x))

    def _terms(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        """Return the log-probability of each feature in nats, ``(..., D)``; 0 for a missing feature (NaN).

        Args:
            output_parameters: natural parameters of the features, ``(..., D)``.
            x: vectors of D features, ``(..., D)``.
        """
        observed = ~torch.isnan(x)
        return torch.where(observed, self.feature_log_prob(output_parameters, torch.where(observed, x, 0.0)), 0.0)

    @property
    def has_marginal_cdfs(self) -> bool:
        return True

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        return self.feature_cdf(self.marginal_means(output_parameters), x.double().cpu())

    def marginal_log_probs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        return self.feature_log_prob(output_parameters.double(), x.double())

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        return self.expected_value(output_parameters.double()).cpu()

    def prior_mean(self, size: int) -> Tensor:
        """Return the mean of the prior, the hyperparameter ``mean``, for each feature, ``(D,)`` float64.

        Args:
            size: number of features D.
        """
        return torch.as_tensor(self.mean, dtype=torch.float64).expand(size)

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        return self.natural_parameter(self.prior_mean(size)).float()

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """Return natural parameters ``(D,)`` with the mean of the training frames and one frame of the prior.

        They are where gradient training starts. The frame of the prior has its mean, and keeps the probability of a
        feature that is never on in training above zero.

        Args:
            start: a starting point, of which only dtype and device are used, ``(D,)``.
            total: sum of the training frames, ``(D,)``.
            n: number of training frames.
        """
        return self.natural_parameter((total + self.prior_mean(len(total))) / (n + 1)).to(start)


@dataclass(eq=False, repr=False)
class Bernoulli(ExponentialFamily):
    """Independent bits (keys of a piano, pixels), ``p(x) = Π_d p_d^{x_d} (1 - p_d)^{1 - x_d}``.

    The output parameters of a state are D log-odds.

    Args:
        pseudocount: number of frames added to the expected frames of a state in an M-step (a Beta prior), so that a
            feature that is never on in training stays possible. Networks do not use it.
        mean: mean of the added frames: a probability, or one for each feature (their frequencies, for example).
            Networks start at the mean of their training frames and one frame with this mean.

    NaN marks a missing bit, which is marginalised out. Fitted attribute in raw units: ``probabilities_ (K, D)``.
    """

    pseudocount: NotNegativeFloat = 0.0
    mean: float | list[float] = 0.5
    kind = "bits"
    parameter_name = "probabilities_"
    largest_mean = 1.0

    def feature_log_prob(self, natural: Tensor, x: Tensor) -> Tensor:
        return F.logsigmoid((2 * x - 1) * natural)

    def log_normaliser(self, natural: Tensor) -> Tensor:
        return F.softplus(natural)

    def log_base_measure(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def expected_value(self, natural: Tensor) -> Tensor:
        return torch.sigmoid(natural)

    def natural_parameter(self, mean: Tensor) -> Tensor:
        return torch.logit(mean)

    def feature_cdf(self, mean: Tensor, x: Tensor) -> Tensor:
        return torch.where(x < 0, 0.0, torch.where(x < 1, 1 - mean, 1.0))

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        return output_parameters / temperature

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return torch.bernoulli(torch.sigmoid(output_parameters), generator=generator)

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        import pyro.distributions as dist

        # Pyro has no infinite logits; the largest finite ones are as certain.
        each = dist.Bernoulli(logits=torch.nan_to_num(output_parameters), validate_args=True).to_event(1)
        return dist.MixtureSameFamily(
            dist.Categorical(logits=log_weights, validate_args=True), each, validate_args=True
        )


@dataclass(eq=False, repr=False)
class Poisson(ExponentialFamily):
    """Independent counts, ``p(x) = Π_d λ_d^{x_d} e^{-λ_d} / x_d!``.

    The output parameters of a state are D log-rates.

    Args:
        pseudocount: number of frames added to the expected frames of a state in an M-step (a Gamma prior), so that no
            rate becomes 0. Networks do not use it.
        mean: mean of the added frames: a rate, or one for each feature. Networks start at the mean of their training
            frames and one frame with this mean.

    NaN marks a missing count, which is marginalised out. Fitted attribute in raw units: ``rates_ (K, D)``, counts per
    frame. Reference: Zucchini, MacDonald and Langrock (2016), *Hidden Markov models for time series*.
    """

    pseudocount: NotNegativeFloat = 0.0
    mean: float | list[float] = 1.0
    kind = "counts"
    parameter_name = "rates_"
    largest_mean = inf

    def feature_log_prob(self, natural: Tensor, x: Tensor) -> Tensor:
        # 0 · -inf is 0 here: a rate of zero is certain of the count 0.
        return torch.where(x == 0, 0.0, x * natural) - natural.exp() + self.log_base_measure(x)

    def log_normaliser(self, natural: Tensor) -> Tensor:
        return natural.exp()

    def log_base_measure(self, x: Tensor) -> Tensor:
        return -torch.lgamma(x + 1)

    def expected_value(self, natural: Tensor) -> Tensor:
        return natural.exp()

    def natural_parameter(self, mean: Tensor) -> Tensor:
        return mean.log()

    def feature_cdf(self, mean: Tensor, x: Tensor) -> Tensor:
        return poisson_cdf(x, mean)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return torch.poisson(output_parameters.exp(), generator=generator)

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        import pyro.distributions as dist

        each = dist.Poisson(output_parameters.exp(), validate_args=True).to_event(1)
        return dist.MixtureSameFamily(
            dist.Categorical(logits=log_weights, validate_args=True), each, validate_args=True
        )
