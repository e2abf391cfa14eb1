"""Interval-censored values: ``p(low <= x < high) = Π_d (F_d(high_d) - F_d(low_d))`` of each step's own interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqmodels.observations.base import Observation
from seqmodels.observations.intervals import OfIntervals
from seqmodels.sequences.measure import Values

ENDLESS = 1e12  # encoded value of an end that is infinite: a network multiplies by what it reads


@dataclass(eq=False, repr=False)
class IntervalCensored(OfIntervals):
    """A density of values of which each step says between which two ends they are.

    A feature is two columns, the lower end and the upper one, in raw units: an item is ``(T, 2D)``, low before high of
    each feature in turn. Ends may be infinite (censored on one side: ``(5, inf)`` says at least 5); both NaN: missing.
    Intervals may overlap, as "short" and "2 minutes to the second" do, provided that how coarse a value is told does
    not depend on the value within the interval (Heitjan and Rubin 1991, *Ignorability and coarse data*).

    ``log_prob`` is the likelihood of the intervals. It is no distribution over them, since nothing says which intervals
    there could be: a model scores, decodes and smooths, and does not sample, forecast or predict intervals. Of values
    it does: ``HMM.from_parameters`` with the fitted ``initial_``, ``transition_``, ``means_`` ... is the same chain
    with the density itself.

    Args:
        observation: a density with known probabilities of intervals: ``GaussianMixture`` of diagonal or spherical
            covariances, ``StudentT``, ``Gamma``, ``LogNormal``, ``Beta``.

    The output parameters and the attributes in raw units are the density's. Under an HMM the M-step is the
    density's, of its expected moments within the intervals (Dempster, Laird and Rubin 1977, section 4.2).

    >>> from seqmodels import GaussianMixture
    >>> IntervalCensored(GaussianMixture(1)).n_output_parameters(4)  # a weight, two means, two log-variances
    5
    """

    observation: Observation

    def check(self, size: int) -> None:
        if size % 2:
            raise ValueError(
                f"the sequences have {size} columns, but an interval has two ends: pass for each feature two columns, "
                "low and high"
            )
        super().check(size)

    def n_features(self, size: int) -> int:
        return size // 2

    def values(self, size: int) -> tuple[Values, ...]:
        ends: Values = "ends"
        return (ends,) * size

    def ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pairs = x.double()
        pairs = torch.where(pairs.abs() >= 0.5 * ENDLESS, pairs.sign() * math.inf, pairs)
        return pairs[..., 0::2], pairs[..., 1::2]

    def has_full_conditionals(self, size: int) -> bool:
        """No: columns are ends, which say something in pairs only."""
        return False

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        raise NotImplementedError(
            f"{self!r} is the likelihood of intervals that were recorded and no distribution over intervals, so none "
            "can be drawn; draw values, by a model of the fitted density: HMM.from_parameters of means_, covariances_"
        )

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        raise NotImplementedError(
            f"{self!r} is the likelihood of intervals that were recorded and no distribution over intervals, so there "
            "is none of the next one; of values it is that of the fitted density: HMM.from_parameters of means_, "
            "covariances_"
        )

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """Of positive values from the mean of the ends, 1 where some are infinite; of reals as it is."""
        if self.kind == "reals":
            return start
        ends = (total / n).unflatten(-1, (-1, 2))
        middle = torch.where(ends.abs() < 1e-6 * ENDLESS, ends, torch.nan).nanmean(-1)
        return self.observation.starting_near(start, torch.where(middle > 0, middle, 1.0), 1.0)

    def with_floor(self, factor: float) -> IntervalCensored:
        return replace(self, observation=self.observation.with_floor(factor))
