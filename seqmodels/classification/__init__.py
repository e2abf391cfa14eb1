"""Which label has a sequence? A model for each label, and Bayes' rule."""

from seqmodels.classification.model import GenerativeClassifier

__all__ = ["GenerativeClassifier"]
