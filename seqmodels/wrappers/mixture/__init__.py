"""Mixtures of models: their predictions combined step by step, by weights that are fixed or follow what was read."""

from seqmodels.wrappers.mixture.model import Mixture

__all__ = ["Mixture"]
