"""Models based on counts of n-grams, the baseline for every other model of symbols."""

from seqmodels.counts.ngram.model import NGram

__all__ = ["NGram"]
