"""Hidden Markov models in continuous time: hidden Markov jump processes that are observed at arbitrary times."""

from seqmodels.hmm.continuous_time.model import ContinuousTimeHMM

__all__ = ["ContinuousTimeHMM"]
