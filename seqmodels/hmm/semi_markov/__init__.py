"""Hidden semi-Markov models: HMMs in which every state has a distribution of its duration."""

from seqmodels.hmm.semi_markov.model import HSMM

__all__ = ["HSMM"]
