"""Models that see both ways: trained to predict what is hidden, without a likelihood."""

from seqmodels.neural.masked.transformer import MaskedTransformer

__all__ = ["MaskedTransformer"]
