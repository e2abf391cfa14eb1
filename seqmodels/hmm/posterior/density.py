"""The posterior log-density of a chain's parameters as a differentiable function of unconstrained numbers.

``log p(u | x) = log p(x | θ(u)) + log p(θ(u)) + log |dθ / du|``, up to a constant. The numbers u are those of
``hmm.coordinates``: logits relative to the largest, means, logarithms of variances and rates. Priors return the density
of such numbers (``EmissionPrior.log_density``, ``RowsFamily.log_density``), which includes the derivative
``|dθ / du|``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from seqmodels.hmm.conjugate import EmissionPrior, RowsFamily
from seqmodels.hmm.conjugate.distributions import dirichlet_log_density
from seqmodels.hmm.conjugate.rows import logs
from seqmodels.hmm.coordinates import Coordinates
from seqmodels.hmm.corpus import PackedBatch
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.parameters import Parameters


@dataclass(frozen=True)
class PosteriorDensity:
    """The posterior log-density ``log p(u | x)`` of unconstrained parameters ``u (P,)``, for a sampler such as NUTS.

    It is a differentiable function of u, in nats of encoded data, up to a constant.

    Attributes:
        coordinates: the map from u to parameters.
        family: family of the priors of the emissions' parameters.
        rows: family of the priors of the transition probabilities, or rates, from each state.
        prior: hyperparameters of both; concentrations are zero where the topology forbids a transition.
        slopes: standard deviation of the normal prior of slopes on inputs.
        batches: the data.
        log_prob: function of parameters, emission and a batch that returns log p(x) of its n sequences, ``(n,)``, whose
            sum is differentiable.
    """

    coordinates: Coordinates
    family: EmissionPrior
    rows: RowsFamily
    prior: Parameters
    slopes: float
    batches: Sequence[PackedBatch]
    log_prob: Callable[[Parameters, Emission, PackedBatch], Tensor]

    def log_prior(self, u: Tensor) -> Tensor:
        """Return the log-density of unconstrained parameters ``u (P,)`` under the prior, as a differentiable scalar."""
        (parameters, _), prior = self.coordinates.at(u), self.prior
        log_density = self.family.log_density(parameters.table, prior.table).sum() + self.rows.log_density(
            parameters, prior
        )
        if self.coordinates.start == "free":
            log_density = log_density + dirichlet_log_density(logs(parameters.initial, prior.initial), prior.initial)
        of_transitions, of_table, of_initial, of_durations = parameters.slopes
        if of_table is not None:  # those of states that share an emission count once
            coordinates = self.coordinates
            of_table = coordinates.options.constraints.tying_of(coordinates.emission).one_each(of_table)
        if of_durations is not None:
            of_durations = of_durations[self.coordinates.emission.has_free_durations(len(of_durations))]
        for slopes in (of_transitions, of_table, of_initial, of_durations):
            if slopes is not None:
                log_density = log_density - 0.5 * (slopes / self.slopes).square().sum()
        return log_density

    def __call__(self, u: Tensor) -> Tensor:
        """Return the log-density at ``u (P,)`` float64 as a scalar, which is differentiable once."""
        log_density = self.log_prior(u)
        parameters, _ = self.coordinates.at(u)
        for batch in self.batches:
            log_prob = self.log_prob(parameters, self.coordinates.emission, batch)
            log_density = log_density + batch.weight * log_prob.sum()
        return log_density
