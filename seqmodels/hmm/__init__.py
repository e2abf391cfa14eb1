"""The latent-state wing: hidden Markov models."""

from seqmodels.hmm.model import HMM

__all__ = ["HMM"]
