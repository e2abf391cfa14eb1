"""Encodings: raw data <-> what a model sees, invertible, with log-determinants."""

from seqmodels.encodings.base import Encoding
from seqmodels.encodings.features import Features
from seqmodels.encodings.standardize import Standardize
from seqmodels.encodings.symbols import Symbols
from seqmodels.encodings.text import BPE, Bytes, Characters

__all__ = ["BPE", "Bytes", "Characters", "Encoding", "Features", "Standardize", "Symbols"]
