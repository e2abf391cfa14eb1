"""Statistics of paired comparison: ``difference = Σ_c d_c / Σ_c u_c`` over clusters c, its interval and its p-value.

If each model is fitted with several seeds s, the difference ``d_sc`` has a random effect of the seed, one of the
cluster, and one of the two together, and the interval is for other seeds and other clusters of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from seqmodels.evaluation.statistics.long_sequence import LongSteps, is_long

MIN_CLUSTERS = 5  # with fewer clusters there is no interval
# Up to this number the distribution of t over unequal clusters is computed; above it is approximated by Student's t.
EXACT_CLUSTERS = 100
METHOD = "t over clusters, corrected for skewness"
METHOD_WITH_SEEDS = "t over seeds and clusters, corrected for skewness"
MIN_BLOCKS = 5
USUAL_BLOCKS = 10  # number of blocks of one long sequence; fewer if its autocorrelation asks for longer ones
MIN_STEPS = 20
_LARGEST_T = 1e5
_TINY = np.finfo(float).tiny
# At midpoints, because the mean of a periodic function over them converges fast.
_SQUARES = np.sin((np.arange(200) + 0.5) * np.pi / 400) ** 2


@dataclass(frozen=True)
class Difference:
    """The score of a model minus the score of a baseline, in nats per unit, with its interval and p-value.

    Attributes:
        difference: the estimate; positive if the model is better.
        low, high: ends of the interval; NaN if there is none, for example because there are too few clusters.
        p_value: two-sided p-value for a difference of zero, not corrected; NaN if there is no interval.
        n_clusters: number of independent clusters, or of blocks of one long sequence.
        method: how the interval was computed, in words; it begins with ``none`` if there is no interval.
        block: length of the moving blocks in steps; None if there were no blocks.
    """

    difference: float
    low: float
    high: float
    p_value: float
    n_clusters: int
    method: str
    block: int | None = None


def paired_difference(
    log_prob_model: Any,
    log_prob_baseline: Any,
    units: Any,
    clusters: Sequence[Any] | np.ndarray | None = None,
    *,
    level: float = 0.95,
) -> Difference:
    """Return the difference of two models on the same sequences with its interval and p-value.

    It is ``r = Σ (model - baseline) / Σ units``, in nats per unit (frame, byte or symbol).

    Sequences of one cluster are summed first, because they depend on each other while clusters do not. With fewer than
    5 clusters there is no interval. With more, t is computed from the linearised residuals ``d_c - r u_c`` of the
    difference d and the units u of each cluster c, each inflated by its leverage (Bell & McCaffrey 2002). Its quantile
    is Student's if clusters are of one size, and wider if few clusters hold most of the units: that of t for normal
    clusters whose variance is half noise of their steps (proportional to the units) and half their own (proportional to
    the squared units).

    If the differences have a tail on one side, the mean of few clusters mostly misses it, and t covers 82 to 91 %. So
    the limit on the side of the tail is moved out and the other one in, by ``_skewness_factor``: a function of the
    skewness of the residuals and of the number of clusters, fitted to draws so that 94 to 96 % are covered whether
    differences are normal, Student's with 3 degrees of freedom, exponential or log-normal (``docs/intervals.md``). The
    p-value is 1 minus the level of the interval that has zero as its limit, so that it is below ``1 - level`` exactly
    if the interval leaves out zero.

    With S seeds, whose fits score the same sequences, seeds and clusters are crossed random effects, and the interval
    covers the spread of both. Its squared error is the squared error of the mean over seeds, over clusters, plus
    ``V_S - V_SC`` if that is above zero. ``V_S`` is the squared error of the mean of the seeds' differences, and
    ``V_SC`` the part of it that the error over clusters contains already, the effect of seed and cluster together. The
    degrees of freedom of t belong to the sum (Satterthwaite 1946; Searle, Casella & McCulloch 1992, chapter 4), with
    more weight on few seeds. If seeds do not differ, the result is the interval over clusters.

    Args:
        log_prob_model: log-probability of each sequence in nats, ``(n,)``, or under each of S seeds, ``(S, n)``;
            finite.
        log_prob_baseline: log-probability of the same sequences under the baseline, ``(n,)`` or ``(S, n)``. If one of
            the two has S rows and the other one row, that row is compared with each of the S.
        units: number of frames, bytes or symbols of each sequence, ``(n,)``.
        clusters: cluster of each sequence (a speaker, a document), ``(n,)``; None means that every sequence is its own.
        level: coverage of the interval.

    Raises:
        ValueError: shapes differ, values are not finite (the message says how many), or units are not positive.

    >>> paired_difference([-4, -6, -9, -5, -8], [-6, -7, -11, -8, -9], [2, 2, 4, 2, 2]).difference
    0.75
    """
    d = _paired_differences(log_prob_model, log_prob_baseline, "sequences")  # (S, n)
    u = _checked_units(units, d.shape[1])
    if clusters is not None:
        d, u = _cluster_totals(d, u, clusters)
    n_seeds, n_clusters = d.shape
    mean = d.mean(axis=0)
    ratio = float(mean.sum() / u.sum())
    if n_clusters < MIN_CLUSTERS:
        return Difference(ratio, np.nan, np.nan, np.nan, n_clusters, f"none: fewer than {MIN_CLUSTERS} clusters")
    seeds = _SeedVariance.over_clusters(d, u)
    reach_below, reach_above, p_value = _cluster_t(mean, u, seeds, level)
    method = METHOD if n_seeds == 1 else METHOD_WITH_SEEDS
    return Difference(ratio, ratio - reach_below, ratio + reach_above, p_value, n_clusters, method)


def moving_block_difference(
    steps_model: Any,
    steps_baseline: Any,
    *,
    n_units: float | None = None,
    block: int | None = None,
    level: float = 0.95,
) -> Difference:
    """Return the difference of two models on one long sequence, with an interval from the sums of its moving blocks.

    The variance of the mean is estimated from all overlapping blocks, with ``1.5 (T / block - 1)`` degrees of freedom
    for t (Meketon & Schmeiser 1984). A block is three times as long as ``politis_white_block``, because that length
    gives the variance its least squared error, while an interval is hurt more by the bias of short blocks than by the
    noise of long ones. It is at least a tenth of the sequence and at most a sixth: topics that come and go under much
    noise show in no single autocorrelation, yet add up, and shorter blocks cover 76 to 82 %. Ten blocks are few, but
    the degrees of freedom account for it (Schmeiser 1982: 10 to 30); if steps are independent, the interval is 5 to 10
    % wider than necessary. Measured on draws (``experiments/interval_coverage.py``), 95 % intervals cover 93 to 96 %,
    but 86 % if the sequence is ten times as long as a topic lasts.

    With several seeds, the squared error over seeds is added and degrees of freedom are combined, as in
    ``paired_difference``.

    Args:
        steps_model: log-probability of each step in nats, ``(T,)``, or under each of S seeds, ``(S, T)``; finite.
        steps_baseline: log-probability of the same steps under the baseline, ``(T,)`` or ``(S, T)``. One row is
            compared with each of several.
        n_units: number of units of the sequence, if it is not T (a scored end is a step but no unit); None means T.
        block: length of a block in steps; None chooses it from the autocorrelation.
        level: coverage of the interval.

    Raises:
        ValueError: shapes differ, values are not finite (the message says how many), or ``block`` is outside 1 to T.
    """
    by_seed = _paired_steps(steps_model, steps_baseline)  # (S, T)
    n = by_seed.n
    if block is not None and not 1 <= block <= n:
        raise ValueError(f"block is {block}; pass a length from 1 to the {n} steps there are, or None to choose it")
    steps_per_unit = n / (n if n_units is None else float(_checked_units([n_units], 1)[0]))
    mean = by_seed.mean
    if n < MIN_STEPS:
        return Difference(
            mean * steps_per_unit, np.nan, np.nan, np.nan, 0, f"none: fewer than {MIN_STEPS} steps", block
        )
    if block is None:
        white = politis_white_block_of(by_seed.autocovariance(politis_white_lags(n)), n)
        block = min(max(int(np.ceil(3 * white)), -(-n // USUAL_BLOCKS)), n // (MIN_BLOCKS + 1))
    if n < MIN_BLOCKS * block:
        why = f"none: fewer than {MIN_BLOCKS} blocks"
        return Difference(mean * steps_per_unit, np.nan, np.nan, np.nan, n // block, why, block)
    seeds = _SeedVariance.over_blocks(by_seed, block)
    error, freedom = _with_seeds(by_seed.moving_block_error(block), 1.5 * (n / block - 1), seeds)
    half, p_value = _t_interval(mean, error, freedom, level)
    low, high = (mean - half) * steps_per_unit, (mean + half) * steps_per_unit
    method = f"moving blocks of {block} steps" + (" and seeds" if by_seed.n_seeds > 1 else "")
    return Difference(mean * steps_per_unit, low, high, p_value, n // block, method, block)


def politis_white_block(x: Any) -> float:
    """Return the length of moving blocks, in steps, that gives the variance of a mean its least squared error.

    It is ``(1.5 (G / g)² T)^(1/3)`` with ``g = Σ λ_k R_k`` and ``G = Σ λ_k |k| R_k`` over autocovariances R at lags k,
    and a flat-top window λ that ends at twice the lag after which autocorrelations are insignificant (Politis & White
    2004; corrected by Patton, Politis & White 2009).

    Args:
        x: the series, ``(T,)``.
    """
    x = np.asarray(x, dtype=np.float64)
    return politis_white_block_of(_autocovariance(x, politis_white_lags(len(x))), len(x))


def politis_white_lags(n: int) -> int:
    """Return the longest lag of the autocovariance that the choice of a block length uses for a series of ``n`` steps.

    The block length is that of ``politis_white_block``.
    """
    return min(int(np.ceil(np.sqrt(n))) + _run_of_small(n), n - 1)


def _run_of_small(n: int) -> int:
    return max(5, int(np.ceil(np.sqrt(np.log10(n)))))


def politis_white_block_of(R: np.ndarray, n: int) -> float:
    """Return the length of moving blocks that is best for the variance of a mean, from the autocovariances of a series.

    It is the length that ``politis_white_block`` computes from the series itself.

    Args:
        R: autocovariances at lags 0 to ``politis_white_lags(n)``.
        n: number of steps of the series.
    """
    run, longest = _run_of_small(n), len(R) - 1
    if R[0] <= 0:
        return 1.0
    small = np.abs(R[1:]) < 2 * np.sqrt(np.log10(n) / n) * R[0]
    runs = np.convolve(small, np.ones(run), mode="valid") == run  # runs[m]: lags m + 1 .. m + run are insignificant
    last = max(1, int(np.argmax(runs))) if runs.any() else longest
    k = np.arange(1, min(2 * last, longest) + 1)
    weighted = np.clip(2 * (1 - k / len(k)), 0, 1) * R[k]
    g, G = R[0] + 2 * weighted.sum(), 2 * (k * weighted).sum()
    return float((1.5 * (G / g) ** 2 * n) ** (1 / 3)) if g > 0 else float(n)


def holm(p_values: Any) -> np.ndarray:
    """Correct p-values for multiple tests by the method of Holm (1979); NaN stays NaN and is not counted.

    Args:
        p_values: one p-value for each test, ``(n,)``.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    corrected = np.full(p.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    steps = p[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected


# -- intervals: how far they reach, and the p-value -----------------------------------------------------------


@dataclass(frozen=True)
class _SeedVariance:
    """Squared standard errors that come from fitting with several seeds, all zero for one seed.

    Attributes:
        n_seeds: number of seeds.
        total: squared standard error of the mean over seeds, from the spread over seeds.
        shared: the part of ``total`` that the squared error of that mean over clusters or blocks contains too.
        shared_freedom: degrees of freedom of ``shared``.
    """

    n_seeds: int = 1
    total: float = 0.0
    shared: float = 0.0
    shared_freedom: float = 1.0

    @classmethod
    def over_clusters(cls, d: np.ndarray, u: np.ndarray) -> _SeedVariance:
        """Compute the squared errors over S seeds from differences of C clusters.

        Args:
            d: difference of each cluster under each seed, ``(S, C)``.
            u: number of units of each cluster, ``(C,)``.
        """
        n_seeds, n_clusters = d.shape
        if n_seeds == 1:
            return cls()
        ratios = d.sum(axis=1) / u.sum()  # (S,)
        aside = (d - d.mean(axis=0)) - (ratios - ratios.mean())[:, None] * u
        squares = float((aside**2 / (1 - u / u.sum())).sum()) / u.sum() ** 2
        freedom = (n_seeds - 1) * (n_clusters - 1)
        return cls(n_seeds, float(ratios.var(ddof=1)) / n_seeds, squares / (n_seeds * (n_seeds - 1)), freedom)

    @classmethod
    def over_blocks(cls, d: StepsInMemory | LongSteps, block: int) -> _SeedVariance:
        """Compute the squared errors over S seeds from differences of the steps of one long sequence.

        Args:
            d: difference of each of T steps under each seed, ``(S, T)``.
            block: number of steps of the blocks over which they are summed.
        """
        n_seeds, n = d.n_seeds, d.n
        if n_seeds == 1:
            return cls()
        means = d.means_of_seeds
        squares = sum(each.moving_block_error(block) ** 2 for each in d.each_minus_mean())
        freedom = (n_seeds - 1) * 1.5 * (n / block - 1)
        return cls(n_seeds, float(means.var(ddof=1)) / n_seeds, squares / (n_seeds * (n_seeds - 1)), freedom)

    @property
    def between(self) -> float:
        """Squared error that seeds add to the one over clusters or blocks; at least 0."""
        return max(0.0, self.total - self.shared)


def _with_seeds(error: float, freedom: float, seeds: _SeedVariance) -> tuple[float, float]:
    """Combine the errors over clusters and over seeds; return the standard error and its degrees of freedom.

    Satterthwaite's formula (1946) weights the degrees of freedom by the true squared error over seeds. Its estimate is
    too small if three seeds happen to agree, which makes the degrees of freedom too many. So the estimate is raised by
    (S + 1) / (S - 1) for S seeds in these weights, and nowhere else (``experiments/interval_coverage.py``, study
    seeds).

    Args:
        error: standard error over clusters alone.
        freedom: its degrees of freedom; both are returned unchanged without several seeds.
        seeds: squared errors over seeds.
    """
    if not seeds.between:
        return error, freedom
    squared = error**2 + seeds.between
    n_seeds = seeds.n_seeds
    raised = seeds.total * (n_seeds + 1) / (n_seeds - 1)
    scale = error**2 + raised - seeds.shared
    parts = ((error**2, freedom), (raised, n_seeds - 1), (seeds.shared, seeds.shared_freedom))
    return float(np.sqrt(squared)), 1 / sum((part / scale) ** 2 / part_freedom for part, part_freedom in parts)


def _cluster_t(d: np.ndarray, u: np.ndarray, seeds: _SeedVariance, level: float) -> tuple[float, float, float]:
    """Return how far the interval of ``Σ d / Σ u`` over C clusters reaches below and above it, and the p-value.

    The ratio is the regression of d on u weighted by 1/u, whose leverages are shares of units.

    Args:
        d: difference of each cluster, the mean over seeds, ``(C,)``.
        u: number of units of each cluster, ``(C,)``.
        seeds: squared errors over seeds.
        level: coverage of the interval.
    """
    share, ratio = u / u.sum(), float(d.sum() / u.sum())
    residuals = (d - ratio * u) / np.sqrt(1 - share)
    largest = float(np.abs(residuals).max())
    if largest <= 1e-14 * float(np.abs(d).max()):  # no spread: the models agree, or differ by a constant
        half, p_value = _t_interval(ratio, *_with_seeds(0.0, len(d) - 1, seeds), level)
        return half, half, p_value
    scaled = residuals / largest  # so that no power of it overflows or vanishes
    error = largest * float(np.sqrt((scaled**2).sum()) / u.sum())
    skewness = float((scaled**3).sum() / (scaled**2).sum() ** 1.5)
    t = _TDistribution.for_units(u)
    quantile = t.quantile(level)
    reach_below, reach_above = (_skewness_factor(side * skewness, u) * error for side in (-1, 1))
    if seeds.between and np.isfinite(quantile):
        # Over clusters alone, Student's t with this error reaches as far as the computed distribution and its factor.
        ratio_of_quantiles = quantile / _student_quantile(t.freedom, level)
        below, above = (
            _with_seeds(ratio_of_quantiles * reach, t.freedom, seeds) for reach in (reach_below, reach_above)
        )
        half_below, half_above = (_t_interval(ratio, *side, level)[0] for side in (below, above))
        return half_below, half_above, _t_interval(ratio, *(below if ratio > 0 else above), level)[1]
    p_value = t.p_value(abs(ratio) / (reach_below if ratio > 0 else reach_above))
    return quantile * reach_below, quantile * reach_above, p_value


def _skewness_factor(skewness: float, u: np.ndarray) -> float:
    """Return the factor by which one limit of the t-interval is moved to correct for skewed differences.

    The factor goes from a little below 1 if the tail is on the other side to well above 1 if it is on this side. Few
    clusters that show no tail may have missed it, so that for them it is above 1 on both sides. If few clusters hold
    most of the units, skewness is mostly noise, and no limit is moved in as far. The constants were fitted to coverage
    under normal, t3, Laplace, uniform, gamma (0.5, 1, 4) and log-normal differences of 5 to 150 clusters;
    ``experiments/interval_coverage.py`` measures it on other draws, and other distributions.

    Args:
        skewness: skewness of the sum of residuals e towards that limit, ``Σ e³ / (Σ e²)^(3/2)``.
        u: number of units of each of C clusters, ``(C,)``.
    """
    from scipy.special import expit

    n = len(u)
    variance = _working_variance(u)
    noise = n * float(np.sqrt((variance**3).sum() / variance.sum() ** 3))  # noise of the skewness; 1 for equal clusters
    least = 1 - 1.6 / (n * noise)
    most = 1 + 6.6 * float((n - 2) ** -0.7)
    return least + (most - least) * float(expit((skewness - 0.21 + 0.63 / (n - 2)) / 0.06))


def _working_variance(u: np.ndarray) -> np.ndarray:
    """Return the relative variance of each of C clusters, ``(C,)``, under a working model of clusters.

    In it, half of the variance is noise of the steps (proportional to the units) and half is the cluster's own
    (proportional to the squared units). The result is the variance up to a constant factor.

    Args:
        u: number of units of each cluster, ``(C,)``.
    """
    variance: np.ndarray = u / u.sum() * (1 + u / u.mean())
    return variance


@dataclass(frozen=True)
class _TDistribution:
    """The distribution of the statistic t, estimate over standard error, for clusters of given sizes.

    Attributes:
        freedom, scale: degrees of freedom of a Student's t, and the factor by which it is multiplied.
        units: sizes of the C clusters, ``(C,)``, from which the distribution is computed exactly; None means that it is
            the scaled Student's t.
    """

    freedom: float
    scale: float
    units: np.ndarray | None

    @classmethod
    def for_units(cls, u: np.ndarray) -> _TDistribution:
        """Return the distribution of t for C clusters of given sizes.

        It is exact if sizes differ and there are at most ``EXACT_CLUSTERS`` clusters.

        Args:
            u: number of units of each cluster, ``(C,)``.
        """
        n = len(u)
        if (u == u[0]).all():
            return cls(n - 1, 1.0, None)
        return cls(*_satterthwaite(u), u if n <= EXACT_CLUSTERS else None)

    def p_value(self, t: float) -> float:
        """Return the two-sided tail probability ``P(|T| > t)`` of the statistic T."""
        from scipy.special import stdtr

        if self.units is not None:
            return _tail_probability(min(t, _LARGEST_T), self.units)
        return float(2 * stdtr(self.freedom, -t / self.scale))

    def quantile(self, level: float) -> float:
        """Return the value below which ``|T|`` stays with probability ``level``.

        It is infinite if it exceeds ``_LARGEST_T``.
        """
        if self.units is None:
            return _student_quantile(self.freedom, level) * self.scale
        return _quantile_for_units(self.units.tobytes(), level)


@lru_cache(maxsize=64)  # all pairs of models have the same clusters
def _quantile_for_units(units: bytes, level: float) -> float:
    """Return the value below which ``|t|`` stays with probability ``level``, exactly, for clusters of given sizes.

    Args:
        units: number of units of each cluster, as the bytes of a float64 array.
        level: the probability.
    """
    from scipy.optimize import brentq

    u = np.frombuffer(units)
    if _tail_probability(_LARGEST_T, u) >= 1 - level:
        return np.inf
    tails = (np.log(1e-9), np.log(_LARGEST_T))  # solved in logarithms, because there the tail is nearly a line
    tail = brentq(lambda t: np.log(max(_tail_probability(np.exp(t), u), _TINY) / (1 - level)), *tails)
    return float(np.exp(tail))


def _satterthwaite(u: np.ndarray) -> tuple[float, float]:
    """Return the degrees of freedom and the scale of the Student's t nearest to t for clusters of given sizes.

    They match the first two moments of the squared error, for clusters distributed as in ``_tail_probability``. It is
    the form ``A' D A`` in the clusters' errors, with ``A = I - s 1'``, ``D = 1 / (1 - s)`` and shares s of the units.
    It equals D plus terms that are linear in i and j: ``(A' D A)_ij = D_i δ_ij + k - w_i - w_j``.

    Args:
        u: number of units of each of C clusters, ``(C,)``.
    """
    s = u / u.sum()
    D, variance = 1 / (1 - s), _working_variance(u)
    w, k = D * s, float((D * s**2).sum())
    mean = float((variance * (D + k - 2 * w)).sum())
    sums = variance.sum(), (variance * w).sum(), (variance * w**2).sum()
    pairs = k**2 * sums[0] ** 2 - 4 * k * sums[0] * sums[1] + 2 * sums[0] * sums[2] + 2 * sums[1] ** 2
    squared = float((variance**2 * D * (D + 2 * (k - 2 * w))).sum() + pairs)
    return mean**2 / squared, float(np.sqrt(sums[0] / mean))


def _tail_probability(t: float, u: np.ndarray) -> float:
    """Return the probability that ``|ratio| > t · error`` if the true ratio is zero, for clusters of given sizes.

    Clusters are normal with variance ``u_c (1 + u_c / mean u)``. If they are of one size, it is the two-sided tail of
    Student's t. With z standard normal it is ``P(z' (numerator - t² error) z > 0)`` of two quadratic forms, and so
    ``P(z_0² > Σ_i w_i z_i²)`` by the one positive eigenvalue and the others. As
    ``P(|z_0| > x) = 2/π ∫_0^(π/2) exp(-x² / (2 sin² θ)) dθ`` (Craig 1991), the mean over the other z is a product.

    Args:
        t: limit of the statistic, the ratio over its standard error.
        u: number of units of each of C clusters, ``(C,)``.
    """
    share, deviation = u / u.sum(), np.sqrt(u * (1 + u / u.mean()))
    aside = np.eye(len(u)) - share[:, None]  # maps errors of clusters to residuals of the ratio
    form = 1 - t**2 * (aside.T / (1 - share)) @ aside
    *others, largest = np.linalg.eigvalsh(np.outer(deviation, deviation) * form)
    weights = np.maximum(-np.array(others) / largest, 0)
    return float(np.sqrt(_SQUARES / (_SQUARES + weights[:, None])).prod(axis=0).mean())


def _t_interval(estimate: float, error: float, freedom: float, level: float) -> tuple[float, float]:
    from scipy.special import stdtr

    if error == 0:  # no spread: the models agree, or differ by a constant
        return 0.0, float(estimate == 0)
    return _student_quantile(freedom, level) * error, float(2 * stdtr(freedom, -abs(estimate) / error))


def _student_quantile(freedom: float, level: float) -> float:
    """Return the value that the absolute value of a Student's t stays below with probability ``level``.

    Args:
        freedom: degrees of freedom.
        level: the probability.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


@dataclass(frozen=True)
class StepsInMemory:
    """Differences of log p at each step of one sequence, held in memory, with the methods of ``LongSteps``.

    Attributes:
        d: the differences under S seeds, in nats, ``(S, T)``.
    """

    d: np.ndarray

    @property
    def n_seeds(self) -> int:
        return len(self.d)

    @property
    def n(self) -> int:
        return int(self.d.shape[1])

    @property
    def mean(self) -> float:
        return float(self.d.mean(axis=0).mean())

    @property
    def means_of_seeds(self) -> np.ndarray:
        return np.asarray(self.d.mean(axis=1))

    def each_minus_mean(self) -> list[StepsInMemory]:
        return [StepsInMemory(each[None]) for each in self.d - self.d.mean(axis=0)]

    def autocovariance(self, longest: int) -> np.ndarray:
        return _autocovariance(self.d.mean(axis=0), longest)

    def moving_block_error(self, block: int) -> float:
        return _moving_block_error(self.d.mean(axis=0), block)


def _moving_block_error(d: np.ndarray, block: int) -> float:
    """Return the standard error of the mean of a series, estimated from all overlapping blocks of consecutive steps.

    Args:
        d: the series, ``(T,)``.
        block: number of steps of a block.
    """
    n = len(d)
    sums = np.concatenate([[0.0], np.cumsum(d - d.mean())])
    blocks = sums[block:] - sums[:-block]
    return float(np.sqrt((blocks**2).sum() / (block * (n - block + 1) * (n - block))))


def _autocovariance(x: np.ndarray, longest: int) -> np.ndarray:
    """Return the autocovariances of a series at lags 0 to ``longest``, shape ``(longest + 1,)``.

    Args:
        x: the series, ``(T,)``.
        longest: the largest lag.
    """
    from scipy import fft

    size = fft.next_fast_len(2 * len(x), True)
    spectrum = np.abs(fft.rfft(x - x.mean(), size)) ** 2
    return fft.irfft(spectrum, size)[: longest + 1] / len(x)


# -- what comes in --------------------------------------------------------------------------------------------


def _paired_differences(model: Any, baseline: Any, what: str) -> np.ndarray:
    """Subtract the baseline's log-probabilities from the model's; return float64 ``(S, n)``, a row for each of S seeds.

    Args:
        model, baseline: log-probabilities, ``(n,)`` or ``(S, n)`` each.
        what: name of the n values, for messages.

    Raises:
        ValueError: shapes do not match or values are not finite.
    """
    a, b = np.asarray(model, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    _check_pair(a.shape, b.shape, what)
    for name, values in (("model", a), ("baseline", b)):
        bad = int((~np.isfinite(values)).sum())
        if bad:
            raise ValueError(
                f"{bad} of {values.size} {what} of the {name} are not finite; count them and leave them out"
            )
    return np.atleast_2d(a - b)


def _check_pair(model: tuple[int, ...], baseline: tuple[int, ...], what: str) -> None:
    """Check that the shapes of two arrays of log-probabilities, each ``(n,)`` or ``(S, n)`` for S seeds, match.

    They match in n, and in S unless one of the two has one seed.

    Args:
        model, baseline: the shapes.
        what: name of the n values, for messages.

    Raises:
        ValueError: they do not match.
    """
    shapes = (model, baseline)
    n_seeds = [shape[0] if len(shape) == 2 else 1 for shape in shapes]
    if any(len(shape) not in (1, 2) or 0 in shape for shape in shapes) or model[-1] != baseline[-1]:
        raise ValueError(
            f"model and baseline have shapes {model} and {baseline}; pass one value each for the same {what}"
        )
    if 1 not in n_seeds and n_seeds[0] != n_seeds[1]:
        raise ValueError(
            f"model and baseline have shapes {model} and {baseline}; pass as many seeds of both, or one seed of one"
        )


def _paired_steps(model: Any, baseline: Any) -> StepsInMemory | LongSteps:
    """Subtract the baseline's log-probabilities of steps from the model's; return an object with their statistics.

    Steps on disk are not read into memory.

    Args:
        model, baseline: log-probability of each of T steps, ``(T,)`` or, under S seeds, ``(S, T)``.

    Raises:
        ValueError: shapes do not match or values are not finite.
    """
    if not is_long([model, baseline]):
        return StepsInMemory(_paired_differences(model, baseline, "steps"))
    _check_pair(np.shape(model), np.shape(baseline), "steps")
    rows = [LongSteps.of(np.asanyarray(steps).reshape(-1, np.shape(steps)[-1])) for steps in (model, baseline)]
    for name, each in zip(("model", "baseline"), rows, strict=True):
        bad = sum(int((~np.isfinite(block)).sum()) for block in each.blocks())
        if bad:
            raise ValueError(
                f"{bad} of {each.n_seeds * each.n} steps of the {name} are not finite; count them and leave them out"
            )
    return rows[0].minus(rows[1])


def _checked_units(units: Any, n: int) -> np.ndarray:
    u = np.asarray(units, dtype=np.float64)
    if u.shape != (n,):
        raise ValueError(f"units have shape {u.shape} but there are {n} sequences; pass one count each")
    if not (np.isfinite(u) & (u > 0)).all():
        bad = int(np.argmin(np.isfinite(u) & (u > 0)))
        raise ValueError(f"sequence {bad} has {u[bad]:g} units; each needs a positive, finite count")
    return u


def _cluster_totals(
    d: np.ndarray, u: np.ndarray, clusters: Sequence[Any] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sum the differences, ``(S, C)``, and the units, ``(C,)``, over the sequences of each of C clusters.

    Args:
        d: differences of n sequences under S seeds, ``(S, n)``.
        u: number of units of each sequence, ``(n,)``.
        clusters: cluster of each sequence.
    """
    codes = cluster_codes(clusters, len(u))
    return np.stack([np.bincount(codes, weights=row) for row in d]), np.bincount(codes, weights=u)


def cluster_codes(clusters: Sequence[Any] | np.ndarray | None, n: int) -> np.ndarray:
    """Number the clusters from 0 and return the number of each sequence's cluster, shape ``(n,)``.

    Args:
        clusters: cluster of each sequence (a speaker, a document); None makes every sequence its own cluster.
        n: number of sequences.

    Raises:
        ValueError: there is not one cluster for each sequence.
    """
    import pandas as pd

    if clusters is None:
        return np.arange(n)
    if len(clusters) != n:
        raise ValueError(f"there are {len(clusters)} clusters but {n} sequences; pass one each")
    codes, _ = pd.factorize(np.asarray(pd.Series(clusters)))
    if (codes < 0).any():
        raise ValueError(f"{int((codes < 0).sum())} sequences have no cluster; give each one, or pass clusters=None")
    return np.asarray(codes)
