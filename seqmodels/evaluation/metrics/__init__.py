"""Metrics of decoded sequences: functions of references and hypotheses that return a number."""

from seqmodels.evaluation.metrics.errors import edit_distances, error_rate, exact_match
from seqmodels.evaluation.metrics.evaluate import evaluate
from seqmodels.evaluation.metrics.translation import bleu, chrf

__all__ = ["bleu", "chrf", "edit_distances", "error_rate", "evaluate", "exact_match"]
