"""Dynamic evaluation: networks that go on learning while they read a sequence."""

from seqmodels.wrappers.dynamic_evaluation.model import Dynamic

__all__ = ["Dynamic"]
