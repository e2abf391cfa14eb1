"""Sequence models from a Gaussian-mixture HMM to a Transformer, compared by likelihoods that may stand in one table."""

from seqmodels import data, distributed, forked, presets
from seqmodels.classification import GenerativeClassifier
from seqmodels.encodings import BPE, Bytes, Characters, Encoding, Features, Standardize, Symbols
from seqmodels.evaluation import Budget, Comparison, Search, compare, evaluate, plot_alignment, window_loss
from seqmodels.hmm import (
    HMM,
    AlignmentHMM,
    Arcs,
    Banded,
    Frozen,
    HMMTagger,
    LeftToRight,
    Pseudocounts,
    Series,
    Topology,
)
from seqmodels.loading import load
from seqmodels.measure import IncomparableError, Measure
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.neural import GRU, LSTM, ElmanRNN, LSTMSeq2Seq, LSTMTagger, MaskedTransformer, Transformer, TransformerSeq2Seq, TransformerTagger, from_huggingface, to_huggingface
from seqmodels.ngram import NGram
from seqmodels.observations import (
    AutoregressiveGaussian,
    Bernoulli,
    Categorical,
    Chords,
    Columns,
    GaussianMixture,
    Observation,
    Poisson,
    PseudoFrames,
)
from seqmodels.sequences import Sequences, as_sequences
from seqmodels.training import AdamW, Cosine, Muon, TensorBoard, Trapezoid
from seqmodels.version import __version__

forked.compute_on_one_thread_in_forks()

__all__ = [
    "BPE",
    "GRU",
    "HMM",
    "LSTM",
    "AdamW",
    "AlignmentHMM",
    "Arcs",
    "AutoregressiveGaussian",
    "Banded",
    "Bernoulli",
    "Budget",
    "Bytes",
    "Categorical",
    "CausalModel",
    "Cell",
    "Characters",
    "Chords",
    "Columns",
    "Comparison",
    "Cosine",
    "ElmanRNN",
    "EncoderDecoder",
    "Encoding",
    "Features",
    "Frozen",
    "GaussianMixture",
    "GenerativeClassifier",
    "HMMTagger",
    "IncomparableError",
    "LSTMSeq2Seq",
    "LSTMTagger",
    "LeftToRight",
    "MaskedTransformer",
    "Measure",
    "Muon",
    "NGram",
    "NotFittedError",
    "Observation",
    "Poisson",
    "PseudoFrames",
    "Pseudocounts",
    "Recurrent",
    "Search",
    "SequenceModel",
    "Sequences",
    "Series",
    "Standardize",
    "Symbols",
    "TensorBoard",
    "Topology",
    "Transformer",
    "TransformerSeq2Seq",
    "TransformerTagger",
    "Trapezoid",
    "__version__",
    "as_sequences",
    "compare",
    "data",
    "distributed",
    "evaluate",
    "from_huggingface",
    "from_module",
    "load",
    "plot_alignment",
    "presets",
    "to_huggingface",
    "window_loss",
]
