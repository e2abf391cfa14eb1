"""Comparison of models: the table, its intervals, its pictures."""

from seqmodels.evaluation.compare import compare
from seqmodels.evaluation.comparison import Comparison

__all__ = ["Comparison", "compare"]
