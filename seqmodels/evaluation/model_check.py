"""``check``: pseudo-residuals of a fitted model, their statistics beside those of simulations, and findings in words.

The pseudo-residual of a value is ``r = Φ^-1(u)`` with ``u = P(X_td <= x_td | what is given)``. If the model is right
and the past is given, residuals of a feature with a density are independent and standard normal (Rosenblatt 1952).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from seqmodels.common.display import html_table
from seqmodels.common.parameters import PositiveInt, Seed, checked
from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import in_float64, squares_exceed_float32
from seqmodels.encodings.raw_data import Data
from seqmodels.generation import Prediction
from seqmodels.generation.forecast import feature_names
from seqmodels.generation.predicted_features import WITH_DENSITY, step_cdfs
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import checked_data
from seqmodels.model.teacher_forcing import BATCH, ForcedBatch

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from seqmodels.plot.style import Panels

LEAST_PROBABILITY = 2.0**-53  # beside 1, what float64 can tell apart; residuals lie within ±8.2
MAX_NUMBERS, MAX_ROWS = 1 << 22, 4096  # of output parameters, and of steps, whose cdfs are computed together
MAX_DRAWN = 2_000_000  # values that are drawn from the model at a time
FEWEST_SIMULATIONS = 20
MOST_SIMULATIONS = 100_000
N_QUANTILES = 101
FAR = 3.0  # deviations from which on a moment is named in a finding
TESTS = {  # statistics that are tested, and the column of their p-values
    "anderson_darling": "p_normal",
    "ljung_box": "p_ljung_box",
    "squares_ljung_box": "p_squares_ljung_box",
}

Given = Literal["past", "rest"]
Statistics = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class ModelCheck:
    """The result of ``check``: pseudo-residuals, their statistics, and what is wrong in words; printed, it shows both.

    Attributes:
        residuals: for each sequence its pseudo-residuals, an array ``(T, D)`` of T steps and D features, ``(T, 1)`` for
            symbols. They are NaN where a value is missing or impossible, and in the first frames of a series that is
            read as changes. They lie within ±8.2, because probabilities beyond that round to 0 and 1.
        table: a frame with a row for each feature. ``n``, ``mean``, ``deviation``, ``skewness`` and ``kurtosis``
            (excess) of the residuals; ``anderson_darling``, the distance of their distribution from the standard
            normal; ``autocorrelation`` at lag 1 with its ``autocorrelation_low`` and ``autocorrelation_high``, between
            which it lies with probability ``level`` if the model is right; ``ljung_box``, the statistic of Ljung and
            Box (1978) over ``n_lags`` lags; the same of squared residuals, in columns that begin with ``squares_``; and
            the p-values ``p_normal``, ``p_ljung_box`` and ``p_squares_ljung_box``.
        findings: a sentence for each test whose p-value is below ``1 - level`` after correction for the number of
            tests (Holm 1979); empty if nothing stands out.
        autocorrelations: a frame with a row for each feature and lag: ``feature``, ``lag``, ``autocorrelation``,
            ``low``, ``high``.
        quantiles: a frame with a row for each feature and quantile: ``feature``, ``normal`` (the quantile of the
            standard normal distribution), ``residual`` (that of the residuals), and ``low`` and ``high``, between which
            the latter lies with probability ``level`` if the model is right; NaN without simulations.
        given: what the residuals are given, ``"past"`` or ``"rest"``.
        n_lags: number of lags.
        n_simulations: number of simulations.
        level: probability of the ranges.
    """

    residuals: list[np.ndarray]
    table: pd.DataFrame
    findings: tuple[str, ...]
    autocorrelations: pd.DataFrame
    quantiles: pd.DataFrame
    given: Given
    n_lags: int
    n_simulations: int
    level: float

    @checked
    def plot(self, feature: Any = None, ax: Sequence[Axes] | None = None) -> Panels:
        """Plot the residuals of one feature: quantiles, histogram, values over time, and autocorrelations.

        Args:
            feature: name of the feature; None takes the one with the smallest p-value.
            ax: four axes to draw on; None makes a new figure.

        Raises:
            ValueError: there is no such feature.
        """
        from seqmodels.plot.model_check import plot_residuals

        names = list(self.table.index)
        if feature is None:
            feature = names[int(np.nan_to_num(self.table[list(TESTS.values())].min(axis=1), nan=np.inf).argmin())]
        if feature not in names:
            raise ValueError(f"there is no feature {feature!r}; there are {', '.join(map(repr, names))}")
        column = names.index(feature)
        quantiles, correlations = (x[x["feature"] == feature] for x in (self.quantiles, self.autocorrelations))
        of_feature = [each[:, column] for each in self.residuals]
        return plot_residuals(_in_words(feature).strip("`"), of_feature, quantiles, correlations, ax)

    def __repr__(self) -> str:
        return "\n".join([self._head(), self._shown().to_string(float_format="%.3g"), *self._sentences()])

    def _repr_html_(self) -> str:
        sentences = "".join(f"<li>{sentence}</li>" for sentence in self._sentences())
        return f"<p>{self._head()}</p>{html_table(self._shown().reset_index())}<ul>{sentences}</ul>"

    def _shown(self) -> pd.DataFrame:
        columns = ["n", "mean", "deviation", "skewness", "kurtosis", "autocorrelation", *TESTS.values()]
        return self.table[columns]

    def _head(self) -> str:
        compared = f"{self.n_simulations} simulations" if self.n_simulations else "large samples"
        given = "the steps before" if self.given == "past" else "all other steps"
        return f"pseudo-residuals given {given}; {self.n_lags} lags; p-values by comparison with {compared}"

    def _sentences(self) -> list[str]:
        return list(self.findings) or ["Nothing stands out."]


@checked
def check(
    model: SequenceModel,
    X: Any,
    y: Any = None,
    *,
    given: Given = "past",
    randomised: bool = False,
    n_lags: PositiveInt = 10,
    n_simulations: int = 100,
    level: float = 0.95,
    random_state: Seed = 0,
) -> ModelCheck:
    """Check whether a fitted model describes ``X``, by pseudo-residuals (quantile residuals) of each feature.

    The pseudo-residual of a value is ``Φ^-1(u)``, where u is its cumulative probability under the model and Φ that of
    the standard normal distribution. If the model is right, pseudo-residuals are standard normal, and given the past
    they are independent from step to step. Each feature is checked by itself. References: Zucchini, MacDonald and
    Langrock (2016), *Hidden Markov models for time series*, section 6.2; Dunn and Smyth (1996), *Randomized quantile
    residuals*; Rosenblatt (1952), *Remarks on a multivariate transformation*.

    The statistics are compared with those of data that the model itself would generate, with the same lengths and
    missing values, so that the p-values hold for short sequences too. Where residuals are independent and standard
    normal in theory they are drawn so; otherwise sequences are drawn from the model, and checked as ``X`` is. The
    model is not fitted again: if ``X`` are the data of the fit, a model with many parameters looks a little better than
    it is.

    Args:
        model: a fitted model whose predictions of single features have a known cumulative distribution function (cdf).
        X: sequences to check, those of the fit or others, in any form that ``fit`` accepts; for a model of p(y | x),
            the sources. If they have a past, residuals are given it.
        y: targets to check, one for each source, for a model of p(y | x); else None.
        given: ``"past"`` gives each value the steps before it (forecast pseudo-residuals). ``"rest"`` gives it all
            other steps of its sequence (ordinary pseudo-residuals), which shows outliers better; these residuals are
            not independent. It is known for models with hidden states whose emissions depend on no past steps and whose
            transitions depend on one or more past states, not for semi-Markov models.
        randomised: counts, bits, rounded values and symbols have a range of cumulative probabilities, ``P(X < x)`` to
            ``P(X <= x)``. False takes its middle. True draws u from it, so that residuals of the right model are
            exactly normal. The cdf of angles begins at -π, and that of symbols follows their numbers.
        n_lags: number of lags of the autocorrelations; fewer if all sequences are shorter.
        n_simulations: number of simulated data sets, 20 to 100000. 0 takes p-values and ranges of large samples
            instead, which hold for residuals given the past that are exactly normal.
        level: probability of the ranges of statistics, and one minus the probability that ``findings`` names anything
            if the model is right.
        random_state: seed of the simulations and of ``randomised``.

    Returns:
        ``ModelCheck`` with ``residuals``, a ``table`` with a row for each feature, ``findings`` in words, and ``plot``.

    Raises:
        ValueError: an argument is out of range; the cdf of a feature is not known; the model reads text, whose symbols
            have no order; or ``given="rest"`` is not known for the model.

    >>> import numpy as np
    >>> from seqmodels import HMM
    >>> model = HMM.from_parameters([1.0], [[1.0]], means=[[0.0]], covariances=[[1.0]])
    >>> walk = np.random.default_rng(0).normal(size=(300, 1)).cumsum(0) / 10
    >>> for sentence in check(model, [walk]).findings:
    ...     print(sentence.partition(" at ")[0].partition(" (")[0])
    The residuals of feature 0 do not have the distribution of the model
    The residuals of feature 0 are correlated
    The squared residuals of feature 0 are correlated
    """
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; pass a probability between 0 and 1, such as 0.95")
    if n_simulations != 0 and not FEWEST_SIMULATIONS <= n_simulations <= MOST_SIMULATIONS:
        raise ValueError(
            f"n_simulations is {n_simulations}; pass {FEWEST_SIMULATIONS} to {MOST_SIMULATIONS}, or 0 for none"
        )
    data = checked_data(model, X, y)
    if model.encoding_.reads == "text":
        raise ValueError("the model reads text, whose symbols have no order; see evaluation.calibration.reliability")
    generator = np.random.default_rng(random_state)
    uniform = generator if randomised else None
    residuals = pseudo_residuals(model, data, given, uniform)
    n_lags = min(n_lags, max(map(len, residuals)) - 1)
    observed = _Statistics.of(residuals, n_lags)
    if given == "past" and (randomised or not _has_ties(model)):
        simulated = [_Statistics.of(_normal_like(residuals, generator), n_lags) for _ in range(n_simulations)]
    else:
        simulated, n = [], len(residuals)
        for drawn in drawn_data(model, data, n_simulations, random_state):
            of_drawn = pseudo_residuals(model, drawn, given, uniform)
            simulated += [_Statistics.of(of_drawn[k : k + n], n_lags) for k in range(0, len(of_drawn), n)]
    names = feature_names(data.scored, model.encoding_) if model.encoding_.reads == "vectors" else ["symbol"]
    comparison = _Comparison(list(names), observed, simulated, level)
    return ModelCheck(
        residuals,
        comparison.table(),
        comparison.findings(),
        comparison.autocorrelations(),
        comparison.quantiles(),
        given,
        n_lags,
        n_simulations,
        level,
    )


# -- residuals -------------------------------------------------------------------------------------------------


def pseudo_residuals(
    model: SequenceModel, data: Data, given: Given, uniform: np.random.Generator | None
) -> list[np.ndarray]:
    """Return the pseudo-residuals of each sequence, ``(T, D)`` for T steps of D features; NaN where there is none.

    Args:
        model: a fitted model.
        data: sequences that the model can read.
        given: ``"past"`` for the steps before, ``"rest"`` for all other steps.
        uniform: draws the cumulative probability of a value that has a range of them; None takes its middle.

    Raises:
        ValueError: the cdf of a feature, or the prediction given all other steps, is not known.
    """
    from scipy import special

    examples = model._setting().examples(data, may_have_no_steps=True)
    read = [example for example in examples if len(example.values)]  # a series of one frame has no difference
    is_large = any(squares_exceed_float32(example.values) for example in read)
    precise = in_float64(model) if is_large else model
    predictions = precise._step_predictions(read, given_rest=given == "rest")
    if predictions is not None:
        ranges = [cdfs_of_steps(model, *each) for each in zip(predictions, read, strict=True)]
    elif given == "past":
        ranges = cdfs_by_cursor(precise, read)
    else:
        raise ValueError(f"the steps of {type(model).__name__} given all others are not known; pass given='past'")
    n_columns = model.encoding_.size if model.observation_.emits == "vectors" else 1
    residuals = [np.full((example.n_initial, n_columns), np.nan) for example in examples]
    with_steps = [i for i, example in enumerate(examples) if len(example.values)]
    for i, example, (below, up_to) in zip(with_steps, read, ranges, strict=True):
        share = 0.5 if uniform is None else uniform.random(below.shape)
        u = np.clip(below + share * (up_to - below), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        residuals[i] = np.concatenate([residuals[i], special.ndtri(u[example.n_past :])])
    return residuals


def cdfs_of_steps(model: SequenceModel, prediction: Prediction, example: Example) -> tuple[np.ndarray, np.ndarray]:
    """Return ``P(X < x)`` and ``P(X <= x)`` of each feature at the T steps of an encoded sequence, each ``(T, D)``.

    Args:
        model: the model.
        prediction: its predictions of the T steps.
        example: the encoded sequence.
    """
    n_steps, *shape = prediction.output_parameters.shape
    size = max(1, min(MAX_ROWS, MAX_NUMBERS // int(np.prod(shape))))
    parts = []
    for start in range(0, n_steps, size):
        rows = slice(start, start + size)
        weights, past = (None if x is None else x[rows] for x in (prediction.log_weights, prediction.past))
        some = replace(prediction, output_parameters=prediction.output_parameters[rows], log_weights=weights, past=past)
        parts.append(_cdfs(model, some, torch.as_tensor(np.asarray(example.values[rows]))))
    below, up_to = (np.concatenate(each) for each in zip(*parts, strict=True))
    return below, up_to


def cdfs_by_cursor(model: SequenceModel, examples: Sequence[Example]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ``P(X < x)`` and ``P(X <= x)`` at the T steps of each encoded sequence, ``(T, D)``, step by step."""
    lengths = [len(example.values) for example in examples]
    order = np.argsort(lengths, kind="stable")
    at_once = 1 if any(example.source is not None for example in examples) else BATCH  # sources differ in length
    results: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for first in range(0, len(order), at_once):
        rows = order[first : first + at_once]
        whole = [replace(examples[i], n_past=0) for i in rows]
        batch = ForcedBatch.from_examples(whole, max(lengths[i] for i in rows), 0)
        steps = [_cdfs(model, prediction, x) for prediction, x, _ in batch.steps(model)]
        below, up_to = (np.stack(each, 1) for each in zip(*steps, strict=True))
        results |= {int(i): (below[n, : lengths[i]], up_to[n, : lengths[i]]) for n, i in enumerate(rows)}
    return [results[i] for i in range(len(examples))]


def _cdfs(model: SequenceModel, prediction: Prediction, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    is_known = (model.encoding_.reads == "vectors") == (prediction.observation.emits == "vectors")
    cdfs = step_cdfs(prediction, x, model.encoding_.affine()[1]) if is_known else None
    if cdfs is None:
        raise ValueError(
            f"{prediction.observation!r} does not know the cumulative distribution function of each feature; pass a "
            "model with another observation"
        )
    return cdfs


# -- data that the model would generate -------------------------------------------------------------------------


def _has_ties(model: SequenceModel) -> bool:
    """Return True if the values of a feature have probabilities and no density."""
    observation = model.observation_
    return observation.emits == "symbols" or not set(observation.values(model.encoding_.size)) <= WITH_DENSITY


def _normal_like(residuals: Sequence[np.ndarray], generator: np.random.Generator) -> list[np.ndarray]:
    """Return independent standard normal numbers in place of ``residuals``, with NaN where these are NaN."""
    return [np.where(np.isnan(each), np.nan, generator.standard_normal(each.shape)) for each in residuals]


def drawn_data(model: SequenceModel, data: Data, n: int, random_state: int) -> Iterator[Data]:
    """Yield sequences drawn from the model that are as long as those of the data, ``n`` times as many in all.

    They have the pasts, inputs, times and missing values of the data. Each data set that is yielded holds several
    simulations, one after the other.

    Args:
        model: a fitted model.
        data: sequences that the model can read.
        n: number of simulations.
        random_state: seed.
    """
    n_sequences = len(data.scored)
    at_once = max(1, MAX_DRAWN // int(sum(np.size(item) for item in data.scored.items)))
    for first in range(0, n, at_once):
        m = min(at_once, n - first)
        seeds = np.random.SeedSequence((random_state, first)).generate_state(n_sequences)
        of_each = [_draws_like(model, data, i, m, int(seed)) for i, seed in enumerate(seeds)]
        rows = np.tile(np.arange(n_sequences), m)
        x, y = data.X.take(rows), None if data.y is None else data.y.take(rows)
        scored = x if y is None else y
        new = scored.with_items(chain.from_iterable(zip(*of_each, strict=True)), past=scored.past)
        yield Data(new if y is None else x, None if y is None else new, data.weights[rows])


def _draws_like(model: SequenceModel, data: Data, i: int, n: int, seed: int) -> list[np.ndarray]:
    """Return ``n`` sequences drawn in place of sequence ``i`` of the data, with its past and missing values."""
    scored = data.scored
    item, past = scored.items[i], None if scored.past is None else scored.past[i]
    whole = scored.take([i]).including_past()
    options: dict[str, Any] = {} if data.y is None else {"source": data.X.items[i]}
    if model.measure_.inputs and whole.inputs is not None:
        options["inputs"] = dict(zip(whole.input_names or (), whole.inputs[0].T, strict=True))
    if model._times_in is not None and whole.times is not None:
        options["times"] = whole.times[0]
    length = None if options.keys() & {"inputs", "times"} else len(item)  # which they determine
    drawn = model.sample(n, prefix=past, length=length, random_state=seed, **options)
    steps = [np.asarray(each[len(each) - len(item) :]) for each in drawn]
    return [np.where(np.isnan(item), np.nan, each) for each in steps] if scored.kind == "vectors" else steps


# -- statistics ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Statistics:
    """The statistics of the pseudo-residuals of D features.

    Attributes:
        moments: ``n``, ``mean``, ``deviation``, ``skewness`` and excess ``kurtosis``, each ``(D,)``.
        tests: ``anderson_darling``, ``ljung_box`` and ``squares_ljung_box``, each ``(D,)``.
        p_values: p-values of the tests in large samples, each ``(D,)``.
        correlations: autocorrelations at lags 1 to L of residuals (``autocorrelation``) and of their squares
            (``squares_autocorrelation``), each ``(L, D)``.
        n_pairs: number of pairs of residuals at each lag, ``(L, D)``.
        normal, quantiles: quantiles of the standard normal distribution and of the residuals, each ``(Q, D)``.
    """

    moments: dict[str, np.ndarray]
    tests: dict[str, np.ndarray]
    p_values: dict[str, np.ndarray]
    correlations: dict[str, np.ndarray]
    n_pairs: np.ndarray
    normal: np.ndarray
    quantiles: np.ndarray

    @classmethod
    def of(cls, residuals: Sequence[np.ndarray], n_lags: int) -> _Statistics:
        from scipy import special

        between = np.full((n_lags, residuals[0].shape[1]), np.nan)  # so that no pair spans two sequences
        r = np.ascontiguousarray(np.concatenate([part for each in residuals for part in (each, between)]).T)  # (D, N)
        is_seen = ~np.isnan(r)
        n = is_seen.sum(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(is_seen, r, 0.0).sum(1) / n
            centred = np.where(is_seen, r - mean[:, None], 0.0)
            squares = np.square(centred)
            second, third, fourth = (np.einsum("dn,dn->d", squares, x) / n for x in (is_seen, centred, squares))
            shape = {"skewness": third / second**1.5, "kurtosis": fourth / second**2 - 3}
        moments = {"n": n, "mean": mean, "deviation": np.sqrt(second), **shape}
        of_r, n_pairs = autocorrelations(r, n_lags)
        of_squares, _ = autocorrelations(np.square(r), n_lags)
        boxes = {"ljung_box": ljung_box(of_r, n_pairs, n), "squares_ljung_box": ljung_box(of_squares, n_pairs, n)}
        ordered = [np.sort(column[seen]) for column, seen in zip(r, is_seen, strict=True)]
        distance = np.array([anderson_darling(each) for each in ordered])
        p_values = {name: special.chdtrc(max(1, n_lags), q) for name, q in boxes.items()}
        end = np.log(2.0 * np.maximum(n, 1) - 1)  # log-odds of the last of n points at (i - 1/2) / n
        levels = special.expit(np.linspace(-1, 1, N_QUANTILES)[:, None] * end)
        of_levels = [
            np.interp(q * (len(x) - 1), np.arange(len(x)), x) if len(x) else q * np.nan
            for x, q in zip(ordered, levels.T, strict=True)
        ]
        return cls(
            moments,
            {"anderson_darling": distance, **boxes},
            {"anderson_darling": p_of_anderson_darling(distance), **p_values},
            {"autocorrelation": of_r, "squares_autocorrelation": of_squares},
            n_pairs,
            special.ndtri(levels),
            np.stack(of_levels, 1),
        )


def autocorrelations(x: np.ndarray, n_lags: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the autocorrelations of each of D rows at lags 1 to L, ``(L, D)``, and their numbers of pairs.

    The autocovariance at a lag is the mean product over the pairs of values that are both there.

    Args:
        x: values, ``(D, N)``, NaN where there is none.
        n_lags: L.
    """
    is_seen = ~np.isnan(x)
    shape = n_lags, len(x)
    n_pairs, products = np.zeros(shape), np.zeros(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(is_seen, x, 0.0).sum(1, keepdims=True) / is_seen.sum(1, keepdims=True)
        centred = np.where(is_seen, x - mean, 0.0)
        for k in range(1, n_lags + 1):
            products[k - 1] = np.einsum("dn,dn->d", centred[:, k:], centred[:, :-k])
            n_pairs[k - 1] = (is_seen[:, k:] & is_seen[:, :-k]).sum(1)
        variance = np.square(centred).sum(1) / is_seen.sum(1)
        return products / n_pairs / variance, n_pairs


def ljung_box(correlations: np.ndarray, n_pairs: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return the statistic of Ljung and Box (1978) for each of D columns, ``(D,)``; NaN without pairs.

    It is ``n (n + 2) Σ_k r_k² / (n - k)`` of one complete sequence. With n - k replaced by the number of pairs at lag k
    it holds for several sequences and for missing values.

    Args:
        correlations: autocorrelations at L lags as ``autocorrelations`` returns them, ``(L, D)``.
        n_pairs: number of pairs at each lag, ``(L, D)``.
        n: number of values in each column, ``(D,)``.
    """
    terms = np.where(n_pairs > 0, n_pairs * np.square(correlations), 0.0)
    return np.where(n_pairs.any(0), terms.sum(0) * (n + 2) / np.maximum(n, 1), np.nan)


def anderson_darling(ordered: np.ndarray) -> float:
    """Return the distance of Anderson and Darling (1952) between ordered values and the standard normal; NaN of none.

    Args:
        ordered: n values in increasing order, ``(n,)``.
    """
    from scipy import special

    n = len(ordered)
    if not n:
        return np.nan
    weights = (2 * np.arange(1, n + 1) - 1) / n
    return float(-n - (weights * (special.log_ndtr(ordered) + special.log_ndtr(-ordered[::-1]))).sum())


def p_of_anderson_darling(distance: np.ndarray) -> np.ndarray:
    """Return the p-values of distances of Anderson and Darling in large samples, for a distribution known in full.

    The formula is that of Marsaglia and Marsaglia (2004), *Evaluating the Anderson-Darling distribution*, with an error
    below 2e-6; further out than 10 the tail continues exponentially.

    Args:
        distance: the distances, an array of any shape.
    """
    x = np.clip(distance, 1e-3, 10.0)
    low = (2.00012, 0.247105, -0.0649821, 0.0347962, -0.011672, 0.00168691)
    high = (1.0776, -2.30695, 0.43424, -0.082433, 0.008056, -0.0003146)
    polynomial = np.polynomial.polynomial.polyval
    below = np.exp(-1.2337141 / x) / np.sqrt(x) * polynomial(x, low)
    above = -np.expm1(-np.exp(polynomial(x, high)))
    p = np.where(x < 2, 1 - below, above)
    return np.asarray(p * np.exp(-np.maximum(distance - 10.0, 0.0)))


# -- comparison with simulations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Comparison:
    """The statistics of D features beside those of S simulated data sets, or of large samples if S is 0.

    Attributes:
        names: names of the features.
        observed: statistics of the data.
        simulated: statistics of each simulated data set.
        level: probability of the ranges.
    """

    names: list[Any]
    observed: _Statistics
    simulated: list[_Statistics]
    level: float

    def table(self) -> pd.DataFrame:
        import pandas as pd

        columns: dict[str, np.ndarray] = {
            **self.observed.moments,
            "anderson_darling": self.observed.tests["anderson_darling"],
        }
        columns["p_normal"] = self.p_values["anderson_darling"]
        for prefix in ("", "squares_"):
            at_lag_1 = (each[:1] for each in self._ranges(f"{prefix}autocorrelation"))
            for name, rows in zip(("", "_low", "_high"), at_lag_1, strict=True):
                columns[f"{prefix}autocorrelation{name}"] = rows[0] if len(rows) else np.full(len(self.names), np.nan)
            columns[f"{prefix}ljung_box"] = self.observed.tests[f"{prefix}ljung_box"]
            columns[f"p_{prefix}ljung_box"] = self.p_values[f"{prefix}ljung_box"]
        return pd.DataFrame(columns, index=pd.Index(self.names, name="feature"))

    def autocorrelations(self) -> pd.DataFrame:
        lags = np.arange(1, len(self.observed.n_pairs) + 1)
        names = ("autocorrelation", "low", "high")
        return self._by_feature({"lag": lags}, dict(zip(names, self._ranges("autocorrelation"), strict=True)))

    def quantiles(self) -> pd.DataFrame:
        observed, low = self.observed, np.full_like(self.observed.normal, np.nan)
        high = low.copy()
        if self.simulated:
            outside = 0.5 * (1 - self.level)
            each = np.stack([s.quantiles for s in self.simulated])
            low, high = np.quantile(each, [outside, 1 - outside], axis=0)
        return self._by_feature(
            {}, {"normal": observed.normal, "residual": observed.quantiles, "low": low, "high": high}
        )

    def findings(self) -> tuple[str, ...]:
        """Return a sentence for each test that rejects after Holm's correction, feature by feature."""
        say = {
            "anderson_darling": self._of_distribution,
            "ljung_box": self._of_correlation,
            "squares_ljung_box": self._of_squares,
        }
        p_values = [(p, d, name) for name in TESTS for d, p in enumerate(self.p_values[name]) if not np.isnan(p)]
        rejected = []
        for rank, (p, d, name) in enumerate(sorted(p_values)):
            if p * (len(p_values) - rank) > 1 - self.level:
                break
            rejected.append((d, list(TESTS).index(name), name))
        return tuple(say[name](d) for d, _, name in sorted(rejected))

    @cached_property
    def p_values(self) -> Statistics:
        """The p-value of each test for each feature, ``(D,)``.

        It is the share of the simulations and the data together whose statistic is at least that of the data. If that
        is the data alone, the tail beyond the simulations is that of a t distribution, fitted to the normal scores of
        their p-values in large samples, which are about normal.
        """
        from scipy import special

        def scores(each: _Statistics, name: str) -> np.ndarray:
            return np.asarray(-special.ndtri(np.clip(each.p_values[name], 1e-300, 1 - LEAST_PROBABILITY)))

        if not self.simulated:
            return self.observed.p_values
        result, least = {}, 1 / (len(self.simulated) + 1)
        for name in TESTS:
            score, others = scores(self.observed, name), np.stack([scores(each, name) for each in self.simulated])
            share = least * (1 + (others >= score).sum(0))
            n = len(others)
            distance = (score - others.mean(0)) / (others.std(0, ddof=1) * np.sqrt(1 + 1 / n))
            tail = special.stdtr(n - 1, -distance)
            p = np.where((others < score).all(0), np.minimum(least, tail), share)
            result[name] = np.where(np.isnan(score), np.nan, p)
        return result

    def _ranges(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return autocorrelations at L lags and the ends of their ranges, each ``(L, D)``."""
        centre, deviation = self._expected_correlations(name)
        half = NormalDist().inv_cdf(0.5 + 0.5 * self.level) * deviation
        return self.observed.correlations[name], centre - half, centre + half

    def _expected_correlations(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and deviation of autocorrelations under the model, each ``(L, D)``."""
        if self.simulated:
            return _mean_and_deviation([each.correlations[name] for each in self.simulated])
        with np.errstate(divide="ignore"):
            return np.zeros_like(self.observed.n_pairs), 1 / np.sqrt(self.observed.n_pairs)

    def _expected_moments(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and deviation of a moment of the residuals under the model, each ``(D,)``."""
        if self.simulated:
            return _mean_and_deviation([each.moments[name] for each in self.simulated])
        centre, variance = {"mean": (0, 1), "deviation": (1, 0.5), "skewness": (0, 6), "kurtosis": (0, 24)}[name]
        n = self.observed.moments["n"]
        return np.full(len(n), float(centre)), np.sqrt(variance / n)

    def _of_distribution(self, d: int) -> str:
        """Return a sentence that says in which moments the residuals of feature ``d`` differ from the model's."""
        words = {
            "mean": ("the data are higher than predicted", "the data are lower than predicted"),
            "deviation": ("the predictions are too narrow", "the predictions are too wide"),
            "skewness": ("the upper tail of the data is longer", "the lower tail of the data is longer"),
            "kurtosis": ("the tails of the data are heavier", "the tails of the data are lighter"),
        }
        parts = []
        for name, (above, below) in words.items():
            value = float(self.observed.moments[name][d])
            centre, deviation = (float(each[d]) for each in self._expected_moments(name))
            if abs(value - centre) > FAR * deviation:
                parts.append(
                    f"{name} {value:.2f} where {centre:.2f} is expected ({above if value > centre else below})"
                )
        return (
            f"The residuals of {self._name(d)} do not have the distribution of the model"
            f" ({self._p('anderson_darling', d)}): {', '.join(parts) or 'their quantiles differ'}. More states or "
            "components, or another distribution of a step, may fit better."
        )

    def _of_correlation(self, d: int) -> str:
        return (
            f"The residuals of {self._name(d)} are correlated {self._at_lag('autocorrelation', d)}, "
            f"{self._p('ljung_box', d)}): the steps before say more about a step than the model uses. More states, "
            "states that last (HSMM), or an observation that reads past steps (AutoregressiveGaussian) may use it."
        )

    def _of_squares(self, d: int) -> str:
        return (
            f"The squared residuals of {self._name(d)} are correlated {self._at_lag('squares_autocorrelation', d)}, "
            f"{self._p('squares_ljung_box', d)}): how far the data spread changes with time in a way that the model "
            "does not follow. More states, each with a variance of its own, may follow it."
        )

    def _at_lag(self, name: str, d: int) -> str:
        """Return where an autocorrelation is farthest from what is expected, as ``at lag 1 (0.31; -0.1 to 0.1 ...``."""
        centre, deviation = self._expected_correlations(name)
        values, low, high = (each[:, d] for each in self._ranges(name))
        k = int(np.nanargmax(np.abs(values - centre[:, d]) / deviation[:, d]))
        return f"at lag {k + 1} ({values[k]:.2f}; {low[k]:.2f} to {high[k]:.2f} is expected"

    def _p(self, test: str, d: int) -> str:
        p = float(self.p_values[test][d])
        return f"p = {p:.2g}" if p >= 1e-6 else "p < 1e-06"

    def _name(self, d: int) -> str:
        return _in_words(self.names[d])

    def _by_feature(self, shared: Mapping[str, np.ndarray], columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
        """Return a frame with rows for each feature in turn, from columns ``(L, D)`` and others of all features."""
        import pandas as pd

        frames = [
            pd.DataFrame({"feature": name, **shared, **{key: values[:, d] for key, values in columns.items()}})
            for d, name in enumerate(self.names)
        ]
        return pd.concat(frames, ignore_index=True)


def _in_words(name: Any) -> str:
    return f"`{name}`" if isinstance(name, str) else f"feature {name}"


def _mean_and_deviation(each: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    stacked = np.stack(each)
    return stacked.mean(0), stacked.std(0, ddof=1)
