"""Automatic forecasts: models tried on the last part of a series, and the best averaged."""

from seqmodels.evaluation.forecasting.forecasting import AutomaticForecast, forecast

__all__ = ["AutomaticForecast", "forecast"]
