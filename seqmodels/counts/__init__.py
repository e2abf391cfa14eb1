"""Models of symbols based on counts: n-grams, context trees and context mixing."""

from seqmodels.counts.context_mixing import ContextMixing
from seqmodels.counts.context_tree import ContextTree
from seqmodels.counts.ngram import NGram

__all__ = ["ContextMixing", "ContextTree", "NGram"]
