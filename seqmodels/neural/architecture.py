"""``Architecture``: the rarer options of a network itself."""

from __future__ import annotations

from dataclasses import dataclass

from seqmodels.common.parameters import Configurable


@dataclass(kw_only=True, eq=False, repr=False)
class Architecture(Configurable):
    """The rarer options of a network itself: the argument ``architecture`` of a model.

    A network with more such arguments has a class of its own, such as ``TransformerArchitecture``. One argument is
    changed in place by ``model.set_params(architecture__tie_embeddings=True)``.

    Args:
        tie_embeddings: symbols only: True if the output layer and the input embedding share one matrix (Press and Wolf
            2017), except the output for the end of a sequence; a source is embedded by the same matrix.
        scale_embeddings: True multiplies embeddings by √d_model (Vaswani et al. 2017) if they are tied; GPT-2 does not.
    """

    tie_embeddings: bool = False
    scale_embeddings: bool = True
