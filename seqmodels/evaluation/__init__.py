"""Comparison of models: the table, its intervals, its pictures; and measures of what they decode."""

from seqmodels.evaluation.alignment_plot import plot_alignment
from seqmodels.evaluation.budget import Budget
from seqmodels.evaluation.compare import compare
from seqmodels.evaluation.comparison import Comparison
from seqmodels.evaluation.decoded import bleu, chrf, error_rate, evaluate, exact_match
from seqmodels.evaluation.search import Search
from seqmodels.evaluation.windows import window_loss

__all__ = [
    "Budget",
    "Comparison",
    "Search",
    "bleu",
    "chrf",
    "compare",
    "error_rate",
    "evaluate",
    "exact_match",
    "plot_alignment",
    "window_loss",
]
