"""Hidden semi-Markov models: HMMs whose states have distributions of their own of how long they last."""

from seqmodels.hmm.semi_markov.model import HSMM

__all__ = ["HSMM"]
