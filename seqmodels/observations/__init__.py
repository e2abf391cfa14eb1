"""The distribution of a step, ``p(x_t | output_parameters, past)``, chosen independently of the dynamics."""

from seqmodels.observations.autoregressive import AutoregressiveGaussian
from seqmodels.observations.base import LinearOutputs, LinearPrediction, Observation
from seqmodels.observations.categorical import Categorical
from seqmodels.observations.chords import Chords
from seqmodels.observations.columns import Columns
from seqmodels.observations.exponential_family import Bernoulli, Poisson
from seqmodels.observations.gaussian_mixture import GaussianMixture, PseudoFrames
from seqmodels.observations.one_of import OneOf

__all__ = [
    "AutoregressiveGaussian",
    "Bernoulli",
    "Categorical",
    "Chords",
    "Columns",
    "GaussianMixture",
    "LinearOutputs",
    "LinearPrediction",
    "Observation",
    "OneOf",
    "Poisson",
    "PseudoFrames",
]
