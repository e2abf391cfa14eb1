"""Penalised terms of inputs: their coefficients among the parameters of a model, and the table of their variances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.hmm.coordinates import Coordinates
from seqmodels.hmm.corpus import Corpus
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.emissions.given_inputs import regressed_columns
from seqmodels.hmm.learning.given_inputs import InputOptions, PenalisedColumns, reference_first
from seqmodels.hmm.learning.marginal_likelihood import WEAK, MarginalLikelihood, Maximum
from seqmodels.hmm.observed_information import ExactObjective
from seqmodels.hmm.parameters import SLOPES as SLOPES_OF_PARTS
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.standard_errors import FitObjective, Information, Penalty, hessian, wald_interval

if TYPE_CHECKING:
    import pandas as pd

STEP = 1e-2  # of the differences of the gradient of the marginal likelihood
NO_EFFECTS = 1e-4  # effective degrees of freedom of a term that has vanished
LARGEST_SD = 10.0  # of a term: effects of one such deviation multiply odds by 22,000, and no data distinguish more
# As in ChainInputEffects.
NAMES = {"transition": "transitions", "emission": "emissions", "start": "first_state", "duration": "durations"}
COLUMNS: dict[str, Any] = {
    "part": object,
    "state": "int64",
    "feature": object,
    "term": object,
    "sd": float,
    "edf": float,
}
SLOPES = dict(zip(NAMES, SLOPES_OF_PARTS, strict=True))


@dataclass(frozen=True)
class Block:
    """The coefficients of one term in one regression, which have one variance.

    Attributes:
        term: the term.
        index: the regression: the two states of a transition, state and place of an output parameter, or a first state.
        places: places of the coefficients among the unconstrained numbers, ``(Q,)``.
        unit: change of a coefficient with its number.
    """

    term: PenalisedColumns
    index: tuple[int, ...]
    places: Tensor
    unit: float

    def row(self, emission: Emission, labels: Sequence[Any]) -> tuple[str, int, Any, str]:
        """Return part, state, feature and term of its row in the table of terms.

        Args:
            emission: the emission of the states.
            labels: names of features or symbols.
        """
        feature = None
        if self.term.part == "transition":
            feature = self.index[1]
        elif self.term.part == "emission":
            regression = regressed_columns(emission)
            feature = regression.labels(labels)[regression.places.index(self.index[1])]
        return NAMES[self.term.part], self.index[0], feature, self.term.label

    def scale(self, emission: Emission, scale: Tensor) -> float:
        """Return the factor from encoded to raw units of what the term is added to.

        Args:
            emission: the emission of the states.
            scale: that factor of each feature, ``(D,)``.
        """
        if self.term.part != "emission":
            return 1.0
        regression = regressed_columns(emission)
        return float(regression.units(scale)[regression.places.index(self.index[1])])


@dataclass(frozen=True)
class Coefficients:
    """The coefficients on inputs among the P unconstrained numbers u of a model with penalised terms.

    Attributes:
        blocks: blocks of coefficients with one variance.
        base: slope of each number at ``u = 0``, divided by its unit, ``(P,)``; zero for numbers that are no slopes.
    """

    blocks: list[Block]
    base: Tensor

    @classmethod
    def of(cls, coordinates: Coordinates, options: InputOptions) -> Coefficients:
        """Return the coefficients of a model.

        Args:
            coordinates: the map from the unconstrained numbers to parameters.
            options: the terms of each part of the model.
        """
        places, base = coordinates.places, torch.zeros(coordinates.n, dtype=torch.float64)
        unit = torch.ones_like(base)
        for part, slopes in zip(SLOPES, coordinates.parameters.slopes, strict=True):
            if slopes is not None:
                is_free = places[SLOPES[part]] >= 0
                unit[places[SLOPES[part]][is_free]] = coordinates.units[SLOPES[part]][is_free]
                base[places[SLOPES[part]][is_free]] = (slopes / coordinates.units[SLOPES[part]])[is_free]
        blocks = []
        for term in options.terms:
            of_columns = places[SLOPES[term.part]][..., list(term.columns)]  # (..., Q)
            for i in (of_columns >= 0).all(-1).nonzero().tolist():
                each = of_columns[tuple(i)]
                blocks.append(Block(term, tuple(i), each, float(unit[each[0]])))
        return cls(blocks, base)

    def penalty(self, sds: Sequence[float]) -> Penalty:
        """Return the penalty of the numbers, given the standard deviation of the coefficients of each block."""
        precision = torch.zeros_like(self.base)
        for block, value in zip(self.blocks, log_precisions(self.blocks, sds).exp(), strict=True):
            precision[block.places] = value
        return Penalty(precision, self.base)


def exact_objective(
    objective: FitObjective, corpus: Corpus, n_inputs: int, of_chain: type[ExactObjective]
) -> ExactObjective:
    """Return the objective of ``fit`` with exact second derivatives.

    Args:
        objective: the objective, with its coordinates and its prior.
        corpus: the training data, in float64.
        n_inputs: number of columns that the model reads.
        of_chain: class of the objective of the model's chain.
    """
    prior = objective.prior

    def log_prior(parameters: Parameters, table: Tensor) -> Tensor:
        of_tables = prior.emission.log_prior(table) + prior.pseudocount.log_prior(parameters)
        return of_tables + prior.inputs.log_prior(parameters)

    whole = replace(corpus, has_one_matrix=False).batches  # sequences that are not cut into segments
    return of_chain(objective.coordinates, objective.coordinates.emission, whole, log_prior, n_inputs)


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
    places, emission = objective.coordinates.places, objective.emission
    coefficients = Coefficients.of(objective.coordinates, options)
    inner = [block.places for block in coefficients.blocks]
    at_zero = {"transition": places["rows"], "start": places["initial"], "emission": places["table"]}
    at_zero["duration"] = objective.places.duration[:, -1:, 0]
    for part in {term.part for term in options.terms} if restricted else ():
        of_part, intercepts = places[SLOPES[part]], at_zero[part]
        if part == "emission":
            intercepts = intercepts[:, regressed_columns(emission).places]
        inner += [of_part[of_part >= 0], intercepts[intercepts >= 0]]
    of_blocks, integrated = [block.places for block in coefficients.blocks], torch.unique(torch.cat(inner))
    base, weak = coefficients.base.clone(), torch.zeros_like(coefficients.base)
    weak[integrated] = WEAK
    weak[torch.cat(of_blocks)] = 0.0
    for name, at in objective.coordinates.bases.items():
        if name in SLOPES.values():
            continue
        values = at / objective.coordinates.units[name] if name == "table" else at - at.amax(-1, keepdim=True)
        is_free = places[name] >= 0
        base[places[name][is_free]] = values[is_free]
        if name != "table":
            weak[places[name][is_free]] = WEAK
    return MarginalLikelihood(
        objective, of_blocks, integrated, base, weak, largest_sds(coefficients.blocks, objective)
    ), coefficients.blocks


def largest_sds(blocks: Sequence[Block], objective: ExactObjective) -> Tensor:
    """Return the upper bound of the standard deviation of the numbers of each of B blocks, ``(B,)``.

    It is ``LARGEST_SD`` on the scale of the linear predictor that the term is added to: log-odds and logarithms, or for
    means multiples of the standard deviation of their feature over all frames. Columns of terms have a mean square of
    about one over the steps, so that it is that of what the term adds to the predictor.

    Args:
        blocks: the blocks of coefficients.
        objective: the objective of ``fit``, with the data.
    """
    frames = torch.cat([batch.x for batch in objective.batches])
    scale = frames.new_ones(objective.emission.size, dtype=torch.float64)
    if frames.is_floating_point():
        values = frames.double().numpy()
        scale = torch.as_tensor(np.sqrt(np.nanvar(values, 0)))
    result = []
    for block in blocks:
        largest = LARGEST_SD
        if block.term.part == "emission":
            regression = regressed_columns(objective.emission)
            largest *= float(regression.units(scale)[regression.places.index(block.index[1])])
        result.append(largest / block.unit)
    return torch.tensor(result, dtype=torch.float64)


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
    rows: list[tuple[Any, ...]] = []
    for block, log_precision, edf in zip(blocks, maximum.log_precision.tolist(), maximum.edf.tolist(), strict=True):
        sd = block.unit * float(np.exp(-0.5 * log_precision)) * block.scale(emission, scale)
        rows.append((*block.row(emission, labels), sd, edf + len(block.term.linear)))
    columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS)
    return terms_from_arrays(dict(zip(COLUMNS, map(list, columns), strict=True)))


def warn_of_terms(terms: pd.DataFrame, maximum: Maximum) -> None:
    """Warn of standard deviations at their bound or of a flat likelihood, and of a likelihood without a maximum.

    Args:
        terms: the table, as ``terms_table`` returns it.
        maximum: the maximum of the marginal likelihood.
    """
    if maximum.is_quasi:
        warn_caller(
            "the marginal likelihood of the terms has no maximum in Laplace's approximation, as where the effects of a "
            "group have two modes; converged_ is False, and their standard deviations are those of penalised "
            "quasi-likelihood"
        )
    for which, what in (
        (maximum.is_largest, f"is at its upper bound, {LARGEST_SD:g} on the scale of the linear predictor"),
        (maximum.is_flat, "is not determined by the data, because their marginal likelihood hardly depends on it"),
    ):
        rows = terms[which.numpy()]
        if len(rows):
            named = ", ".join(f"{row['term']} of {regression_in_words(row)}" for row in rows.to_dict("records"))
            warn_caller(
                f"the standard deviation of {named} {what}; leave the term out, or pass more groups or longer sequences"
            )


def regression_in_words(row: dict[Any, Any]) -> str:
    """Return the regression of a row of the table of terms in words, such as "transitions from state 0 to state 1"."""
    if row["part"] == NAMES["transition"]:
        return f"transitions from state {row['state']} to state {row['feature']}"
    if row["part"] == NAMES["start"]:
        return f"first state {row['state']}"
    if row["part"] == NAMES["duration"]:
        return f"durations of state {row['state']}"
    return f"emissions of state {row['state']} and feature {row['feature']!r}"


def rows_of_blocks(
    terms: pd.DataFrame, blocks: Sequence[Block], emission: Emission, labels: Sequence[Any]
) -> pd.DataFrame:
    """Return the rows of the table of terms in the order of blocks of coefficients.

    There are fewer blocks than rows where the fit ended with probabilities on a boundary, whose slopes no longer move.

    Args:
        terms: the table, as ``terms_table`` returns it.
        blocks: the blocks, each of which has a row.
        emission: the emission of the states.
        labels: names of features or symbols.
    """
    keys = zip(*(terms[column].tolist() for column in ("part", "state", "feature", "term")), strict=True)
    number = {key: i for i, key in enumerate(keys)}
    return terms.iloc[[number[block.row(emission, labels)] for block in blocks]]


def encoded_sds(terms: pd.DataFrame, blocks: Sequence[Block], emission: Emission, scale: Tensor) -> list[float]:
    """Return the standard deviation of the coefficients of each block in encoded units, from the table of terms.

    Args:
        terms: the rows of the blocks, as ``rows_of_blocks`` returns them.
        blocks: the blocks of coefficients.
        emission: the emission of the states.
        scale: factor from encoded to raw units of each feature, ``(D,)``.
    """
    return [sd / block.scale(emission, scale) for sd, block in zip(terms["sd"].tolist(), blocks, strict=True)]


def log_precisions(blocks: Sequence[Block], sds: Sequence[float]) -> Tensor:
    """Return the log-precision of the numbers of each block, ``(B,)``, given standard deviations of coefficients."""
    each = [block.unit / sd for block, sd in zip(blocks, sds, strict=True)]
    return 2 * torch.tensor(each, dtype=torch.float64).log()


def errors_of_log_sds(marginal: MarginalLikelihood, log_precision: Tensor) -> Tensor:
    """Return the standard errors of the logarithms of the standard deviations of B blocks, ``(B,)``.

    They follow from minus the Hessian of the marginal likelihood V at its maximum, by the log-precisions and the
    numbers that are not integrated out. An error is infinite where V is flat.

    Args:
        marginal: the marginal likelihood, of numbers that are zero at its maximum.
        log_precision: logarithms of the precisions of the blocks there, ``(B,)``.
    """
    u, n = torch.zeros_like(marginal.base), len(marginal.outer)
    at = torch.cat([u[marginal.outer], log_precision])
    information = Information.of(-hessian(lambda outer: marginal.value_and_gradient(outer, u)[1], at, STEP))
    of_log_sd = -0.5 * torch.eye(len(at), dtype=torch.float64)[n:]
    errors = (of_log_sd @ information.root).square().sum(1).sqrt()
    return errors.where(information.is_identified(of_log_sd), torch.inf)


def has_vanished(terms: pd.DataFrame, blocks: Sequence[Block]) -> list[bool]:
    """Return whether the standard deviation of each block is estimated as zero, from the table of terms.

    It then is at the smallest value that the fit tries, where the effects have less than ``NO_EFFECTS`` degrees of
    freedom.
    """
    return [edf - len(block.term.linear) < NO_EFFECTS for edf, block in zip(terms["edf"].tolist(), blocks, strict=True)]


def vanished_slopes(
    terms: pd.DataFrame, blocks: Sequence[Block], emission: Emission
) -> frozenset[tuple[str, tuple[int, ...]]]:
    """Return name and index, as ``Estimate`` has them, of the slopes of terms that vanish, from the table of terms."""
    slopes = set()
    for block, is_zero in zip(blocks, has_vanished(terms, blocks), strict=True):
        index = block.index
        if block.term.part == "emission":
            index = index[0], regressed_columns(emission).places.index(index[1])
        name = "emission_slopes" if block.term.part == "emission" else SLOPES[block.term.part]
        slopes |= {(name, (*index, column)) for column in block.term.columns if is_zero}
    return frozenset(slopes)


def with_intervals(
    terms: pd.DataFrame, blocks: Sequence[Block], marginal: MarginalLikelihood, sds: Sequence[float], level: float
) -> pd.DataFrame:
    """Return rows of the table of terms with a standard error and an interval of each standard deviation.

    Args:
        terms: the rows of the blocks, as ``rows_of_blocks`` returns them.
        blocks: the blocks of coefficients.
        marginal: the marginal likelihood, of numbers that are zero at its maximum.
        sds: standard deviations of the coefficients of each block in encoded units.
        level: probability with which an interval is to contain the true value.
    """
    from scipy.stats import chi2

    log_precision, is_zero, ends = log_precisions(blocks, sds), has_vanished(terms, blocks), []
    errors = np.full(len(terms), np.nan)
    if not all(is_zero):
        of_logs = errors_of_log_sds(marginal, log_precision).numpy()
        errors = np.where(is_zero, np.nan, terms["sd"].to_numpy() * of_logs)
    for i, (sd, error) in enumerate(zip(terms["sd"].tolist(), errors.tolist(), strict=True)):
        if is_zero[i]:
            largest = marginal.largest_likely(log_precision, i, float(chi2.ppf(level, 1)) / 2)
            ends.append((0.0, largest * blocks[i].unit * sd / sds[i]))  # the last factor is from encoded to raw units
        else:
            ends.append(wald_interval(sd, error, "log", level))
    return terms.assign(standard_error=errors, ci_low=[low for low, _ in ends], ci_high=[high for _, high in ends])


@dataclass(frozen=True)
class GroupEffect:
    """One random effect of a group: that of one term in one regression.

    Attributes:
        slopes: name of the slopes that it belongs to, an attribute of ``Parameters``.
        index: the regression among these slopes, as in ``Block``.
        column: column of the inputs that is not zero where the group is new.
        sd: standard deviation of the effect, in encoded units.
    """

    slopes: str
    index: tuple[int, ...]
    column: int
    sd: float


def group_effects(
    terms: pd.DataFrame, options: InputOptions, emission: Emission, scale: Tensor, labels: Sequence[Any]
) -> list[GroupEffect]:
    """Return the random effects of a group, from the table of terms.

    Args:
        terms: the table, as ``terms_table`` returns it.
        options: the terms of each part of the model.
        emission: the emission of the states.
        scale: factor from encoded to raw units of each feature, ``(D,)``.
        labels: names of features or symbols.
    """
    new_columns = {(NAMES[term.part], term.label): term.new for term in options.terms}
    parts = {name: part for part, name in NAMES.items()}
    effects = []
    for name, state, feature, label, sd in zip(
        *(terms[column].tolist() for column in ("part", "state", "feature", "term", "sd")), strict=True
    ):
        column, part = new_columns[name, label], parts[name]
        index: tuple[int, ...] = (state,)
        if column is None:
            continue
        if part == "transition":
            index = state, feature
        elif part == "emission":
            regression = regressed_columns(emission)
            location = regression.labels(labels).index(feature)
            index, sd = (state, regression.places[location]), sd / float(regression.units(scale)[location])
        effects.append(GroupEffect(SLOPES[part], index, column, sd))
    return effects


def reordered_terms(
    terms: pd.DataFrame, order: Sequence[int], before: Parameters, after: Parameters, group: Tensor
) -> pd.DataFrame:
    """Return the table of terms of a model whose states were renumbered, with rows in the order of its blocks.

    Args:
        terms: the table before.
        order: for each new number of a state its old one, ``(K,)``.
        before, after: parameters before and after.
        group: number of the group of states that share an emission, for each state after, ``(K,)``.

    Raises:
        ValueError: effects on log-odds would be against another state than before, where they are not independent.
    """
    number = {old: new for new, old in enumerate(order)}
    parts = set(terms["part"])
    references = []
    if NAMES["start"] in parts:
        references.append((before.initial, after.initial, -1, -1))
    if NAMES["transition"] in parts:
        references += [(before.transition[old], after.transition[new], old, new) for old, new in number.items()]
    for row_before, row_after, old, new in references:
        each = (reference_first(i, row.nonzero()[:, 0].tolist()) for i, row in ((old, row_before), (new, row_after)))
        of_before, of_after = each
        if of_before and number[of_before[0]] != of_after[0]:
            raise ValueError(
                f"penalised terms are of log-odds against state {of_before[0]}, which would no longer be the first "
                "possible one; pass an order that keeps it so"
            )

    def renumbered(row: dict[Any, Any]) -> dict[Any, Any]:
        state, feature = number[row["state"]], row["feature"]
        if row["part"] == NAMES["transition"]:
            feature = number[feature]
        if row["part"] == NAMES["emission"]:
            state = int((group == group[state]).nonzero()[0])
        return {**row, "state": state, "feature": feature}

    rows = [renumbered(row) for row in terms.to_dict("records")]
    regression = list(dict.fromkeys((row["part"], row["term"]) for row in rows))

    def place(i: int) -> tuple[int, ...]:
        row = rows[i]
        within = row["feature"] if row["part"] == NAMES["transition"] else i
        return regression.index((row["part"], row["term"])), row["state"], within

    rows = [rows[i] for i in sorted(range(len(rows)), key=place)]
    return terms_from_arrays({name: [row[name] for row in rows] for name in COLUMNS})


def terms_arrays(terms: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of the table of terms, in the form in which a file stores them."""
    return {name: terms[name].tolist() for name in COLUMNS}


def terms_from_arrays(arrays: Any) -> pd.DataFrame:
    """Return the table of terms that ``terms_arrays`` turned into ``arrays``; without rows for None.

    Raises:
        ValueError: they are not what ``terms_arrays`` returns.
    """
    import pandas as pd

    if arrays is None:
        arrays = {name: [] for name in COLUMNS}
    if not isinstance(arrays, dict) or arrays.keys() != set(COLUMNS):
        raise ValueError(f"the terms of an HMM have {', '.join(COLUMNS)}; the file has others")
    features = [tuple(each) if isinstance(each, list) else each for each in arrays["feature"]]  # JSON has lists only
    arrays = {**arrays, "feature": features}
    table = pd.DataFrame({name: pd.Series(arrays[name], dtype=dtype) for name, dtype in COLUMNS.items()})
    if not (np.isfinite(table[["sd", "edf"]]).all(axis=None) and (table["sd"] > 0).all()):
        raise ValueError("the standard deviations of terms should be positive, and all numbers finite")
    return table
