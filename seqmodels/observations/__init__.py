"""Distributions of a step given its state, ``p(x_t | output_parameters, past)``, which HMMs and networks share."""

from seqmodels.observations.autoregressive import AutoregressiveGaussian
from seqmodels.observations.base import LinearOutputs, LinearPrediction, Observation
from seqmodels.observations.beta import Beta
from seqmodels.observations.categorical import Categorical
from seqmodels.observations.chords import Chords
from seqmodels.observations.columns import Columns
from seqmodels.observations.exponential_family import Bernoulli, Poisson
from seqmodels.observations.gamma import Gamma
from seqmodels.observations.gaussian_mixture import GaussianMixture, PseudoFrames
from seqmodels.observations.independent_features import FeatureMoments, IndependentFeatures
from seqmodels.observations.interval_censored import IntervalCensored
from seqmodels.observations.intervals import OfIntervals
from seqmodels.observations.log_normal import LogNormal
from seqmodels.observations.moment_matching import MomentMatching
from seqmodels.observations.multivariate_student_t import MultivariateStudentT
from seqmodels.observations.negative_binomial import NegativeBinomial
from seqmodels.observations.one_of import OneOf
from seqmodels.observations.rounded import Rounded
from seqmodels.observations.student_t import StudentT
from seqmodels.observations.von_mises import VonMises
from seqmodels.observations.zero_inflated import ZeroInflated

__all__ = [
    "AutoregressiveGaussian",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Chords",
    "Columns",
    "FeatureMoments",
    "Gamma",
    "GaussianMixture",
    "IndependentFeatures",
    "IntervalCensored",
    "LinearOutputs",
    "LinearPrediction",
    "LogNormal",
    "MomentMatching",
    "MultivariateStudentT",
    "NegativeBinomial",
    "Observation",
    "OfIntervals",
    "OneOf",
    "Poisson",
    "PseudoFrames",
    "Rounded",
    "StudentT",
    "VonMises",
    "ZeroInflated",
]
