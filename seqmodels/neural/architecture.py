"""``Architecture``: the rarer options of a network itself."""

from __future__ import annotations

from dataclasses import dataclass

from seqmodels.common.parameters import Configurable


@dataclass(kw_only=True, eq=False, repr=False)
class Architecture(Configurable):
    """The rarer options of a network itself: the ``architecture`` of a model.

    A network with more such arguments has a class of its own, such as ``TransformerArchitecture``. One argument is
    changed in place by ``model.set_params(architecture__tie_embeddings=True)``.

    Args:
        tie_embeddings: symbols only: whether the output layer has the rows of the table of embeddings (Press and Wolf
            2017), except for the end of a sequence; a source is read by the same table.
        scale_embeddings: whether what is read from a tied table is multiplied by √d_model (Vaswani et al. 2017), which
            GPT-2 leaves out.
    """

    tie_embeddings: bool = False
    scale_embeddings: bool = True
