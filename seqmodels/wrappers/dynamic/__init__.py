"""Networks that go on learning while they read a sequence: dynamic evaluation."""

from seqmodels.wrappers.dynamic.model import Dynamic

__all__ = ["Dynamic"]
