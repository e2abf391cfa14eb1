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
    """Return ``log x``, elementwise, for x of 0 or more; values below 1e-37 count as 1e-37, so that none gives -inf."""
    return x.clamp(min=SMALLEST).log()


def positive_of_log(log_x: Tensor) -> Tensor:
    """Return ``exp(log_x)``, elementwise, clamped to 1e-37 .. 1e37 so that float32 can hold it."""
    return log_x.clamp(math.log(SMALLEST), -math.log(SMALLEST)).exp()


class IndependentFeatures(Observation, ABC):
    """The base class of densities with independent features, each described by Q unconstrained numbers.

    The output parameters of a state are Q blocks of D numbers, where D is the number of features. NaN in x is a missing
    value, which is marginalised out. Computations are in float64 for any input, because special functions of large
    arguments lose float32's digits.

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
        """Return the log-density of each feature given its parameters in nats, ``(..., D)`` float64.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)`` float64.
            x: encoded vectors without missing values, ``(..., D)``.
        """

    @abstractmethod
    def feature_sample(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one vector of independent features from each of n densities, ``(n, D)`` float64.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(n, Q, D)``.
            generator: source of random numbers.
        """

    @abstractmethod
    def raw_parameters(self, theta: Tensor, shift: Tensor, scale: Tensor) -> Mapping[str, Tensor]:
        """Return the parameters of K states in raw units, by the attribute name under which users read them.

        Args:
            theta: the Q unconstrained parameters of each of D features, for encoded values, ``(K, Q, D)``.
            shift, scale: map from encoded x to raw values ``scale · x + shift``, each ``(D,)``.
        """

    @abstractmethod
    def of_raw_parameters(self, raw: Mapping[str, Tensor], shift: Tensor, scale: Tensor) -> Tensor:
        """Return the unconstrained parameters of K states, ``(K, Q, D)``, the inverse of ``raw_parameters``.

        Args:
            raw: parameters in raw units, ``(K, D)`` float64, by the names that ``raw_parameters`` gives them.
            shift, scale: map from encoded x to raw values ``scale · x + shift``, each ``(D,)``.
        """

    # -- what it may define --------------------------------------------------------------------------------

    def feature_interval_log_prob(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return ``log p(low_d <= x_d < high_d)`` of each feature d by itself in nats, ``(..., D)``.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)`` float64.
            low, high: ends of the intervals, each ``(..., D)``; they may be infinite or outside the range of possible
                values.

        Raises:
            ValueError: if the density has no known probability of intervals.
        """
        raise ValueError(f"{self!r} does not know the probability of an interval")

    def feature_cdf(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return the cumulative probability ``P(X_d <= x_d)`` of each feature, ``(..., D)``.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.
            x: encoded vectors, ``(..., D)``.

        Raises:
            NotImplementedError: if the density has no known cdf.
        """
        raise NotImplementedError(f"{self!r} does not know the cdf of each feature")

    def feature_mean(self, theta: Tensor) -> Tensor:
        """Return the mean of each feature in encoded units, ``(..., D)``; NaN if there is none.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.

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
        """True if the cdf and the mean of each feature (``feature_cdf`` and ``feature_mean``) are defined."""
        return False

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
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
        """Return parameters ``(..., Q D)`` as the Q parameters of each of D features, ``(..., Q, D)`` float64."""
        theta: Tensor = output_parameters.double().unflatten(-1, (self.n_per_feature, -1))
        return theta

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        return self._terms(output_parameters, x).sum(-1).to(torch.promote_types(output_parameters.dtype, x.dtype))

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        return full_conditionals_of_independent(self._terms(output_parameters, x))

    def _terms(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        """Return the log-density of each feature in nats, ``(..., D)``; 0 for a missing feature (NaN).

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            x: vectors of D features, ``(..., D)``.
        """
        observed = ~torch.isnan(x)
        values = torch.where(observed, x, STAND_IN).double()
        return torch.where(observed, self.feature_log_prob(self.unpack(output_parameters), values), 0.0)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return self.feature_sample(self.unpack(output_parameters), generator).to(output_parameters.dtype)


class FeatureMoments(IndependentFeatures, ABC):
    """The base class of densities of independent features whose M-step depends only on averages of a few statistics.

    For an exponential family, the statistics of a feature are its sufficient statistics ``s(x)``. For a mixture over a
    latent variable u, they are the expected statistics of both, ``E[s(x, u) | x, θ]``, with the θ before the M-step.

    The field ``min_scale`` is a lower bound of a number that measures the width of a density, because repeated values
    would otherwise make the density unbounded.

    To add one, define the field ``min_scale``, the methods of ``IndependentFeatures`` and the methods below.
    """

    min_scale: float
    is_of_state: ClassVar[bool] = False  # True if ``moments`` differ from state to state

    @abstractmethod
    def moments(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return the S statistics of each feature whose averages over frames determine the M-step, ``(..., S, D)``.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``; the result
                depends on them only if ``is_of_state`` is True.
            x: encoded vectors without missing values, ``(..., D)``.
        """

    @abstractmethod
    def from_averages(self, averages: Tensor) -> Tensor:
        """Return the maximum-likelihood parameters of K states, ``(K, Q, D)``, with widths of at least ``min_scale``.

        There are Q parameters for each of D features.

        Args:
            averages: averages of the S statistics that ``moments`` returns, over the frames of each state,
                ``(K, S, D)`` float64.
        """

    @abstractmethod
    def log_scale(self, theta: Tensor) -> Tensor:
        """Return the logarithm of the width of each feature's density, ``(..., D)``; ``min_scale`` bounds the width.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.
        """

    @abstractmethod
    def with_log_scale(self, theta: Tensor, log_scale: Tensor) -> Tensor:
        """Return the parameters of densities changed so that each feature's density has a given width, ``(..., Q, D)``.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.
            log_scale: logarithm of the new width of each density, ``(..., D)``.
        """

    def interval_moments(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return ``E[moments(x) | low <= x < high]``, the expected statistics of values known to lie in intervals.

        The statistics are the S numbers for each of D features whose averages determine the M-step; the result is
        ``(..., S, D)``.

        Args:
            theta: the Q unconstrained parameters of the density of each feature, ``(..., Q, D)``.
            low, high: ends of the intervals, each ``(..., D)`` float64.

        Raises:
            ValueError: if the density has no known moments within intervals.
        """
        raise ValueError(f"{self!r} does not know its moments within an interval")

    def floored(self, theta: Tensor) -> Tensor:
        """Return the parameters of densities, changed so that the width of each density is at least ``min_scale``.

        The result is ``(..., Q, D)``. Widths are also kept within the range of float32.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.
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
        """Return True for each feature whose density has a width at the lower bound ``min_scale``, ``(..., D)`` bool.

        Args:
            output_parameters: the P parameters of each density of D features, ``(..., P)``.
        """
        return self._hits(self.unpack(output_parameters))

    def _hits(self, theta: Tensor) -> Tensor:
        return self.log_scale(theta) <= math.log(self.min_scale) + ON_FLOOR
