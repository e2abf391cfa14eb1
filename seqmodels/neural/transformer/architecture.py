"""The ``architecture`` of each model of Transformers: its rarer options, and what only published models need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seqmodels.common.parameters import Configurable
from seqmodels.neural.architecture import Architecture
from seqmodels.neural.transformer.config import LayerOptions


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerArchitecture(LayerOptions, Architecture):
    """The rarer options of a ``Transformer``: its argument ``architecture``.

    Args:
        compile_steps: True compiles single steps over symbols (``sample``, ``generate``, a stream; up to four
            sequences, on a CPU) by numba, for one thread. It makes small networks faster and changes results only by
            rounding. The first use compiles for some seconds, once on a machine; each process loads the code for half a
            second. Norms, positions and windows that the compiled steps do not know are computed as without. Scoring is
            not changed.
        projections: False makes each layer causal self-attention of its inputs x and nothing else, ``y_t = Σ_{s≤t} w_ts
            x_s`` with ``w_ts = softmax_s(x_t · x_s / √d_head)``, as textbooks introduce it: without projections to
            queries, keys and values, and without norms, feed-forward layers and residual connections, whose arguments
            then have no effect. ``presets.plain_attention`` is one layer of one head of it, without positions.
        scale_scores: False omits the division of the scores by ``√d_head``; only with ``projections=False``, since
            projections could undo it.

    All other arguments, for tied embeddings, norms, biases, key-value heads and attention dropout, are described at
    ``Architecture`` and ``LayerOptions``.
    """

    bias: bool = False
    zero_init: bool = True
    compile_steps: bool = False
    projections: bool = True
    scale_scores: bool = True


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerSeq2SeqArchitecture(LayerOptions, Architecture):
    """The rarer options of a ``TransformerSeq2Seq``: its argument ``architecture``.

    Tied and scaled embeddings are described at ``Architecture``, and norms, biases, key-value heads, attention dropout
    and initial zeros of the layers at ``LayerOptions``. Other than there, linear maps have no bias, and every sublayer
    adds nothing at first, by default; nor does the convolution of the inputs.

    Args:
        cross_bias: True if the scores of cross-attention have a learned bias for each head and difference of the
            positions in target and source, as those of self-attention have in Raffel et al. (2020), so that a
            decoder whose target roughly follows the order of its source need not learn its place from content alone.
            The bias starts at zero.
    """

    bias: bool = False
    zero_init: bool = True
    cross_bias: bool = True

    _lacked: ClassVar[Mapping[str, Any]] = {"cross_bias": False}


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerTaggerArchitecture(LayerOptions, Architecture):
    """The rarer options of a ``TransformerTagger``: its argument ``architecture``.

    They are tied and scaled embeddings, described at ``Architecture``, and norms, biases, key-value heads, attention
    dropout and initial zeros of the layers, described at ``LayerOptions``.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class MaskedTransformerArchitecture(LayerOptions, Configurable):
    """The rarer options of a ``MaskedTransformer``: its argument ``architecture``.

    Args:
        tie_embeddings: True if the output layer and the embedding share one matrix (Press and Wolf 2017).
        embedding_norm: True to normalise the sum of embedding and position.
        head_transform: True for a linear layer, an activation and a norm before the output layer.

    Devlin et al. (2019) have these three and ``norm="post"``. All other arguments, for norms, biases, key-value heads
    and attention dropout, are described at ``LayerOptions``.
    """

    tie_embeddings: bool = False
    embedding_norm: bool = False
    head_transform: bool = False
