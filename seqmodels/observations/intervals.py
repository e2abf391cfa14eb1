"""The base class of observations of intervals: ``p(low <= x < high)`` under a density of x with a known cdf."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from seqmodels.observations.base import Observation
from seqmodels.sequences.measure import Values

BOUNDS: Mapping[Values, tuple[float, float]] = {
    "reals": (-torch.inf, torch.inf),
    "positive": (0.0, torch.inf),
    "proportions": (0.0, 1.0),
}


class OfIntervals(Observation, ABC):
    """The base class of observations of intervals: the probability that a vector with a given density lies in a box.

    Rounded and censored data are such intervals. The output parameters are those of the density ``observation``. To add
    one, define the field ``observation`` and the methods below.
    """

    observation: Observation
    emits = "vectors"

    @abstractmethod
    def ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper ends of the intervals that encoded steps stand for, each ``(..., D)`` float64.

        NaN in both ends marks a missing feature.

        Args:
            x: encoded steps, with one or two columns for each of D features, ``(..., D)`` or ``(..., 2D)``.
        """

    @abstractmethod
    def n_features(self, size: int) -> int:
        """Return D, the number of features whose intervals the columns of the data describe.

        Args:
            size: number of columns, one or two for each feature.
        """

    # -- Observation ---------------------------------------------------------------------------------------

    @property
    def sums_out_missing(self) -> bool:
        return True

    @property
    def kind(self) -> Values:
        """The kind of the values that lie in the intervals, such as ``"reals"`` or ``"positive"``."""
        return self.observation.values(1)[0]

    def has_heavy_tails(self, size: int) -> tuple[bool, ...]:
        return self.observation.has_heavy_tails(self.n_features(size))

    def check(self, size: int) -> None:
        inner = self.observation
        is_known = isinstance(inner, Observation) and not inner.n_past and inner.has_interval_probabilities
        if not is_known:
            raise ValueError(
                f"observation is {inner!r}, which does not know the probability of an interval; pass a density that "
                "does: GaussianMixture(1, 'diag'), or StudentT, Gamma, LogNormal or Beta of seqmodels.observations"
            )
        inner.check(self.n_features(size))

    def locations(self, size: int) -> list[slice]:
        return self.observation.locations(self.n_features(size))

    def location_units(self, scale: Tensor) -> Tensor:
        return self.observation.location_units(scale[:: self._width(len(scale))])

    def location_labels(self, names: Sequence[Any]) -> list[Any]:
        return self.observation.location_labels(names[:: self._width(len(names))])

    def _width(self, size: int) -> int:
        """Return how many of the ``size`` columns describe one feature."""
        return size // self.n_features(size)

    def n_output_parameters(self, size: int) -> int:
        return self.observation.n_output_parameters(self.n_features(size))

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        return self.observation.is_valid(table, self.n_features(size))

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        log_prob = self.observation.interval_log_prob(output_parameters, *self.ends(x))
        return log_prob.to(torch.promote_types(output_parameters.dtype, x.dtype))

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        return self.observation.starting_point(self.n_features(size), generator)

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        return self.observation.on_floor(output_parameters, self.n_features(size), factor)

    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        return self.observation.floor_hits(output_parameters, self.n_features(size))
