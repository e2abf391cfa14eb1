"""The audit of a model: check that its figures are log-probabilities, for any ``SequenceModel`` or your own model."""

from seqmodels.evaluation.auditing.auditing import audit
from seqmodels.evaluation.auditing.findings import Audit, Finding
from seqmodels.evaluation.auditing.subject import Measured, SequenceSampler, StepScorer, Streamer

__all__ = ["Audit", "Finding", "Measured", "SequenceSampler", "StepScorer", "Streamer", "audit"]
