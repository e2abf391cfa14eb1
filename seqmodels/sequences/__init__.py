"""Raw sequences: vectors, texts, symbols; with names, labels, clusters and times, in memory or on disk; their units."""

from seqmodels.sequences.measure import IncomparableError, Measure
from seqmodels.sequences.sequences import Item, Kind, Sequences, as_sequences

__all__ = ["IncomparableError", "Item", "Kind", "Measure", "Sequences", "as_sequences"]
