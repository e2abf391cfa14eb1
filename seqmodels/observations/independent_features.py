"""Features independent given the state, each of a few parameters: ``log p(x) = Σ_d log p(x_d | θ_d)``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from seqmodels.common.parameters import refuse_wrong_arguments
from seqmodels.observations.base import FullConditionals, Observation, full_conditionals_of_independent
from seqmodels.sequences.measure import Values

LARGEST_LOG_SCALE = 30.0  # whose draws float32 holds
ON_FLOOR = 1e-6  # nats of a scale above its floor that are on it
SMALLEST = 1e-37  # positive number that float32 holds to all its digits; and so is its inverse
STAND_IN = 0.5  # for a missing value, whose term is then left out: every density here is finite at it


def log_of_positive(x: Tensor) -> Tensor:
    """``log x`` of values above 0, some of which may have underflowed to 0."""
    return x.clamp(min=SMALLEST).log()


def positive_of_log(log_x: Tensor) -> Tensor:
    """``exp(log_x)``, of a draw, within the positive numbers that float32 holds."""
    return log_x.clamp(math.log(SMALLEST), -math.log(SMALLEST)).exp()


class IndependentFeatures(Observation, ABC):
    """The output parameters of a state are Q blocks of D unconstrained numbers; NaN in x is summed out.

    Computed in float64, whatever comes: special functions of large arguments lose the digits of float32.

    To add one, define ``n_per_feature`` (Q), ``kind`` and the methods below; a density that EM is to fit is a
    ``FeatureMoments``, or has an ``Emission`` of its own.
    """

    emits = "vectors"
    kind: ClassVar[Values] = "reals"
    n_per_feature: ClassVar[int]

    # -- what a density defines ----------------------------------------------------------------------------

    @abstractmethod
    def feature_log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """``log p(x_d | θ_d)`` of observed values ``x (..., D)`` given ``theta (..., Q, D)``, float64: ``(..., D)``."""

    @abstractmethod
    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """One draw for each of ``theta (n, Q, D)``, float64: ``(n, D)``."""

    @abstractmethod
    def raw_parameters(self, theta: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        """``theta (K, Q, D)`` as users know it, of raw ``scale · x + shift``, by the name of an attribute."""

    # -- what it may define --------------------------------------------------------------------------------

    def feature_interval_log_prob(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """``log p(low_d <= x_d < high_d | θ_d)`` given ``theta (..., Q, D)``, float64: ``(..., D)``.

        Ends may be infinite, or beyond the values that there are.
        """
        raise ValueError(f"{self!r} does not know the probability of an interval")

    def feature_cdf(self, theta: Tensor, x: Tensor) -> Tensor:
        """``P(X_d <= x_d | θ_d)`` of ``x (..., D)`` given ``theta (..., Q, D)``, float64 on the CPU: ``(..., D)``."""
        raise NotImplementedError(f"{self!r} does not know the cdf of each feature")

    def feature_mean(self, theta: Tensor) -> Tensor:
        """The mean of each feature, ``(..., D)`` float64 on the CPU; NaN where none exists."""
        return super().marginal_means(theta)

    # -- Observation ---------------------------------------------------------------------------------------

    def interval_log_prob(self, output_parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        observed = ~torch.isnan(low)
        a, b = torch.where(observed, low, -math.inf).double(), torch.where(observed, high, math.inf).double()
        each = self.feature_interval_log_prob(self.unpack(output_parameters), a, b)
        return torch.where(observed, each, 0.0).sum(-1)

    @property
    def sums_out_missing(self) -> bool:
        return True

    @property
    def has_marginal_cdfs(self) -> bool:
        """By default they are not known; True where ``feature_cdf`` and ``feature_mean`` are defined."""
        return False

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        return self.feature_cdf(self.unpack(output_parameters).cpu(), x.double().cpu())

    def marginal_log_probs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        return self.feature_log_prob(self.unpack(output_parameters), x.double())

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        return self.feature_mean(self.unpack(output_parameters).cpu())

    def values(self, size: int) -> tuple[Values, ...]:
        return (self.kind,) * size

    def check(self, size: int) -> None:
        refuse_wrong_arguments(self)

    def n_output_parameters(self, size: int) -> int:
        return self.n_per_feature * size

    def unpack(self, output_parameters: Tensor) -> Tensor:
        """``(..., Q D)`` -> ``(..., Q, D)`` float64."""
        theta: Tensor = output_parameters.double().unflatten(-1, (self.n_per_feature, -1))
        return theta

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        return self._terms(output_parameters, x).sum(-1).to(torch.promote_types(output_parameters.dtype, x.dtype))

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        return full_conditionals_of_independent(self._terms(output_parameters, x))

    def _terms(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        """``(..., D)`` log-probability of each feature, 0 where it is missing."""
        observed = ~torch.isnan(x)
        values = torch.where(observed, x, STAND_IN).double()
        return torch.where(observed, self.feature_log_prob(self.unpack(output_parameters), values), 0.0)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return self.feature_sample(self.unpack(output_parameters), generator).to(output_parameters.dtype)


class FeatureMoments(IndependentFeatures, ABC):
    """A density whose M-step is a function of averages, for each feature, of a few statistics of its values.

    Of an exponential family they are its sufficient statistics ``s(x)``. Where a density is a mixture over a variable
    that is not observed they are the expected ones of both, ``E[s(x, u) | x, θ]`` with the θ before the M-step.

    Values that repeat have an unbounded density; the floor ``min_scale`` of one number that says how wide a density is
    bounds it.

    To add one, define the field ``min_scale``, the methods of ``IndependentFeatures`` and those below.
    """

    min_scale: float
    is_of_state: ClassVar[bool] = False  # whether ``moments`` differ from state to state

    @abstractmethod
    def moments(self, theta: Tensor, x: Tensor) -> Tensor:
        """``(..., S, D)`` statistics of observed ``x (..., D)``; ``theta (..., Q, D)`` if ``is_of_state``."""

    @abstractmethod
    def from_averages(self, averages: Tensor) -> Tensor:
        """``(K, Q, D)``, most likely within the floor given averages of the moments, ``(K, S, D)`` float64."""

    @abstractmethod
    def log_scale(self, theta: Tensor) -> Tensor:
        """The logarithm of what is at least ``min_scale``: ``(..., Q, D)`` -> ``(..., D)``."""

    @abstractmethod
    def with_log_scale(self, theta: Tensor, log_scale: Tensor) -> Tensor:
        """``theta (..., Q, D)`` with that logarithm ``(..., D)`` instead."""

    def interval_moments(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """``(..., S, D)`` expected ``moments`` given that ``low <= x < high``, ends ``(..., D)`` float64."""
        raise ValueError(f"{self!r} does not know its moments within an interval")

    def floored(self, theta: Tensor) -> Tensor:
        """Within the floor, and within what float32 holds: what the density is made of."""
        return self.with_log_scale(theta, self.log_scale(theta).clamp(math.log(self.min_scale), LARGEST_LOG_SCALE))

    def with_floor(self, factor: float) -> Self:
        return replace(self, min_scale=self.min_scale * factor**0.5)  # type: ignore[type-var]

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        theta = self.unpack(output_parameters)
        log_scale, least = self.log_scale(theta), math.log(self.min_scale * factor**0.5)
        moved = torch.where(self._hits(theta), least, log_scale.clamp(min=least))
        return self.with_log_scale(theta, moved).flatten(-2).to(output_parameters.dtype)

    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        return self.is_on_floor(output_parameters).any(-1)

    def is_on_floor(self, output_parameters: Tensor) -> Tensor:
        """Return ``(..., D)`` True where the floor sets the scale of a feature."""
        return self._hits(self.unpack(output_parameters))

    def _hits(self, theta: Tensor) -> Tensor:
        return self.log_scale(theta) <= math.log(self.min_scale) + ON_FLOOR
