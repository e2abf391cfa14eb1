"""The counting wing: n-grams, the floor that every other model of symbols has to beat."""

from seqmodels.ngram.model import NGram

__all__ = ["NGram"]
