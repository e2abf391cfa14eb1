"""``load``: a saved model, of whichever class it was."""

from __future__ import annotations

import os
from typing import Any

from seqmodels import storage
from seqmodels.classification import GenerativeClassifier
from seqmodels.encodings import BPE, Bytes, Characters, Features, Standardize, Symbols
from seqmodels.hmm import HMM, AlignmentHMM, Arcs, Banded, Frozen, HMMTagger, LeftToRight, Pseudocounts, Series
from seqmodels.model import SequenceModel
from seqmodels.neural import (
    GRU,
    LSTM,
    ElmanRNN,
    LSTMSeq2Seq,
    LSTMTagger,
    MaskedTransformer,
    Transformer,
    TransformerSeq2Seq,
    TransformerTagger,
)
from seqmodels.ngram import NGram
from seqmodels.observations import (
    AutoregressiveGaussian,
    Bernoulli,
    Categorical,
    Chords,
    Columns,
    GaussianMixture,
    Poisson,
    PseudoFrames,
)
from seqmodels.parameters import Configurable
from seqmodels.training import AdamW, Cosine, Muon, TensorBoard, Trapezoid

LATENT = (HMM, AlignmentHMM, HMMTagger)
NETWORKS = (
    ElmanRNN,
    LSTM,
    GRU,
    LSTMSeq2Seq,
    LSTMTagger,
    Transformer,
    TransformerSeq2Seq,
    TransformerTagger,
    MaskedTransformer,
)
MODELS = (*LATENT, NGram, *NETWORKS)
ENCODINGS = (BPE, Bytes, Characters, Features, Standardize, Symbols)
OBSERVATIONS = (AutoregressiveGaussian, Bernoulli, Categorical, Chords, Columns, GaussianMixture, Poisson)
CHAINS = (Arcs, Banded, Frozen, LeftToRight, Pseudocounts, PseudoFrames, Series)
TRAINING = (AdamW, Muon, Trapezoid, Cosine, TensorBoard)
CLASSES: dict[str, type[Configurable]] = {
    cls.__name__: cls for cls in (*MODELS, GenerativeClassifier, *ENCODINGS, *OBSERVATIONS, *CHAINS, *TRAINING)
}


def load(path: str | os.PathLike[str]) -> Any:
    """The fitted model that ``save`` wrote; the same figures to the last bit. Raises ``ValueError`` for other files.

    A ``SequenceModel``, or a ``MaskedTransformer`` or a ``GenerativeClassifier``, which are none: only the file knows.
    """
    return _restored(storage.read(path))


def _restored(content: dict[str, Any]) -> Any:
    model = storage.build(content["model"], CLASSES)
    if isinstance(model, GenerativeClassifier):
        return model._load(content, [_restored(part) for part in content["models"].values()])
    encoding = storage.build(content["encoding"], CLASSES)
    observation = storage.build(content["observation"], CLASSES)
    if not isinstance(model, SequenceModel):
        return model._load(content, encoding, observation)
    sources = content.get("source_encoding")
    return model._load(content, encoding, observation, None if sources is None else storage.build(sources, CLASSES))
