"""Hidden Markov alignment: p(y | x) whose states are the positions of the source."""

from seqmodels.hmm.alignment.model import AlignmentHMM

__all__ = ["AlignmentHMM"]
