"""Conjugate distributions over an HMM's parameters: priors, and the posteriors that variational Bayes computes."""

from seqmodels.hmm.conjugate.autoregressive import AutoregressiveFamily, conjugate_given_inputs
from seqmodels.hmm.conjugate.columns import ColumnsFamily
from seqmodels.hmm.conjugate.family import ConjugateFamily, EmissionPrior, ExpectedEmission, conjugate_of
from seqmodels.hmm.conjugate.gaussian_mixture import DiagonalMixtureFamily, FullMixtureFamily
from seqmodels.hmm.conjugate.independent_features import BernoulliFamily, PoissonFamily
from seqmodels.hmm.conjugate.normal import prior_of
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.conjugate.rows import DirichletRows, GammaRates, RowsFamily
from seqmodels.hmm.conjugate.symbols import CategoricalFamily

__all__ = [
    "AutoregressiveFamily",
    "BernoulliFamily",
    "CategoricalFamily",
    "ColumnsFamily",
    "ConjugateFamily",
    "ConjugatePrior",
    "DiagonalMixtureFamily",
    "DirichletRows",
    "EmissionPrior",
    "ExpectedEmission",
    "FullMixtureFamily",
    "GammaRates",
    "PoissonFamily",
    "RowsFamily",
    "conjugate_given_inputs",
    "conjugate_of",
    "prior_of",
]
