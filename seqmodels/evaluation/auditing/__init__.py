"""Whether a model's figures are log-probabilities: ``audit`` of any ``SequenceModel``, and of models that are not."""

from seqmodels.evaluation.auditing.auditing import audit
from seqmodels.evaluation.auditing.findings import Audit, Finding
from seqmodels.evaluation.auditing.subject import Measured, SequenceSampler, StepScorer, Streamer

__all__ = ["Audit", "Finding", "Measured", "SequenceSampler", "StepScorer", "Streamer", "audit"]
