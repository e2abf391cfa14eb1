"""The posterior of an HMM's parameters, by draws (NUTS), and the predictive distribution that they make."""

from seqmodels.hmm.posterior.model import PosteriorHMM, sample_posterior

__all__ = ["PosteriorHMM", "sample_posterior"]
