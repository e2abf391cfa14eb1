"""Automatic forecasts: models are tried on the last part of a series, and the best are averaged."""

from seqmodels.evaluation.forecasting.forecasting import AutomaticForecast, forecast

__all__ = ["AutomaticForecast", "forecast"]
