"""An unknown offset of vectors (the bias of a speaker or a sensor) around a model, inferred as a sequence is read."""

from seqmodels.wrappers.offsets.model import LatentOffset

__all__ = ["LatentOffset"]
