"""Linear-Gaussian systems whose matrices switch with a Markov chain of regimes."""

from seqmodels.linear_gaussian.switching.model import SwitchingLinearGaussian

__all__ = ["SwitchingLinearGaussian"]
