"""Priors of observations that have no conjugate one, for draws by NUTS: normal ones of their output parameters."""

from __future__ import annotations

import math
from functools import singledispatch

import torch
from torch import Tensor

from seqmodels.hmm.conjugate.columns import ColumnsFamily
from seqmodels.hmm.conjugate.family import EmissionPrior, conjugate_of
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.emissions import Emission, Statistics, emission_of
from seqmodels.observations import Columns, Observation, OfIntervals, VonMises, ZeroInflated
from seqmodels.observations.independent_features import IndependentFeatures

DEVIATION = 5.0  # of log-means, log-shapes, locations and log-odds, in encoded units
DEVIATION_OF_DIRECTIONS = 50.0  # of κ cos μ and κ sin μ, because κ may be large
OFF_FLOOR = 10.0  # a width on its floor has no coordinate, so draws begin at this many times the floor


class NormalPrior(EmissionPrior):
    """A prior under which all output parameters of a state are independent and normal with mean 0, for use by a
    sampler.

    Its hyperparameters are the standard deviations of the P output parameters of each of K states, ``(K, P)``.

    Args:
        emission: the emission distribution.
        deviation: standard deviation of each emission parameter.
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


@singledispatch
def prior_of(observation: Observation, size: int) -> EmissionPrior:
    """Return the prior of the parameters of an emission distribution: the conjugate one if there is one, or a normal
    one.

    Args:
        observation: the emission distribution.
        size: number of features or symbols.

    Raises:
        ValueError: if the observation has no prior here, or has a prior of its own.
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
    return ColumnsFamily([prior_of(group.observation, group.size) for group in observation.parts()])
