"""The prior of a Markov-switching autoregression: of means, coefficients and variances, for draws by NUTS.

There is no conjugate one, because a mean and a coefficient enter the density as a product.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqmodels.hmm.conjugate import ConjugatePrior, EmissionPrior
from seqmodels.hmm.conjugate.distributions import log_gamma_log_density
from seqmodels.hmm.emissions import Statistics
from seqmodels.hmm.markov_switching.deviations import DeviationEmission

OFF_FLOOR = 10.0  # a variance on its floor has no coordinate, so draws begin at this many times the floor


class DeviationPrior(EmissionPrior):
    """The prior of a switching autoregression for posterior draws: normal means and coefficients, and Gamma precisions.

    The Gaussian of the first p steps has no prior. A row of hyperparameters, ``(K, 4 D + 1)`` for K states and D
    features, holds means and variances of a state's means, shapes and rates of its precisions, and the standard
    deviation of its coefficients.

    Args:
        emission: the emission of the autoregression.
    """

    def __init__(self, emission: DeviationEmission) -> None:
        super().__init__(emission)
        self.deviations = emission

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        shape = (n_states, self.size)
        mean = prior.numbers("mean", 0.0, shape, least=-math.inf)
        covariance = prior.numbers("covariance", n_states ** (-2 / self.size), shape)
        count, mean_count = (prior.numbers(name, 1.0, (n_states, 1)) for name in ("count", "mean_count"))
        precision = (0.5 * count).expand(shape), 0.5 * count * covariance
        coefficients = prior.numbers("coefficients", 1.0, ()).expand(n_states, 1)
        return torch.cat([mean, covariance / mean_count, *precision, coefficients], 1)

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        mean, coefficients, log_variance, *_ = self.deviations.unpack(table)
        d = self.size
        location, spread, shape, rate, deviation = hyper.split([d, d, d, d, 1], 1)
        of_variances = log_gamma_log_density(-log_variance, shape, rate).sum(1)
        of_coefficients = normal_log_density(coefficients.flatten(1), 0.0, deviation.log()).sum(1)
        is_first = torch.arange(len(table), device=table.device) == 0  # what states share counts once
        if not self.deviations.switching_variance:
            of_variances = torch.where(is_first, of_variances, 0.0)
        if not self.deviations.switching_ar:
            of_coefficients = torch.where(is_first, of_coefficients, 0.0)
        return normal_log_density(mean, location, 0.5 * spread.log()).sum(1) + of_variances + of_coefficients

    def near(self, table: Tensor, prior: Tensor, statistics: Statistics) -> Tensor:
        return self.deviations.on_floor(table, OFF_FLOOR)


def normal_log_density(values: Tensor, mean: Tensor | float, log_deviation: Tensor) -> Tensor:
    """Return the log-density of normally distributed values in nats, elementwise.

    Args:
        values: the values, of any shape.
        mean: their means, a number or an array that broadcasts.
        log_deviation: logarithms of their standard deviations, an array that broadcasts.
    """
    scaled = (values - mean) * (-log_deviation).exp()
    return -0.5 * scaled.square() - log_deviation - 0.5 * math.log(2 * math.pi)
