"""Context-tree weighting: a mixture over Markov models of every variable order that learns while it reads."""

from seqmodels.counts.context_tree.model import ContextTree

__all__ = ["ContextTree"]
