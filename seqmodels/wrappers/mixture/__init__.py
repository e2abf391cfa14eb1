"""Mixtures of models, whose predictions are combined step by step by weights that are fixed or adaptive."""

from seqmodels.wrappers.mixture.model import Mixture

__all__ = ["Mixture"]
