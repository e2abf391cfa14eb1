"""Prediction by partial matching with contexts of unbounded length, which goes on learning while it reads."""

from seqmodels.ppm.model import PPM

__all__ = ["PPM"]
