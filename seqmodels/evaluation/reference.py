"""The reference row of every table: steps independent and identically distributed, one Gaussian or one categorical."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from seqmodels.encodings import Encoding, Symbols
from seqmodels.evaluation.fitting import DataParts, FitPlan, ModelResult, fit_and_score
from seqmodels.hmm import HMM
from seqmodels.measure import IncomparableError, Values, check_comparable
from seqmodels.model import SequenceModel
from seqmodels.observations import Bernoulli, Categorical, Columns, GaussianMixture, Observation, Poisson

NAME = "iid"
MAX_FULL_FEATURES = 64  # up to so many features have a full covariance matrix; more have a variance each
PSEUDOCOUNT = 0.01  # of each symbol, so that one that training never had does not make the row -inf


@dataclass(frozen=True)
class Reference:
    """The row of independent steps.

    Attributes:
        name: of the row; "" if there is none.
        words: what a model below it is worse than.
        note: why there is no row.
        result: its figures; None also where the row is one of the user's models.
    """

    name: str = ""
    words: str = ""
    note: str = ""
    result: ModelResult | None = None


def fit_reference(models: Mapping[str, SequenceModel], baseline: SequenceModel, parts: DataParts) -> Reference:
    """Fit the reference to the training part, like ``baseline``; a user's model called ``iid`` takes its place."""
    kind = parts.test.scored.kind
    words = {"vectors": "independent frames", "text": "independent bytes", "symbols": "independent symbols"}[kind]
    if NAME in models:
        return Reference(NAME, words)
    if parts.train is None:
        return Reference(note=f"No row {NAME!r}: there is no training part to fit one to.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the other models have warned about the data already
        result = fit_and_score(NAME, independent_steps(baseline), parts, FitPlan(), lambda line: None)
    if result.error:
        return Reference(note=f"No row {NAME!r}, which could not be fitted: {result.error}.")
    try:
        check_comparable({"baseline": baseline.measure_, NAME: result.model.measure_})
    except IncomparableError as error:
        return Reference(note=f"No row {NAME!r}: {error}.")
    is_gaussian = kind == "vectors" and set(baseline.encoding_.values()) == {"reals"}
    return Reference(NAME, "one Gaussian" if is_gaussian else words, result=replace(result, is_reference=True))


def independent_steps(like: SequenceModel) -> HMM:
    """An unfitted HMM of one state, for the data, the lengths and the condition of a fitted model."""
    measure = like.measure_
    encoding: Encoding | Literal["auto"] = Symbols(like.encoding_.size) if measure.space == "symbols" else "auto"
    return HMM(
        1,
        observation=_observation(like.encoding_),
        encoding=encoding,
        length=measure.length,
        ignore_source=measure.conditional,
        device=like.device,
    )


def _observation(encoding: Encoding) -> Observation:
    if encoding.reads != "vectors":
        return Categorical(pseudocount=PSEUDOCOUNT)
    groups = [(value, len(list(equal))) for value, equal in groupby(encoding.values())]
    columns = [(_observation_of(value, n), n) for value, n in groups]
    return columns[0][0] if len(columns) == 1 else Columns(columns)


def _observation_of(value: Values, n_features: int) -> Observation:
    gaussian = GaussianMixture(1, "full" if n_features <= MAX_FULL_FEATURES else "diag")
    return {"reals": gaussian, "bits": Bernoulli(), "counts": Poisson()}[value]
