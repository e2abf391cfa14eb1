"""Sequence models from a Gaussian-mixture HMM to a Transformer, compared by likelihoods that may stand in one table."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from seqmodels.common import forked
from seqmodels.common.former_names import FORMER_NAMES
from seqmodels.common.version import __version__

if TYPE_CHECKING:
    from seqmodels import data, presets
    from seqmodels.common import distributed
    from seqmodels.counts.context_mixing import ContextMixing
    from seqmodels.counts.context_tree import ContextTree
    from seqmodels.counts.ngram import NGram
    from seqmodels.encodings import BPE, Bytes, Characters, Encoding, Features, OpenSymbols, Standardize, Symbols
    from seqmodels.evaluation import (
        Budget,
        CodeLength,
        CodeLengths,
        Comparison,
        ModelSelection,
        Search,
        choose,
        evaluate,
        plot_alignment,
        plot_confusion,
        plot_durations,
        plot_frames,
        plot_posterior,
        plot_states,
        plot_transitions,
        window_loss,
    )
    from seqmodels.evaluation.auditing import Audit, audit
    from seqmodels.evaluation.backtest import Backtest, backtest
    from seqmodels.evaluation.comparison.compare import compare
    from seqmodels.evaluation.prequential import prequential, prequential_code_lengths
    from seqmodels.generation import Forecast, plot_forecast
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
    from seqmodels.model import NotFittedError, SequenceModel
    from seqmodels.neural import (
        GRU,
        LSTM,
        CausalModel,
        Cell,
        ElmanRNN,
        EncoderDecoder,
        LSTMSeq2Seq,
        LSTMTagger,
        MaskedTransformer,
        Recurrent,
        Transformer,
        TransformerSeq2Seq,
        TransformerTagger,
        from_huggingface,
        from_module,
        to_huggingface,
    )
    from seqmodels.observations import (
        AutoregressiveGaussian,
        Bernoulli,
        Categorical,
        Chords,
        Columns,
        GaussianMixture,
        Observation,
        OneOf,
        Poisson,
        PseudoFrames,
    )
    from seqmodels.sequences import Sequences, as_sequences
    from seqmodels.sequences.measure import IncomparableError, Measure
    from seqmodels.training import AdamW, Cosine, Muon, Perturbation, TensorBoard, Trapezoid
    from seqmodels.wrappers import adapt
    from seqmodels.wrappers.anomalies.detector import Anomalies
    from seqmodels.wrappers.classification import GenerativeClassifier
    from seqmodels.wrappers.dynamic import Dynamic
    from seqmodels.wrappers.mixture import Mixture
    from seqmodels.wrappers.offsets import LatentOffset
    from seqmodels.wrappers.online_em import OnlineEM

forked.compute_on_one_thread_in_forks()

# Where public names are looked for, in this order, when they are first used: torch, which takes seconds of a
# processor's time to load, is loaded then, and not for `seqmodels --help`.
_PACKAGES = (
    "sequences",
    "encodings",
    "observations",
    "training",
    "model",
    "generation",
    "counts",
    "hmm",
    "neural",
    "wrappers",
    "loading",
    "evaluation",
    "evaluation.auditing",
)
_MODULES = {"adapt": "wrappers.adapt", "distributed": "common.distributed"}  # public ones that stand in a package


def __getattr__(name: str) -> Any:
    """A module of the package, or a public name from the module that defines it."""
    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    for package in _PACKAGES if name in __all__ else ():
        module = import_module(f"{__name__}.{package}")
        if name in vars(module):
            value = globals()[name] = vars(module)[name]
            return value
    if name in FORMER_NAMES:
        raise AttributeError(f"{__name__}.{name} {FORMER_NAMES[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "BPE",
    "GRU",
    "HMM",
    "LSTM",
    "AdamW",
    "AlignmentHMM",
    "Anomalies",
    "Arcs",
    "Audit",
    "AutoregressiveGaussian",
    "Backtest",
    "Banded",
    "Bernoulli",
    "Budget",
    "Bytes",
    "Categorical",
    "CausalModel",
    "Cell",
    "Characters",
    "Chords",
    "CodeLength",
    "CodeLengths",
    "Columns",
    "Comparison",
    "ContextMixing",
    "ContextTree",
    "Cosine",
    "Dynamic",
    "ElmanRNN",
    "EncoderDecoder",
    "Encoding",
    "Features",
    "Forecast",
    "Frozen",
    "GaussianMixture",
    "GenerativeClassifier",
    "HMMTagger",
    "IncomparableError",
    "LSTMSeq2Seq",
    "LSTMTagger",
    "LatentOffset",
    "LeftToRight",
    "MaskedTransformer",
    "Measure",
    "Mixture",
    "ModelSelection",
    "Muon",
    "NGram",
    "NotFittedError",
    "Observation",
    "OneOf",
    "OnlineEM",
    "OpenSymbols",
    "Perturbation",
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
    "adapt",
    "as_sequences",
    "audit",
    "backtest",
    "choose",
    "compare",
    "data",
    "distributed",
    "evaluate",
    "from_huggingface",
    "from_module",
    "load",
    "plot_alignment",
    "plot_confusion",
    "plot_durations",
    "plot_forecast",
    "plot_frames",
    "plot_posterior",
    "plot_states",
    "plot_transitions",
    "prequential",
    "prequential_code_lengths",
    "presets",
    "to_huggingface",
    "window_loss",
]
