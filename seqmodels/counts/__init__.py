"""Models of symbols that count: n-grams, context trees, context mixing."""

from typing import TYPE_CHECKING

from seqmodels.common.lazy import lazily

if TYPE_CHECKING:
    from seqmodels.counts.context_mixing import ContextMixing
    from seqmodels.counts.context_tree import ContextTree
    from seqmodels.counts.ngram import NGram

__getattr__, __dir__ = lazily(
    __name__, {"context_mixing": ("ContextMixing",), "context_tree": ("ContextTree",), "ngram": ("NGram",)}
)

__all__ = ["ContextMixing", "ContextTree", "NGram"]
