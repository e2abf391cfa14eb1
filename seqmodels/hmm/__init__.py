"""Hidden Markov models: states that are summed out, fitted by EM or by gradient."""

from typing import TYPE_CHECKING

from seqmodels.common.lazy import lazily

if TYPE_CHECKING:
    from seqmodels.hmm.alignment import AlignmentHMM
    from seqmodels.hmm.conjugate import ConjugatePrior
    from seqmodels.hmm.continuous_time import ContinuousTimeHMM
    from seqmodels.hmm.learning.chain_arguments import ChainInputEffects, ChainTraining, RandomEffect, Smooth
    from seqmodels.hmm.learning.constraints import Frozen
    from seqmodels.hmm.learning.priors import Pseudocounts
    from seqmodels.hmm.markov_switching import MarkovSwitchingAR
    from seqmodels.hmm.model import HMM
    from seqmodels.hmm.posterior import PosteriorHMM, sample_posterior
    from seqmodels.hmm.semi_markov import HSMM
    from seqmodels.hmm.state_paths import ForcedAlignment, StatePath
    from seqmodels.hmm.tagger import HMMTagger
    from seqmodels.hmm.topology import Arcs, Banded, LeftToRight, Series, Topology

__getattr__, __dir__ = lazily(
    __name__,
    {
        "alignment": ("AlignmentHMM",),
        "conjugate": ("ConjugatePrior",),
        "continuous_time": ("ContinuousTimeHMM",),
        "learning.chain_arguments": (
            "ChainInputEffects",
            "ChainTraining",
            "RandomEffect",
            "Smooth",
        ),
        "learning.constraints": ("Frozen",),
        "learning.priors": ("Pseudocounts",),
        "markov_switching": ("MarkovSwitchingAR",),
        "model": ("HMM",),
        "posterior": (
            "PosteriorHMM",
            "sample_posterior",
        ),
        "semi_markov": ("HSMM",),
        "state_paths": (
            "ForcedAlignment",
            "StatePath",
        ),
        "tagger": ("HMMTagger",),
        "topology": (
            "Arcs",
            "Banded",
            "LeftToRight",
            "Series",
            "Topology",
        ),
    },
)

__all__ = [
    "HMM",
    "HSMM",
    "AlignmentHMM",
    "Arcs",
    "Banded",
    "ChainInputEffects",
    "ChainTraining",
    "ConjugatePrior",
    "ContinuousTimeHMM",
    "ForcedAlignment",
    "Frozen",
    "HMMTagger",
    "LeftToRight",
    "MarkovSwitchingAR",
    "PosteriorHMM",
    "Pseudocounts",
    "RandomEffect",
    "Series",
    "Smooth",
    "StatePath",
    "Topology",
    "sample_posterior",
]
