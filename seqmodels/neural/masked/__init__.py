"""Bidirectional models, which are trained to predict masked symbols from both sides and have no likelihood."""

from seqmodels.neural.masked.model import MaskedTransformer

__all__ = ["MaskedTransformer"]
