"""Interval-censored values, with ``p(low <= x < high) = Π_d (F_d(high_d) - F_d(low_d))`` for an interval at each
step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqmodels.observations.base import Observation
from seqmodels.observations.intervals import OfIntervals
from seqmodels.sequences.measure import Values

ENDLESS = 1e12  # encoded value of an infinite end, finite because a network multiplies its inputs by weights


@dataclass(eq=False, repr=False)
class IntervalCensored(OfIntervals):
    """A density of values that are known only to lie between two ends, which are given for each step.

    A feature is two columns, the lower and the upper end in raw units: a sequence of T steps of D features is
    ``(T, 2D)``, with low before high for each feature in turn. Ends may be infinite for values censored on one side:
    ``(5, inf)`` says at least 5. NaN in both means a missing value. Intervals may overlap, as "short" and "2 minutes to
    the second" do, provided that the width of the reported interval does not depend on where in it the value lies
    (Heitjan and Rubin 1991, *Ignorability and coarse data*).

    ``log_prob`` is the likelihood of the intervals. It is not a distribution over intervals, because nothing says which
    intervals are possible. A model can therefore score, decode and smooth, but not sample, forecast or predict
    intervals. For the values themselves it can: ``HMM.from_parameters`` with the fitted ``initial_``, ``transition_``,
    ``means_`` and so on gives the same chain with the density itself.

    Args:
        observation: a density with known probabilities of intervals: ``GaussianMixture`` of diagonal or spherical
            covariances, ``StudentT``, ``Gamma``, ``LogNormal`` or ``Beta``.

    The output parameters and the fitted attributes are those of ``observation``. Under an HMM the M-step is the
    density's M-step with expected moments within the intervals (Dempster, Laird and Rubin 1977, section 4.2).

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
        """Return False, because columns are ends of intervals: one has no density given all others."""
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
            "is no distribution of the next one; to predict values, build a model with the fitted density: "
            "HMM.from_parameters of means_, covariances_"
        )

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """Return the parameters from which training starts: those of a density with the mean of the ends of intervals.

        Only densities of positive values are moved; for others ``start`` is returned unchanged. A feature with infinite
        ends is started as if its mean were 1.

        Args:
            start: the P parameters of the density before the change, ``(P,)``.
            total: sum of the ends of D features over the training frames, ``(2D,)``.
            n: number of training frames.
        """
        if self.kind == "reals":
            return start
        ends = (total / n).unflatten(-1, (-1, 2))
        middle = torch.where(ends.abs() < 1e-6 * ENDLESS, ends, torch.nan).nanmean(-1)
        return self.observation.starting_near(start, torch.where(middle > 0, middle, 1.0), 1.0)

    def with_floor(self, factor: float) -> IntervalCensored:
        return replace(self, observation=self.observation.with_floor(factor))
