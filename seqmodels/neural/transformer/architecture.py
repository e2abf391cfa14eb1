"""The ``architecture`` of each model of Transformers: its rarer options, and what only published models need."""

from __future__ import annotations

from dataclasses import dataclass

from seqmodels.common.parameters import Configurable
from seqmodels.neural.architecture import Architecture
from seqmodels.neural.transformer.config import LayerOptions


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerArchitecture(LayerOptions, Architecture):
    """The rarer options of a ``Transformer``: its argument ``architecture``.

    Args:
        compile_steps: whether single steps of symbols (``sample``, ``generate``, a stream; up to four sequences, on a
            CPU) are one call of code that numba compiles for one thread, which makes small networks faster and changes
            no figure but for rounding. The first use compiles for some seconds, once on a machine; each process loads
            the code for half a second. Norms, positions and windows that the compiled steps do not know are computed
            as without. Scoring is not changed.
        projections: False: a layer is causal self-attention of its inputs x and nothing else, ``y_t = Σ_{s≤t} w_ts
            x_s`` with ``w_ts = softmax_s(x_t · x_s / √d_head)``, as textbooks introduce it: without the maps to
            queries, keys and values, and without norms, feed-forward and sums with the input, whose arguments then
            mean nothing. ``presets.plain_attention`` is one layer of one head of it, without positions.
        scale_scores: False: scores are ``x_t · x_s`` without the division by ``√d_head``. Only without projections,
            whose weights could undo it.

    The other arguments are described at ``LayerOptions`` and ``Architecture``.
    """

    bias: bool = False
    zero_init: bool = True
    compile_steps: bool = False
    projections: bool = True
    scale_scores: bool = True


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerSeq2SeqArchitecture(LayerOptions, Architecture):
    """The rarer options of a ``TransformerSeq2Seq``: its argument ``architecture``.

    The arguments are described at ``LayerOptions`` and ``Architecture``.
    """

    bias: bool = False
    zero_init: bool = True


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerTaggerArchitecture(LayerOptions, Architecture):
    """The rarer options of a ``TransformerTagger``: its argument ``architecture``.

    The arguments are described at ``LayerOptions`` and ``Architecture``.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class MaskedTransformerArchitecture(LayerOptions, Configurable):
    """The rarer options of a ``MaskedTransformer``: its argument ``architecture``.

    Args:
        tie_embeddings: whether the output layer has the rows of the table of embeddings (Press and Wolf 2017).
        embedding_norm: whether the sum of embedding and position is normalised.
        head_transform: whether a layer, an activation and a norm stand before the output layer.

    Devlin et al. (2019) have these three and ``norm="post"``. The other arguments are described at ``LayerOptions``.
    """

    tie_embeddings: bool = False
    embedding_norm: bool = False
    head_transform: bool = False
