"""How few steps decide a difference of two models: the share of the largest, and the shape of the tail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.evaluation.statistics.long_sequence import STEPS_READ
from seqmodels.sequences.mapped import parts_of

LARGEST = 0.01  # share of the steps that count as the largest
INFINITE_VARIANCE = 0.5  # from this shape on the variance is infinite, which an interval of the mean assumes it is not
MIN_TAIL = 5  # fewest values that a tail is fitted to
_PRIOR_VALUES, _PRIOR_SHAPE = 10, 0.5


@dataclass(frozen=True)
class StepTails:
    """How the difference of two models is spread over steps.

    Attributes:
        n_largest: number of the largest steps, 1 % of all, at least one.
        share: sum of the differences in the largest steps, by absolute value, over the sum of all. Above 1 or below 0
            the other steps, taken together, favour the other model.
        rest: mean of the other steps, in nats per step.
        shape: shape k of the generalised Pareto distribution of the largest or of the smallest differences, whichever
            is larger. Moments of order 1 / k and above do not exist: from 0.5 on the variance is infinite, from 1 on
            the mean. NaN if there are fewer than 25 steps or the tail has no spread.
    """

    n_largest: int
    share: float
    rest: float
    shape: float

    @classmethod
    def of(cls, blocks: Iterable[np.ndarray], n: int) -> StepTails:
        """Measure differences that are read block by block, so that few of them are in memory.

        Args:
            blocks: differences of the steps in nats, in arrays ``(m,)`` of together ``n`` values. If one is not finite,
                all figures are NaN.
            n: number of steps.
        """
        n_largest, n_tail = max(1, round(LARGEST * n)), _n_tail(n)
        total, is_finite = 0.0, True
        largest, low, high = np.empty(0), np.empty(0), np.empty(0)
        for block in blocks:
            is_finite &= bool(np.isfinite(block).all())
            total += float(block.sum())
            largest = _largest(np.concatenate([largest, block]), n_largest, by=np.abs)
            high = _largest(np.concatenate([high, block]), n_tail + 1)
            low = _largest(np.concatenate([low, -block]), n_tail + 1)
        if not is_finite:
            return cls(n_largest, np.nan, np.nan, np.nan)
        of_largest = float(largest.sum())
        share = of_largest / total if total else np.nan
        rest = (total - of_largest) / (n - n_largest) if n > n_largest else np.nan
        shape = np.nan if n_tail < MIN_TAIL else max(_shape_above_first(high), _shape_above_first(low))
        return cls(n_largest, share, rest, float(shape))


def difference_tails(steps_model: Sequence[np.ndarray], steps_baseline: Sequence[np.ndarray]) -> StepTails:
    """Return how the difference of two models, model minus baseline, is spread over the steps of all sequences.

    Args:
        steps_model: log-probability of each step of each sequence under the model, a list of ``(T,)`` arrays in nats,
            in memory or on disk.
        steps_baseline: the same under the baseline.

    Returns:
        ``StepTails``. If a log-probability is -inf, its figures are NaN.
    """

    def differences() -> Iterator[np.ndarray]:
        waiting: list[np.ndarray] = []
        n_waiting = 0
        for model, baseline in zip(steps_model, steps_baseline, strict=True):
            for t, part in parts_of(model):
                waiting.append(part - np.asarray(baseline[t : t + len(part)]))
                n_waiting += len(part)
                if n_waiting >= STEPS_READ:
                    yield np.concatenate(waiting)
                    waiting, n_waiting = [], 0
        if waiting:
            yield np.concatenate(waiting)

    with np.errstate(invalid="ignore"):  # inf minus inf
        return StepTails.of(differences(), sum(map(len, steps_model)))


def pareto_shape(excesses: np.ndarray) -> float:
    """Return the shape k of the generalised Pareto distribution of values above a threshold.

    The estimate is the mean of k over an empirical-Bayes posterior (Zhang and Stephens 2009, *A new and efficient
    estimation method for the generalized Pareto distribution*), drawn towards 0.5 as by ten more values (Vehtari,
    Simpson, Gelman, Yao and Gabry 2024, *Pareto smoothed importance sampling*, appendix C).

    Args:
        excesses: the values minus the threshold, ``(n,)``, positive, in any order, with n at least 5.
    """
    x = np.sort(excesses)
    n = len(x)
    n_points = 30 + int(np.sqrt(n))
    j = np.arange(1, n_points + 1)
    theta = 1 / x[-1] + (1 - np.sqrt(n_points / (j - 0.5))) / (3 * _first_quartile(x))
    log_likelihood = n * _profile(theta, x)
    weights = np.exp(log_likelihood - log_likelihood.max())
    mean = float(weights @ theta / weights.sum())
    shape = float(np.log1p(-mean * x).mean())
    return (n * shape + _PRIOR_VALUES * _PRIOR_SHAPE) / (n + _PRIOR_VALUES)


def _profile(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the mean log-likelihood of x, maximal over k, for each of m values of ``theta = -k / scale``, ``(m,)``."""
    shape = np.log1p(-theta[:, None] * x).mean(axis=1)
    return np.asarray(np.log(-theta / shape) - shape - 1)


def _first_quartile(x: np.ndarray) -> float:
    return float(x[int(len(x) / 4 + 0.5) - 1])


def _n_tail(n: int) -> int:
    """Return how many of n values count as a tail: a fifth, or 3 √n if that is fewer (Vehtari et al. 2024)."""
    return int(min(n / 5, 3 * np.sqrt(n)))


def _largest(values: np.ndarray, n: int, by: Callable[[np.ndarray], np.ndarray] = np.asarray) -> np.ndarray:
    """Return the n values for which ``by(values)`` is largest, or all if there are fewer, in any order."""
    return values if len(values) <= n else values[np.argpartition(by(values), len(values) - n)[-n:]]


def _shape_above_first(values: np.ndarray) -> float:
    """Return the shape of the tail above the smallest of ``values``; NaN if a quarter of them are equal to it."""
    excesses = np.sort(values)[1:] - values.min()
    return pareto_shape(excesses) if _first_quartile(excesses) > 0 else np.nan
