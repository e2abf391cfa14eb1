"""What EM needs of each observation: all states at once, sufficient statistics, the M-step, a start."""

from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.emissions.base import Emission, Statistics
from seqmodels.hmm.emissions.categorical import CategoricalEmission
from seqmodels.hmm.emissions.columns import ColumnsEmission
from seqmodels.hmm.emissions.exponential import ExponentialEmission
from seqmodels.hmm.emissions.gaussian_mixture import GaussianMixtureEmission
from seqmodels.hmm.emissions.tied_mixture import TiedMixtureEmission
from seqmodels.observations import AutoregressiveGaussian, Categorical, Chords, Columns, GaussianMixture, Observation
from seqmodels.observations.exponential_family import ExponentialFamily

__all__ = ["Emission", "Statistics", "emission_of"]


def emission_of(observation: Observation, size: int) -> Emission:
    """The EM side of an observation over D features or V symbols; raises ``ValueError`` for those that only networks have."""
    if isinstance(observation, GaussianMixture) and observation.covariance_type == "lowrank":
        raise ValueError(
            "covariance_type='lowrank' is for networks; under an HMM use 'full', 'tied', 'diag' or 'spherical'"
        )
    if isinstance(observation, Chords):
        raise ValueError(f"{observation!r} has weights that only a network trains; under an HMM use Bernoulli")
    if isinstance(observation, GaussianMixture) and observation.covariance_type == "tied":
        return TiedMixtureEmission(observation, size)
    if isinstance(observation, GaussianMixture):
        return GaussianMixtureEmission(observation, size)
    if isinstance(observation, Categorical):
        return CategoricalEmission(observation, size)
    if isinstance(observation, AutoregressiveGaussian):
        return AutoregressiveEmission(observation, size)
    if isinstance(observation, ExponentialFamily):
        return ExponentialEmission(observation, size)
    if isinstance(observation, Columns):
        return ColumnsEmission(observation, size, emission_of)
    raise ValueError(
        f"EM cannot fit {observation!r}; use GaussianMixture, AutoregressiveGaussian, Categorical, Bernoulli, Poisson or Columns"
    )
