"""Bidirectional models, trained to predict masked symbols from both sides; they have no likelihood."""

from seqmodels.neural.masked.model import MaskedTransformer

__all__ = ["MaskedTransformer"]
