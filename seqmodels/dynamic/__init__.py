"""Networks that go on learning while they read a sequence: dynamic evaluation."""

from seqmodels.dynamic.model import Dynamic

__all__ = ["Dynamic"]
