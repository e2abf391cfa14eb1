"""Sequence models from a Gaussian-mixture HMM to a Transformer, compared by likelihoods that may stand in one table."""

from seqmodels import data
from seqmodels.encodings import BPE, Bytes, Characters, Encoding, Features, Standardize, Symbols
from seqmodels.evaluation import Comparison, compare, plot_alignment
from seqmodels.hmm import HMM, Arcs, Banded, Frozen, LeftToRight, Pseudocounts, Series, Topology
from seqmodels.loading import load
from seqmodels.measure import IncomparableError, Measure
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.neural import (
    GRU,
    LSTM,
    ElmanRNN,
    LSTMSeq2Seq,
    MaskedTransformer,
    Transformer,
    TransformerSeq2Seq,
    from_huggingface,
    presets,
    to_huggingface,
)
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

__version__ = "0.1.0"

__all__ = [
    "BPE",
    "GRU",
    "HMM",
    "LSTM",
    "AdamW",
    "Arcs",
    "AutoregressiveGaussian",
    "Banded",
    "Bernoulli",
    "Bytes",
    "Categorical",
    "Characters",
    "Chords",
    "Columns",
    "Comparison",
    "Cosine",
    "ElmanRNN",
    "Encoding",
    "Features",
    "Frozen",
    "GaussianMixture",
    "IncomparableError",
    "LSTMSeq2Seq",
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
    "SequenceModel",
    "Sequences",
    "Series",
    "Standardize",
    "Symbols",
    "TensorBoard",
    "Topology",
    "Transformer",
    "TransformerSeq2Seq",
    "Trapezoid",
    "as_sequences",
    "compare",
    "data",
    "from_huggingface",
    "load",
    "plot_alignment",
    "presets",
    "to_huggingface",
]
