"""Do 95 % intervals of a paired difference cover the true one 95 times in 100? ``interval_coverage.py [--quick]``.

Data are drawn from a known HMM of symbols, and scored by fixed models: the true one and wrong ones, so that nothing is
fitted and the true difference is a number. The studies, with the rule for each set before any figure:

- clusters: every cluster draws its own emission table around the true one, so that its sequences (1 to 12 of them, of 4
  to 20 steps) are dependent. ``paired_difference`` is to cover 94 to 96 % of repetitions for 5, 10, 40 and 200
  clusters. Beside it the plain percentile bootstrap of clusters, and Student's t over sequences that does not look at
  clusters, to show what they do.
- skewed: the differences of 5 to 50 clusters are drawn themselves, from normal, heavy-tailed and skewed distributions,
  the clusters of one size or not. ``paired_difference`` is to cover 94 to 96 % of the first four with clusters of one
  size (``asked``). Beside it what it was before (Student's t, and from 20 clusters on a symmetric studentised
  bootstrap), the equal-tailed studentised bootstrap, and Hall's (1992) transformed t. ``fitted`` are those whose draws,
  others than these, the constants of ``paired_difference`` were fitted to.
- seeds: the differences of 3, 5 and 10 seeds on 5, 20 and 100 clusters are drawn as the sum of an effect of the
  cluster, of the seed, and of the two together, normal or with clusters of Student's t with 3 degrees of freedom or
  log-normal, of one size or not. ``paired_difference`` of all seeds is to cover 94 to 96 %. Beside it the interval over
  clusters of the mean over seeds. ``shares`` says how much of the squared error of the estimate is of seeds and of seed
  and cluster together, in multiples of that of clusters.
- best: how often the model confidence set of 95 % holds the best of eight models, where three are as good and others
  are behind by up to two standard errors; 95 % at least by right.
- tails: the differences of 200, 1,000 and 5,000 steps are drawn independently, from distributions with tails of known
  Pareto shape k on one side or both, and from normal ones with a rare jump. Coverage by ``moving_block_difference``,
  and the share of repetitions in which the estimated k is 0.5 or more.
- long: one long sequence, from one whose steps hardly depend on each other to one with a state that lasts 100 steps.
  ``moving_block_difference`` is to cover 93 to 97 %. Beside it Student's t over steps.

And once: how often Holm's correction over five null models (differences shifted by the true one) finds something, 5 %
at most by right.

The true difference is that of all repetitions of a study together: its standard error is a 45th of one repetition's
(column ``truth_error``), which moves a coverage by less than 0.02 %. Monte-Carlo standard errors are in the column
``error``: 0.5 % at 2,000 repetitions.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from seqmodels import HMM
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.evaluation.statistics.confidence_set import confidence_set_p_values
from seqmodels.evaluation.statistics.paired import holm, moving_block_difference, paired_difference
from seqmodels.evaluation.statistics.tails import INFINITE_VARIANCE, StepTails

K, V = 3, 6
CLUSTERS, CONCENTRATION = (5, 10, 40, 200), 4.0
STAY = {"independent": 1 / K, "dependent": 0.9, "slow": 0.99}  # of the long sequences' states
STEPS = (1_000, 5_000, 20_000)
JUMPS, JUMP_RATE = "normal with jumps of 200 in 2 of 1,000 steps", 0.002
HEAVY = ("normal", *(f"{sides}, k {k}" for sides in ("two tails", "one tail") for k in (0.33, 0.5, 0.67)), JUMPS)
TAIL_STEPS = (200, 1_000, 5_000)
AT_ONCE = 4_000_000  # steps drawn and scored together
SCORED_AT_ONCE = 100_000  # sequences
LEVEL = 0.95
PAIRS = (("wrong emissions", "true"), ("wrong transitions", "wrong emissions"))

Interval = tuple[float, float, float]  # low, high, p-value
FEW, N_BOOTSTRAP = (5, 8, 12, 20, 50), 399
BEFORE = "before: t, bootstrap from 20 on"
PARETO, WEIBULL = 3.5, 0.7  # shapes: 3.5 has a variance but no kurtosis

Draw = Callable[[np.random.Generator, int], np.ndarray]
# Of a cluster's difference per unit: its draws and its mean, whether the rule asks for coverage of it, and whether
# constants were fitted to it.
DISTRIBUTIONS: dict[str, tuple[Draw, float, bool, bool]] = {
    "normal": (lambda rng, n: rng.normal(size=n), 0.0, True, True),
    "Student's t, 3 degrees of freedom": (lambda rng, n: rng.standard_t(3, n), 0.0, True, True),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0, True, True),
    "log-normal": (lambda rng, n: rng.lognormal(size=n), float(np.exp(0.5)), True, True),
    "gamma, shape 0.5": (lambda rng, n: rng.gamma(0.5, size=n), 0.5, False, True),
    "uniform": (lambda rng, n: rng.uniform(-1, 1, n), 0.0, False, True),
    "normal, a tenth of them 3 times as wide": (
        lambda rng, n: rng.normal(size=n) * np.where(rng.uniform(size=n) < 0.1, 3.0, 1.0),
        0.0,
        False,
        False,
    ),
    "two groups, 30 % around 1 and 70 % around 0": (
        lambda rng, n: 0.3 * rng.normal(size=n) + (rng.uniform(size=n) < 0.3),
        0.3,
        False,
        False,
    ),
    "Weibull, shape 0.7": (lambda rng, n: rng.weibull(WEIBULL, n), math.gamma(1 + 1 / WEIBULL), False, False),
    "Pareto, index 3.5": (lambda rng, n: rng.pareto(PARETO, n), 1 / (PARETO - 1), False, False),
    "log-normal, sigma 1.5": (lambda rng, n: rng.lognormal(0, 1.5, n), float(np.exp(1.5**2 / 2)), False, False),
}
N_SEEDS, CLUSTERS_BY_SEEDS = (3, 5, 10), (5, 20, 100)
CLUSTERS_OF_SEEDS = (
    ("normal", "equal"),
    ("Student's t, 3 degrees of freedom", "equal"),
    ("log-normal", "equal"),
    ("normal", "unequal"),
)
# Squared errors of the estimate by seeds, and by seeds and clusters together, in multiples of that by clusters.
SHARES = (
    ("seeds do not differ", 0.0, 0.0),
    ("seeds a third", 0.3, 0.0),
    ("seeds five times", 5.0, 0.0),
    ("seeds as much, both together a fifth", 1.0, 0.2),
    ("both together half as much", 0.0, 0.5),
)
UNEQUAL_TOO = ("normal", "exponential")  # these also with clusters of unequal size, in half as many repetitions


# -- the known HMM, and models of it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """``transition (K, K)``, with a uniform stationary distribution that sequences begin from; ``emission (K, V)``."""

    transition: np.ndarray
    emission: np.ndarray

    @classmethod
    def of(cls, stay: float) -> "Truth":
        """States that differ in their symbols, each lasting ``1 / (1 - stay)`` steps."""
        transition = np.where(np.eye(K, dtype=bool), stay, (1 - stay) / (K - 1))
        return cls(transition, np.random.default_rng(0).dirichlet(np.full(V, 0.7), size=K))

    def models(self) -> dict[str, HMM]:
        """The true one, one that smooths the emissions, one that leaves the states too soon."""
        flatter, sooner = 0.85 * self.emission + 0.15 / V, 0.8 * self.transition + 0.2 / K
        return {
            "true": self._model(self.transition, self.emission),
            "wrong emissions": self._model(self.transition, flatter),
            "wrong transitions": self._model(sooner, self.emission),
        }

    def wrong(self, rng: np.random.Generator) -> HMM:
        """One with other emissions, near the true ones."""
        return self._model(self.transition, 0.9 * self.emission + 0.1 * rng.dirichlet(np.ones(V), size=K))

    def _model(self, transition: np.ndarray, emission: np.ndarray) -> HMM:
        return HMM.from_parameters(np.full(K, 1 / K), transition, emission=emission, dtype="float64")

    def draw(self, n_steps: int, emission: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """``(n, T)`` symbols by the tables ``emission (n, K, V)``."""
        n = len(emission)
        going, emitting = self.transition.cumsum(axis=1), emission.cumsum(axis=2)
        symbols, state = np.empty((n_steps, n), dtype=np.int64), rng.integers(K, size=n)
        for t in range(n_steps):
            symbols[t] = (emitting[np.arange(n), state, :-1] <= rng.uniform(size=(n, 1))).sum(axis=1)
            state = (going[state, :-1] <= rng.uniform(size=(n, 1))).sum(axis=1)
        return symbols.T


# -- clusters --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scored:
    """Sequences, concatenated: ``cluster (n,)`` ascending, ``units (n,)``, and ``log_prob (n,)`` by each model."""

    cluster: np.ndarray
    units: np.ndarray
    log_prob: dict[str, np.ndarray]

    def part(self, first: int, last: int) -> slice:
        """The sequences of these clusters."""
        begin, end = np.searchsorted(self.cluster, (first, last))
        return slice(int(begin), int(end))


def draw_clusters(
    truth: Truth, models: dict[str, HMM], n_clusters: int, rng: np.random.Generator, longest: int = 20
) -> Scored:
    """Clusters of unequal size, each with emissions of its own."""
    sizes = np.minimum(1 + rng.lognormal(0.0, 1.0, n_clusters).astype(int), 12)
    cluster, units = np.repeat(np.arange(n_clusters), sizes), rng.integers(4, longest + 1, size=sizes.sum())
    own = rng.standard_gamma(CONCENTRATION * truth.emission, size=(n_clusters, K, V))
    own /= own.sum(axis=2, keepdims=True)
    symbols = truth.draw(longest, own[cluster], rng)
    sequences = [row[:n] for row, n in zip(symbols, units, strict=True)]
    parts = range(0, len(sequences), SCORED_AT_ONCE)
    log_prob = {
        name: np.concatenate([model.log_prob(sequences[at : at + SCORED_AT_ONCE]) for at in parts])
        for name, model in models.items()
    }
    return Scored(cluster, units, log_prob)


def by_paired_difference(d: np.ndarray, u: np.ndarray, cluster: np.ndarray, seed: int) -> Interval:
    found = paired_difference(d, np.zeros(len(d)), u, cluster, level=LEVEL)
    return found.low, found.high, found.p_value


def by_percentiles(d: np.ndarray, u: np.ndarray, cluster: np.ndarray, seed: int) -> Interval:
    """The plain bootstrap of clusters, as it is mostly done."""
    codes = cluster - cluster[0]
    totals, units = np.bincount(codes, weights=d), np.bincount(codes, weights=u)
    drawn = np.random.default_rng(seed).integers(len(totals), size=(2000, len(totals)))
    ratios = totals[drawn].sum(axis=1) / units[drawn].sum(axis=1)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high), np.nan


def by_t_over_sequences(d: np.ndarray, u: np.ndarray, cluster: np.ndarray, seed: int) -> Interval:
    """As if all sequences were independent."""
    ratio = d.sum() / u.sum()
    residuals = (d - ratio * u) * len(d) / u.sum()
    return _t(float(ratio), residuals)


def _t(mean: float, residuals: np.ndarray) -> Interval:
    n = len(residuals)
    half = stats.t.ppf((1 + LEVEL) / 2, n - 1) * residuals.std(ddof=1) / np.sqrt(n)
    return mean - half, mean + half, np.nan


OVER_CLUSTERS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, int], Interval]] = {
    "paired_difference": by_paired_difference,
    "percentile bootstrap of clusters": by_percentiles,
    "t over sequences": by_t_over_sequences,
}


def study_clusters(repetitions: int) -> list[dict[str, object]]:
    """A row a pair of models, number of clusters and method; repetitions of one number have no cluster in common."""
    truth, rng = Truth.of(STAY["dependent"]), np.random.default_rng(1)
    scored = draw_clusters(truth, truth.models(), repetitions * max(CLUSTERS), rng)
    rows: list[dict[str, object]] = []
    for a, b in PAIRS:
        d = scored.log_prob[a] - scored.log_prob[b]
        true = float(d.sum() / scored.units.sum())
        parts = {n: [scored.part(i * n, (i + 1) * n) for i in range(repetitions)] for n in CLUSTERS}
        for n, method in [(n, method) for n in CLUSTERS for method in OVER_CLUSTERS]:
            found = [OVER_CLUSTERS[method](d[p], scored.units[p], scored.cluster[p], i) for i, p in enumerate(parts[n])]
            estimates = [float(d[p].sum() / scored.units[p].sum()) for p in parts[n]]
            rows.append({"study": "clusters", "data": "clusters", "pair": f"{a} - {b}", "n": n, "method": method})
            rows[-1] |= summary(found, true, float(np.std(estimates)) / np.sqrt(repetitions * max(CLUSTERS) / n))
    return rows


# -- skewed differences ---------------------------------------------------------------------------------------


def over_skewed(d: np.ndarray, u: np.ndarray, seed: int) -> dict[str, Interval]:
    """The intervals compared, by method.

    The one in use; the symmetric one before it (Student's t, and from 20 clusters on the quantile of bootstrapped
    ``|t|``); and two more.
    """
    n, q = len(d), stats.t.ppf((1 + LEVEL) / 2, len(d) - 1)
    ratio, error, skewness = (float(x[0]) for x in _linearised(d[None], u[None]))
    t = _bootstrapped(d, u, seed)
    half = q if n < 20 else float(np.quantile(np.abs(t), LEVEL, method="weibull"))
    low, high = np.quantile(t, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="weibull")
    a = np.copysign(max(abs(skewness), 1e-9), skewness)
    below, above = 3 / a * (np.cbrt(1 + a * (np.array([q, -q]) - a / 6)) - 1)  # the cubic of t, solved for it
    now = paired_difference(d, np.zeros(n), u, level=LEVEL)
    return {
        "paired_difference": (now.low, now.high, now.p_value),
        BEFORE: (ratio - half * error, ratio + half * error, np.nan),
        "equal-tailed studentised bootstrap": (ratio - high * error, ratio - low * error, np.nan),
        "Hall's transformed t": (ratio - below * error, ratio - above * error, np.nan),
    }


def _linearised(d: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row of ``(B, C)``: ratio, standard error and skewness.

    The standard error has n - 1 degrees of freedom; the skewness is that of the sum of residuals.
    """
    n, total = d.shape[1], u.sum(axis=1)
    ratio = d.sum(axis=1) / total
    e = d - ratio[:, None] * u
    squares = (e**2).sum(axis=1)
    with np.errstate(invalid="ignore"):  # 0 / 0 of a resample with one cluster only
        skewness = (e**3).sum(axis=1) / squares**1.5
    return ratio, np.sqrt(squares * n / (n - 1)) / total, skewness


def _bootstrapped(d: np.ndarray, u: np.ndarray, seed: int) -> np.ndarray:
    """``(N_BOOTSTRAP,)`` values of t, infinite where a resample has no spread.

    Each repetition uses one of 20 sets of resamples.
    """
    counts = _resamples(len(d), seed % 20)
    n, total = len(d), counts @ u
    ratio = counts @ d / total
    squares = counts @ d**2 - 2 * ratio * (counts @ (d * u)) + ratio**2 * (counts @ u**2)
    above = ratio - d.sum() / u.sum()
    error = np.sqrt(np.maximum(squares, 0) * n / (n - 1)) / total
    return np.divide(above, error, out=np.copysign(1e9, above), where=error > 1e-7 * np.abs(d).max() / total)


@cache
def _resamples(n: int, seed: int) -> np.ndarray:
    """``(N_BOOTSTRAP, n)``: how often each cluster is drawn."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=N_BOOTSTRAP).astype(float)


def study_skewed(repetitions: int) -> list[dict[str, object]]:
    """A row a distribution of differences, sizes of the clusters, number of them and method."""
    kinds = [(name, sizes) for name in DISTRIBUTIONS for sizes in ("equal", "unequal")]
    kinds = [(name, sizes) for name, sizes in kinds if sizes == "equal" or name in UNEQUAL_TOO]
    rows: list[dict[str, object]] = []
    for i, (name, sizes) in enumerate(kinds):
        draw, mean, asked, fitted = DISTRIBUTIONS[name]
        for n in FEW:
            rng = np.random.default_rng([4, i, n])
            found: dict[str, list[Interval]] = {}
            for seed in range(repetitions if sizes == "equal" else repetitions // 2):
                u = np.ones(n) if sizes == "equal" else 1.0 + rng.poisson(rng.lognormal(1.5, 0.5, n))
                d = u * draw(rng, n)
                for method, interval in over_skewed(d, u, seed).items():
                    found.setdefault(method, []).append(interval)
            for method in found:
                rows.append({"study": "skewed", "data": name, "sizes": sizes, "n": n, "method": method})
                rows[-1] |= {"asked": asked and sizes == "equal", "fitted": fitted and sizes == "equal"}
                rows[-1] |= summary(found[method], mean, 0.0)
                rows[-1]["width"] = float(np.median([high - low for low, high, _ in found[method]]))
    return rows


# -- several seeds --------------------------------------------------------------------------------------------


def study_seeds(repetitions: int) -> list[dict[str, object]]:
    """A row a distribution of clusters, shares of the squared error, number of seeds, of clusters, and method."""
    rows: list[dict[str, object]] = []
    for i, (name, sizes) in enumerate(CLUSTERS_OF_SEEDS):
        draw, mean, _, _ = DISTRIBUTIONS[name]
        deviation = draw(np.random.default_rng(9), 1_000_000).std()
        for n_seeds, n, (shares, of_seeds, of_both) in product(N_SEEDS, CLUSTERS_BY_SEEDS, SHARES):
            rng = np.random.default_rng([5, i, n_seeds, n, int(10 * of_seeds), int(10 * of_both)])
            both: dict[str, list[Interval]] = {"seeds and clusters": [], "clusters alone": []}
            units = [np.ones(n)]
            if sizes == "unequal":
                units = [1.0 + rng.poisson(rng.lognormal(1.5, 0.5, n)) for _ in range(20)]
            for seed in range(repetitions):
                u = units[seed % len(units)]
                effects = (draw(rng, n) - mean) / deviation
                effects = effects + np.sqrt(of_seeds * n_seeds / n) * rng.normal(size=(n_seeds, 1))
                d = u * (effects + np.sqrt(of_both * n_seeds) * rng.normal(size=(n_seeds, n)))
                for method, values in (("seeds and clusters", d), ("clusters alone", d.mean(axis=0))):
                    result = paired_difference(values, np.zeros_like(values), u, level=LEVEL)
                    both[method].append((result.low, result.high, result.p_value))
            for method, intervals in both.items():
                rows.append({"study": "seeds", "data": name, "sizes": sizes, "seeds": n_seeds, "n": n})
                rows[-1] |= {"shares": shares, "method": method} | summary(intervals, 0.0, 0.0)
    return rows


# -- the model confidence set ---------------------------------------------------------------------------------


def study_best(repetitions: int) -> list[dict[str, object]]:
    """A row a distribution of scores and number of clusters: is the best in the set, are all three, how many are."""
    rows: list[dict[str, object]] = []
    for i, name in enumerate(("normal", "log-normal")):
        draw, mean, _, _ = DISTRIBUTIONS[name]
        for n in (5, 10, 20, 50, 100):
            rng = np.random.default_rng([6, i, n])
            behind = np.array([0, 0, 0, 0.25, 0.5, 1, 1.5, 2]) * np.sqrt(2 / n)
            sizes, best, all_best = [], 0, 0
            for seed in range(repetitions):
                shared = 2 * rng.normal(size=n)  # of a cluster, the same for all models
                scores = np.stack([shared + draw(rng, n) - mean - each for each in behind])
                p = confidence_set_p_values(list(scores[:, None]), np.ones(n), n_bootstrap=500, random_state=seed)
                among = p >= 1 - LEVEL
                sizes.append(int(among.sum()))
                best, all_best = best + bool(among[0]), all_best + bool(among[:3].all())
            rows.append({"study": "best", "data": name, "n": n, "best_is_in": best / repetitions})
            rows[-1] |= {"all_three_are_in": all_best / repetitions, "mean_size": float(np.mean(sizes))}
            rows[-1] |= {"repetitions": repetitions}
    return rows


# -- one long sequence -----------------------------------------------------------------------------------------


def study_long(repetitions: int) -> list[dict[str, object]]:
    """A row a kind of sequence, pair of models, length and method."""
    rng = np.random.default_rng(2)
    rows: list[dict[str, object]] = []
    for kind, n_steps in [(kind, n) for kind in STAY for n in STEPS]:
        truth = Truth.of(STAY[kind])
        for pair, differences in _long_differences(truth, n_steps, repetitions, rng).items():
            means = differences.mean(axis=1, dtype=np.float64)
            true, truth_error = float(means.mean()), float(means.std() / np.sqrt(repetitions))
            blocks = [moving_block_difference(d, np.zeros(n_steps), level=LEVEL) for d in differences]
            for method, found in {
                "moving_block_difference": [(b.low, b.high, b.p_value) for b in blocks],
                "t over steps": [_t(float(d.mean()), d - d.mean()) for d in differences],
            }.items():
                rows.append({"study": "long", "data": kind, "pair": pair, "n": n_steps, "method": method})
                rows[-1] |= summary(found, true, truth_error)
                if method == "moving_block_difference":
                    rows[-1]["block"] = float(np.median([b.block or np.nan for b in blocks]))
    return rows


def _long_differences(truth: Truth, n_steps: int, repetitions: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Of each pair ``(repetitions, T)`` differences of steps, float32 for room."""
    found: dict[str, list[np.ndarray]] = {f"{a} - {b}": [] for a, b in PAIRS}
    models, size = truth.models(), max(1, AT_ONCE // n_steps)
    for at in range(0, repetitions, size):
        n = min(size, repetitions - at)
        symbols = truth.draw(n_steps, np.broadcast_to(truth.emission, (n, K, V)), rng)
        steps = {name: np.stack(model.log_prob_steps(list(symbols))) for name, model in models.items()}
        for a, b in PAIRS:
            found[f"{a} - {b}"].append((steps[a] - steps[b]).astype(np.float32))
    return {pair: np.concatenate(parts) for pair, parts in found.items()}


# -- steps with heavy tails ------------------------------------------------------------------------------------


def heavy_differences(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Differences of mean 0, ``(repetitions, T)``; ``kind`` ends in the shape k of the tail, where it has one."""
    name, _, k = kind.partition(", k ")
    match name:
        case "normal":
            return rng.normal(size=shape)
        case "two tails":
            return rng.standard_t(1 / float(k), size=shape)
        case "one tail":
            return rng.pareto(1 / float(k), size=shape) - 1 / (1 / float(k) - 1)
    assert name == JUMPS
    return rng.normal(size=shape) - 200 * ((rng.random(shape) < JUMP_RATE) - JUMP_RATE)


def study_tails(repetitions: int) -> list[dict[str, object]]:
    """A row a distribution and length."""
    rng = np.random.default_rng(4)
    rows: list[dict[str, object]] = []
    for kind, n_steps in product(HEAVY, TAIL_STEPS):
        d = heavy_differences(rng, kind, (repetitions, n_steps))
        found = [moving_block_difference(each, np.zeros(n_steps), level=LEVEL) for each in d]
        shapes = np.array([StepTails.of([each], n_steps).shape for each in d])
        rows.append({"study": "tails", "data": kind, "n": n_steps, "method": "moving_block_difference"})
        rows[-1] |= summary([(each.low, each.high, each.p_value) for each in found], 0.0, 0.0)
        rows[-1] |= {"median_k": float(np.median(shapes)), "flagged": float(np.mean(shapes >= INFINITE_VARIANCE))}
    return rows


# -- Holm, and what is written ---------------------------------------------------------------------------------


def study_holm(repetitions: int, n_clusters: int = 10) -> list[dict[str, object]]:
    """How often the least of five corrected p-values is 0.05 or less, where all five differences are zero in truth."""
    truth, rng = Truth.of(STAY["dependent"]), np.random.default_rng(3)
    models = {"true": truth.models()["true"]} | {f"wrong {i}": truth.wrong(rng) for i in range(5)}
    scored = draw_clusters(truth, models, repetitions * n_clusters, rng)
    differences = [scored.log_prob[name] - scored.log_prob["true"] for name in models if name != "true"]
    null = [d - d.sum() / scored.units.sum() * scored.units for d in differences]
    errors, plain = 0, 0
    for i in range(repetitions):
        p = scored.part(i * n_clusters, (i + 1) * n_clusters)
        values = [by_paired_difference(d[p], scored.units[p], scored.cluster[p], i)[2] for d in null]
        errors, plain = errors + (holm(values).min() <= 1 - LEVEL), plain + (min(values) <= 1 - LEVEL)
    rates = {"any of five, corrected by Holm": errors / repetitions, "any of five, as they are": plain / repetitions}
    return [
        {"study": "holm", "data": "clusters", "pair": "five null models", "n": n_clusters, "method": method}
        | {"false_findings": rate, "error": np.sqrt(rate * (1 - rate) / repetitions), "repetitions": repetitions}
        for method, rate in rates.items()
    ]


def summary(found: list[Interval], true: float, truth_error: float) -> dict[str, object]:
    """Share of intervals that cover the true difference, their width, and whether every p-value agrees with its own."""
    low, high, p = np.array(found).T
    covered = float(np.mean((low <= true) & (true <= high)))
    excludes = (low > 0) | (high < 0)
    return {
        "coverage": covered,
        "error": np.sqrt(covered * (1 - covered) / len(low)),
        "missed_below": float(np.mean(high < true)),
        "missed_above": float(np.mean(low > true)),
        "width": float(np.mean(high - low)),
        "p_disagrees": np.nan if np.isnan(p).all() else int(((p <= 1 - LEVEL) != excludes).sum()),
        "true_difference": true,
        "truth_error": truth_error,
        "repetitions": len(low),
    }


def plot(frame: pd.DataFrame) -> Figure:
    """Coverage against the number of clusters, and against the steps of one long sequence."""
    figure = Figure(figsize=(13, 4.4), layout="constrained")
    figure.suptitle("Coverage of 95 % intervals (bars: two Monte-Carlo standard errors)", fontsize=10)
    skewed, *axes_of_panels = figure.subplots(1, 2 + len(STAY), sharey=True)
    _plot_skewed(skewed, frame[frame["study"] == "skewed"])
    panels = [("clusters", "", "clusters", (0.94, 0.96)), *(("long", kind, "steps", (0.93, 0.97)) for kind in STAY)]
    for axes, (study, kind, unit, band) in zip(axes_of_panels, panels, strict=True):
        axes.axhspan(100 * band[0], 100 * band[1], color="0.9", label="what is asked for")
        shown = frame[(frame["study"] == study) & ((kind == "") | (frame["data"] == kind))]
        for j, (method, rows) in enumerate(shown.groupby("method", sort=False)):
            for k, (_, line) in enumerate(rows.groupby("pair", sort=False)):
                style = {"color": f"C{j}", "marker": "os"[k], "linestyle": ["-", "--"][k], "markersize": 4}
                label = str(method).replace("_", " ") if k == 0 else None
                axes.errorbar(line["n"], 100 * line["coverage"], 200 * line["error"], label=label, capsize=2, **style)
        sizes = CLUSTERS if study == "clusters" else STEPS
        axes.set(xscale="log", xlabel=unit, xticks=sizes, xticklabels=[f"{n:,}" for n in sizes])
        axes.minorticks_off()
        title = "clusters of HMM draws" if not kind else f"one sequence, {kind}"
        axes.set_title(f"{title}\ndashed: two wrong models", fontsize=9)
        axes.legend(fontsize=7, loc="lower right")
    skewed.set_ylabel("true difference covered, %")
    skewed.set_ylim(70, 98)  # shared, with room for what explains the lines
    return figure


def _plot_skewed(axes: Axes, frame: pd.DataFrame) -> None:
    axes.axhspan(94, 96, color="0.9")
    shown = frame[frame["asked"].astype(bool)]
    for j, (name, rows) in enumerate(shown.groupby("data", sort=False)):
        for method, style in (("paired_difference", "-o"), (BEFORE, "--s")):
            line = rows[rows["method"] == method]
            label = str(name).replace(", 3 degrees of freedom", " with 3 df") if style == "-o" else None
            y = (line["n"], 100 * line["coverage"], 200 * line["error"])
            axes.errorbar(*y, fmt=style, color=f"C{j}", markersize=4, capsize=2, label=label)
    axes.set(xscale="log", xlabel="clusters", xticks=FEW, xticklabels=[str(n) for n in FEW])
    axes.minorticks_off()
    axes.set_title("differences of a distribution\ndashed: the method before", fontsize=9)
    axes.legend(fontsize=7, loc="lower right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 repetitions: whether it runs")
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--study", choices=tuple(STUDIES), nargs="+", default=list(STUDIES))
    parser.add_argument("--out", type=Path, default=Path("experiments/results/coverage"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.study:
        began = time.perf_counter()
        frame = pd.DataFrame(STUDIES[name](50 if given.quick else given.repetitions))
        stamped(frame).to_csv(given.out / f"{name}.csv", index=False, float_format="%.5g")
        print(frame.to_string(index=False, float_format="%.4g"), f"\n{time.perf_counter() - began:.0f} s", flush=True)
    shown = [pd.read_csv(given.out / f"{name}.csv") for name in SHOWN if (given.out / f"{name}.csv").exists()]
    if shown:
        plot(pd.concat(shown)).savefig(given.out / "coverage.png", dpi=160)


STUDIES: dict[str, Callable[[int], list[dict[str, object]]]] = {
    "clusters": study_clusters,
    "skewed": study_skewed,
    "seeds": study_seeds,
    "best": study_best,
    "long": study_long,
    "tails": study_tails,
    "holm": study_holm,
}
SHOWN = ("clusters", "skewed", "long")


if __name__ == "__main__":
    main()
