"""The audit of a model: check that its figures are log-probabilities, for any ``SequenceModel`` or your own model."""

from seqmodels.evaluation.auditing.audited_model import Measured, SequenceSampler, StepScorer, Streamer
from seqmodels.evaluation.auditing.auditing import audit
from seqmodels.evaluation.auditing.findings import Audit, Finding

__all__ = ["Audit", "Finding", "Measured", "SequenceSampler", "StepScorer", "Streamer", "audit"]
