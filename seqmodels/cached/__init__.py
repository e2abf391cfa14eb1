"""Models of symbols with a cache of what a sequence has had so far."""

from seqmodels.cached.model import Cached

__all__ = ["Cached"]
