"""Comparison of models: the table, its intervals, plots and report; and metrics of what models decode."""

from seqmodels.evaluation.backtest import Backtest, backtest
from seqmodels.evaluation.budget import Budget
from seqmodels.evaluation.compare import compare
from seqmodels.evaluation.comparison import Comparison
from seqmodels.evaluation.frames import plot_frames
from seqmodels.evaluation.metrics import bleu, chrf, error_rate, evaluate, exact_match, window_loss
from seqmodels.evaluation.model_selection import ModelSelection, choose
from seqmodels.evaluation.plots.alignment import plot_alignment
from seqmodels.evaluation.plots.confusion import plot_confusion
from seqmodels.evaluation.prequential import CodeLength, CodeLengths, prequential, prequential_code_lengths
from seqmodels.evaluation.search import Search
from seqmodels.evaluation.states import plot_durations, plot_posterior, plot_states, plot_transitions

__all__ = [
    "Backtest",
    "Budget",
    "CodeLength",
    "CodeLengths",
    "Comparison",
    "ModelSelection",
    "Search",
    "backtest",
    "bleu",
    "choose",
    "chrf",
    "compare",
    "error_rate",
    "evaluate",
    "exact_match",
    "plot_alignment",
    "plot_confusion",
    "plot_durations",
    "plot_frames",
    "plot_posterior",
    "plot_states",
    "plot_transitions",
    "prequential",
    "prequential_code_lengths",
    "window_loss",
]
