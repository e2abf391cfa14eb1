"""Models compared, chosen, audited, and their forecasts scored; the table, its intervals and the report."""

from seqmodels.evaluation.backtest import Backtest, backtest
from seqmodels.evaluation.comparison.compare import compare
from seqmodels.evaluation.comparison.comparison import Comparison
from seqmodels.evaluation.metrics import bleu, chrf, error_rate, evaluate, exact_match, window_loss
from seqmodels.evaluation.prequential import CodeLength, CodeLengths, prequential, prequential_code_lengths
from seqmodels.evaluation.tuning.budget import Budget
from seqmodels.evaluation.tuning.model_selection import ModelSelection, choose
from seqmodels.evaluation.tuning.search import Search
from seqmodels.plot.alignment_matrix import plot_alignment
from seqmodels.plot.confusion_matrix import plot_confusion
from seqmodels.plot.hidden_states import plot_durations, plot_posterior, plot_states, plot_transitions
from seqmodels.plot.one_sequence import plot_frames

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
