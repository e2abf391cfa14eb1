"""Priors of observations that have no conjugate one, for draws by NUTS: normal ones of their output parameters."""

from __future__ import annotations

import math
from functools import singledispatch

import torch
from torch import Tensor

from seqmodels.hmm.conjugate.family import EmissionPrior, conjugate_of
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.emissions import Emission, Statistics, emission_of
from seqmodels.observations import Columns, Observation, OfIntervals, VonMises, ZeroInflated
from seqmodels.observations.independent_features import IndependentFeatures

DEVIATION = 5.0  # of log-means, log-shapes, locations and log-odds, in encoded units
DEVIATION_OF_DIRECTIONS = 50.0  # of κ cos μ and κ sin μ, because κ may be large
OFF_FLOOR = 10.0  # a width on its floor has no coordinate, so draws begin at this many times the floor


class NormalPrior(EmissionPrior):
    """Independent normal priors of all output parameters of a state, with mean 0.

    ``hyper (K, P)`` holds their standard deviations.

    Args:
        emission: emission of the observation.
        deviation: standard deviation of each output parameter.
    """

    def __init__(self, emission: Emission, deviation: float = DEVIATION) -> None:
        super().__init__(emission)
        self.deviation = deviation

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        n_numbers = self.emission.observation.n_output_parameters(self.size)
        return torch.full((n_states, n_numbers), self.deviation, dtype=torch.float64)

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        each = -0.5 * (table / hyper).square() - hyper.log() - 0.5 * math.log(2 * math.pi)
        return each.sum(1)

    def near(self, table: Tensor, prior: Tensor, statistics: Statistics) -> Tensor:
        off_floor = self.emission.observation.on_floor(table, self.size, OFF_FLOOR)
        return torch.minimum(torch.maximum(off_floor, -2 * prior), 2 * prior)


class ColumnsPrior(EmissionPrior):
    """The prior of ``Columns``: those of its groups, independent of each other.

    ``hyper`` holds the hyperparameters of the groups side by side.
    """

    def __init__(self, emission: Emission) -> None:
        super().__init__(emission)
        assert isinstance(emission.observation, Columns), "of this observation"
        self.groups = list(emission.observation.parts())
        self.parts = [prior_of(group.observation, group.size) for group in self.groups]

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        return torch.cat([part.prior(prior, n_states) for part in self.parts], 1)

    def _hyper(self, hyper: Tensor) -> list[Tensor]:
        return list(hyper.split([part.prior(ConjugatePrior(), 1).shape[1] for part in self.parts], 1))

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        of_each = zip(self.groups, self.parts, self._hyper(hyper), strict=True)
        return torch.stack([part.log_density(table[:, g.outputs], of_part) for g, part, of_part in of_each]).sum(0)

    def near(self, table: Tensor, prior: Tensor, statistics: Statistics) -> Tensor:
        tables, remaining = [], statistics
        for g, part, of_part in zip(self.groups, self.parts, self._hyper(prior), strict=True):
            n = part.emission.n_statistics
            tables.append(part.near(table[:, g.outputs], of_part, remaining[:n]))
            remaining = remaining[n:]
        return torch.cat(tables, 1)


@singledispatch
def prior_of(observation: Observation, size: int) -> EmissionPrior:
    """Return the prior of an observation over ``size`` features or symbols: the conjugate one, or a normal one.

    Raises:
        ValueError: the observation has no prior here, or has a prior of its own.
    """
    return conjugate_of(observation, size)


@prior_of.register(IndependentFeatures)
@prior_of.register(ZeroInflated)
@prior_of.register(OfIntervals)
def _(observation: Observation, size: int) -> EmissionPrior:
    return NormalPrior(emission_of(observation, size))


@prior_of.register(VonMises)
def _(observation: VonMises, size: int) -> EmissionPrior:
    return NormalPrior(emission_of(observation, size), DEVIATION_OF_DIRECTIONS)


@prior_of.register(Columns)
def _(observation: Columns, size: int) -> EmissionPrior:
    return ColumnsPrior(emission_of(observation, size))
