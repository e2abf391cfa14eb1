"""States of a linear-Gaussian system, summed out by the Kalman filter."""

from seqmodels.linear_gaussian.model import LinearGaussian, StateMoments
from seqmodels.linear_gaussian.structures import Level, Seasonal, Trend

__all__ = ["Level", "LinearGaussian", "Seasonal", "StateMoments", "Trend"]
