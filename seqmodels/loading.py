"""``load``: a saved model, of whichever class it was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from seqmodels import storage
from seqmodels.classification import GenerativeClassifier
from seqmodels.encodings import BPE, Bytes, Characters, Encoding, Features, Standardize, Symbols
from seqmodels.hmm import HMM, AlignmentHMM, Arcs, Banded, Frozen, HMMTagger, LeftToRight, Pseudocounts, Series
from seqmodels.measure import Measure
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
    Observation,
    Poisson,
    PseudoFrames,
)
from seqmodels.parameters import Configurable, check_argument
from seqmodels.training import AdamW, Cosine, Muon, Trapezoid

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
TRAINING = (AdamW, Muon, Trapezoid, Cosine)
CLASSES: dict[str, type[Configurable]] = {
    cls.__name__: cls for cls in (*MODELS, GenerativeClassifier, *ENCODINGS, *OBSERVATIONS, *CHAINS, *TRAINING)
}

# What Python raises where content is not of the kind that a saved model has: a list for a dictionary, a name that is not there, ...
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError)


def load(path: str | os.PathLike[str]) -> Any:
    """The fitted model that ``save`` wrote, by this version or an older one; the same figures to the last bit.

    A ``SequenceModel``, or a ``MaskedTransformer`` or a ``GenerativeClassifier``, which are none: only the file knows. Files from
    strangers may be loaded: nothing in one can run code, take much more memory than it has bytes, or say where the next ``fit``
    writes: ``checkpoint``, ``resume_from`` and ``callbacks`` are at their defaults.

    Raises:
        ValueError: another file, a damaged one, one of a newer version, or one whose numbers no fit could have found.
    """
    return restored(storage.read(path), path)


def restored(content: dict[str, Any], path: str | os.PathLike[str]) -> Any:
    """The model of what ``storage.read`` found in a file; ``ValueError``, naming it, where there is none."""
    try:
        return _restored(content)
    except ValueError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from error
    except MALFORMED as error:
        raise ValueError(
            f"{path} is not a saved model: {type(error).__name__} in its content: {error}"[:500]
        ) from error


def _restored(content: dict[str, Any]) -> Any:
    model = storage.build(content["model"], CLASSES)
    if isinstance(model, GenerativeClassifier):
        return model._load(content, [_restored(part) for part in content["models"].values()])
    if not isinstance(model, MODELS):
        raise ValueError(f"the file holds a {type(model).__name__}, which is no model")
    encoding = _of(Encoding, storage.build(content["encoding"], CLASSES))
    observation = _of(Observation, storage.build(content["observation"], CLASSES))
    _check_fit(content)
    if (observation.emits == "vectors") != (encoding.reads == "vectors"):
        raise ValueError(
            f"the observation {observation!r} emits {observation.emits}, but {encoding!r} reads {encoding.reads}"
        )
    if not isinstance(model, SequenceModel):
        return model._load(content, encoding, observation)
    for name, value in content["measure"].items():
        check_argument(Measure, name, value)
    sources = content.get("source_encoding")
    sources = None if sources is None else _of(Encoding, storage.build(sources, CLASSES))
    return model._load(content, encoding, observation, sources)


def _of(kind: type, thing: Any) -> Any:
    if not isinstance(thing, kind):
        raise ValueError(f"the file holds {thing!r:.100} where it should hold an {kind.__name__.lower()}")
    return thing


def _check_fit(content: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless what is said of the fit is of the right types."""
    history = content["history"]
    columns: list[Any] = list(history.values()) if isinstance(history, dict) else [None]
    if not all(isinstance(column, list) and all(type(x) in (int, float) for x in column) for column in columns):
        raise ValueError("the history should be columns of numbers")
    if len({len(column) for column in columns}) > 1:
        raise ValueError("the columns of the history should be equally long")
    if type(content["converged"]) is not bool or type(content["fit_seconds"]) not in (int, float):
        raise ValueError("converged and fit_seconds should be a boolean and a number")
