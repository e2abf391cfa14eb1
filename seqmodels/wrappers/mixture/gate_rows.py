"""Sets of rows of weights that what models gave chooses, as the compiled loop takes them."""

from __future__ import annotations

from typing import NamedTuple


class OddsBins(NamedTuple):
    """The rows ``at ..`` that the log-odds of the first ``n_models`` choose, see ``Layout.binned``."""

    at: int
    n_bins: int
    n_models: int
    largest: float


class Leads(NamedTuple):
    """The rows ``at ..`` that the best model of the last symbols chooses, see ``Layout.lead``."""

    at: int
    n_levels: int
    step: float
    decay: float
