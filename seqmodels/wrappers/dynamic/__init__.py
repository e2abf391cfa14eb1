"""Dynamic evaluation: networks that go on learning while they read a sequence."""

from seqmodels.wrappers.dynamic.model import Dynamic

__all__ = ["Dynamic"]
