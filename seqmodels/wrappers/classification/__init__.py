"""Classification of sequences: a model for each label, and Bayes' rule."""

from seqmodels.wrappers.classification.model import GenerativeClassifier

__all__ = ["GenerativeClassifier"]
