"""The latent-state wing: hidden Markov models."""

from seqmodels.hmm.alignment import AlignmentHMM
from seqmodels.hmm.constraints import Frozen
from seqmodels.hmm.model import HMM
from seqmodels.hmm.priors import Pseudocounts
from seqmodels.hmm.series import Series
from seqmodels.hmm.tagging import HMMTagger
from seqmodels.hmm.topology import Arcs, Banded, LeftToRight, Topology

__all__ = [
    "HMM",
    "AlignmentHMM",
    "Arcs",
    "Banded",
    "Frozen",
    "HMMTagger",
    "LeftToRight",
    "Pseudocounts",
    "Series",
    "Topology",
]
