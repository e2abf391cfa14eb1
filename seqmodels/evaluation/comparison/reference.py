"""The reference row of a comparison: independent and identically distributed steps, one Gaussian or one categorical."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from seqmodels.encodings import Encoding, Grid, Intervals, OpenSymbols, Symbols
from seqmodels.evaluation.comparison.fit_and_score import fit_and_score
from seqmodels.evaluation.comparison.model_results import ModelResult
from seqmodels.evaluation.comparison.plan import DataParts, FitPlan
from seqmodels.hmm import HMM
from seqmodels.model import SequenceModel
from seqmodels.observations import (
    Bernoulli,
    Categorical,
    Columns,
    Gamma,
    GaussianMixture,
    IntervalCensored,
    Observation,
    Poisson,
    Rounded,
    ZeroInflated,
)
from seqmodels.sequences.mapped import MappedArray
from seqmodels.sequences.measure import SPACES, IncomparableError, check_comparable

REFERENCE_NAME = "iid"
MAX_FULL_FEATURES = 64  # vectors with more features get a diagonal covariance matrix
PSEUDOCOUNT = 0.01  # added to the count of each symbol, because one that training lacks would make the row -inf


@dataclass(frozen=True)
class Reference:
    """The row ``iid`` of a comparison: a model of independent and identically distributed steps.

    Attributes:
        name: name of its row; empty if there is none.
        description: words for the model, such as "one Gaussian".
        note: sentence that says why there is no row; empty if there is one.
        result: its scores; None if there is no row, or if the row is one of the user's models.
    """

    name: str = ""
    description: str = ""
    note: str = ""
    result: ModelResult | None = None


def fit_reference(models: Mapping[str, SequenceModel], like: SequenceModel, parts: DataParts) -> Reference:
    """Fit a model of independent and identically distributed steps to the training part, and score it on the test part.

    If one of the user's models is called ``iid``, it is the reference instead. If there is no training part, the
    fit fails, or its scores cannot be compared with those of ``like``, the result's ``note`` says so.

    Args:
        models: the user's models by name.
        like: a fitted model whose kind of data and measure the reference has.
        parts: training, validation and test data.
    """
    kind = parts.test.scored.kind
    unit = {"vectors": "frames", "text": "bytes", "symbols": "symbols"}[kind]
    description = f"independent {unit}"
    if REFERENCE_NAME in models:
        return Reference(REFERENCE_NAME, description)
    if parts.train is None:
        return Reference(note=f"No row {REFERENCE_NAME!r}: there is no training part to fit one to.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # because the other models have warned about the data already
        model = independent_steps(like)
        if any(isinstance(item, MappedArray) for item in (*parts.train.X, *parts.train.scored)):
            model.set_params(algorithm="stepwise", training__batches=1)  # plain EM, of what is read a part at a time
        (result,) = fit_and_score({REFERENCE_NAME: model}, parts, FitPlan(), lambda line: None)
    if result.error:
        return Reference(note=f"No row {REFERENCE_NAME!r}, which could not be fitted: {result.error}.")
    try:
        check_comparable({"baseline": like.measure_, REFERENCE_NAME: result.model.measure_})
    except IncomparableError as error:
        return Reference(note=f"No row {REFERENCE_NAME!r}: {error}.")
    is_gaussian = kind == "vectors" and set(like.encoding_.values()) == {"reals"}
    result = replace(result, is_reference=True)
    return Reference(REFERENCE_NAME, "one Gaussian" if is_gaussian else description, result=result)


def independent_steps(like: SequenceModel) -> HMM:
    """Return an unfitted model of independent steps, an HMM with one state, that measures the same as ``like``.

    It has the same alphabet, rule for lengths and device, and ignores the source x of p(y | x).

    Args:
        like: a fitted model.
    """
    measure = like.measure_
    return HMM(
        1,
        observation=_observation(like.encoding_),
        encoding=_alphabet(like.encoding_) if measure.space == "symbols" else "auto",
        length=measure.length,
        ignore_source=measure.conditional,
        device=like.device,
    )


def _alphabet(encoding: Encoding) -> Encoding:
    """Return an encoding of symbols that states the alphabet of the fitted ``encoding``."""
    if isinstance(encoding, OpenSymbols):
        return OpenSymbols(encoding.known_.tolist(), encoding.n_stated)
    return Symbols(encoding.size)


def _observation(encoding: Encoding) -> Observation:
    if encoding.reads != "vectors":
        return Categorical(pseudocount=PSEUDOCOUNT)
    if isinstance(encoding, Grid):
        return Rounded(GaussianMixture(1), encoding.width, encoding.origin)
    if isinstance(encoding, Intervals):
        return IntervalCensored(GaussianMixture(1))
    columns: list[tuple[Observation, int]] = []
    for space, features in groupby(SPACES[value] for value in encoding.values()):
        n_features = len(list(features))
        gaussian = GaussianMixture(1, "full" if n_features <= MAX_FULL_FEATURES else "diag")
        of_space = {"R": gaussian, "{0,1}": Bernoulli(), "N": Poisson(), SPACES["amounts"]: ZeroInflated(Gamma())}
        columns.append((of_space[space], n_features))
    return columns[0][0] if len(columns) == 1 else Columns(columns)
