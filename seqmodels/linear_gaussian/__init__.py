"""Linear-Gaussian state-space models, whose hidden states the Kalman filter sums out."""

from seqmodels.linear_gaussian.model import LinearGaussian, StateMoments
from seqmodels.linear_gaussian.structures import (
    ARIMA,
    Cycle,
    LocalLevel,
    OrnsteinUhlenbeck,
    Seasonal,
    SmoothTrend,
    Trend,
)
from seqmodels.linear_gaussian.switching import SwitchingLinearGaussian

__all__ = [
    "ARIMA",
    "Cycle",
    "LinearGaussian",
    "LocalLevel",
    "OrnsteinUhlenbeck",
    "Seasonal",
    "SmoothTrend",
    "StateMoments",
    "SwitchingLinearGaussian",
    "Trend",
]
