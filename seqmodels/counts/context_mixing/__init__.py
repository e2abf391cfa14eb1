"""Context mixing: each bit of a symbol is predicted by many contexts at once, as in the best compressors."""

from seqmodels.counts.context_mixing.model import ContextMixing

__all__ = ["ContextMixing"]
