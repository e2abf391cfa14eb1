"""Does the library find the figures that books and other software print? ``published.py [--data DIR ..]``.

Each row is a model of a series whose maximum of the likelihood, or parameters there, somebody has published: the figure
as it is printed, ours, and the difference. Every fit is by EM from starts of its own (``HMM(n_init=20)``), with no
prior; nothing is taken from the source but the series and the model. Two rows say otherwise: the first steps of EM from
the start that a book follows it from.

Conventions of the sources: figures are natural logarithms; a regression on the last p values is given the first p, and
the distribution of the first state is the chain's stationary one, but for rows of a free start.

Yearly counts of earthquakes stand below, a public record. All else is read from ``DIR`` and the folders in it, or from
an installed ``statsmodels``, whose tests contain the series (``pip install statsmodels``, which nothing here imports).
A row whose data are not there is in the table without figures of ours. The table goes to ``results/published/`` and
into ``docs/published.md``.
"""

from __future__ import annotations

import argparse
import ast
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy.linalg import solve_discrete_lyapunov

from seqmodels import (
    HMM,
    AutoregressiveGaussian,
    Bernoulli,
    Columns,
    GaussianMixture,
    LinearGaussian,
    Poisson,
    SequenceModel,
    Sequences,
)
from seqmodels.encodings import Standardize
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.hmm import ChainInputEffects, MarkovSwitchingAR
from seqmodels.observations import IntervalCensored, OfIntervals, Rounded

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments/results/published/published.csv"
PAGE = ROOT / "docs/published.md"
ABOVE, BELOW = "<!-- the table of experiments/published.py -->", "<!-- its end -->"

# -- data --------------------------------------------------------------------------------------------------------------

# Earthquakes of magnitude 7 or more in the world, 1900 to 2006 (U.S. Geological Survey).
EARTHQUAKES = """
13 14 8 10 16 26 32 27 18 32 36 24 22 23 22 18 25 21 21 14 8 11 14 23 18 17 19 20 22 19 13 26 13 14 22 24 21 22 26 21 23
24 27 41 31 27 35 26 28 36 39 21 17 22 17 19 15 34 10 15 22 18 15 20 15 22 19 16 30 27 29 23 20 16 21 21 25 16 18 15 18
14 10 15 8 15 6 11 8 7 18 16 13 12 13 20 15 16 12 18 15 16 13 15 16 11 11
"""
# Flow of the Nile at Aswan, 1871 to 1970, in 10^8 cubic metres (Cobb 1978, *Biometrika* 65).
NILE = """
1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100 1210 1150 1250 1260
1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456 824 702 1120 1100 832 764 821 768 845 864
862 698 845 744 796 1040 759 781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890 744 749
838 1050 918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740
"""
REGRESSIONS = "statsmodels: test_markov_regression.py"
AUTOREGRESSIONS = "statsmodels: test_markov_autoregression.py"
PRODUCTION = "statsmodels: mar_filardo.csv"
GERMANY = "statsmodels: results_varmax.py"
PRICES = "statsmodels: results_wpi1_ar3_stata.csv"
SPEED = "R package depmixS4: write.csv(speed, 'speed.csv')"
GEYSER = "R package MASS: write.csv(geyser, 'geyser.csv')"
HERE = "in the script"
# By name, where the series is.
WHERE = {
    "earthquakes": HERE,
    "fedfunds": REGRESSIONS,
    "areturns": REGRESSIONS,
    "mumpspc": REGRESSIONS,
    "rgnp": AUTOREGRESSIONS,
    "rgnp, recessions": AUTOREGRESSIONS,
    "production, leading index": PRODUCTION,
    "West Germany": GERMANY,
    "wholesale prices": PRICES,
    "speed": SPEED,
    "speed, three sessions": SPEED,
    "geyser, waiting": GEYSER,
    "geyser, durations": GEYSER,
    "nile": HERE,
}
TYPED = {"earthquakes": EARTHQUAKES, "nile": NILE}  # those of the script
FILES = {SPEED: "speed.csv", GEYSER: "geyser.csv"}  # else the last word
# Of a table, the columns; words are true or not.
COLUMNS = {
    "speed": ["rt"],
    "speed, three sessions": ["rt", "corr", "Pacc"],
    "production, leading index": ["dlip", "dmdlleading"],
}
# Of a module, the names of lists where they are not that of the series.
LISTS = {"rgnp, recessions": ["rgnp", "rec"]}
RIGHT = "cor"
GAP = slice(9, 20)  # missing quarters of the prices


def read(name: str, folders: Sequence[Path]) -> np.ndarray | None:
    """``(T, D)``, or None where none of the folders has it."""
    where = WHERE[name]
    if where == HERE:
        return np.array(TYPED[name].split(), dtype=float)[:, None]
    path = _find(FILES.get(where, where.split()[-1]), folders)
    if path is None:
        return None
    if name == "geyser, waiting":
        return pd.read_csv(path)[["waiting"]].to_numpy(float)
    if where == GEYSER:
        return durations(*uncoded(pd.read_csv(path)["duration"].to_numpy(float)))
    if where == PRICES:  # quarterly changes from 1960 on, of which eleven are taken out
        changes = np.diff(pd.read_csv(path)[["wpi"]].to_numpy(float), axis=0)
        changes[GAP] = np.nan
        return changes
    if path.suffix == ".csv":
        table = pd.read_csv(path)[COLUMNS[name]]
        return table.apply(lambda column: column if column.dtype.kind == "f" else column == RIGHT).to_numpy(float)
    source = path.read_text()
    if where == GERMANY:  # investment, income and consumption, of which growth from 1960 to 1978 is modelled
        return np.diff(np.log(assigned(source, "lutkepohl_data")), axis=0)[:75]
    return np.array([assigned(source, each) for each in LISTS.get(name, [name])], dtype=float).T


def assigned(source: str, name: str) -> list[Any]:
    """The list that a module gives that name, without running the module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            found: list[Any] = ast.literal_eval(node.value)
            return found
    raise ValueError(f"the file assigns no {name}; take the one of statsmodels 0.14 or later")


# Durations of eruptions that were told in words, by their code: short, medium, long; in minutes.
WORDS = {1: (0.0, 3.0), 2: (2.5, 3.5), 3: (3.0, 20.0)}


def durations(seconds: np.ndarray, code: np.ndarray) -> np.ndarray:
    """``(T, 2)`` the ends in minutes of the intervals in which durations are: half a second around those measured
    (code 0), and what the words of the others stand for.
    """
    ends = np.stack([seconds - 0.5, seconds + 0.5], 1) / 60
    for word, interval in WORDS.items():
        ends[code == word] = interval
    return ends


# Durations of exactly so many seconds, the word that such a value may stand for, and how many were measured.
MEASURED = ((120, 1, 3), (180, 2, 0), (240, 3, 6))


def uncoded(minutes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and codes of the file of MASS, where words are whole minutes and so are some that were measured.

    These it does not tell apart. How many there are of each decides what an independent mixture's maximum is, and with
    these numbers that of two components is the one that is printed. Words are of nights, and stand together: the first
    that stand alone are taken for measured.
    """
    seconds = np.rint(60 * minutes)
    code = np.select([seconds == value for value, _, _ in MEASURED], [word for _, word, _ in MEASURED])
    beside = np.pad(code, 1)
    alone = (beside[:-2] == 0) & (beside[2:] == 0)
    for _, word, n_measured in MEASURED:
        code[np.flatnonzero((code == word) & alone)[:n_measured]] = 0
    return seconds, code


def _find(file_name: str, folders: Sequence[Path]) -> Path | None:
    return next((path for folder in folders for path in sorted(folder.rglob(file_name))), None)


def folders_of(arguments: Sequence[str]) -> list[Path]:
    """Those named, then that of an installed statsmodels."""
    installed = find_spec("statsmodels")
    places = [] if installed is None else list(installed.submodule_search_locations or [])
    return [Path(each) for each in [*arguments, *places]]


# -- models ------------------------------------------------------------------------------------------------------------

STARTS = {"n_init": 20, "tol": 1e-8, "max_iter": 2_000, "dtype": "float64", "warm_start": True}
TO_THE_END = {"tol": 0.0, "max_iter": 1_500}  # steps, after which parameters have eight digits
FEW_STEPS = {"tol": 0.0, "dtype": "float64", "start": "free", "warm_start": True}
ModelT = TypeVar("ModelT", bound=SequenceModel)
# Of the model that ``fit`` returns.
Fit = Callable[[np.ndarray], SequenceModel]
Figures = Callable[[Any, np.ndarray], Sequence[float]]


def maximum(model: ModelT, x: np.ndarray | Sequences) -> ModelT:
    """The best of the model's starts, and EM from there on until nothing moves."""
    X = x if isinstance(x, Sequences) else [x]
    return model.fit(X).set_params(**TO_THE_END).fit(X)


def poisson(n_states: int, start: str) -> Fit:
    """An HMM of counts; states are in the order of their rates."""

    def fit(x: np.ndarray) -> HMM:
        model = maximum(HMM(n_states, observation=Poisson(), start=start, **STARTS), x)
        return model.reorder(np.argsort(model.rates_[:, 0]))

    return fit


def poisson_from(rates: Sequence[float], stays: float, steps: int) -> Fit:
    """``steps`` of EM from these rates, equal first states, and transitions that stay or go to any other alike."""
    k = len(rates)
    transition = np.full((k, k), (1 - stays) / (k - 1))
    np.fill_diagonal(transition, stays)
    chain = {"initial": np.full(k, 1 / k), "transition": transition, "rates": np.array(rates)[:, None]}
    return lambda x: HMM.from_parameters(**chain, observation=Poisson(), max_iter=steps, **FEW_STEPS).fit([x])


def gaussian(n_states: int, covariance_type: str, start: str) -> Fit:
    """States are in the order of their means."""

    def fit(x: np.ndarray) -> HMM:
        observation = GaussianMixture(1, covariance_type)
        return maximum(HMM(n_states, observation=observation, start=start, **STARTS), x).reorder("mean")

    return fit


def regression(covariance_type: str, *, intercept: bool = True) -> Fit:
    """Two regressions on the last value; states are in the order of its coefficients."""

    def fit(x: np.ndarray) -> HMM:
        observation = AutoregressiveGaussian(1, covariance_type, ridge=0.0, intercept=intercept, background=0.0)
        encoding = Standardize(with_mean=intercept)
        model = maximum(HMM(2, observation=observation, encoding=encoding, start="stationary", **STARTS), x)
        return model.reorder(np.argsort(model.coefficients_[:, 0, 0]))

    return fit


def deviations(order: int, *, switching_ar: bool = False, order_of_states: int = 1) -> Fit:
    """Two states; in the order of their means, or with ``order_of_states=-1`` the highest first."""

    def fit(x: np.ndarray) -> MarkovSwitchingAR:
        names = ["u"] if x.shape[1] > 1 else None
        model = MarkovSwitchingAR(
            2, order, switching_ar=switching_ar, input_effects=ChainInputEffects(transitions=names), **STARTS
        )
        found = maximum(model, with_driver(x) if names else x)
        return found.reorder(np.argsort(order_of_states * found.means_[:, 0]))

    return fit


def with_driver(x: np.ndarray) -> Sequences:
    """The first column, and as an input of the transition into a step the second."""
    return Sequences([x[:, :1]], inputs=[x[:, 1:]], input_names=["u"])


def lagged(fit: Fit) -> Fit:
    """The input of a step is that of the step before; the first step is left out."""
    return lambda x: fit(with_lag(x))


def with_lag(x: np.ndarray) -> np.ndarray:
    return np.column_stack([x[1:, :1], x[:-1, 1:]])


def interval(n_states: int, density: OfIntervals) -> Fit:
    """Gaussians of values in intervals, a stationary start; states are in the order of their means."""
    model = HMM(n_states, observation=density, start="stationary", **STARTS)
    return lambda x: maximum(model.clone(), x).reorder("mean")


def mixture(n_components: int) -> Fit:
    """An independent mixture of Gaussians, of values in intervals: one state."""
    observation = IntervalCensored(GaussianMixture(n_components, min_covariance=1e-6))
    return lambda x: maximum(HMM(1, observation=observation, **STARTS), x)


SESSIONS = (168, 134, 137)  # trials


def sessions(x: np.ndarray) -> Sequences:
    """Times and answers of each session, and as an input what was paid for being right, of the trial before."""
    *parts, _ = np.split(x, np.cumsum(SESSIONS))
    pay = [part[:, 2:] for part in parts]
    return Sequences([part[:, :2] for part in parts], inputs=pay, input_names=["Pacc"]).with_lagged_inputs(1)


def driven(x: np.ndarray) -> HMM:
    """Two states of a Gaussian and a Bernoulli, whose transitions depend on the pay at the step that they leave."""
    observation = Columns([(GaussianMixture(1), 1), (Bernoulli(), 1)])
    few_starts = {**STARTS, "n_init": 4, "max_iter": 300}
    return HMM(
        2, observation=observation, input_effects=ChainInputEffects(transitions=["Pacc"]), start="free", **few_starts
    ).fit(sessions(x))


def given_sessions(x: np.ndarray) -> HMM:
    """Two states of a Gaussian and a Bernoulli, with the parameters that the tests of depmixS4 give them."""
    given = {"means": [[[5.52]], [[6.39]]], "covariances": [[[0.202**2]], [[0.24**2]]]}
    return HMM.from_parameters(
        [0.0, 1.0],
        [[0.899, 0.101], [0.084, 0.916]],
        observation=Columns([(GaussianMixture(1), 1), (Bernoulli(), 1)]),
        emission_parameters={**given, "probabilities": [[0.528], [0.902]]},
    )


def local_level(x: np.ndarray) -> LinearGaussian:
    """Nothing is known of the first level."""
    return LinearGaussian.local_level().fit([x])


def local_level_from(variance: float) -> Fit:
    """The same variances, with a first level of mean 0 and this variance."""

    def fit(x: np.ndarray) -> LinearGaussian:
        noise, level = level_variances(local_level(x), x)
        return LinearGaussian.from_parameters([[1.0]], [[level]], [[1.0]], [[noise]], [0.0], [[variance]])

    return fit


def stationary(transition: np.ndarray, noise: np.ndarray, loadings: np.ndarray, variances: np.ndarray) -> Fit:
    """A linear-Gaussian system of these parameters; the first state has the stationary covariance."""
    first = solve_discrete_lyapunov(transition, noise)
    system = (transition, noise, loadings, np.diag(variances), np.zeros(len(transition)), first)
    return lambda x: LinearGaussian.from_parameters(*system)


def vector_autoregression() -> Fit:
    """That of one lag without an intercept; its noise is all in the states, and none is observed."""
    transition = [[-0.25034303, 0.28759168, 0.81626475], [0.023383, 0.19048278, 0.66502259]]
    transition += [[-0.01492992, 0.53796097, 0.28114733]]
    factor = np.zeros((3, 3))
    factor[np.tril_indices(3)] = (0.04464236, 0.00136552, 0.01354125, 0.0029089, 0.00834324, 0.00915471)
    return stationary(np.array(transition), factor @ factor.T, np.eye(3), np.full(3, NEARLY_NONE))


NEARLY_NONE = 1e-14  # variance of noise, which has to be above zero


def dynamic_factor() -> Fit:
    """One factor with two lags behind three series with noise of their own."""
    transition = np.array([[0.33101874, 0.63927819], [1.0, 0.0]])
    loadings = np.array([[0.0063728, 0.0], [0.00660177, 0.0], [0.00636009, 0.0]])
    return stationary(transition, np.diag([1.0, 0.0]), loadings, np.array([0.00203899, 0.00009016, 0.00005348]))


def autoregression() -> Fit:
    """One of three lags; its noise is all in the states, and none is observed."""
    transition = np.array([[0.5270715, 0.0952613, 0.2580355], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    return stationary(transition, np.diag([0.5307459, 0.0, 0.0]), np.eye(1, 3), np.full(1, NEARLY_NONE))


# -- figures -----------------------------------------------------------------------------------------------------------


def log_prob(model: HMM, x: np.ndarray) -> Sequence[float]:
    """Given as many first values as the observation looks back at."""
    p = model.observation_.n_past
    return model.log_prob(Sequences([x[p:]], past=[x[:p]]) if p else [x]).tolist()


def log_prob_of_sessions(model: HMM, x: np.ndarray) -> Sequence[float]:
    return [float(model.log_prob(sessions(x)).sum())]


def log_prob_of_plain_sessions(model: HMM, x: np.ndarray) -> Sequence[float]:
    *parts, _ = np.split(x[:, :2], np.cumsum(SESSIONS))
    return [float(model.log_prob(parts).sum())]


def log_prob_given_driver(model: MarkovSwitchingAR, x: np.ndarray) -> Sequence[float]:
    """Given as many first values as the regression looks back at."""
    return [float(model.log_prob_steps(with_driver(x))[0][model.order :].sum())]


def of_lagged(figures: Figures) -> Figures:
    return lambda model, x: figures(model, with_lag(x))


def deviations_from_means(model: MarkovSwitchingAR, x: np.ndarray) -> Sequence[float]:
    """To the first state from each; means; the logarithm of the deviation; lags."""
    rest = [model.means_[:, 0], np.log(model.variances_) / 2, model.autoregression_.ravel()]
    return [*model.transition_[:, 0], *(float(number) for each in rest for number in each)]


def driven_deviations_from_means(model: MarkovSwitchingAR, x: np.ndarray) -> Sequence[float]:
    """Log-odds of the first state after each where the input is zero, and slopes; the rest as without an input."""
    at_zero, slopes = model.transition_at([[0.0]])[0], model.transition_slopes_[:, :, 0]
    log_odds = [*np.log(at_zero[:, 0] / at_zero[:, 1]), *(slopes[:, 0] - slopes[:, 1])]
    return [*log_odds, *deviations_from_means(model, x)[2:]]


def standard_errors(model: HMM, x: np.ndarray) -> Sequence[float]:
    """Of transitions to the first state from each, and of means."""
    frame = model.standard_errors([x])
    to_first = (frame["name"] == "transition") & (frame["feature"] == 0)
    return frame[to_first | (frame["name"] == "means")]["standard_error"].tolist()


def em_steps(*steps: int) -> Figures:
    """``-log p`` after so many steps of EM."""
    return lambda model, x: [-len(x) * model.history_["log_prob"].iloc[step] for step in steps]


def transitions_and_rates(model: HMM, x: np.ndarray) -> Sequence[float]:
    """From the first state to the second, from the second to the first; rates."""
    return [model.transition_[0, 1], model.transition_[1, 0], *model.rates_[:, 0]]


def rates(model: HMM, x: np.ndarray) -> Sequence[float]:
    return model.rates_[:, 0].tolist()


def first_states(model: HMM, x: np.ndarray) -> Sequence[float]:
    """Probabilities of all states but the last at the first step."""
    return model.initial_[:-1].tolist()


def first_state_after(*steps: int) -> Figures:
    """Of all states, so many steps after the last one."""
    return lambda model, x: model.forecast_states([x], max(steps))[0].states[[h - 1 for h in steps]].flatten().tolist()


def means(model: HMM, x: np.ndarray) -> Sequence[float]:
    return model.means_.flatten().tolist()


def standard_deviations(model: HMM, x: np.ndarray) -> Sequence[float]:
    return np.sqrt(model.covariances_).flatten().tolist()


def transitions(model: HMM, x: np.ndarray) -> Sequence[float]:
    """From each state to all."""
    return model.transition_.flatten().tolist()


def all_first_states(model: HMM, x: np.ndarray) -> Sequence[float]:
    return model.initial_.tolist()


def means_and_deviation(model: HMM, x: np.ndarray) -> Sequence[float]:
    """To the first state from each; means; the deviation that they share."""
    return [*model.transition_[:, 0], *model.means_[:, 0, 0], *np.sqrt(model.covariances_).flatten()]


def regressions(model: HMM, x: np.ndarray) -> Sequence[float]:
    """To the first state from each; intercepts if there are any, coefficients, deviations."""
    intercepts = model.intercepts_[:, 0] if model.observation_.intercept else []
    numbers = [intercepts, model.coefficients_[:, 0, 0], np.sqrt(model.covariances_).flatten()]
    return [*model.transition_[:, 0], *(float(number) for each in numbers for number in each)]


def log_prob_after_first(model: LinearGaussian, x: np.ndarray) -> Sequence[float]:
    """The diffuse log-likelihood, less the constant of the first value, which has no density."""
    return (model.diffuse_log_prob([x]) + 0.5 * np.log(2 * np.pi)).tolist()


def log_prob_of_all(model: LinearGaussian, x: np.ndarray) -> Sequence[float]:
    return model.log_prob([x]).tolist()


def level_variances(model: LinearGaussian, x: np.ndarray) -> Sequence[float]:
    """Of the noise and of the steps of the level."""
    return [model.components_["noise_variance"], model.components_["level_variance"]]


def first_middle_and_last_of_gap(model: LinearGaussian, x: np.ndarray) -> Sequence[float]:
    """Means and variances of three missing values given all known ones."""
    (smoothed,), steps = model.smooth([x]), [GAP.start, (GAP.start + GAP.stop) // 2, GAP.stop - 1]
    return [*smoothed.means[steps, 0], *smoothed.covariances[steps, 0, 0]]


# -- what is published -------------------------------------------------------------------------------------------------

BOOK = "Zucchini, MacDonald and Langrock, *Hidden Markov models for time series*"
STATA = "Stata 14 manual, *mswitch*; statsmodels, tests of MarkovRegression"
VIEWS = "Hamilton (1989); EViews, in statsmodels, tests of MarkovAutoregression"
FILARDO = "Filardo (1994); statsmodels, tests of MarkovAutoregression"
BEST_KNOWN = "No publication: the best maximum known of these data, by other optimisers"
DEPMIX = "depmixS4, vignette; Visser and Speekenbrink (2010)"
TESTS_OF_DEPMIX = "depmixS4, its tests"
LEVELS = "Durbin and Koopman, *Time series analysis by state space methods*, 2.10; log p as state space software has it"
MULTIVARIATE = "Stata, *var* and *dfactor*, in statsmodels, tests of VARMAX and DynamicFactor"
KFAS = "R package KFAS, in statsmodels, tests of the Kalman smoother (test_smoothing3.R)"
LOG_PROB = "log p"


@dataclass(frozen=True)
class Case:
    """A model of a series, and figures of it: by name the numbers as they are printed, and how ours are read."""

    data: str
    model: str
    source: str
    fit: Fit
    figures: Mapping[str, tuple[str, Figures]]


MINUTES = Rounded(GaussianMixture(1), width=1.0)
INTERVALS = IntervalCensored(GaussianMixture(1))
CASES = [
    Case("earthquakes", "Poisson, 1 state", BOOK, poisson(1, "free"), {LOG_PROB: ("-391.9189", log_prob)}),
    Case(
        "earthquakes",
        "Poisson, 2 states, free start",
        BOOK,
        poisson(2, "free"),
        {
            LOG_PROB: ("-341.87870", log_prob),
            "transitions, rates": ("0.071626 0.11903 15.421 26.018", transitions_and_rates),
        },
    ),
    Case(
        "earthquakes",
        "Poisson, 3 states, free start",
        BOOK,
        poisson(3, "free"),
        {LOG_PROB: ("-328.52748", log_prob), "rates": ("13.134 19.713 29.710", rates)},
    ),
    Case(
        "earthquakes",
        "Poisson, 2 states, EM from the book's start",
        BOOK,
        poisson_from([10, 30], stays=0.9, steps=50),
        {
            "-log p after 0, 1, 2, 30, 50 steps": (
                "413.27542 343.76023 343.13618 341.87871 341.87870",
                em_steps(0, 1, 2, 30, 50),
            )
        },
    ),
    Case(
        "earthquakes",
        "Poisson, 3 states, EM from the book's start",
        BOOK,
        poisson_from([10, 20, 30], stays=0.8, steps=30),
        {"-log p after 0, 1, 2, 30 steps": ("342.90781 332.12143 330.63689 328.52748", em_steps(0, 1, 2, 30))},
    ),
    Case(
        "earthquakes",
        "Poisson, 2 states, stationary",
        BOOK,
        poisson(2, "stationary"),
        {
            LOG_PROB: ("-342.31827", log_prob),
            "transitions, rates": ("0.065961 0.12851 15.472 26.125", transitions_and_rates),
            "stationary": ("0.66082", first_states),
        },
    ),
    Case(
        "earthquakes",
        "Poisson, 3 states, stationary",
        BOOK,
        poisson(3, "stationary"),
        {
            LOG_PROB: ("-329.46028", log_prob),
            "rates": ("13.146 19.721 29.714", rates),
            "stationary": ("0.44364 0.40450", first_states),
            "states of 2007, 2016, 2036": (
                "0.951 0.028 0.021 0.674 0.220 0.107 0.482 0.373 0.145",
                first_state_after(1, 10, 30),
            ),
        },
    ),
    Case(
        "earthquakes",
        "Poisson, 4 states, stationary",
        BOOK,
        poisson(4, "stationary"),
        {LOG_PROB: ("-327.8316", log_prob)},
    ),
    Case(
        "fedfunds",
        "2 means, one variance",
        STATA,
        gaussian(2, "tied", "stationary"),
        {
            LOG_PROB: ("-508.63592", log_prob),
            "transitions, means, deviation": (
                "0.9820939 0.0503587 3.70877 9.556793 2.107562",
                means_and_deviation,
            ),
            "standard errors": ("0.0104002 0.0268434 0.1767083 0.2999889", standard_errors),
        },
    ),
    Case(
        "fedfunds",
        "2 intercepts and lags, one variance",
        STATA,
        regression("tied"),
        {
            LOG_PROB: ("-264.71069", log_prob),
            "transitions, regressions": (
                "0.6378175 0.1306295 0.724457 -0.0988764 0.7631424 1.061174 0.6915759",
                regressions,
            ),
        },
    ),
    Case(
        "areturns",
        "2 intercepts, lags and variances",
        STATA,
        regression("full"),
        {
            LOG_PROB: ("-745.7977", log_prob),
            "transitions, regressions": (
                "0.7530865 0.6825357 0.7641424 1.972771 0.0790744 0.527953 0.5895792 1.605333",
                regressions,
            ),
        },
    ),
    Case(
        "mumpspc",
        "2 lags and variances, no intercept",
        STATA,
        regression("full", intercept=False),
        {
            LOG_PROB: ("131.7225", log_prob),
            "transitions, regressions": (
                "0.762733 0.1473767 0.420275 0.9847369 0.0562405 0.2611362",
                regressions,
            ),
        },
    ),
    Case(
        "rgnp",
        "2 means, 4 lags of deviations from them",
        VIEWS,
        deviations(4),
        {
            LOG_PROB: ("-181.26339", log_prob),
            "transitions, means, log deviation, lags": (
                "0.754673 0.095915 -0.358811 1.163516 -0.262658 0.013486 -0.057521 -0.246983 -0.212923",
                deviations_from_means,
            ),
        },
    ),
    Case(
        "rgnp",
        "2 means, each with a lag of deviations from them",
        VIEWS,
        deviations(1, switching_ar=True, order_of_states=-1),
        {
            LOG_PROB: ("-186.7575", log_prob),
            "transitions, means, log deviation, lags": (
                "0.85472458 0.53662099 1.041419 -0.479157 -0.231404 0.243128 0.713029",
                deviations_from_means,
            ),
        },
    ),
    Case(
        "rgnp, recessions",
        "2 means, each with a lag of deviations from them, transitions by recessions",
        VIEWS,
        deviations(1, switching_ar=True),
        {
            LOG_PROB: ("-161.786477", log_prob_given_driver),
            f"{LOG_PROB} of EViews, a lower maximum": ("-163.914049", log_prob_given_driver),
        },
    ),
    Case(
        "production, leading index",
        "2 means, 4 lags of deviations from them, transitions by the index of the month before",
        FILARDO,
        lagged(deviations(4, order_of_states=-1)),
        {
            LOG_PROB: ("-586.5718", of_lagged(log_prob_given_driver)),
            "log-odds, slopes, means, log deviation, lags": (
                "4.35941747 -1.6493936 1.7702123 0.9945672 0.517298 -0.865888 -0.362469 0.189474 0.079344 0.110944 "
                "0.122251",
                of_lagged(driven_deviations_from_means),
            ),
        },
    ),
    Case(
        "West Germany",
        "vector autoregression of one lag, at the printed parameters",
        MULTIVARIATE,
        vector_autoregression(),
        {LOG_PROB: ("587.8481", log_prob_of_all)},
    ),
    Case(
        "West Germany",
        "one factor with two lags, at the printed parameters",
        MULTIVARIATE,
        dynamic_factor(),
        {LOG_PROB: ("594.0902", log_prob_of_all)},
    ),
    Case(
        "wholesale prices",
        "autoregression of three lags, eleven values missing, at the printed parameters",
        KFAS,
        autoregression(),
        {
            LOG_PROB: ("-130.0310409", log_prob_of_all),
            "first, middle and last missing value, variances": (
                "0.0118874 0.1068901 0.2159434 0.5166135 0.8297052 0.5166135",
                first_middle_and_last_of_gap,
            ),
        },
    ),
    *(
        Case("speed", f"{model}, free start", source, gaussian(k, "full", "free"), {LOG_PROB: (printed, log_prob)})
        for k, model, source, printed in (
            (1, "1 Gaussian", BEST_KNOWN, "-305.3309"),
            (2, "2 Gaussians", DEPMIX, "-88.73"),
            (2, "2 Gaussians", BEST_KNOWN, "-88.7306"),
            (3, "3 Gaussians", BEST_KNOWN, "-58.386"),
        )
    ),
    Case(
        "speed, three sessions",
        "2 Gaussians and answers, transitions by pay",
        DEPMIX,
        driven,
        {LOG_PROB: ("-248.972219", log_prob_of_sessions)},
    ),
    Case(
        "speed, three sessions",
        "2 Gaussians and answers, at the printed parameters",
        TESTS_OF_DEPMIX,
        given_sessions,
        {LOG_PROB: ("-296.115107102", log_prob_of_plain_sessions)},
    ),
    *(
        Case("geyser, waiting", f"{k} Gaussians, rounded to minutes, stationary", BOOK, interval(k, MINUTES), figures)
        for k, figures in (
            (2, {LOG_PROB: ("-1092.794", log_prob)}),
            (
                3,
                {
                    LOG_PROB: ("-1051.138", log_prob),
                    "means": ("55.30 75.30 84.93", means),
                    "deviations": ("5.809 3.808 5.433", standard_deviations),
                    "stationary": ("0.342 0.259 0.399", all_first_states),
                    "transitions": ("0.000 0.000 1.000 0.298 0.575 0.127 0.662 0.276 0.062", transitions),
                },
            ),
            (4, {LOG_PROB: ("-1038.600", log_prob)}),
        )
    ),
    *(
        Case(
            "geyser, durations",
            f"{m} Gaussians in intervals, independent mixture",
            BOOK,
            mixture(m),
            {LOG_PROB: (printed, log_prob)},
        )
        for m, printed in ((2, "-1230.920"), (3, "-1203.872"), (4, "-1203.636"))
    ),
    *(
        Case("geyser, durations", f"{k} Gaussians in intervals, stationary", BOOK, interval(k, INTERVALS), figures)
        for k, figures in (
            (2, {LOG_PROB: ("-1168.955", log_prob)}),
            (
                3,
                {
                    LOG_PROB: ("-1127.185", log_prob),
                    "means": ("1.894 3.400 4.459", means),
                    "deviations": ("0.139 0.841 0.320", standard_deviations),
                    "stationary": ("0.291 0.195 0.514", all_first_states),
                    "transitions": ("0.000 0.000 1.000 0.053 0.113 0.834 0.546 0.337 0.117", transitions),
                },
            ),
            (4, {LOG_PROB: ("-1109.147", log_prob)}),
        )
    ),
    Case(
        "nile",
        "local level, diffuse start, given the first value",
        LEVELS,
        local_level,
        {
            LOG_PROB: ("-632.5456", log_prob_after_first),
            "variances of noise and level": ("15099 1469.1", level_variances),
        },
    ),
    Case(
        "nile",
        "local level, first level of variance 10⁷",
        LEVELS,
        local_level_from(1e7),
        {LOG_PROB: ("-641.5856", log_prob_of_all)},
    ),
]


# -- the table ---------------------------------------------------------------------------------------------------------


def rows(case: Case, x: np.ndarray | None) -> list[dict[str, object]]:
    """A row for each figure; ``seconds`` of the processor are those of the fit."""
    alike = {"data": case.data, "model": case.model}
    if x is None:
        why = f"no data: {WHERE[case.data]}"
        return [
            {**alike, "figure": name, "published": printed, "agreement": why, "source": case.source}
            for name, (printed, _) in case.figures.items()
        ]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # series with values that repeat, which are as they are
        model = case.fit(x)
    seconds = time.process_time() - began
    found = []
    for name, (printed, read_figures) in case.figures.items():
        ours = [float(value) for value in read_figures(model, x)]
        found.append(
            {
                **alike,
                "figure": name,
                "published": printed,
                "ours": (shown := as_printed(ours, printed)),
                "difference": (difference := largest_difference(ours, printed)),
                "agreement": agreement(shown, printed, difference, is_maximum=name.startswith(LOG_PROB)),
                "seconds": round(seconds, 1),
                "source": case.source,
            }
        )
    return found


def decimals(number: str) -> int:
    """How many are printed after the point."""
    return len(number.partition(".")[2])


def as_printed(ours: Sequence[float], printed: str) -> str:
    """Ours, to the digits of what is printed."""
    return " ".join(f"{a:.{decimals(b)}f}" for a, b in zip(ours, printed.split(), strict=True))


def largest_difference(ours: Sequence[float], printed: str) -> float:
    """Ours minus the printed one, of the numbers that differ most."""
    differences = [a - float(b) for a, b in zip(ours, printed.split(), strict=True)]
    return max(differences, key=abs)


def agreement(ours: str, printed: str, difference: float, *, is_maximum: bool) -> str:
    """``all digits`` if ours, to as many digits, are the numbers printed; else how they differ."""
    pairs = zip(ours.split(), printed.split(), strict=True)
    units = max(round(abs(float(a) - float(b)) * 10 ** decimals(b)) for a, b in pairs)
    if units == 0:
        return "all digits"
    if is_maximum and difference > 0:
        return "ours is higher"
    return f"{units} in the last digit" if units < 10 else "differs"


def markdown(frame: pd.DataFrame) -> str:
    """The table of the page."""
    columns = ["data", "model", "figure", "published", "ours", "difference", "agreement", "seconds"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    frame = frame.reindex(columns=[*columns, "source"]).astype(object)
    for row in frame.where(frame.notna(), "").to_dict("records"):
        difference = row["difference"] if row["difference"] == "" else f"{row['difference']:.0e}"
        cells = {**row, "difference": difference, "model": f"{row['model']} [{_number(row['source'])}]"}
        lines.append("| " + " | ".join(str(cells[name]) for name in columns) + " |")
    sources = [f"{_number(source)}. {source}." for source in SOURCES]
    return "\n".join([*lines, "", *sources])


SOURCES = list(dict.fromkeys(case.source for case in CASES))


def _number(source: object) -> int:
    return SOURCES.index(str(source)) + 1


def with_table(page: str, table: str) -> str:
    """The page with this table in the place of the one it has."""
    before, _, rest = page.partition(ABOVE)
    _, _, after = rest.partition(BELOW)
    return f"{before}{ABOVE}\n\n{table}\n\n{BELOW}{after}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="*", default=[], metavar="DIR", help="folders with the series, in any depth")
    folders = folders_of(parser.parse_args().data)
    found: list[dict[str, object]] = []
    for case in CASES:
        found += rows(case, read(case.data, folders))
        print(case.data, case.model, found[-1]["agreement"], sep="; ", flush=True)
    frame = pd.DataFrame(found)
    stamped(frame).to_csv(RESULTS, index=False)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), markdown(frame)), encoding="utf-8")
