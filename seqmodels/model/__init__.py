"""The base class of every model (``SequenceModel``), with the code that fits, describes, saves and queries a model."""

from seqmodels.model.family import NotFittedError
from seqmodels.model.model import SequenceModel

__all__ = ["NotFittedError", "SequenceModel"]
