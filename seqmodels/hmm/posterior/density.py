"""The log-density of an HMM's parameters given data, of unconstrained numbers, differentiable.

``log p(u | x) = log p(x | θ(u)) + log p(θ(u)) + log |dθ / du|``, less a constant. ``u`` are those of ``hmm.estimates``:
logits less the largest, means, logarithms of variances and rates. Conjugate priors know the density of such numbers
(``ConjugateFamily.log_density``), so the derivative is in them.
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
    """``log p(u | x)`` in nats of encoded data, less a constant.

    Attributes:
        coordinates: parameters as a function of u.
        family: of the prior of the emissions.
        prior: hyperparameters, zero where the topology rules out.
        batches: the data.
    """

    coordinates: Coordinates
    family: ConjugateFamily
    prior: Parameters
    batches: Sequence[PackedBatch]

    def log_prior(self, u: Tensor) -> Tensor:
        """``()`` the log-density of ``u (P,)`` before the data, differentiable."""
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
        """``()`` at ``u (P,)`` float64, once differentiable."""
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
    """Logarithms; 0 where the topology rules out, which has no gradient: that of log 0 would be NaN."""
    return torch.where(concentrations > 0, probabilities, 1.0).log()
