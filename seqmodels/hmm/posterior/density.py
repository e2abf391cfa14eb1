"""The posterior log-density of an HMM's parameters as a differentiable function of unconstrained numbers.

``log p(u | x) = log p(x | θ(u)) + log p(θ(u)) + log |dθ / du|``, up to a constant. The numbers u are those of
``hmm.coordinates``: logits relative to the largest, means, logarithms of variances and rates. Conjugate priors return
the density of such numbers (``ConjugateFamily.log_density``), which includes the derivative ``|dθ / du|``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.hmm.conjugate import ConjugateFamily
from seqmodels.hmm.conjugate.distributions import dirichlet_log_density
from seqmodels.hmm.coordinates import Coordinates
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.learning.gradient import log_densities
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.autograd import log_prob_of_segments


@dataclass(frozen=True)
class PosteriorDensity:
    """The log-density ``log p(u | x)`` of unconstrained parameters, in nats of encoded data, up to a constant.

    Attributes:
        coordinates: the map from u to parameters.
        family: conjugate family of the emissions.
        prior: hyperparameters of the prior; concentrations are zero where the topology forbids.
        batches: the data.
    """

    coordinates: Coordinates
    family: ConjugateFamily
    prior: Parameters
    batches: Sequence[PackedBatch]

    def log_prior(self, u: Tensor) -> Tensor:
        """Return the log-density of ``u (P,)`` under the prior, as a differentiable scalar."""
        parameters, table = self.coordinates.at(u)
        prior = self.prior
        rows, of_rows = parameters.transition, prior.transition
        if parameters.final is not None and prior.final is not None:
            rows = torch.cat([rows, parameters.final.unsqueeze(1)], 1)
            of_rows = torch.cat([of_rows, prior.final.unsqueeze(1)], 1)
        log_density = (
            self.family.log_density(table, prior.table).sum()
            + dirichlet_log_density(_logs(rows, of_rows), of_rows).sum()
        )
        if self.coordinates.start == "free":
            log_density = log_density + dirichlet_log_density(_logs(parameters.initial, prior.initial), prior.initial)
        return log_density

    def __call__(self, u: Tensor) -> Tensor:
        """Return the log-density at ``u (P,)`` float64 as a scalar, which is differentiable once."""
        log_density = self.log_prior(u)
        parameters, _ = self.coordinates.at(u)
        for batch in self.batches:
            log_b = log_densities(self.coordinates.emission, parameters.table, batch.x, batch.past)
            log_prob = log_prob_of_segments(
                parameters.initial, parameters.transition, log_b, batch.segments, parameters.final
            )
            log_density = log_density + batch.weight * log_prob.sum()
        return log_density


def _logs(probabilities: Tensor, concentrations: Tensor) -> Tensor:
    """Return logarithms of ``probabilities``, but 0 where concentrations are 0.

    There the topology forbids a transition, and the gradient of log 0 would be NaN.
    """
    return torch.where(concentrations > 0, probabilities, 1.0).log()
