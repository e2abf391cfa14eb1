"""Context mixing: bits of a symbol predicted by many contexts at once, in the manner of the best compressors."""

from seqmodels.counts.context_mixing.model import ContextMixing

__all__ = ["ContextMixing"]
