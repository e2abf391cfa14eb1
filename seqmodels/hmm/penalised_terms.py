"""The fit of penalised terms of inputs: coefficients by penalised likelihood, their variances by marginal likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.corpus import Corpus
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.given_inputs import regressed_columns
from seqmodels.hmm.learning.given_inputs import InputOptions, PenalisedColumns
from seqmodels.hmm.learning.marginal_likelihood import MarginalLikelihood, Maximum
from seqmodels.hmm.learning.observed_information import ExactObjective
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.standard_errors import FitObjective

if TYPE_CHECKING:
    import pandas as pd

NAMES = {"transition": "transitions", "emission": "emissions", "start": "first_state"}  # as in ChainInputEffects
SLOPES = {"transition": "transition_slopes", "emission": "table_slopes", "start": "initial_slopes"}


@dataclass(frozen=True)
class Block:
    """The coefficients of one term in one regression, which have one variance.

    Attributes:
        term: the term.
        index: the regression: the two states of a transition, state and place of an output parameter, or a first state.
        places: places of the coefficients among the unconstrained numbers, ``(Q,)``.
    """

    term: PenalisedColumns
    index: tuple[int, ...]
    places: Tensor


def blocks_of(options: InputOptions, places: dict[str, Tensor]) -> list[Block]:
    """Return the blocks of penalised coefficients that are free.

    Args:
        options: the terms of each part of the model.
        places: places of slopes among the unconstrained numbers by name, -1 where they are not free.
    """
    blocks = []
    for term in options.terms:
        of_columns = places[SLOPES[term.part]][..., list(term.columns)]  # (..., Q)
        blocks += [Block(term, tuple(i), of_columns[tuple(i)]) for i in (of_columns >= 0).all(-1).nonzero().tolist()]
    return blocks


def exact_objective(objective: FitObjective, emission: Emission, corpus: Corpus, n_inputs: int) -> ExactObjective:
    """Return the objective of ``fit`` with exact second derivatives.

    Args:
        objective: the objective, with its coordinates and its prior.
        emission: the emission of the states.
        corpus: the training data, in float64.
        n_inputs: number of columns that the model reads.
    """
    prior = objective.prior

    def log_prior(parameters: Parameters, table: Tensor) -> Tensor:
        of_tables = prior.emission.log_prior(table) + prior.pseudocount.log_prior(parameters)
        return of_tables + prior.inputs.log_prior(parameters)

    whole = replace(corpus, has_one_matrix=False).batches  # sequences that are not cut into segments
    return ExactObjective(objective.coordinates, emission, whole, log_prior, n_inputs)


def marginal_likelihood(
    objective: ExactObjective, options: InputOptions, *, restricted: bool
) -> tuple[MarginalLikelihood, list[Block]]:
    """Return the marginal likelihood of the variances of all terms, and the blocks of coefficients that have them.

    Args:
        objective: the objective of ``fit``.
        options: the terms of each part of the model.
        restricted: True to integrate out all coefficients of the regressions that have terms, intercepts too; False for
            penalised coefficients alone.
    """
    coordinates, places = objective.coordinates, objective.coordinates.places
    blocks, base = blocks_of(options, places), torch.zeros(coordinates.n, dtype=torch.float64)
    parameters = coordinates.parameters
    slopes = dict(zip(("transition", "emission", "start"), parameters.slopes, strict=True))
    unit = torch.ones_like(base)
    inner = [block.places for block in blocks]
    at_zero = {"transition": places["rows"], "start": places["initial"], "emission": places["table"]}
    for part in {term.part for term in options.terms}:
        name = SLOPES[part]
        is_free = places[name] >= 0
        of_part = slopes[part]
        assert of_part is not None
        base[places[name][is_free]] = of_part[is_free]
        if part == "emission":
            assert objective.places.unit is not None
            unit[places[name][is_free]] = objective.places.unit[..., 1:][is_free]
        if restricted:
            intercepts = at_zero[part]
            if part == "emission":
                intercepts = intercepts[:, regressed_columns(objective.emission).places]
            inner += [places[name][is_free], intercepts[intercepts >= 0]]
    inner_places = torch.unique(torch.cat(inner)) if inner else torch.zeros(0, dtype=torch.int64)
    return MarginalLikelihood(objective, [block.places for block in blocks], inner_places, base / unit), blocks


def terms_table(
    blocks: Sequence[Block], maximum: Maximum, emission: Emission, scale: Tensor, labels: Sequence[Any]
) -> pd.DataFrame:
    """Return a data frame with a row for each term in each regression.

    Args:
        blocks: the blocks of coefficients.
        maximum: their precisions and effective degrees of freedom.
        emission: the emission of the states.
        scale: factor from encoded to raw units of each feature, ``(D,)``.
        labels: names of features or symbols.
    """
    import pandas as pd

    rows = []
    for block, log_precision, edf in zip(blocks, maximum.log_precision.tolist(), maximum.edf.tolist(), strict=True):
        sd, feature = float(np.exp(-0.5 * log_precision)), None
        state = block.index[0]
        if block.term.part == "transition":
            feature = block.index[1]
        elif block.term.part == "emission":
            regression = regressed_columns(emission)
            location = regression.places.index(block.index[1])
            feature, sd = regression.labels(labels)[location], sd * float(regression.units(scale)[location])
        rows.append((NAMES[block.term.part], state, feature, block.term.label, sd, edf + len(block.term.linear)))
    return pd.DataFrame(rows, columns=["part", "state", "feature", "term", "sd", "edf"]).astype(
        {"feature": object, "sd": float, "edf": float}
    )
