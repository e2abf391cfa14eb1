"""Sets of rows of weights that the models' log-odds choose, in the form that compiled loops take."""

from __future__ import annotations

from typing import NamedTuple


class OddsBins(NamedTuple):
    """The rows of mixing weights among which the models' log-odds of a decision choose, each rounded to a bin.

    A row has a weight for each model.

    Attributes:
        at: index of the first row.
        n_bins: number of bins for the log-odds of one model.
        n_models: number of models, the first ones, whose log-odds are used.
        largest: bins divide the range from ``-largest`` to ``largest``.
    """

    at: int
    n_bins: int
    n_models: int
    largest: float


class Leads(NamedTuple):
    """The rows of mixing weights among which the best model of the last symbols, and its lead over the next, choose.

    A row has a weight for each model. A lead is a difference of mean log-probabilities.

    Attributes:
        at: index of the first row.
        n_levels: number of leads that are distinguished.
        step: difference of two leads, in nats.
        decay: decay of the mean log-probability of the last symbols, by which models are compared.
    """

    at: int
    n_levels: int
    step: float
    decay: float
