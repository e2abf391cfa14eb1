"""Features independent given the state, each of a few parameters: ``log p(x) = Σ_d log p(x_d | θ_d)``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from seqmodels.common.parameters import refuse_wrong_arguments
from seqmodels.observations.base import FullConditionals, Observation, full_conditionals_of_independent
from seqmodels.sequences.measure import Values

STAND_IN = 0.5  # for a missing value, whose term is then left out: every density here is finite at it


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

    # -- Observation ---------------------------------------------------------------------------------------

    @property
    def sums_out_missing(self) -> bool:
        return True

    @property
    def has_marginal_cdfs(self) -> bool:
        return False

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

    To add one, define the methods of ``IndependentFeatures`` and the two below.
    """

    is_of_state: ClassVar[bool] = False  # whether ``moments`` differ from state to state

    @abstractmethod
    def moments(self, theta: Tensor, x: Tensor) -> Tensor:
        """``(..., S, D)`` statistics of observed ``x (..., D)``; ``theta (..., Q, D)`` if ``is_of_state``."""

    @abstractmethod
    def from_averages(self, averages: Tensor) -> Tensor:
        """``(K, Q, D)``, most likely within the floors given averages of the moments, ``(K, S, D)`` float64."""
