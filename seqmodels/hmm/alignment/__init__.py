"""Hidden Markov alignment: models of p(y | x) whose hidden states are the positions of the source."""

from seqmodels.hmm.alignment.model import AlignmentHMM

__all__ = ["AlignmentHMM"]
