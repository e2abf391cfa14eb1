"""Hidden Markov alignment: p(y | x) whose states are the places of the source."""

from seqmodels.hmm.alignment.model import AlignmentHMM

__all__ = ["AlignmentHMM"]
