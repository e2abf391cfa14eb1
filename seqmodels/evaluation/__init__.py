"""Evaluation of models: comparison, tuning, audit, backtests and forecasts, calibration, compression, and metrics."""

from seqmodels.evaluation.auditing import Audit, audit
from seqmodels.evaluation.backtest import Backtest, backtest
from seqmodels.evaluation.coding import compress, compress_file, decompress, decompress_file
from seqmodels.evaluation.comparison.compare import compare
from seqmodels.evaluation.comparison.comparison import Comparison
from seqmodels.evaluation.forecasting import AutomaticForecast, forecast
from seqmodels.evaluation.loss_by_windows import window_loss
from seqmodels.evaluation.metrics import bleu, chrf, error_rate, evaluate, exact_match
from seqmodels.evaluation.model_check import ModelCheck, check
from seqmodels.evaluation.prequential import CodeLength, CodeLengths, prequential, prequential_code_lengths
from seqmodels.evaluation.tuning.budget import Budget
from seqmodels.evaluation.tuning.model_selection import ModelSelection, choose
from seqmodels.evaluation.tuning.observation_proposals import ObservationProposals, propose_observations
from seqmodels.evaluation.tuning.recipes import Proposal, propose_recipes
from seqmodels.evaluation.tuning.search import Search

__all__ = [
    "Audit",
    "AutomaticForecast",
    "Backtest",
    "Budget",
    "CodeLength",
    "CodeLengths",
    "Comparison",
    "ModelCheck",
    "ModelSelection",
    "ObservationProposals",
    "Proposal",
    "Search",
    "audit",
    "backtest",
    "bleu",
    "check",
    "choose",
    "chrf",
    "compare",
    "compress",
    "compress_file",
    "decompress",
    "decompress_file",
    "error_rate",
    "evaluate",
    "exact_match",
    "forecast",
    "prequential",
    "prequential_code_lengths",
    "propose_observations",
    "propose_recipes",
    "window_loss",
]
