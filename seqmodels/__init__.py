"""Sequence models from a Gaussian-mixture HMM to a Transformer, compared by likelihoods that may stand in one table."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from seqmodels.common import forked
from seqmodels.common.former_names import FORMER_NAMES
from seqmodels.common.lazy import lazily
from seqmodels.common.version import __version__

if TYPE_CHECKING:
    from seqmodels import data, encodings, evaluation, hmm, neural, observations, plot, presets, training
    from seqmodels.common import distributed
    from seqmodels.counts.context_mixing import ContextMixing
    from seqmodels.counts.context_tree import ContextTree
    from seqmodels.counts.ngram import NGram
    from seqmodels.encodings import BPE, Bytes, Characters, Features, Standardize, Symbols
    from seqmodels.evaluation import Budget, Search, choose, evaluate
    from seqmodels.evaluation.auditing import audit
    from seqmodels.evaluation.backtest import backtest
    from seqmodels.evaluation.coding import compress, decompress
    from seqmodels.evaluation.comparison.compare import compare
    from seqmodels.evaluation.forecasting import forecast
    from seqmodels.evaluation.model_check import check
    from seqmodels.evaluation.prequential import prequential
    from seqmodels.hmm import HMM, AlignmentHMM, HMMTagger, LeftToRight
    from seqmodels.linear_gaussian import LinearGaussian
    from seqmodels.loading import load
    from seqmodels.model import NotFittedError, SequenceModel
    from seqmodels.neural import (
        GRU,
        LSTM,
        ElmanRNN,
        EncoderDecoder,
        LSTMSeq2Seq,
        LSTMTagger,
        MaskedTransformer,
        Transformer,
        TransformerSeq2Seq,
        TransformerTagger,
    )
    from seqmodels.observations import (
        AutoregressiveGaussian,
        Bernoulli,
        Categorical,
        Chords,
        Columns,
        GaussianMixture,
        Poisson,
    )
    from seqmodels.sequences import Sequences, as_sequences
    from seqmodels.sequences.measure import IncomparableError, Measure
    from seqmodels.wrappers import adapt
    from seqmodels.wrappers.anomalies.detector import Anomalies
    from seqmodels.wrappers.classification import GenerativeClassifier
    from seqmodels.wrappers.dynamic_evaluation import Dynamic
    from seqmodels.wrappers.mixture import Mixture

forked.compute_on_one_thread_in_forks()

# Where public names are defined. A module is loaded when one of its names is first used: torch takes seconds of a
# processor's time to load, which `seqmodels --help` need not wait for.
_NAMES_OF = {
    "counts.context_mixing": ("ContextMixing",),
    "counts.context_tree": ("ContextTree",),
    "counts.ngram": ("NGram",),
    "encodings": (
        "BPE",
        "Bytes",
        "Characters",
        "Features",
        "Standardize",
        "Symbols",
    ),
    "evaluation": (
        "Budget",
        "Search",
        "choose",
        "evaluate",
    ),
    "evaluation.auditing": ("audit",),
    "evaluation.backtest": ("backtest",),
    "evaluation.coding": (
        "compress",
        "decompress",
    ),
    "evaluation.comparison.compare": ("compare",),
    "evaluation.forecasting": ("forecast",),
    "evaluation.model_check": ("check",),
    "evaluation.prequential": ("prequential",),
    "hmm": (
        "HMM",
        "AlignmentHMM",
        "HMMTagger",
        "LeftToRight",
    ),
    "linear_gaussian": ("LinearGaussian",),
    "loading": ("load",),
    "model": (
        "NotFittedError",
        "SequenceModel",
    ),
    "neural": (
        "GRU",
        "LSTM",
        "ElmanRNN",
        "EncoderDecoder",
        "LSTMSeq2Seq",
        "LSTMTagger",
        "MaskedTransformer",
        "Transformer",
        "TransformerSeq2Seq",
        "TransformerTagger",
    ),
    "observations": (
        "AutoregressiveGaussian",
        "Bernoulli",
        "Categorical",
        "Chords",
        "Columns",
        "GaussianMixture",
        "Poisson",
    ),
    "sequences": (
        "Sequences",
        "as_sequences",
    ),
    "sequences.measure": (
        "IncomparableError",
        "Measure",
    ),
    "wrappers.anomalies.detector": ("Anomalies",),
    "wrappers.classification": ("GenerativeClassifier",),
    "wrappers.dynamic_evaluation": ("Dynamic",),
    "wrappers.mixture": ("Mixture",),
}
_get, _ = lazily(__name__, _NAMES_OF)
_MODULES = {"adapt": "wrappers.adapt", "distributed": "common.distributed"}  # public ones that stand in a package


def __getattr__(name: str) -> Any:
    """A module of the package, or a public name from the module that defines it."""
    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    if name in FORMER_NAMES:
        raise _lookup_error(f"{__name__}.{name} {FORMER_NAMES[name]}")
    return _get(name)


def _lookup_error(message: str) -> AttributeError | ImportError:
    """For ``from seqmodels import name``, which drops what an ``AttributeError`` says, an ``ImportError``."""
    is_import = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"
    return ImportError(message) if is_import else AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "BPE",
    "GRU",
    "HMM",
    "LSTM",
    "AlignmentHMM",
    "Anomalies",
    "AutoregressiveGaussian",
    "Bernoulli",
    "Budget",
    "Bytes",
    "Categorical",
    "Characters",
    "Chords",
    "Columns",
    "ContextMixing",
    "ContextTree",
    "Dynamic",
    "ElmanRNN",
    "EncoderDecoder",
    "Features",
    "GaussianMixture",
    "GenerativeClassifier",
    "HMMTagger",
    "IncomparableError",
    "LSTMSeq2Seq",
    "LSTMTagger",
    "LeftToRight",
    "LinearGaussian",
    "MaskedTransformer",
    "Measure",
    "Mixture",
    "NGram",
    "NotFittedError",
    "Poisson",
    "Search",
    "SequenceModel",
    "Sequences",
    "Standardize",
    "Symbols",
    "Transformer",
    "TransformerSeq2Seq",
    "TransformerTagger",
    "__version__",
    "adapt",
    "as_sequences",
    "audit",
    "backtest",
    "check",
    "choose",
    "compare",
    "compress",
    "data",
    "decompress",
    "distributed",
    "encodings",
    "evaluate",
    "evaluation",
    "forecast",
    "hmm",
    "load",
    "neural",
    "observations",
    "plot",
    "prequential",
    "presets",
    "training",
]
