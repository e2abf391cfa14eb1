"""``SequenceModel``: what all models share, from the check of what ``fit`` is given to the words they are shown in."""

from seqmodels.model.family import NotFittedError
from seqmodels.model.model import SequenceModel

__all__ = ["NotFittedError", "SequenceModel"]
