"""The hidden Markov model in continuous time: a hidden Markov jump process, observed at any times."""

from seqmodels.hmm.continuous_time.model import ContinuousTimeHMM

__all__ = ["ContinuousTimeHMM"]
