"""The row that every table has: steps independent and alike, one Gaussian or one categorical. Below it a model has learned nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from seqmodels.encodings import Encoding, Symbols
from seqmodels.evaluation.fitting import Parts, Plan, Scored, fit_and_score
from seqmodels.hmm import HMM
from seqmodels.measure import IncomparableError, Values, check_comparable
from seqmodels.model import SequenceModel
from seqmodels.observations import Bernoulli, Categorical, Columns, GaussianMixture, Observation, Poisson

NAME = "iid"
WIDEST = 64  # features that get a full covariance matrix; more have a variance each
PSEUDOCOUNT = 0.01  # of each symbol: one that training never had is no reason for a row of -inf


@dataclass(frozen=True)
class Reference:
    """Which row of the table it is ("": none), what a model below it is worse than, and why there is none."""

    name: str = ""
    words: str = ""
    note: str = ""
    scored: Scored | None = None  # None also where the row is one of the user's


def reference_of(models: Mapping[str, SequenceModel], base: SequenceModel, parts: Parts) -> Reference:
    """Of the same measure as ``base``, fitted to the training part; a model of the user's that is called ``iid`` stands for it."""
    kind = parts.test.scored.kind
    words = {"vectors": "independent frames", "text": "independent bytes", "symbols": "independent symbols"}[kind]
    if NAME in models:
        return Reference(NAME, words)
    if parts.train is None:
        return Reference(note=f"No row {NAME!r}: there is no training part to fit one to.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the data the models have warned already
        scored = fit_and_score(NAME, independent(base), parts, Plan(), _nothing)
    if scored.error:
        return Reference(note=f"No row {NAME!r}, which could not be fitted: {scored.error}.")
    try:
        check_comparable({"baseline": base.measure_, NAME: scored.model.measure_})
    except IncomparableError as error:
        return Reference(note=f"No row {NAME!r}: {error}.")
    one = "one Gaussian" if kind == "vectors" and set(base.encoding_.values()) == {"reals"} else words
    return Reference(NAME, one, scored=scored)


def independent(like: SequenceModel) -> HMM:
    """Not fitted: an HMM of one state for the data, the lengths and the condition of a fitted model."""
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
    groups = [(value, len(list(run))) for value, run in groupby(encoding.values())]
    each = [(_of_values(value, n), n) for value, n in groups]
    return each[0][0] if len(each) == 1 else Columns(each)


def _of_values(value: Values, n_features: int) -> Observation:
    gaussian = GaussianMixture(1, "full" if n_features <= WIDEST else "diag")
    return {"reals": gaussian, "bits": Bernoulli(), "counts": Poisson()}[value]


def _nothing(line: str) -> None:
    """It takes no time to wait for."""
