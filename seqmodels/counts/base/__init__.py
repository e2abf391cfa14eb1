"""What models of symbols that count share: the model, a sequence as it is read, what it teaches, and the cursor."""

from seqmodels.counts.base.model import CountModel, n_weighted_units
from seqmodels.counts.base.row import EventRow

__all__ = ["CountModel", "EventRow", "n_weighted_units"]
