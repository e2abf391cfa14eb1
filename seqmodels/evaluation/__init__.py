"""Comparison of models: the table, its intervals, plots and report; and metrics of what models decode."""

from seqmodels.evaluation.budget import Budget
from seqmodels.evaluation.compare import compare
from seqmodels.evaluation.comparison import Comparison
from seqmodels.evaluation.metrics import bleu, chrf, error_rate, evaluate, exact_match, window_loss
from seqmodels.evaluation.plots.alignment import plot_alignment
from seqmodels.evaluation.search import Search

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
