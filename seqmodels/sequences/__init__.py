"""Raw sequences of vectors, text or symbols with their names, labels, clusters and times."""

from seqmodels.sequences.measure import IncomparableError, Measure
from seqmodels.sequences.sequences import Item, Kind, Sequences, as_sequences

__all__ = ["IncomparableError", "Item", "Kind", "Measure", "Sequences", "as_sequences"]
