"""Markov-switching autoregressions of deviations from the means of the states."""

from seqmodels.hmm.markov_switching.model import MarkovSwitchingAR

__all__ = ["MarkovSwitchingAR"]
