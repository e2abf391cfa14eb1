"""Detection of steps and sequences that a model finds improbable, and of the features that make them so."""

from seqmodels.wrappers.anomalies.detector import Anomalies

__all__ = ["Anomalies"]
