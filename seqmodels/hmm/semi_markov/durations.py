"""Families of distributions over the durations 1 .. D of a state, and their M-steps.

Parametric families are distributions of ``d - 1``, truncated at D and normalised there: ``p(d) = h(d) exp(θ (d - 1)) /
Z(θ)``. The maximum likelihood is the θ whose mean equals the mean of the data. Durations that were not seen in full
enter as expected counts of the full ones, so that an M-step is the one for complete data. A segment that had begun
before its sequence is observed with a probability in proportion to its duration: its density is ``p(d) / E[d]``, and
the M-step is the one for length-biased data (Vardi 1989, *Multiplicative censoring*, Biometrika 76).
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

from seqmodels.hmm.conjugate import ConjugatePrior
from seqmodels.hmm.conjugate.distributions import (
    dirichlet_divergence,
    dirichlet_log_density,
    draw_dirichlet,
    expected_log,
)
from seqmodels.hmm.estimates import ON_BOUNDARY, Estimate, free_logits, is_inner
from seqmodels.hmm.semi_markov.duration_regression import (
    DurationRegression,
    maximised_numbers,
    maximised_probabilities,
)

Array = NDArray[np.float64]
DurationName = Literal["negative-binomial", "poisson", "logarithmic", "categorical", "geometric"]

TILTS = (-60.0, 20.0)  # range of θ of a Poisson distribution; beyond, all mass is on the shortest or longest duration
LARGEST_LOG_SUCCESS = -1e-9  # largest log q of a negative binomial distribution, so that its mean is finite
SIZES = (1e-2, 1e3)  # range of the size of a negative binomial distribution; above, it is nearly Poisson
MOST_STEPS = 200  # most steps of a search for θ, which takes five to ten
NEAR_END = 1e-4  # share of a range within which a value counts as being at the range's end
AT_END_OF_RANGE = "at the end of the range of its values, which sets it in place of the data"
INNER = 5.0  # largest logarithm or log-odds where draws begin
LOG_SPREAD = 1.5  # deviation of the normal priors of logarithms and log-odds, a factor of 4.5 to each side
SMOOTHING = 0.1  # share of a first guess that is spread evenly over all durations


@dataclass(frozen=True)
class DurationFamily(ABC):
    """Base class of families of distributions over the durations 1 .. D of visits to a state, with their M-step.

    The methods take and return a *table* ``(K, Q)`` float64, which has the Q parameters of the distribution of each of
    K states. To add a family, define the abstract methods and name it in ``duration_family``.

    Attributes:
        longest: longest duration, D.
        pseudocount: count that a categorical distribution adds to every duration in the M-step.
    """

    longest: int
    pseudocount: float = 0.0

    @property
    def n_columns(self) -> int:
        """Number of columns of a table, Q."""
        return self.n_free

    @property
    @abstractmethod
    def n_free(self) -> int:
        """Number of free parameters of a state."""

    @property
    def follows_itself(self) -> bool:
        """True if a state may follow itself; a visit of several steps is then several segments of one step."""
        return False

    @abstractmethod
    def log_pmf(self, table: Tensor) -> Tensor:
        """Return log p(d) for durations d of 1 to D steps of each state, ``(K, D)``.

        ``table (K, Q)`` has the parameters of the distribution of each state.
        """

    @abstractmethod
    def with_mean(self, mean: Tensor) -> Tensor:
        """Return the table of wide distributions whose means are about ``mean (K,)``, in steps; EM starts from it."""

    @abstractmethod
    def maximise(self, counts: Tensor, n_biased: Tensor, table: Tensor) -> Tensor:
        """Return the table ``(K, Q)`` after an M-step, which maximises the expected log-likelihood plus ``log_prior``.

        The log-likelihood is ``Σ_d counts log p(d) - n_biased log E[d]``.

        Args:
            counts: expected counts of durations of 1 to D steps, of whole segments, ``(K, D)``.
            n_biased: number of them that were observed with probability in proportion to their duration, because the
                segment had begun before its sequence, ``(K,)``.
            table: the table before; the result is never worse. A state without counts keeps its row.
        """

    @property
    def tilted(self) -> int | None:
        """The column of the table that is added to ``log p(d) / (d - 1)``, as what inputs do is; None for none."""
        return None

    @abstractmethod
    def log_weights(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return unnormalised log-probabilities of one state, ``(D,)``, and their derivatives by its row of the table.

        These are the first and the second derivatives, ``(Q, D)`` each, for a ``row (Q,)``; mixed second derivatives
        are zero.
        """

    @abstractmethod
    def maximise_given_inputs(
        self, regression: DurationRegression, row: Tensor, slopes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the row of the table of one state, ``(Q,)``, and its slopes ``(F,)`` after an M-step given inputs.

        ``p(d | u) ∝ p(d) exp((w · u) (d - 1))``, where the row is of p and w are the slopes on F inputs u.

        Args:
            regression: expected counts of the state's segments by their inputs.
            row: the row before, ``(Q,)``; the result is never worse.
            slopes: the slopes before, ``(F,)``.
        """

    @abstractmethod
    def raw(self, table: Tensor) -> Mapping[str, Array]:
        """Return the parameters of each state on the scale that users see, by attribute name.

        Each array is ``(K,)`` or ``(K, D)``; ``table (K, Q)`` has the parameters as the family stores them.
        """

    @abstractmethod
    def check(self, table: Tensor) -> None:
        """Raise ``ValueError`` if the table ``(K, Q)``, read from a file, has numbers that no fit can produce."""

    def log_prior(self, table: Tensor) -> Tensor:
        """Return the log-density of the prior of the M-step (pseudocounts) in nats, up to a constant, as a scalar.

        ``table (K, Q)`` has the parameters of the distribution of each state.
        """
        return table.new_zeros(())

    # -- training by gradient and draws by NUTS --------------------------------------------------------------

    def unbounded(self, table: Tensor) -> Tensor:
        """Return a ``table`` as unconstrained real numbers, ``(K, Q)`` too; ``of_unbounded`` is the inverse."""
        return table

    def of_unbounded(self, numbers: Tensor) -> Tensor:
        """Return the table whose ``unbounded`` are these ``numbers (K, Q)``; the map is differentiable."""
        return numbers

    # -- priors of the parameters ----------------------------------------------------------------------------

    @property
    def is_conjugate(self) -> bool:
        """True if the posterior of the parameters is in the prior's family, so that ``updated`` gives it."""
        return False

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        """Return the hyperparameters of the prior of the table, ``(K, Q)``.

        By default they are the means (and medians) of the normal prior of the quantities that ``located`` returns.

        Args:
            prior: the user's prior.
            n_states: number of states, K.
        """
        return torch.zeros(n_states, self.n_columns, dtype=torch.float64)

    def located(self, numbers: Tensor) -> Tensor:
        """Return the quantities on which the prior is normal, ``(K, Q)``, from unconstrained ``numbers (K, Q)``.

        They are linear functions of the numbers with determinant 1, so that densities are the same.
        """
        return numbers

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        """Return the log-density under the prior of each state's unconstrained parameters, ``(K,)``, differentiable.

        Args:
            table: parameters of the distribution of each state, ``(K, Q)``.
            hyper: hyperparameters of the prior, ``(K, Q)``.
        """
        scaled = (self.located(self.unbounded(table)) - hyper) / LOG_SPREAD
        return (-0.5 * scaled.square() - math.log(LOG_SPREAD * math.sqrt(2 * math.pi))).sum(1)

    def near(self, table: Tensor, prior: Tensor, counts: Tensor) -> Tensor:
        """Return a table ``(K, Q)`` near the mode of the posterior, from which draws begin.

        By default its distributions have about the means of the counts, and its numbers are at no end of the range that
        a fit searches.

        Args:
            table: parameters of the fitted distributions, ``(K, Q)``.
            prior: hyperparameters of the prior, ``(K, Q)``.
            counts: expected counts of durations of 1 to D steps, ``(K, D)``.
        """
        total = counts.sum(1).clamp(min=1e-300)
        mean = counts @ torch.arange(1.0, counts.shape[1] + 1, dtype=counts.dtype) / total
        return self.of_unbounded(self.unbounded(self.with_mean(mean.clamp(min=1.0))).clamp(-INNER, INNER))

    def updated(self, prior: Tensor, counts: Tensor) -> Tensor:
        """Return the hyperparameters of the posterior, ``(K, Q)``; only of a family that ``is_conjugate``.

        Args:
            prior: hyperparameters of the prior, ``(K, Q)``.
            counts: expected counts of durations of 1 to D steps, ``(K, D)``.
        """
        return prior

    def expected(self, hyper: Tensor) -> Tensor:
        """Return the table whose probabilities are ``exp(E log p(d))``, where E is over the posterior.

        ``hyper (K, Q)`` are the posterior's hyperparameters. It serves only a family that ``is_conjugate``.
        """
        return hyper

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence of posterior and prior of each state in nats, ``(K,)``.

        ``hyper`` and ``prior`` are the hyperparameters of posterior and prior, ``(K, Q)``. It serves only a family that
        ``is_conjugate``.
        """
        return hyper.new_zeros(len(hyper))

    def mean(self, hyper: Tensor) -> Tensor:
        """Return the table of posterior mean probabilities, given the posterior's hyperparameters ``hyper (K, Q)``.

        It serves only a family that ``is_conjugate``.
        """
        return hyper

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        """Return a table drawn from the distribution with hyperparameters ``hyper (K, Q)``; only if ``is_conjugate``.

        ``generator`` is a random generator.
        """
        return hyper

    # -- standard errors (``seqmodels.hmm.estimates``); these methods are differentiable -------------------------------

    def pmf(self, table: Tensor) -> Tensor:
        """Return the probabilities p(d) of durations d of 1 to D steps of each state, ``(K, D)``.

        ``table (K, Q)`` has the parameters of the distribution of each state.
        """
        return self.log_pmf(table).exp()

    def normalised(self, table: Tensor) -> Tensor:
        """Return ``table (K, Q)`` with rows rescaled to sum to one, where they are probabilities.

        Numerical differentiation needs this after changing single numbers.
        """
        return table

    @abstractmethod
    def estimated(self, table: Tensor) -> Mapping[str, Tensor]:
        """Return the parameters that have standard errors by name, such as ``durations (K, D)``, in user units.

        They are differentiable in ``table (K, Q)``.
        """

    @abstractmethod
    def estimates(self, table: Tensor, least: float) -> Iterator[Estimate]:
        """Yield a description of every parameter that has a standard error, or a note that says why it has none.

        Args:
            table: parameters of the distribution of each state, ``(K, Q)``.
            least: the smallest probability that does not count as being on the boundary.
        """

    @abstractmethod
    def is_free(self, table: Tensor, least: float) -> Tensor:
        """Return a mask ``(K, Q)`` of the numbers of a table that are estimated.

        The others are on a boundary, or implied by others.

        Args:
            table: parameters of the distribution of each state, ``(K, Q)``.
            least: the smallest probability that does not count as being on the boundary.
        """

    def lengths(self, table: Tensor) -> Tensor:
        """Return how far each number of a table must move to change the probabilities noticeably, ``(K, Q)``.

        It is the unit of the steps of numerical differentiation. ``table (K, Q)`` has the parameters of each state.
        """
        return torch.ones_like(table)


class CategoricalDurations(DurationFamily):
    """Categorical durations: any distribution over 1 .. D steps; a table ``(K, D)`` holds its probabilities."""

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

    def maximise_given_inputs(
        self, regression: DurationRegression, row: Tensor, slopes: Tensor
    ) -> tuple[Tensor, Tensor]:
        return maximised_probabilities(regression, self.pseudocount, row, slopes)

    def log_weights(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inverse = torch.where(row > 0, 1 / row, 0.0)
        return row.log(), inverse.diag(), -inverse.square().diag()

    def log_prior(self, table: Tensor) -> Tensor:
        return self.pseudocount * torch.where(table > 0, table, 1.0).log().sum()

    def raw(self, table: Tensor) -> Mapping[str, Array]:
        return {}

    def check(self, table: Tensor) -> None:
        if not (bool((table >= 0).all()) and torch.allclose(table.sum(1), table.new_ones(()), atol=1e-6)):
            raise ValueError("durations of a state are not probabilities that sum to one")

    def unbounded(self, table: Tensor) -> Tensor:
        return table.log()

    def of_unbounded(self, numbers: Tensor) -> Tensor:
        return numbers.softmax(1)

    @property
    def is_conjugate(self) -> bool:
        return True

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        return prior.concentrations("durations", (n_states, self.longest), 1 / self.longest)

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        return dirichlet_log_density(table.log(), hyper)

    def near(self, table: Tensor, prior: Tensor, counts: Tensor) -> Tensor:
        return self.mean(self.updated(prior, counts))

    def updated(self, prior: Tensor, counts: Tensor) -> Tensor:
        return prior + counts

    def expected(self, hyper: Tensor) -> Tensor:
        return expected_log(hyper).exp()

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        return dirichlet_divergence(hyper, prior)

    def mean(self, hyper: Tensor) -> Tensor:
        return hyper / hyper.sum(1, keepdim=True)

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        return draw_dirichlet(hyper, generator)

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
    """Return the duration probabilities ``(D,)`` that maximise ``Σ counts log p - n_biased log E[d]``.

    Args:
        counts: expected counts of durations of 1 to D steps, ``(D,)``.
        n_biased: number of them that were seen with probability in proportion to their duration.

    The result is ``p(d) = counts / (N - n_biased + n_biased d / m)``, where N is the sum of the counts, and m makes
    them sum to one and is then E[d].
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

    def excess(mean: float) -> float:
        return float(rows(mean).sum() - 1)

    if excess(seen.min()) >= 0 or excess(seen.max()) <= 0:  # so few are biased that they change rounding alone
        return unbiased
    mean = brentq(excess, seen.min(), seen.max(), xtol=1e-14, rtol=1e-14)
    p = rows(mean)
    normalised: Array = p / p.sum()
    return normalised


@dataclass(frozen=True)
class _Tilted:
    """The distribution ``p(d) ∝ exp(log_base + θ (d - 1))`` on 1 .. D, with the objective of its M-step.

    Attributes:
        log_base: the part of the log-density that does not depend on θ, ``(D,)``.
        counts: expected counts of durations, ``(D,)``.
        n_biased: number of them that were observed with probability in proportion to their duration.
    """

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
        """Return the first and the second derivative of ``value`` at θ = ``tilt``."""
        p, d = np.exp(self.log_pmf(tilt)), np.arange(1.0, len(self.log_base) + 1)
        mean = float(p @ d)
        variance, third = float(p @ (d - mean) ** 2), float(p @ (d - mean) ** 3)
        first = float(self.counts @ (d - mean)) - self.n_biased * variance / mean
        second = -float(self.counts.sum()) * variance - self.n_biased * (third - variance**2 / mean) / mean
        return first, second

    def best(self, low: float, high: float, start: float) -> float:
        """Return the θ between ``low`` and ``high`` at which ``value`` is largest, which may be a bound.

        The slope falls in θ, so the search is Newton's method for its root from ``start``, with bisection where a step
        would leave the bracket of the root.
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
    """Base class of families of durations ``p(d) ∝ h(d) exp(θ (d - 1))`` with one parameter θ for each state.

    A table ``(K, 1)`` holds θ. To add a family, define ``log_base``, ``tilts`` and the remaining abstract methods.
    """

    @property
    def n_free(self) -> int:
        return 1

    @abstractmethod
    def log_base(self, device: torch.device) -> Tensor:
        """Return log h(d) for d = 1 .. D on ``device``, the part of the log-density without θ, ``(D,)``."""

    @property
    @abstractmethod
    def tilts(self) -> tuple[float, float]:
        """The smallest and the largest θ among which a fit searches."""

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

    def maximise_given_inputs(
        self, regression: DurationRegression, row: Tensor, slopes: Tensor
    ) -> tuple[Tensor, Tensor]:
        return maximised_numbers(regression, self.log_weights, [self.tilts], row, slopes)

    @property
    def tilted(self) -> int:
        return 0

    def log_weights(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        later = torch.arange(self.longest, dtype=row.dtype, device=row.device)
        return self.log_base(row.device) + row * later, later[None], torch.zeros_like(later)[None]

    def is_free(self, table: Tensor, least: float) -> Tensor:
        return is_within(table, *self.tilts)


def _log_excess(prior: ConjugatePrior, n_states: int, longest: int) -> Tensor:
    """Return the prior's median of log(mean duration - 1) for each state, ``(K, 1)``.

    Args:
        prior: the user's prior, with its ``mean_duration``.
        n_states: number of states, K.
        longest: longest duration, from which the default follows.
    """
    return (prior.numbers("mean_duration", 1 + longest / 4, (n_states, 1), least=1.0) - 1).log()


class PoissonDurations(OneParameterDurations):
    """Poisson durations of d steps, ``p(d) ∝ λ^(d-1) / (d-1)!`` up to the longest; a table ``(K, 1)`` holds log λ."""

    def log_base(self, device: torch.device) -> Tensor:
        return -torch.lgamma(torch.arange(1.0, self.longest + 1, dtype=torch.float64, device=device))

    @property
    def tilts(self) -> tuple[float, float]:
        return TILTS

    def with_mean(self, mean: Tensor) -> Tensor:
        return (mean[:, None].double() - 1).clamp(min=0.1).log()

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        return _log_excess(prior, n_states, self.longest)

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
    """Logarithmic durations of d steps, ``p(d) ∝ p^d / d`` (Fisher's series); a table ``(K, 1)`` holds log p.

    One step is the most probable duration, and long durations are more probable than in a geometric distribution with
    the same mean.
    """

    def log_base(self, device: torch.device) -> Tensor:
        return -torch.arange(1.0, self.longest + 1, dtype=torch.float64, device=device).log()

    @property
    def tilts(self) -> tuple[float, float]:
        return TILTS[0], LARGEST_LOG_SUCCESS

    def with_mean(self, mean: Tensor) -> Tensor:
        in_full = torch.zeros(len(mean), self.longest, dtype=torch.float64)
        # Counts on the two durations around the mean, weighted so that their average is the mean.
        at = (mean.double().cpu() - 1).clamp(0.1, max(self.longest - 1.0, 0.1))
        low = at.floor().clamp(max=self.longest - 1).long()
        in_full.scatter_add_(1, low[:, None], (1 - (at - low))[:, None])
        in_full.scatter_add_(1, (low + 1).clamp(max=self.longest - 1)[:, None], (at - low)[:, None])
        start = torch.full((len(mean), 1), -1.0, dtype=torch.float64)
        return self.maximise(in_full, torch.zeros(len(mean)), start).to(mean.device)

    def raw(self, table: Tensor) -> Mapping[str, Array]:
        return {"duration_probabilities_": table[:, 0].exp().numpy()}

    def unbounded(self, table: Tensor) -> Tensor:
        return _log_odds(table)

    def of_unbounded(self, numbers: Tensor) -> Tensor:
        return _log_success(numbers)

    def check(self, table: Tensor) -> None:
        if not (bool(torch.isfinite(table).all()) and bool((table < 0).all())):
            raise ValueError("probabilities of logarithmic durations are not between 0 and 1")

    def estimated(self, table: Tensor) -> Mapping[str, Tensor]:
        return {"duration_probabilities": table[:, 0].exp()}

    def estimates(self, table: Tensor, least: float) -> Iterator[Estimate]:
        for k, is_free in enumerate(self.is_free(table, least)[:, 0].tolist()):
            yield Estimate("duration_probabilities", (k,), k, None, "logit", "" if is_free else AT_END_OF_RANGE)

    def lengths(self, table: Tensor) -> Tensor:
        return table.abs().clamp(max=1.0)  # the table holds log p, which is below zero


class NegativeBinomialDurations(DurationFamily):
    """Negative binomial durations ``p(d) ∝ Γ(d-1+r) / (Γ(r) (d-1)!) q^(d-1)`` of d steps, with a size r and a number q.

    A table ``(K, 2)`` holds log r and log q. With r = 1 the distribution is geometric; the larger r, the narrower. The
    M-step searches over r, and for each r over q.
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
        # The search may miss the best size if there are several maxima, so a size before that is better is kept.
        value, tilt = best_at(float(optimum.x))
        kept_value, kept_tilt = best_at(float(before[0]))
        if kept_value >= value:
            return np.array([before[0], kept_tilt])
        return np.array([optimum.x, tilt])

    def maximise_given_inputs(
        self, regression: DurationRegression, row: Tensor, slopes: Tensor
    ) -> tuple[Tensor, Tensor]:
        ranges = [(math.log(SIZES[0]), math.log(SIZES[1])), (TILTS[0], LARGEST_LOG_SUCCESS)]
        return maximised_numbers(regression, self.log_weights, ranges, row, slopes)

    @property
    def tilted(self) -> int:
        return 1

    def log_weights(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        later, size = torch.arange(self.longest, dtype=row.dtype, device=row.device), row[0].exp()
        log_base = torch.lgamma(later + size) - torch.lgamma(size) - torch.lgamma(later + 1)
        slope, curvature = (
            size ** (n + 1) * (torch.polygamma(n, later + size) - torch.polygamma(n, size)) for n in (0, 1)
        )
        second = torch.stack([slope + curvature, torch.zeros_like(later)])
        return log_base + row[1] * later, torch.stack([slope, later]), second

    def raw(self, table: Tensor) -> Mapping[str, Array]:
        return {
            "duration_sizes_": table[:, 0].exp().numpy(),
            "duration_probabilities_": -torch.expm1(table[:, 1]).numpy(),
        }

    def unbounded(self, table: Tensor) -> Tensor:
        return torch.stack([table[:, 0], _log_odds(table[:, 1])], 1)

    def of_unbounded(self, numbers: Tensor) -> Tensor:
        return torch.stack([numbers[:, 0], _log_success(numbers[:, 1])], 1)

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        excess = _log_excess(prior, n_states, self.longest)
        return torch.cat([torch.zeros_like(excess), excess], 1)

    def located(self, numbers: Tensor) -> Tensor:
        return torch.stack([numbers[:, 0], numbers.sum(1)], 1)  # log r, and the log of the mean of d - 1, r q / (1 - q)

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
        # The columns are log r, and log q, which is below zero.
        return torch.stack([torch.ones_like(table[:, 0]), table[:, 1].abs().clamp(max=1.0)], 1)


class GeometricDurations(DurationFamily):
    """Geometric durations ``p(d) = a^(d-1) (1 - a)`` of d steps, not truncated, with an empty table ``(K, 0)``.

    Segments last one step and may be followed by the same state with the chain's probability ``a_kk``, exactly as in an
    HMM.
    """

    @property
    def n_free(self) -> int:
        return 0

    @property
    def follows_itself(self) -> bool:
        return True

    @property
    def is_conjugate(self) -> bool:
        return True  # no parameters but those of the rows of the chain

    def log_pmf(self, table: Tensor) -> Tensor:
        return table.new_zeros(len(table), 1)

    def with_mean(self, mean: Tensor) -> Tensor:
        return mean.new_empty(len(mean), 0, dtype=torch.float64)

    def maximise(self, counts: Tensor, n_biased: Tensor, table: Tensor) -> Tensor:
        return table

    def maximise_given_inputs(
        self, regression: DurationRegression, row: Tensor, slopes: Tensor
    ) -> tuple[Tensor, Tensor]:
        raise AssertionError("geometric durations are transitions, which depend on inputs themselves")

    def log_weights(self, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return row.new_zeros(1), row.new_zeros(0, 1), row.new_zeros(0, 1)

    def raw(self, table: Tensor) -> Mapping[str, Array]:
        return {}

    def check(self, table: Tensor) -> None:
        """Accept every ``table``, because one of geometric durations has no columns."""

    def estimated(self, table: Tensor) -> Mapping[str, Tensor]:
        return {}

    def estimates(self, table: Tensor, least: float) -> Iterator[Estimate]:
        return iter(())

    def is_free(self, table: Tensor, least: float) -> Tensor:
        return torch.ones_like(table, dtype=torch.bool)


def _log_odds(log_p: Tensor) -> Tensor:
    return log_p - (-torch.expm1(log_p)).log()


def _log_success(log_odds: Tensor) -> Tensor:
    """Return log p for the ``log_odds`` of p, at most ``LARGEST_LOG_SUCCESS``, so that mean durations are finite."""
    return torch.nn.functional.logsigmoid(log_odds).clamp(max=LARGEST_LOG_SUCCESS)


def is_within(values: Tensor, low: float, high: float) -> Tensor:
    """Return a mask of the ``values`` that are inside the range from ``low`` to ``high`` and not at one of its ends."""
    margin = NEAR_END * (high - low)
    return (values > low + margin) & (values < high - min(margin, 0.5 * abs(high) or margin))


def duration_family(name: DurationName, longest: int, pseudocount: float) -> DurationFamily:
    """Return the family of distributions of durations that the argument ``durations`` of ``HSMM`` stands for.

    Args:
        name: name of the family.
        longest: longest duration, ``HSMM.max_duration``; not used by geometric durations.
        pseudocount: count added to every duration in an M-step, ``HSMM.duration_pseudocount``.

    Raises:
        ValueError: there is no such family, or a number is out of range.
    """
    if longest < 1:
        raise ValueError(f"max_duration is {longest}; pass the most steps of a segment, at least 1")
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
