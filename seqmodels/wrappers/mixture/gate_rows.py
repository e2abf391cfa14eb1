"""Sets of rows of weights that the models' log-odds choose, in the form that compiled loops take."""

from __future__ import annotations

from typing import NamedTuple


class OddsBins(NamedTuple):
    """The rows of weights from ``at`` on that the log-odds of the first ``n_models`` choose; see ``Layout.binned``."""

    at: int
    n_bins: int
    n_models: int
    largest: float


class Leads(NamedTuple):
    """The rows of weights from ``at`` on that the best model of the last symbols chooses; see ``Layout.lead``."""

    at: int
    n_levels: int
    step: float
    decay: float
