"""Steps and sequences that a model finds improbable, and which features of them."""

from seqmodels.wrappers.anomalies.detector import Anomalies

__all__ = ["Anomalies"]
