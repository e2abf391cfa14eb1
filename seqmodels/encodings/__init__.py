"""Encodings: invertible maps from raw data to the values that a model sees, with their log-determinants."""

from seqmodels.encodings.auto_series import AutoSeries
from seqmodels.encodings.base import Encoding
from seqmodels.encodings.differences import Differences
from seqmodels.encodings.intervals import Grid, Intervals
from seqmodels.encodings.open_symbols import OpenSymbols
from seqmodels.encodings.power_transform import BoxCox, Log
from seqmodels.encodings.quantize import Quantize
from seqmodels.encodings.running_scale import RunningScale
from seqmodels.encodings.series import Chain
from seqmodels.encodings.symbols import Symbols
from seqmodels.encodings.text import BPE, Bytes, Characters
from seqmodels.encodings.vectors import Features, Standardize

__all__ = [
    "BPE",
    "AutoSeries",
    "BoxCox",
    "Bytes",
    "Chain",
    "Characters",
    "Differences",
    "Encoding",
    "Features",
    "Grid",
    "Intervals",
    "Log",
    "OpenSymbols",
    "Quantize",
    "RunningScale",
    "Standardize",
    "Symbols",
]
