"""Comparison of models: the table, its intervals, its pictures; and measures of what they decode."""

from seqmodels.evaluation.alignment_plot import plot_alignment
from seqmodels.evaluation.compare import compare
from seqmodels.evaluation.comparison import Comparison
from seqmodels.evaluation.decoded import bleu, chrf, error_rate, evaluate, exact_match

__all__ = ["Comparison", "bleu", "chrf", "compare", "error_rate", "evaluate", "exact_match", "plot_alignment"]
