"""Comparison of models: the table, its intervals, its pictures."""

from seqmodels.evaluation.alignment_plot import plot_alignment
from seqmodels.evaluation.compare import compare
from seqmodels.evaluation.comparison import Comparison

__all__ = ["Comparison", "compare", "plot_alignment"]
