"""Base classes of densities whose features are independent given the state: ``log p(x) = Σ_d log p(x_d | θ_d)``."""

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

LARGEST_LOG_SCALE = 30.0  # so that float32 can hold draws
ON_FLOOR = 1e-6  # a log-scale less than this above the floor counts as on the floor
SMALLEST = 1e-37  # float32 holds this number and its inverse to all digits
STAND_IN = 0.5  # replaces a missing value, whose term is then left out, because every density here is finite at it


def log_of_positive(x: Tensor) -> Tensor:
    """Return ``log x``, elementwise; values that underflowed to 0 are replaced by the smallest positive float32."""
    return x.clamp(min=SMALLEST).log()


def positive_of_log(log_x: Tensor) -> Tensor:
    """Return ``exp(log_x)``, clamped to the positive numbers that float32 can hold."""
    return log_x.clamp(math.log(SMALLEST), -math.log(SMALLEST)).exp()


class IndependentFeatures(Observation, ABC):
    """The base class of densities with independent features, each described by Q unconstrained numbers.

    The output parameters of a state are Q blocks of D numbers. NaN in x is summed out. Computations are in float64 for
    any input, because special functions of large arguments lose float32's digits.

    To add one, define ``n_per_feature`` (Q), ``kind`` and the methods below. For EM, derive it from ``FeatureMoments``
    instead, or write an ``Emission`` for it.
    """

    emits = "vectors"
    kind: ClassVar[Values] = "reals"
    n_per_feature: ClassVar[int]
    location_block: ClassVar[int | None] = None  # the block of output parameters that inputs may shift, 0 .. Q - 1

    # -- what a density defines ----------------------------------------------------------------------------

    @abstractmethod
    def feature_log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return ``log p(x_d | θ_d)`` in float64 nats, ``(..., D)``, of ``x (..., D)`` and ``theta (..., Q, D)``."""

    @abstractmethod
    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one vector for each of ``theta (n, Q, D)``; returns ``(n, D)``, float64."""

    @abstractmethod
    def raw_parameters(self, theta: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        """Return the fitted parameters of K states in raw units, by the attribute name under which users read them.

        Raw values are ``scale · x + shift``, with ``shift`` and ``scale`` ``(D,)``. ``theta (K, Q, D)`` holds the Q
        parameters of each feature.
        """

    # -- what it may define --------------------------------------------------------------------------------

    def feature_interval_log_prob(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return ``log p(low_d <= x_d < high_d | θ_d)`` in nats, ``(..., D)``, given ``theta (..., Q, D)``, float64.

        The ends ``low`` and ``high``, ``(..., D)``, may be infinite or outside the range of possible values.

        Raises:
            ValueError: if the density has no known probability of intervals.
        """
        raise ValueError(f"{self!r} does not know the probability of an interval")

    def feature_cdf(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return ``P(X_d <= x_d | θ_d)``, ``(..., D)``, of ``x (..., D)`` given ``theta (..., Q, D)``.

        Raises:
            NotImplementedError: if the density has no known cdf.
        """
        raise NotImplementedError(f"{self!r} does not know the cdf of each feature")

    def feature_mean(self, theta: Tensor) -> Tensor:
        """Return the mean of each feature given ``theta (..., Q, D)``, ``(..., D)``; NaN if there is none.

        Raises:
            NotImplementedError: if the density has no known mean.
        """
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
        """True if ``feature_cdf`` and ``feature_mean`` are defined; False by default."""
        return False

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        return self.feature_cdf(self.unpack(output_parameters).cpu(), x.double().cpu())

    def marginal_log_probs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        return self.feature_log_prob(self.unpack(output_parameters), x.double())

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        return self.feature_mean(self.unpack(output_parameters).cpu())

    def values(self, size: int) -> tuple[Values, ...]:
        return (self.kind,) * size

    def locations(self, size: int) -> list[slice]:
        block = self.location_block
        return [] if block is None else [slice(block * size, (block + 1) * size)]

    def check(self, size: int) -> None:
        refuse_wrong_arguments(self)

    def n_output_parameters(self, size: int) -> int:
        return self.n_per_feature * size

    def unpack(self, output_parameters: Tensor) -> Tensor:
        """Reshape output parameters ``(..., Q D)`` to ``theta (..., Q, D)``, float64."""
        theta: Tensor = output_parameters.double().unflatten(-1, (self.n_per_feature, -1))
        return theta

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        return self._terms(output_parameters, x).sum(-1).to(torch.promote_types(output_parameters.dtype, x.dtype))

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        return full_conditionals_of_independent(self._terms(output_parameters, x))

    def _terms(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        """Return the log-probability of each feature in nats, ``(..., D)``; 0 for a missing feature."""
        observed = ~torch.isnan(x)
        values = torch.where(observed, x, STAND_IN).double()
        return torch.where(observed, self.feature_log_prob(self.unpack(output_parameters), values), 0.0)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return self.feature_sample(self.unpack(output_parameters), generator).to(output_parameters.dtype)


class FeatureMoments(IndependentFeatures, ABC):
    """The base class of densities whose M-step depends only on averages of a few statistics of each feature.

    For an exponential family, the statistics are its sufficient statistics ``s(x)``. For a mixture over a latent
    variable u, they are the expected statistics of both, ``E[s(x, u) | x, θ]``, with the θ before the M-step.

    The field ``min_scale`` is a lower bound of a number that measures the width of a density, because repeated values
    would otherwise make the density unbounded.

    To add one, define the field ``min_scale``, the methods of ``IndependentFeatures`` and the methods below.
    """

    min_scale: float
    is_of_state: ClassVar[bool] = False  # True if ``moments`` differ from state to state

    @abstractmethod
    def moments(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return the S statistics of each feature of observed values ``x (..., D)``, ``(..., S, D)``.

        They depend on the parameters ``theta (..., Q, D)`` only if ``is_of_state`` is True.
        """

    @abstractmethod
    def from_averages(self, averages: Tensor) -> Tensor:
        """Return the maximum-likelihood parameters of K states, ``(K, Q, D)``, within the bound ``min_scale``.

        ``averages (K, S, D)``, float64, are averages of the statistics of ``moments`` over the frames of each state.
        """

    @abstractmethod
    def log_scale(self, theta: Tensor) -> Tensor:
        """Return the logarithm of the width that ``min_scale`` bounds, ``(..., D)``, from ``theta (..., Q, D)``."""

    @abstractmethod
    def with_log_scale(self, theta: Tensor, log_scale: Tensor) -> Tensor:
        """Return ``theta (..., Q, D)`` changed so that the logarithm of its width is ``log_scale (..., D)``."""

    def interval_moments(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return ``E[moments(x) | low <= x < high]``, the expected statistics within intervals, ``(..., S, D)``.

        ``low`` and ``high`` are ``(..., D)``, float64; ``theta (..., Q, D)`` are the parameters.

        Raises:
            ValueError: if the density has no known moments within intervals.
        """
        raise ValueError(f"{self!r} does not know its moments within an interval")

    def floored(self, theta: Tensor) -> Tensor:
        """Return ``theta (..., Q, D)``, changed so that the width of each feature's density is at least ``min_scale``.

        Widths are also kept within the range of float32.
        """
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
        """Return True for each feature, ``(..., D)``, whose width is at its lower bound ``min_scale``."""
        return self._hits(self.unpack(output_parameters))

    def _hits(self, theta: Tensor) -> Tensor:
        return self.log_scale(theta) <= math.log(self.min_scale) + ON_FLOOR
