"""Whether a model's figures are log-probabilities: ``audit`` of any ``SequenceModel``, and of models that are not."""

from seqmodels.auditing.auditing import audit
from seqmodels.auditing.findings import Audit, Finding
from seqmodels.auditing.subject import Measured, SequenceSampler, StepScorer, Streamer

__all__ = ["Audit", "Finding", "Measured", "SequenceSampler", "StepScorer", "Streamer", "audit"]
