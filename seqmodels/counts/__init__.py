"""Models of symbols that count: n-grams, context trees, context mixing."""

from seqmodels.counts.context_mixing import ContextMixing
from seqmodels.counts.context_tree import ContextTree
from seqmodels.counts.ngram import NGram

__all__ = ["ContextMixing", "ContextTree", "NGram"]
