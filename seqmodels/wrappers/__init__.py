"""Models made of other models: mixtures, classifiers, detectors, models that adapt, and models of other libraries."""

from seqmodels.wrappers.anomalies import Anomalies
from seqmodels.wrappers.classification import GenerativeClassifier
from seqmodels.wrappers.dynamic_evaluation import Dynamic
from seqmodels.wrappers.mixture import Mixture

__all__ = ["Anomalies", "Dynamic", "GenerativeClassifier", "Mixture"]
