"""How long a state lasts: families of distributions over 1 .. D, and their M-steps.

Parametric families are of ``d - 1``, cut off at D and normalised there: ``p(d) = h(d) exp(θ (d - 1)) / Z(θ)``, whose
maximum likelihood is the θ of equal means. Durations that were not seen in full come as expected counts of the full
ones, so that an M-step is that of complete data. A segment that was under way when its sequence began is met in
proportion to its duration: its density is ``p(d) / E[d]``, and the M-step that of length-biased data (Vardi 1989,
*Multiplicative censoring*, Biometrika 76).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodels.hmm.estimates import ON_BOUNDARY, Estimate, free_logits, is_inner

Array = NDArray[np.float64]
DurationName = Literal["negative-binomial", "poisson", "logarithmic", "categorical", "geometric"]

TILTS = (-60.0, 20.0)  # of log θ of a Poisson distribution: beyond, it is one of the shortest or longest duration
LARGEST_LOG_SUCCESS = -1e-9  # of a negative binomial distribution: its mean is finite
SIZES = (1e-2, 1e3)  # of a negative binomial distribution: beyond, it is a Poisson distribution
MOST_STEPS = 200  # of a search for θ, which takes five to ten
NEAR_END = 1e-4  # of a range: nearer to its ends a search ends there
AT_END_OF_RANGE = "at the end of the range of its values, which sets it in place of the data"
SMOOTHING = 0.1  # the share of a first guess that is spread evenly


@dataclass(frozen=True)
class DurationFamily(ABC):
    """Distributions over 1 .. ``longest``; ``table (K, Q)`` float64 has the parameters of each state.

    To add one, define the abstract methods and name it in ``duration_family``.

    Attributes:
        longest: D.
        pseudocount: added to the count of every duration by a categorical distribution.
    """

    longest: int
    pseudocount: float = 0.0

    @property
    def n_columns(self) -> int:
        """Q, numbers of a state in the table."""
        return self.n_free

    @property
    @abstractmethod
    def n_free(self) -> int:
        """Free parameters of a state."""

    @property
    def follows_itself(self) -> bool:
        """Whether a state may follow itself: then its segments of one step are what lasts."""
        return False

    @abstractmethod
    def log_pmf(self, table: Tensor) -> Tensor:
        """``(K, D)`` log p(d)."""

    @abstractmethod
    def with_mean(self, mean: Tensor) -> Tensor:
        """A table of ``(K,)`` states that last about so long, widely spread: where EM starts."""

    @abstractmethod
    def maximise(self, counts: Tensor, n_biased: Tensor, table: Tensor) -> Tensor:
        """The M-step: the table that maximises ``Σ_d counts log p(d) - n_biased log E[d]``, plus ``log_prior``.

        Args:
            counts: ``(K, D)`` expected durations in full.
            n_biased: ``(K,)`` how many of them were met in proportion to their duration.
            table: that before, whose objective is never above the new one's. A state without counts keeps its row.
        """

    @abstractmethod
    def raw(self, table: Tensor) -> Mapping[str, Array]:
        """The parameters as users know them, ``(K,)`` or ``(K, D)`` each, by attribute name."""

    @abstractmethod
    def check(self, table: Tensor) -> None:
        """Raise ``ValueError`` for numbers that no fit could have found."""

    def log_prior(self, table: Tensor) -> Tensor:
        """Nats, up to a constant."""
        return table.new_zeros(())

    # -- how sure they are: ``seqmodels.hmm.estimates``, differentiable ------------------------------------------------

    def pmf(self, table: Tensor) -> Tensor:
        """``(K, D)`` probabilities p(d) of the durations 1 to D of each state."""
        return self.log_pmf(table).exp()

    def normalised(self, table: Tensor) -> Tensor:
        """The table after a change of some of its numbers, where they have to sum to one."""
        return table

    @abstractmethod
    def estimated(self, table: Tensor) -> Mapping[str, Tensor]:
        """What ``raw`` gives, or ``durations (K, D)``, by name."""

    @abstractmethod
    def estimates(self, table: Tensor, least: float) -> Iterator[Estimate]:
        """All that a table says; ``least``: the smallest probability that is not on the boundary."""

    @abstractmethod
    def is_free(self, table: Tensor, least: float) -> Tensor:
        """``(K, Q)`` which numbers of the table may change: those that are on no boundary, nor implied by others."""

    def lengths(self, table: Tensor) -> Tensor:
        """``(K, Q)`` over which change of each the probabilities change."""
        return torch.ones_like(table)


class CategoricalDurations(DurationFamily):
    """``p(d)`` is any; the table has it."""

    @property
    def n_columns(self) -> int:
        return self.longest

    @property
    def n_free(self) -> int:
        return self.longest - 1

    def log_pmf(self, table: Tensor) -> Tensor:
        return table.log()

    def with_mean(self, mean: Tensor) -> Tensor:
        geometric = NegativeBinomialDurations(self.longest)
        p = geometric.log_pmf(geometric.with_mean(mean)).exp()
        return (1 - SMOOTHING) * p + SMOOTHING / self.longest

    def maximise(self, counts: Tensor, n_biased: Tensor, table: Tensor) -> Tensor:
        weights = (counts + self.pseudocount * (table > 0)).cpu().numpy()
        rows = table.cpu().numpy().copy()
        for row, n, biased in zip(rows, weights, n_biased.tolist(), strict=True):
            if n.sum() > 0:
                row[:] = _length_biased(n, min(biased, n.sum()))
        return torch.as_tensor(rows, device=table.device)

    def log_prior(self, table: Tensor) -> Tensor:
        return self.pseudocount * torch.where(table > 0, table, 1.0).log().sum()

    def raw(self, table: Tensor) -> Mapping[str, Array]:
        return {}

    def check(self, table: Tensor) -> None:
        if not (bool((table >= 0).all()) and torch.allclose(table.sum(1), table.new_ones(()), atol=1e-6)):
            raise ValueError("durations of a state are not probabilities that sum to one")

    def pmf(self, table: Tensor) -> Tensor:
        return table

    def normalised(self, table: Tensor) -> Tensor:
        return table / table.sum(1, keepdim=True)

    def estimated(self, table: Tensor) -> Mapping[str, Tensor]:
        return {"durations": table}

    def estimates(self, table: Tensor, least: float) -> Iterator[Estimate]:
        inner = is_inner(table, least)
        for k, d in product(range(len(table)), range(self.longest)):
            yield Estimate("durations", (k, d), k, d + 1, "logit", "" if inner[k, d] else ON_BOUNDARY)

    def is_free(self, table: Tensor, least: float) -> Tensor:
        return free_logits(table, least)

    def lengths(self, table: Tensor) -> Tensor:
        return table


def _length_biased(counts: Array, n_biased: float) -> Array:
    """``(D,)`` the maximum of ``Σ counts log p - n_biased log E[d]``.

    ``p(d) = counts / (N - n_biased + n_biased d / m)``, where m, which is then E[d], makes it sum to one.
    """
    total, d = float(counts.sum()), np.arange(1.0, len(counts) + 1)
    unbiased: Array = counts / total
    if n_biased <= 0:
        return unbiased

    def rows(mean: float) -> Array:
        result: Array = counts / (total - n_biased + n_biased * d / mean)
        return result

    seen = d[counts > 0]
    if len(seen) == 1:
        return unbiased
    from scipy.optimize import brentq

    mean = brentq(lambda mean: rows(mean).sum() - 1, seen.min(), seen.max(), xtol=1e-14, rtol=1e-14)
    p = rows(mean)
    normalised: Array = p / p.sum()
    return normalised


@dataclass(frozen=True)
class _Tilted:
    """``p(d) ∝ exp(log_base + θ (d - 1))`` on 1 .. D, and what an M-step of it maximises."""

    log_base: Array
    counts: Array
    n_biased: float

    def log_pmf(self, tilt: float) -> Array:
        terms = self.log_base + tilt * np.arange(len(self.log_base))
        peak = terms.max()
        result: Array = terms - peak - math.log(np.exp(terms - peak).sum())
        return result

    def value(self, tilt: float) -> float:
        log_p = self.log_pmf(tilt)
        mean = np.exp(log_p) @ np.arange(1.0, len(log_p) + 1)
        return float(self.counts @ log_p - self.n_biased * math.log(mean))

    def slopes(self, tilt: float) -> tuple[float, float]:
        """Return the first and the second derivative of ``value``; those of the mean are the central moments."""
        p, d = np.exp(self.log_pmf(tilt)), np.arange(1.0, len(self.log_base) + 1)
        mean = float(p @ d)
        variance, third = float(p @ (d - mean) ** 2), float(p @ (d - mean) ** 3)
        first = float(self.counts @ (d - mean)) - self.n_biased * variance / mean
        second = -float(self.counts.sum()) * variance - self.n_biased * (third - variance**2 / mean) / mean
        return first, second

    def best(self, low: float, high: float, start: float) -> float:
        """Return the root of the slope, which falls, or the bound beyond which it lies.

        The search is Newton's method from ``start``, with bisection where a step would leave what is known to hold the
        root.
        """
        if self.slopes(low)[0] <= 0:
            return low
        if self.slopes(high)[0] >= 0:
            return high
        at = start if low < start < high else 0.5 * (low + high)
        for _ in range(MOST_STEPS):
            slope, curvature = self.slopes(at)
            low, high = (at, high) if slope > 0 else (low, at)
            moved = at - slope / curvature if curvature < 0 else math.nan
            if not low <= moved <= high:
                moved = 0.5 * (low + high)
            if abs(moved - at) <= 1e-14 * max(1.0, abs(at)):
                return moved
            at = moved
        return at


class OneParameterDurations(DurationFamily):
    """``p(d) ∝ h(d) exp(θ (d - 1))``; the table has θ. To add one, define ``log_base``, ``tilts`` and what remains."""

    @property
    def n_free(self) -> int:
        return 1

    @abstractmethod
    def log_base(self, device: torch.device) -> Tensor:
        """``(D,)`` log h(d), the part of the density that no parameter is in."""

    @property
    @abstractmethod
    def tilts(self) -> tuple[float, float]:
        """The least and the largest θ."""

    def log_pmf(self, table: Tensor) -> Tensor:
        d = torch.arange(self.longest, dtype=torch.float64, device=table.device)
        return (table * d + self.log_base(table.device)).log_softmax(1)

    def maximise(self, counts: Tensor, n_biased: Tensor, table: Tensor) -> Tensor:
        rows = table.cpu().numpy().copy()
        log_base = self.log_base(torch.device("cpu")).numpy()
        for row, n, biased in zip(rows, counts.cpu().numpy(), n_biased.tolist(), strict=True):
            if n.sum() > 0:
                problem = _Tilted(log_base, n, biased)
                candidates = [float(row[0]), problem.best(*self.tilts, float(row[0]))]
                row[0] = max(candidates, key=problem.value)
        return torch.as_tensor(rows, device=table.device)

    def is_free(self, table: Tensor, least: float) -> Tensor:
        return is_within(table, *self.tilts)


class PoissonDurations(OneParameterDurations):
    """``p(d) ∝ λ^(d-1) / (d-1)!``; the table has log λ."""

    def log_base(self, device: torch.device) -> Tensor:
        return -torch.lgamma(torch.arange(1.0, self.longest + 1, dtype=torch.float64, device=device))

    @property
    def tilts(self) -> tuple[float, float]:
        return TILTS

    def with_mean(self, mean: Tensor) -> Tensor:
        return (mean[:, None].double() - 1).clamp(min=0.1).log()

    def raw(self, table: Tensor) -> Mapping[str, Array]:
        return {"duration_rates_": table[:, 0].exp().numpy()}

    def check(self, table: Tensor) -> None:
        if not bool(torch.isfinite(table).all()):
            raise ValueError("rates of durations are not finite")

    def estimated(self, table: Tensor) -> Mapping[str, Tensor]:
        return {"duration_rates": table[:, 0].exp()}

    def estimates(self, table: Tensor, least: float) -> Iterator[Estimate]:
        for k, is_free in enumerate(self.is_free(table, least)[:, 0].tolist()):
            yield Estimate("duration_rates", (k,), k, None, "log", "" if is_free else AT_END_OF_RANGE)


class LogarithmicDurations(OneParameterDurations):
    """``p(d) ∝ p^d / d``; the table has log p. One step is the most probable, and long durations more so than geometric
    ones of the same mean (Fisher's logarithmic series).
    """

    def log_base(self, device: torch.device) -> Tensor:
        return -torch.arange(1.0, self.longest + 1, dtype=torch.float64, device=device).log()

    @property
    def tilts(self) -> tuple[float, float]:
        return TILTS[0], LARGEST_LOG_SUCCESS

    def with_mean(self, mean: Tensor) -> Tensor:
        in_full = torch.zeros(len(mean), self.longest, dtype=torch.float64)
        # Two durations about the mean in such shares that theirs is the mean.
        at = (mean.double().cpu() - 1).clamp(0.1, max(self.longest - 1.0, 0.1))
        low = at.floor().clamp(max=self.longest - 1).long()
        in_full.scatter_add_(1, low[:, None], (1 - (at - low))[:, None])
        in_full.scatter_add_(1, (low + 1).clamp(max=self.longest - 1)[:, None], (at - low)[:, None])
        start = torch.full((len(mean), 1), -1.0, dtype=torch.float64)
        return self.maximise(in_full, torch.zeros(len(mean)), start).to(mean.device)

    def raw(self, table: Tensor) -> Mapping[str, Array]:
        return {"duration_probabilities_": table[:, 0].exp().numpy()}

    def check(self, table: Tensor) -> None:
        if not (bool(torch.isfinite(table).all()) and bool((table < 0).all())):
            raise ValueError("probabilities of logarithmic durations are not between 0 and 1")

    def estimated(self, table: Tensor) -> Mapping[str, Tensor]:
        return {"duration_probabilities": table[:, 0].exp()}

    def estimates(self, table: Tensor, least: float) -> Iterator[Estimate]:
        for k, is_free in enumerate(self.is_free(table, least)[:, 0].tolist()):
            yield Estimate("duration_probabilities", (k,), k, None, "logit", "" if is_free else AT_END_OF_RANGE)

    def lengths(self, table: Tensor) -> Tensor:
        return table.abs().clamp(max=1.0)  # of log p, which is below zero


class NegativeBinomialDurations(DurationFamily):
    """``p(d) ∝ Γ(d-1+r) / (Γ(r) (d-1)!) q^(d-1)``; the table has log r and log q.

    With r = 1 it is geometric; the larger r, the narrower. The M-step is a search over r, with q of equal means.
    """

    @property
    def n_free(self) -> int:
        return 2

    def log_pmf(self, table: Tensor) -> Tensor:
        d, size = torch.arange(self.longest, dtype=torch.float64, device=table.device), table[:, :1].exp()
        log_base = torch.lgamma(d + size) - torch.lgamma(size) - torch.lgamma(d + 1)
        return (log_base + table[:, 1:] * d).log_softmax(1)

    def with_mean(self, mean: Tensor) -> Tensor:
        log_q = torch.log1p(-1 / mean.double().clamp(min=1.1)).clamp(max=LARGEST_LOG_SUCCESS)
        return torch.stack([torch.zeros_like(log_q), log_q], 1)

    def maximise(self, counts: Tensor, n_biased: Tensor, table: Tensor) -> Tensor:
        rows = table.cpu().numpy().copy()
        for row, n, biased in zip(rows, counts.cpu().numpy(), n_biased.tolist(), strict=True):
            if n.sum() > 0:
                row[:] = self._best(n, biased, row)
        return torch.as_tensor(rows, device=table.device)

    def _best(self, counts: Array, n_biased: float, before: Array) -> Array:
        from scipy.optimize import minimize_scalar
        from scipy.special import gammaln

        d = np.arange(float(self.longest))

        def problem(log_size: float) -> _Tilted:
            size = math.exp(log_size)
            return _Tilted(gammaln(d + size) - gammaln(size) - gammaln(d + 1), counts, n_biased)

        def best_at(log_size: float) -> tuple[float, float]:
            of_size = problem(log_size)
            tilt = of_size.best(TILTS[0], LARGEST_LOG_SUCCESS, float(before[1]))
            return of_size.value(tilt), tilt

        optimum = minimize_scalar(
            lambda log_size: -best_at(log_size)[0],
            bounds=(math.log(SIZES[0]), math.log(SIZES[1])),
            method="bounded",
            options={"xatol": 1e-6},
        )
        # The search is of one interval, where a better one may lie in another: what was is never given up for worse.
        value, tilt = best_at(float(optimum.x))
        kept_value, kept_tilt = best_at(float(before[0]))
        if kept_value >= value:
            return np.array([before[0], kept_tilt])
        return np.array([optimum.x, tilt])

    def raw(self, table: Tensor) -> Mapping[str, Array]:
        return {
            "duration_sizes_": table[:, 0].exp().numpy(),
            "duration_probabilities_": -torch.expm1(table[:, 1]).numpy(),
        }

    def check(self, table: Tensor) -> None:
        if not (bool(torch.isfinite(table).all()) and bool((table[:, 1] < 0).all())):
            raise ValueError("sizes and probabilities of negative binomial durations are not finite")

    def estimated(self, table: Tensor) -> Mapping[str, Tensor]:
        return {"duration_sizes": table[:, 0].exp(), "duration_probabilities": -torch.expm1(table[:, 1])}

    def estimates(self, table: Tensor, least: float) -> Iterator[Estimate]:
        for k, (size, success) in enumerate(self.is_free(table, least).tolist()):
            yield Estimate("duration_sizes", (k,), k, None, "log", "" if size else AT_END_OF_RANGE)
            yield Estimate("duration_probabilities", (k,), k, None, "logit", "" if success else AT_END_OF_RANGE)

    def is_free(self, table: Tensor, least: float) -> Tensor:
        sizes = is_within(table[:, 0], math.log(SIZES[0]), math.log(SIZES[1]))
        return torch.stack([sizes, is_within(table[:, 1], TILTS[0], LARGEST_LOG_SUCCESS)], 1)

    def lengths(self, table: Tensor) -> Tensor:
        # Those of log r, and of log q, which is below zero.
        return torch.stack([torch.ones_like(table[:, 0]), table[:, 1].abs().clamp(max=1.0)], 1)


class GeometricDurations(DurationFamily):
    """``p(d) = a^(d-1) (1 - a)``, not cut off: segments of one step, and the chain's own ``a_kk``, as in an HMM."""

    @property
    def n_free(self) -> int:
        return 0

    @property
    def follows_itself(self) -> bool:
        return True

    def log_pmf(self, table: Tensor) -> Tensor:
        return table.new_zeros(len(table), 1)

    def with_mean(self, mean: Tensor) -> Tensor:
        return mean.new_empty(len(mean), 0, dtype=torch.float64)

    def maximise(self, counts: Tensor, n_biased: Tensor, table: Tensor) -> Tensor:
        return table

    def raw(self, table: Tensor) -> Mapping[str, Array]:
        return {}

    def check(self, table: Tensor) -> None:
        """There is nothing in the table."""

    def estimated(self, table: Tensor) -> Mapping[str, Tensor]:
        return {}

    def estimates(self, table: Tensor, least: float) -> Iterator[Estimate]:
        return iter(())

    def is_free(self, table: Tensor, least: float) -> Tensor:
        return torch.ones_like(table, dtype=torch.bool)


def is_within(values: Tensor, low: float, high: float) -> Tensor:
    """Which are in a range that a search was of, and not at its ends."""
    margin = NEAR_END * (high - low)
    return (values > low + margin) & (values < high - min(margin, 0.5 * abs(high) or margin))


def duration_family(name: DurationName, longest: int, pseudocount: float) -> DurationFamily:
    """What ``HSMM(durations=name)`` means, with its ``max_duration`` and ``duration_pseudocount``.

    Raises:
        ValueError: numbers that cannot be, or no such family.
    """
    if longest < 1:
        raise ValueError(f"max_duration is {longest}; pass at least 1, the most steps of a segment")
    if not 0 <= pseudocount < math.inf:
        raise ValueError(f"duration_pseudocount is {pseudocount}; pass a finite number, 0 or more")
    families: dict[str, type[DurationFamily]] = {
        "negative-binomial": NegativeBinomialDurations,
        "poisson": PoissonDurations,
        "logarithmic": LogarithmicDurations,
        "categorical": CategoricalDurations,
        "geometric": GeometricDurations,
    }
    if name not in families:
        raise ValueError(f"durations is {name!r}; pass one of {', '.join(map(repr, families))}")
    return families[name](1 if name == "geometric" else longest, pseudocount)
