"""``load``: a saved model, of whichever class it was."""

from __future__ import annotations

import os

from seqmodels import storage
from seqmodels.encodings import BPE, Bytes, Characters, Features, Standardize, Symbols
from seqmodels.hmm import HMM, Arcs, Banded, Frozen, LeftToRight, Pseudocounts
from seqmodels.model import SequenceModel
from seqmodels.neural import GRU, LSTM, ElmanRNN, LSTMSeq2Seq, Transformer, TransformerSeq2Seq
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

MODELS = (HMM, ElmanRNN, LSTM, GRU, LSTMSeq2Seq, Transformer, TransformerSeq2Seq)
ENCODINGS = (BPE, Bytes, Characters, Features, Standardize, Symbols)
OBSERVATIONS = (AutoregressiveGaussian, Bernoulli, Categorical, Chords, Columns, GaussianMixture, Poisson)
CHAINS = (Arcs, Banded, Frozen, LeftToRight, Pseudocounts, PseudoFrames)
CLASSES: dict[str, type[Configurable]] = {cls.__name__: cls for cls in (*MODELS, *ENCODINGS, *OBSERVATIONS, *CHAINS)}


def load(path: str | os.PathLike[str]) -> SequenceModel:
    """The fitted model that ``save`` wrote; the same figures to the last bit. Raises ``ValueError`` for other files."""
    content = storage.read(path)
    model = storage.build(content["model"], CLASSES)
    encoding = storage.build(content["encoding"], CLASSES)
    observation = storage.build(content["observation"], CLASSES)
    loaded: SequenceModel = model._load(content, encoding, observation)
    return loaded
