"""Markov-switching autoregressions whose lags are of deviations from the mean of the state at each of them."""

from seqmodels.hmm.markov_switching.model import MarkovSwitchingAR

__all__ = ["MarkovSwitchingAR"]
