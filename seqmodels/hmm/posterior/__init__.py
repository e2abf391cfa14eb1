"""The posterior of an HMM's parameters, sampled by NUTS, and the predictive distribution over the draws."""

from seqmodels.hmm.posterior.model import PosteriorHMM, sample_posterior

__all__ = ["PosteriorHMM", "sample_posterior"]
