"""Emissions: the densities, expected statistics, M-step and start that EM needs for each observation."""

from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.emissions.base import Emission, Statistics, emission_of
from seqmodels.hmm.emissions.categorical import CategoricalEmission
from seqmodels.hmm.emissions.columns import ColumnsEmission
from seqmodels.hmm.emissions.exponential import ExponentialEmission
from seqmodels.hmm.emissions.feature_moments import FeatureMomentEmission
from seqmodels.hmm.emissions.gaussian_mixture import GaussianMixtureEmission, TiedMixtureEmission
from seqmodels.hmm.emissions.intervals import IntervalEmission
from seqmodels.hmm.emissions.moments import MomentEmission
from seqmodels.hmm.emissions.negative_binomial import NegativeBinomialEmission
from seqmodels.hmm.emissions.zero_inflated import ZeroInflatedEmission

__all__ = [
    "AutoregressiveEmission",
    "CategoricalEmission",
    "ColumnsEmission",
    "Emission",
    "ExponentialEmission",
    "FeatureMomentEmission",
    "GaussianMixtureEmission",
    "IntervalEmission",
    "MomentEmission",
    "NegativeBinomialEmission",
    "Statistics",
    "TiedMixtureEmission",
    "ZeroInflatedEmission",
    "emission_of",
]
