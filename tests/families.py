"""Every model on every kind of data: the one table of constructors behind ``test_contract.py``."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import seqmodels as sm
from seqmodels.counts.ngram.tables import Tables
from seqmodels.neural import BahdanauNetwork, CausalModel, GatedUnit, LuongNetwork, MinGRUCell
from seqmodels.neural.model import NeuralModel
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Length
from seqmodels.wrappers.adapt import CallableModel, TorchModel
from seqmodels.wrappers.mixture.density_gate import DensityGate
from seqmodels.wrappers.mixture.weights import FixedShare
from tests.counts.markov import Markov
from tests.made import made

N_SYMBOLS = 3
LENGTHS = (11, 1, 6, 9, 2, 7, 4, 10)
SOURCE_LENGTHS = (2, 5, 1, 4, 3, 6, 2, 3)
OFFSET, SCALES = 50.0, (1e3, 2e-2)  # raw vectors are far from standardised
TEXTS = ("né", "to be", "a", "nota bene", "€ 5", "an ant", "ten", "ab ovo")
SOURCES = ("to", "né", "b", "€", "on", "a tab", "no", "eta")


# What the tests tell apart: vectors of whole numbers have probabilities, not densities.
# The last four are of some reals, the last of which have a probability at 0.
DataKind = Literal[Kind, "bits", "counts", "mixed", "rounded", "positive", "proportions", "angles", "amounts"]


@dataclass(frozen=True)
class Family:
    """A constructor, and the kinds of data it is for. A new architecture is one more."""

    name: str
    make: Callable[..., sm.SequenceModel]
    kinds: tuple[DataKind, ...] = ("vectors", "symbols")
    source: DataKind | None = None  # what targets are given, where it is of another kind: then there are always targets
    aligned: bool = False  # a tagger: targets are as long as their sources, and always there
    needs_source: bool = False  # a model that is p(y | x) alone
    reads_source: bool = True  # False: a model that is p(x) alone
    classes: tuple[type, ...] = ()  # of its hyperparameters, which ``load`` must be given
    lengths: tuple[Length, ...] = ("given", "stop")
    is_estimate: bool = False  # whether its probabilities are means over draws of parameters
    predicts_steps: bool = True  # False: it scores sequences as a whole, and has no cursor
    shortest: int = 1  # steps of a sequence of the data
    reads_times: bool = False  # whether it is p(x | times)
    is_smooth: bool = True  # whether quadrature over ``GRID`` integrates its densities


# Their densities are not of all reals.
SOME_REALS: tuple[DataKind, ...] = ("positive", "proportions", "angles", "amounts")
DISCRETE: tuple[DataKind, ...] = ("symbols", "bits")  # few enough values that all sequences can be listed
CELL = 1.0  # the width of the cells of rounded values
ROUNDED = sm.observations.Rounded(sm.GaussianMixture(2), width=CELL)
KINDS: tuple[DataKind, ...] = ("vectors", "symbols", "text")  # text is symbols again: one of each architecture reads it
DROPS = {
    "architecture__recurrent_dropout": 0.2,
    "architecture__embedding_dropout": 0.1,
    "architecture__weight_drop": 0.2,
}


# Symbol 0 is the only one of the class, whose number is 2: raw and encoded symbols differ.
SERIES = sm.hmm.Series(2)
OPEN = sm.encodings.OpenSymbols(known=[1, 2], n_symbols=3)


def _hmm(name: str, observation: Any, *kinds: DataKind, **options: Any) -> Family:
    """Of one start, unless ``options`` say otherwise."""
    return Family(
        name, partial(made, sm.HMM, 3, observation=observation, **({"max_iter": 3, "n_init": 1} | options)), kinds
    )


def _hsmm(name: str, *kinds: DataKind, **options: Any) -> Family:
    return Family(
        name, partial(made, sm.hmm.HSMM, 3, **({"max_iter": 3, "n_init": 1, "max_duration": 4} | options)), kinds
    )


def _switching_ar(name: str, **options: Any) -> Family:
    return Family(name, partial(made, sm.hmm.MarkovSwitchingAR, 2, max_iter=3, n_init=1, **options), ("vectors",))


def _timed(name: str, **options: Any) -> Family:
    """In continuous time; sequences without times have steps at 0, 1, 2, ..."""
    make = partial(made, sm.hmm.ContinuousTimeHMM, 3, **({"max_iter": 3, "n_init": 1} | options))
    return Family(name, make, ("vectors", "symbols"), lengths=("given",), reads_source=False, reads_times=True)


DIFFERENCED = sm.encodings.Chain([sm.encodings.Differences(1), sm.Standardize()])


def _of_series(family: Family) -> Family:
    """Of a model whose encoding takes differences: of series alone, without ends, which cannot follow first frames."""
    return replace(family, lengths=("given",), reads_source=False, shortest=2)


def _of_cells(family: Family) -> Family:
    """Of a model of the numbers of cells, whose densities have jumps."""
    return replace(family, reads_source=False, is_smooth=False)


QUANTIZED = sm.encodings.Quantize(3)
QUANTIZED_CHANGES = sm.encodings.Chain([sm.encodings.Differences(1), QUANTIZED])
SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 3, "batch_size": 4}


def _system(name: str, **options: Any) -> Family:
    make = partial(sm.LinearGaussian, max_iter=3, **options)
    return Family(name, make, ("vectors",), lengths=("given",))


def _timed_system(name: str, **options: Any) -> Family:
    """Sequences without times: each step is one of the system."""
    return replace(_system(name, time_step=0.5, **options), reads_source=False, reads_times=True)


def _switching_system(name: str, **options: Any) -> Family:
    make = partial(sm.linear_gaussian.SwitchingLinearGaussian, max_iter=3, **options)
    return Family(name, make, ("vectors",), lengths=("given",), is_estimate=True)


def _dynamic(name: str, network: NeuralModel, *kinds: DataKind) -> Family:
    return Family(name, partial(sm.Dynamic, network, segment=3, lr=0.02, decay=0.1), kinds)


def _network(name: str, cls: Callable[..., NeuralModel], *kinds: DataKind, **options: Any) -> Family:
    small = {"d_model": 8, "n_layers": 1, "max_steps": 3, "batch_size": 4}
    return Family(name, partial(made, cls, **(small | options)), kinds or Family.kinds)


def _tagger(name: str, cls: Callable[..., NeuralModel], *kinds: DataKind, **options: Any) -> Family:
    return replace(_network(name, cls, *kinds, **options), aligned=True)


def _hmm_tagger(name: str, source: DataKind, **options: Any) -> Family:
    return Family(name, partial(sm.HMMTagger, max_iter=3, **options), ("symbols",), source, aligned=True)


def _alignment(name: str, *kinds: DataKind, **options: Any) -> Family:
    return Family(name, partial(sm.AlignmentHMM, **({"max_iter": 2} | options)), kinds, needs_source=True)


def _from(source: DataKind, family: Family) -> Family:
    return replace(family, source=source)


def _mixture(name: str, weights: str, *kinds: DataKind, **options: Any) -> Family:
    """Of an n-gram and a network of symbols; of vectors of two HMMs, one of which looks back, and a network."""

    def make(length: Length, dtype: str, random_state: int) -> sm.SequenceModel:
        network = sm.GRU(d_model=6, max_steps=2, batch_size=4, random_state=random_state)
        symbols = [sm.NGram(3), sm.HMM(2, max_iter=2, n_init=1, observation=sm.Categorical(0.01)), network]
        vectors = [
            sm.HMM(2, max_iter=2, n_init=1),
            sm.HMM(2, max_iter=2, n_init=1, observation=sm.AutoregressiveGaussian(2)),
            network,
        ]
        return sm.Mixture(
            vectors if "vectors" in kinds else symbols,
            weights=weights,
            held_out=0.3,
            length=length,
            dtype=dtype,
            random_state=random_state,
            **options,
        )

    return Family(name, make, kinds)


class CausalConvolution(nn.Module):
    """``tanh(b + Σ_k W_k x_{t-k})``, k from 0 to 2."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(d_model, d_model, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.convolution(nn.functional.pad(x.mT, (2, 0)))).mT


class Decaying:
    """``softmax(W Σ_k 0.7^k e(x_{t-k}) + b)`` over V symbols and the end, from the prefix alone."""

    size = N_SYMBOLS

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.embedding = rng.normal(size=(self.size, 4))
        self.weight, self.bias = rng.normal(size=(4, self.size + 1)), rng.normal(size=self.size + 1)

    def __call__(self, prefix: Any) -> np.ndarray:
        x = np.array(list(prefix), dtype=np.int64)
        hidden = (0.7 ** np.arange(len(x))[::-1, None] * self.embedding[x]).sum(0)
        logits = hidden @ self.weight + self.bias
        return logits - np.log(np.exp(logits).sum())


class DecayingBytes(Decaying):
    """The same of bytes."""

    size = 256


class CausalTokens(nn.Module):
    """Logits of three symbols, a start that is never predicted, and the end, from a causal convolution of tokens."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(4)
        self.embedding = nn.Embedding(5, 6)
        self.mix = CausalConvolution(6)
        self.head = nn.Linear(6, 5)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.mix(self.embedding(tokens)))


def _adapted(name: str, kind: DataKind, make: Callable[..., sm.SequenceModel], *classes: type) -> Family:
    return Family(name, make, (kind,), reads_source=False, classes=classes)


def _mixture_apart(name: str, weights: str) -> Family:
    """Of models that read a text by different encodings."""

    def make(**shared: Any) -> sm.SequenceModel:
        models: list[sm.SequenceModel] = [sm.NGram(2), sm.NGram(2, encoding=sm.Characters())]
        return sm.Mixture(models, weights=weights, held_out=0.3, **shared)

    return Family(name, make, ("text",), predicts_steps=False)


FAMILIES = (
    Family("ngram-kneser-ney", partial(sm.NGram, 3), ("symbols", "text")),
    Family("ngram-witten-bell", partial(sm.NGram, 3, smoothing="witten-bell"), ("symbols", "text")),
    Family("ngram-adaptive", partial(sm.NGram, 3, adaptive=True), ("symbols", "text")),
    Family(
        "ngram-adaptive-open", partial(sm.NGram, 2, smoothing="witten-bell", adaptive=True, encoding=OPEN), ("symbols",)
    ),
    Family("context-tree", partial(sm.ContextTree, 3), ("symbols", "text")),
    Family("context-tree-static", partial(sm.ContextTree, 3, adaptive=False), ("symbols", "text")),
    Family("context-tree-bayes", partial(sm.ContextTree, 3, weighting="bayes"), ("symbols",)),
    Family("context-tree-open", partial(sm.ContextTree, 2, encoding=OPEN), ("symbols",)),
    Family("context-mixing", partial(sm.ContextMixing, n_buckets=256), ("symbols", "text")),
    Family("context-mixing-static", partial(sm.ContextMixing, n_buckets=256, adaptive=False), ("symbols", "text")),
    Family("context-mixing-open", partial(sm.ContextMixing, n_buckets=2, encoding=OPEN), ("symbols",)),
    Family("markov", Markov, ("symbols",), classes=(Markov,)),  # of tests/counts, by the base of models that count
    _hmm("hmm-diag", sm.GaussianMixture(2), "vectors", n_init="auto"),
    _hmm("hmm-full", sm.GaussianMixture(2, "full"), "vectors"),
    _hmm("hmm-tied", sm.GaussianMixture(2, "tied"), "vectors"),
    _hmm("hmm-spherical", sm.GaussianMixture(2, "spherical"), "vectors"),
    _hmm("hmm-ar", sm.AutoregressiveGaussian(2), "vectors"),
    Family("hmm-var", partial(made, sm.HMM, 1, observation=sm.AutoregressiveGaussian(1), max_iter=3), ("vectors",)),
    _hmm("hmm-ar-tied", sm.AutoregressiveGaussian(1, "tied", intercept=False), "vectors"),
    _of_series(_hmm("hmm-differences", sm.GaussianMixture(2), "vectors", encoding=DIFFERENCED)),
    _of_series(_network("lstm-differences", sm.LSTM, "vectors", encoding=DIFFERENCED)),
    _of_cells(Family("ngram-quantized", partial(sm.NGram, 2, encoding=QUANTIZED), ("vectors",))),
    _of_cells(Family("context-tree-quantized", partial(sm.ContextTree, 2, encoding=QUANTIZED), ("vectors",))),
    _of_cells(_hmm("hmm-quantized", "auto", "vectors", encoding=QUANTIZED)),
    _of_series(_of_cells(_network("lstm-quantized", sm.LSTM, "vectors", encoding=QUANTIZED_CHANGES))),
    _hmm("hmm-categorical", sm.Categorical(0.01), "symbols", "text", n_init="auto"),
    _hmm("hmm-bernoulli", sm.Bernoulli(0.5, 0.4), "bits"),
    _hmm("hmm-poisson", sm.Poisson(), "counts"),
    _hmm("hmm-student", sm.observations.StudentT(), "vectors"),
    _hmm("hmm-gamma", sm.observations.Gamma(), "positive"),
    _hmm("hmm-log-normal", sm.observations.LogNormal(), "positive"),
    _hmm("hmm-von-mises", sm.observations.VonMises(), "angles"),
    _hmm("hmm-beta", sm.observations.Beta(), "proportions"),
    _hmm("hmm-negative-binomial", sm.observations.NegativeBinomial(), "counts"),
    _hmm("hmm-rounded", ROUNDED, "rounded"),
    _hmm("hmm-zero-inflated", sm.observations.ZeroInflated(sm.Poisson()), "counts"),
    _hmm("hmm-zero-inflated-gamma", sm.observations.ZeroInflated(sm.observations.Gamma()), "amounts"),
    _hmm("hmm-columns", sm.Columns([(sm.GaussianMixture(2), 1), (sm.Poisson(), 1)]), "mixed"),
    _hmm("hmm-tied-prior", sm.GaussianMixture(2, "tied", prior=sm.observations.PseudoFrames(2.0)), "vectors"),
    _hmm("hmm-background", sm.GaussianMixture(2, prior=sm.observations.PseudoFrames(5.0), background=1e-3), "vectors"),
    _hmm("hmm-full-background", sm.GaussianMixture(1, "full", background=0.01), "vectors"),
    Family(
        "hmm-series",
        partial(
            sm.HMM,
            4,
            max_iter=3,
            n_init=1,
            topology=sm.hmm.Series(2),
            training=sm.hmm.ChainTraining(tied=sm.hmm.Series(2).tied(4)),
        ),
    ),
    _hsmm("hsmm", "vectors"),
    _hsmm("hsmm-categorical", "symbols", "text", durations="categorical", observation=sm.Categorical(0.01)),
    _hsmm(
        *("hsmm-ar", "vectors"),
        **{"durations": "poisson", "left_censored": True, "observation": sm.AutoregressiveGaussian(2)},
    ),
    _hsmm(
        *("hsmm-left-to-right", "vectors", "symbols"),
        **{
            "topology": "left-to-right",
            "tied_durations": [0, 1, 0],
            "algorithm": "stepwise",
            "training__batches": 2,
            "max_duration": 12,
        },
    ),
    _timed("continuous-time-hmm", start="free"),
    _timed("continuous-time-hmm-stationary", start="stationary", n_init=2),
    _switching_ar("markov-switching-ar", order=2),
    _switching_ar("markov-switching-ar-free", order=1, start="free", switching_ar=True, switching_variance=True),
    Family("hmm-gradient", partial(sm.HMM, 3, max_iter=3, n_init=1, algorithm="gradient")),
    Family("hmm-variational", partial(sm.HMM, 3, max_iter=3, n_init=1, algorithm="variational")),
    _hmm("hmm-variational-full", sm.GaussianMixture(2, "full"), "vectors", algorithm="variational"),
    Family(
        "hmm-posterior",
        lambda **shared: sm.hmm.PosteriorHMM(sm.HMM(2, n_init=1), n_samples=4, warmup=5, max_tree_depth=2, **shared),
        reads_source=False,
        is_estimate=True,
    ),
    _hmm("hmm-variational-poisson", sm.Poisson(), "counts", algorithm="variational"),
    _alignment("alignment", "symbols", "text"),
    _alignment("alignment-null", "symbols", window=3, null=True),
    _alignment("alignment-plain", "symbols", window=1, previous=False, jump_prior=False),
    _from("text", _alignment("alignment-from-text", "symbols", null=True, max_jump=2)),
    _network("elman-tanh", sm.ElmanRNN, *KINDS, n_layers=2, nonlinearity="tanh"),
    _network("elman-sigmoid", sm.ElmanRNN, nonlinearity="sigmoid"),
    _network("elman-relu", sm.ElmanRNN, "symbols", nonlinearity="relu"),
    _network("elman-relu6", sm.ElmanRNN, "symbols", "vectors", n_layers=2, nonlinearity="relu6", dropout=0.1),
    _network("lstm", sm.LSTM, *KINDS, n_layers=2),
    _network("lstm-regular", sm.LSTM, n_layers=2, architecture__layer_norm=True, architecture__residual=True, **DROPS),
    _network("elman-regular", sm.ElmanRNN, "vectors", nonlinearity="sigmoid", architecture__layer_norm=True, **DROPS),
    _network("gru-regular", sm.GRU, "symbols", n_layers=2, architecture__residual=True, **DROPS),
    _network("lstm-diag", sm.LSTM, "vectors", observation=sm.GaussianMixture(3)),
    _network("lstm-lowrank", sm.LSTM, "vectors", observation=sm.GaussianMixture(2, "lowrank", rank=1)),
    _network("lstm-ar", sm.LSTM, "vectors", observation=sm.AutoregressiveGaussian(2)),
    _network("lstm-bernoulli", sm.LSTM, "bits", observation=sm.Bernoulli()),
    _network("lstm-poisson", sm.LSTM, "counts", observation=sm.Poisson()),
    _network("lstm-student", sm.LSTM, "vectors", observation=sm.observations.StudentT()),
    _network("lstm-multivariate-student", sm.LSTM, "vectors", observation=sm.observations.MultivariateStudentT()),
    _network("lstm-rounded", sm.LSTM, "rounded", observation=ROUNDED),
    _network("lstm-negative-binomial", sm.LSTM, "counts", observation=sm.observations.NegativeBinomial()),
    _network("lstm-chords", sm.LSTM, "bits", observation=sm.Chords(4)),
    _network("transformer-chords", sm.Transformer, "bits", context=3, observation=sm.Chords(4, "ascending")),
    _network("gru", sm.GRU, *KINDS),
    _hmm("hmm-open", sm.Categorical(0.01), "symbols", encoding=OPEN),
    Family("ngram-open", partial(sm.NGram, 3, encoding=OPEN), ("symbols",)),
    _network("gru-open", sm.GRU, "symbols", encoding=OPEN),
    _network("recurrent-cell", sm.neural.Recurrent, cell=GatedUnit, n_layers=2),
    _network(
        "recurrent-mingru",
        sm.neural.Recurrent,
        cell=MinGRUCell,
        n_layers=2,
        architecture__residual=True,
        architecture__layer_norm=True,
    ),
    replace(
        _network("causal-module", CausalModel, module=CausalConvolution, context=4),  # what from_module makes
        classes=(CausalConvolution,),
    ),
    _network("bahdanau", sm.EncoderDecoder, network=BahdanauNetwork),
    _network("luong", sm.EncoderDecoder, "symbols", network=LuongNetwork, n_layers=2),
    _network("gru-columns", sm.GRU, "mixed", observation=sm.Columns([(sm.GaussianMixture(), 1), (sm.Poisson(), 1)])),
    _network("lstm-seq2seq-additive", sm.LSTMSeq2Seq, *KINDS),
    _network("lstm-seq2seq-multiplicative", sm.LSTMSeq2Seq, attention="multiplicative", bidirectional=False),
    _network("lstm-seq2seq-none", sm.LSTMSeq2Seq, attention=None, architecture__summary="mean"),
    _network("lstm-seq2seq-deep", sm.LSTMSeq2Seq, "symbols", n_layers=2),
    _network("lstm-seq2seq-current", sm.LSTMSeq2Seq, "vectors", query="current"),
    _network("lstm-seq2seq-heads", sm.LSTMSeq2Seq, "symbols", attention="multiplicative", n_heads=2),
    _network("lstm-seq2seq-general", sm.LSTMSeq2Seq, "symbols", attention="general", query="current"),
    _network("lstm-seq2seq-location", sm.LSTMSeq2Seq, "symbols", attention="location"),
    _network("lstm-seq2seq-coverage", sm.LSTMSeq2Seq, "vectors", architecture__coverage=True),
    _network(
        "lstm-seq2seq-covered",
        sm.LSTMSeq2Seq,
        "symbols",
        attention="general",
        query="current",
        architecture__coverage=True,
    ),
    _network("transformer-pre", sm.Transformer, *KINDS, n_heads=2, context=4),
    _network(
        *("transformer-classic", sm.Transformer, "symbols"),
        **{
            "n_heads": 2,
            "context": 4,
            "convolution_lags": 0,
            "positions": "sinusoidal",
            "activation": "gelu",
            "architecture__bias": True,
        },
    ),
    _network("transformer-post", sm.Transformer, n_heads=2, context=3, norm="post", positions="learned"),
    _network("transformer-unplaced", sm.Transformer, n_layers=2, context=2, positions=None, activation="relu"),
    _network(
        *("transformer-modern", sm.Transformer),
        **{
            "n_heads": 2,
            "architecture__n_kv_heads": 1,
            "context": 4,
            "positions": "rotary",
            "architecture__qk_norm": True,
            "architecture__bias": False,
        },
        **{"architecture__norm_type": "rms", "activation": "swiglu"},
    ),
    _network("transformer-previous", sm.Transformer, n_heads=2, context=4, convolution_lags=2, positions=None),
    _network(
        "transformer-plain",
        sm.Transformer,
        "symbols",
        n_layers=2,
        n_heads=2,
        context=4,
        architecture__projections=False,
    ),
    _network("transformer-alibi", sm.Transformer, "symbols", context=4, positions="alibi", norm="residual", window=2),
    _network(
        "transformer-binary", sm.Transformer, "symbols", context=5, positions="binary", architecture__zero_init=True
    ),
    _network("transformer-tied", sm.Transformer, "symbols", n_heads=2, context=4, architecture__tie_embeddings=True),
    _network("lstm-tied", sm.LSTM, "symbols", architecture__tie_embeddings=True, architecture__scale_embeddings=False),
    _network("transformer-long", sm.Transformer, "vectors", n_heads=2, context=64),
    _network("transformer-ar", sm.Transformer, "vectors", context=4, observation=sm.AutoregressiveGaussian(3, "diag")),
    _network("transformer-seq2seq-pre", sm.TransformerSeq2Seq, *KINDS, n_heads=2),
    _network("transformer-seq2seq-post", sm.TransformerSeq2Seq, norm="post", positions="learned", max_length=32),
    _network("transformer-seq2seq-t5", sm.TransformerSeq2Seq, n_heads=2, positions="t5", activation="relu2", window=3),
    _network(
        "transformer-seq2seq-tied", sm.TransformerSeq2Seq, "symbols", n_heads=2, architecture__tie_embeddings=True
    ),
    _network(
        *("transformer-seq2seq-classic", sm.TransformerSeq2Seq, "symbols"),
        **{
            "n_heads": 2,
            "convolution_lags": 0,
            "positions": "sinusoidal",
            "activation": "gelu",
            "architecture__bias": True,
        },
    ),
    _network("transformer-seq2seq-unplaced", sm.TransformerSeq2Seq, positions=None),
    _from("vectors", _network("lstm-seq2seq-from-vectors", sm.LSTMSeq2Seq, "symbols", "text")),
    _from("text", _network("lstm-seq2seq-from-text", sm.LSTMSeq2Seq, "vectors", attention="multiplicative")),
    _from(
        "counts",
        _network(
            "transformer-seq2seq-from-counts",
            sm.TransformerSeq2Seq,
            "bits",
            observation=sm.Bernoulli(),
            source_encoding=sm.Features("counts"),
        ),
    ),
    _from("text", _network("transformer-seq2seq-from-text", sm.TransformerSeq2Seq, "symbols", n_heads=2)),
    _hmm_tagger("hmm-tagger-from-vectors", "vectors", emission=sm.GaussianMixture(2, "tied")),
    _hmm_tagger("hmm-tagger-from-symbols", "symbols", n_states_per_label=2),
    _hmm_tagger("hmm-tagger-from-counts", "counts", emission=sm.Poisson()),
    _tagger("lstm-tagger", sm.LSTMTagger, n_layers=2),
    _tagger("lstm-tagger-causal", sm.LSTMTagger, n_layers=2, bidirectional=False),
    _tagger("gru-tagger-independent", sm.LSTMTagger, cell="gru", autoregressive=False),
    _tagger(
        "elman-tagger-tied",
        sm.LSTMTagger,
        "symbols",
        cell="elman",
        bidirectional=False,
        architecture__tie_embeddings=True,
    ),
    _from("vectors", _tagger("lstm-tagger-from-vectors", sm.LSTMTagger, "symbols")),
    _tagger("transformer-tagger", sm.TransformerTagger, n_heads=2),
    _tagger("transformer-tagger-causal", sm.TransformerTagger, "symbols", causal=True, positions="rotary"),
    _from(
        "counts",
        _tagger(
            "transformer-tagger-independent",
            sm.TransformerTagger,
            "vectors",
            autoregressive=False,
            source_encoding=sm.Features("counts"),
        ),
    ),
    _adapted("callable", "symbols", partial(CallableModel, Decaying, n_symbols=N_SYMBOLS), Decaying),
    _adapted("callable-text", "text", partial(CallableModel, DecayingBytes, text=True), DecayingBytes),
    _adapted(
        *("torch-module", "symbols"),
        partial(TorchModel, CausalTokens, n_symbols=N_SYMBOLS, start=3, end=4, context=4),
        CausalTokens,
    ),
    _system("system", n_states=2),
    _system("system-full", n_states=3, start="stationary", observation_noise="full"),
    _switching_system("switching-system", n_regimes=3, n_states=2, n_particles=5),
    _switching_system("switching-system-full", n_states=1, switching="both", observation_noise="full", n_particles=3),
    replace(
        _switching_system("switching-system-bound", n_states=1, likelihood="bound"),
        predicts_steps=False,
        is_estimate=False,
    ),
    _system("system-diffuse", n_states=1, transition="diag", state_noise="identity", start="diffuse"),
    _timed_system("system-times", n_states=2),
    _system("system-t", n_states=2, innovations="t"),
    _system("system-t-egarch", n_states=2, observation_noise="full", innovations="beta-t-egarch"),
    _timed_system("system-times-t-egarch", n_states=2, innovations="beta-t-egarch"),
    _mixture("mixture-static", "static", "vectors"),
    _mixture("mixture-static", "static", "symbols", "text", refit=[True, False, False]),
    _mixture("mixture-posterior", "posterior", "vectors"),
    _mixture("mixture-posterior", "posterior", "symbols"),
    _mixture("mixture-switching", "switching", "vectors"),
    _mixture("mixture-switching", "switching", "symbols"),
    _mixture("mixture-contextual", "contextual", "symbols"),
    _mixture_apart("mixture-apart", "static"),
    _mixture_apart("mixture-apart-switching", "switching"),
    _mixture("mixture-gated", "gated", "vectors"),
    _mixture("mixture-gated", "gated", "symbols", "text"),
    _from(
        "text",
        Family("hmm-ignoring", partial(sm.HMM, 2, max_iter=3, n_init=1, ignore_source=True), ("vectors", "symbols")),
    ),
    _from("vectors", Family("ngram-ignoring", partial(sm.NGram, 2, ignore_source=True), ("symbols",))),
    _from("vectors", _network("lstm-ignoring", sm.LSTM, "symbols", ignore_source=True)),
    _dynamic("dynamic-lstm", sm.LSTM(**SMALL, n_layers=2), "vectors"),
    _dynamic("dynamic-transformer", sm.Transformer(**SMALL, n_layers=1, n_heads=2, context=4), "symbols"),
)


@dataclass(frozen=True)
class Row:
    """One model on one kind of data under one rule of length, with targets or without; ``n_features`` of vectors."""

    family: Family
    kind: DataKind
    conditional: bool
    length: Length
    n_features: int = 2

    def __str__(self) -> str:
        return f"{self.family.name}-{self.kind}-{'y|x' if self.conditional else 'x'}-{self.length}"

    @property
    def model(self) -> sm.SequenceModel:
        """Unfitted, float64."""
        return self.family.make(length=self.length, dtype="float64", random_state=1)

    @property
    def data(self) -> tuple[list[Any], list[Any] | None]:
        """``X`` and ``y``, to fit or to score: new lists of the same items, which are not to be changed."""
        lengths = tuple(max(n, self.family.shortest) for n in LENGTHS)
        x = [*make_data(self.kind, lengths, TEXTS, 0, self.n_features)]
        if not self.conditional:
            return x, None
        given = self.family.source or self.kind
        lengths = LENGTHS if self.family.aligned else SOURCE_LENGTHS
        return [*make_data(given, lengths, SOURCES, 1, self.n_features)], x

    def source(self, n: int) -> Any:
        """One source of a target of ``n`` steps, or None: always the same; of taggers cut to this length."""
        X, y = self.data
        if y is None:
            return None
        return X[0][:n] if self.family.aligned else X[4]

    @property
    def scored(self) -> list[Any]:
        """What the probabilities are of."""
        X, y = self.data
        return X if y is None else y

    def ask(self, items: list[Any]) -> tuple[list[Any], list[Any] | None]:
        """``X`` and ``y`` that score these items, all given the one source."""
        return ([self.source(len(item)) for item in items], items) if self.conditional else (items, None)


@cache
def make_data(
    kind: DataKind, lengths: tuple[int, ...], texts: tuple[str, ...], seed: int, n_features: int
) -> list[Any]:
    """Sequences that remember a little, by seed: made once, not to be changed."""
    if kind == "text":
        return list(texts)
    rng = np.random.default_rng(seed)
    if kind == "symbols":
        return [_symbols(n, rng) for n in lengths]
    return [_of_kind(kind, _vectors(n, rng, n_features)) for n in lengths]


def _of_kind(kind: DataKind, vectors: np.ndarray) -> np.ndarray:
    """Some reals, bits and counts that remember a little, from vectors that do; mixed ones have a real first."""
    if kind == "vectors":
        return vectors
    z = (vectors - OFFSET) / SCALES[: vectors.shape[1]]
    if kind == "rounded":
        return CELL * np.rint(z / CELL)
    if kind in ("positive", "amounts"):
        return np.where((z < -1) & (kind == "amounts"), 0.0, np.exp(0.5 * z))
    if kind in ("proportions", "angles"):
        return 1 / (1 + np.exp(-0.5 * z)) if kind == "proportions" else np.angle(np.exp(1j * z))
    whole = np.where(z > 0, 1.0, 0.0) if kind == "bits" else np.rint(np.exp(0.5 * z))
    return np.concatenate([vectors[:, :1], whole[:, 1:]], axis=1) if kind == "mixed" else whole


def _symbols(n: int, rng: np.random.Generator) -> np.ndarray:
    return (rng.integers(N_SYMBOLS) + np.cumsum(rng.random(n) < 0.6)) % N_SYMBOLS


def _vectors(n: int, rng: np.random.Generator, n_features: int) -> np.ndarray:
    z = rng.standard_normal((n, n_features))
    for t in range(1, n):
        z[t] += 0.7 * z[t - 1, ::-1]
    return OFFSET + z * SCALES[:n_features]


def rows(*kinds: DataKind, n_features: int = 2) -> list[Row]:
    """The table, of these kinds: the models that predict steps."""
    return [row for row in scored_rows(*kinds, n_features=n_features) if row.family.predicts_steps]


def scored_rows(*kinds: DataKind, n_features: int = 2) -> list[Row]:
    """``rows``, and those of models that score sequences as a whole."""
    return list(_rows(kinds or (*KINDS, "bits", "counts", "mixed", "rounded", *SOME_REALS), n_features))


def _rows(kinds: tuple[DataKind, ...], n_features: int) -> Iterator[Row]:
    lengths: tuple[Length, ...] = ("given", "stop")
    for family, kind, conditional, length in product(FAMILIES, kinds, (False, True), lengths):
        if (family.source is not None or family.aligned or family.needs_source) and not conditional:
            continue
        if (family.aligned and length == "stop") or length not in family.lengths:
            continue
        if conditional and not family.reads_source:
            continue
        if kind in family.kinds and (kind, length) != ("text", "given"):  # as symbols, of which there are more here
            yield Row(family, kind, conditional, length, n_features)


def halved(table: list[Row]) -> list[Row]:
    """Two of the four rows of a family on one kind of data: x and y|x, one with ends and one without.

    The families of a class take turns in which of the two has ends. For rules of the arithmetic of a family: what
    targets do and what ends do is computed apart, so that the two rows left out, ``x-given`` say, are proved by
    ``x-stop`` and ``y|x-given``. What has fewer than four rows keeps them all.
    """
    return [row for family in _in_turn(table) for row in family]


def quartered(table: list[Row]) -> list[Row]:
    """One row of ``halved`` of a family on one kind of data, in turn; both, where its class has no other family there.

    For rules in which a class of model treats all its families and the four rows alike, so that each class, on each
    kind of data, is tried with and without targets, with and without ends.
    """
    families = _in_turn(table)
    n_families = Counter(map(_alike, families))
    turns: Counter[Any] = Counter()
    kept: list[Row] = []
    for family in families:
        turns[_alike(family)] += 1
        kept += family if n_families[_alike(family)] == 1 else [family[turns[_alike(family)] % len(family)]]
    return kept


def of_each_class(table: list[Row]) -> list[Row]:
    """As few rows of ``quartered`` as show each class on each kind of data with and without targets and ends.

    For rules of code that all models share, which knows a model by its cursor and its steps alone: the other rules hold
    each family to these.
    """
    kept: list[Row] = []
    met: set[Any] = set()
    for row in quartered(table):
        shown = {(_alike([row]), each) for each in (row.conditional, row.length)}
        if not shown <= met:
            kept.append(row)
            met |= shown
    return kept


def one_of_each_class(table: list[Row]) -> list[Row]:
    """One row of each class on each kind of data, in turn with and without targets and ends.

    For rules of code that all models share where one row is enough to see that a class keeps to it.
    """
    of_class: dict[Any, list[Row]] = {}
    for row in of_each_class(table):
        of_class.setdefault(_alike([row]), []).append(row)
    return [found[i % len(found)] for i, found in enumerate(of_class.values())]


def marked(table: list[Row], part: Callable[[list[Row]], list[Row]], *others: Any) -> list[Any]:
    """Return a case for each row and ``others`` beside it, of which those outside of the ``part`` are slow tests."""
    kept = {str(row) for row in part(table)}
    return [pytest.param(row, *others, marks=[] if str(row) in kept else pytest.mark.slow) for row in table]


def _in_turn(table: list[Row]) -> list[list[Row]]:
    """The rows of each family on each kind of data; of four the two with ends and without, or those the other way."""
    groups: dict[tuple[Family, DataKind, int], list[Row]] = {}
    for row in table:
        groups.setdefault((row.family, row.kind, row.n_features), []).append(row)
    turns: Counter[Any] = Counter()
    kept = []
    for group in groups.values():
        turn = turns[_alike(group)] // 2
        kept.append([r for r in group if len(group) < 4 or (r.conditional + (r.length == "stop") + turn) % 2 == 0])
        turns[_alike(group)] += 1
    return kept


def _alike(group: list[Row]) -> tuple[type, DataKind, DataKind | None]:
    """The class of model and the kinds of data of rows of one family."""
    row = group[0]
    return _class_of(row.family), row.kind, row.family.source


@cache
def _class_of(family: Family) -> type:
    return type(Row(family, family.kinds[0], False, family.lengths[0]).model)


@cache
def fitted(row: Row) -> sm.SequenceModel:
    """Fitted briefly, once a session: not to be changed."""
    return row.model.fit(*row.data, validation=None)


@cache
def rough(row: Row) -> sm.SequenceModel:
    """The fitted model with noise in every weight of a network, every share of an n-gram.

    Near their initial values, models would differ too little for errors to show.
    """
    model = copy.deepcopy(fitted(row))
    inner = model.model_ if isinstance(model, sm.Dynamic) else model
    if isinstance(inner, NeuralModel):
        generator = torch.Generator().manual_seed(3)
        for parameter in inner.module_.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data += (0.1 * noise).to(parameter)
    if isinstance(model, sm.NGram):
        model.tables_ = _shaken(model.tables_)
    if isinstance(model, sm.Mixture):
        model.weights_ = _without_preference(model.weights_)
    return model


def _without_preference(weights: Any) -> Any:
    """Every member has a share, and weights follow what is read, so that errors of either show."""
    if isinstance(weights, FixedShare):
        n_models = len(weights.prior)
        rate = 0.2 if 0 < weights.rate < 1 else weights.rate
        return replace(weights, prior=0.5 * weights.prior + 0.5 / n_models, rate=rate)
    if isinstance(weights, DensityGate):
        return replace(weights, bias=0.1 * weights.bias, scale=0.5, rate=0.1, decay=0.5)
    noise = np.random.default_rng(3).normal(0.18, 0.1, weights.weights.shape)
    return replace(weights, weights=noise, rate=0.05 if weights.rate > 0 else 0.0)


def _shaken(tables: Tables) -> Tables:
    """Each gram hands a part of its share down: few counts are equal again, as many are in little data."""
    rng, levels = np.random.default_rng(3), []
    for level in tables.levels:
        share = level.share * rng.uniform(0.8, 1.0, len(level.share))
        context = level.grams // (tables.size + 1)
        backoff = level.backoff + np.bincount(context, level.share - share, len(level.backoff))
        levels.append(replace(level, share=share, backoff=backoff))
    return replace(tables, levels=levels)
