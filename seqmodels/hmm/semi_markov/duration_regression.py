"""Regressions of the durations of one state on inputs of the first steps of its segments: M-steps of expected counts.

A segment (a visit to the state) that begins at a step with inputs u has the duration d with probability ``p(d | u) =
h(d) exp((w · u) (d - 1)) / Z(u)``. A segment that had begun before its sequence is observed with a probability in
proportion to its duration, so that its density is ``p(d | u) / E[d | u]``: the same form, with ``d h(d)`` in place of
``h(d)``. For both the log-likelihood is concave in the slopes w, and in the logarithms of the weights h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum, is_rank_zero
from seqmodels.hmm.emissions.newton import HALVINGS, MOST_STEPS, NEGLIGIBLE_GAIN, uphill

NUMBERS_AT_ONCE = 1 << 22  # probabilities of durations that are held at once; bounds memory
LEAST_SHARE = 1e-16  # share of all segments below which those of a row are left out, because they change rounding alone
LONGEST_STEP = 2.0  # most that a number changes in one step of Newton's method

# Returns the logarithms of unnormalised weights h(d), ``(D,)``, and their first and second derivatives by the Q numbers
# of a state, each ``(Q, D)``; mixed second derivatives are zero.
Derivatives = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class DurationRegression:
    """Expected counts of the segments of one state, by the inputs of their first steps.

    Attributes:
        counts: expected number of segments of 1 to D steps in full, ``(D,)`` float64.
        design: the F inputs of each of R first steps, ``(R, F)`` float64.
        segments: expected number of segments that begin at each first step, ``(R,)``.
        steps: expected number of their steps, all but the first of each, ``(R,)``.
        is_biased: True for first steps of sequences whose segment had begun before, ``(R,)``.
        ridge: precision of the Gaussian prior of the slopes.
    """

    counts: Tensor
    design: Tensor
    segments: Tensor
    steps: Tensor
    is_biased: Tensor
    ridge: float

    def __post_init__(self) -> None:
        is_met = self.segments > LEAST_SHARE * self.segments.sum()
        for name in ("design", "segments", "steps", "is_biased"):
            object.__setattr__(self, name, getattr(self, name)[is_met])

    @property
    def later(self) -> Tensor:
        """The number of steps but the first, ``d - 1``, of each duration, ``(D,)``."""
        return torch.arange(len(self.counts), dtype=self.counts.dtype, device=self.counts.device)

    def terms(self, log_weights: Tensor, first: Tensor, second: Tensor, slopes: Tensor) -> tuple[float, Tensor, Tensor]:
        """Return the objective in nats, its gradient ``(Q + F,)`` and its negative Hessian ``(Q + F, Q + F)``.

        They are sums over all processes.

        Args:
            log_weights: log h(d), ``(D,)``.
            first: its derivatives by Q numbers, ``(Q, D)``.
            second: its second derivatives by each of them, ``(Q, D)``; mixed ones are zero.
            slopes: the slopes w, ``(F,)``.
        """
        later, q = self.later, len(first)
        features = torch.cat([first, later[None]]).T  # (D, Q + 1)
        one = torch.ones_like(later)
        columns = torch.cat([one[:, None], features, features * later[:, None]], 1)  # of a sum and of moments
        of_tilt = torch.stack([later, (later + 1).log(), torch.where(torch.isneginf(log_weights), 0.0, log_weights)])
        impossible = torch.isneginf(log_weights)
        value = (self.counts * torch.where(self.counts > 0, log_weights, 0.0)).sum()
        gradient = torch.cat([first @ self.counts, torch.zeros_like(slopes)])
        curvature = torch.zeros(len(gradient), len(gradient), dtype=later.dtype, device=later.device)
        curvature.diagonal()[:q] = -(second @ self.counts)
        size = max(1, NUMBERS_AT_ONCE // len(later))
        parts = zip(*(t.split(size) for t in (self.design, self.segments, self.steps, self.is_biased)), strict=True)
        for u, n, steps, is_biased in parts:
            tilts = u @ slopes
            logits = torch.stack([tilts, is_biased.to(tilts), torch.ones_like(tilts)], 1) @ of_tilt  # (R, D)
            if impossible.any():
                logits[:, impossible] = -torch.inf
            peak = logits.amax(1, keepdim=True)
            p = logits.sub_(peak).exp_()
            sums, *moments = (p @ columns).split([1, q + 1, q + 1], 1)
            means, with_later = (each / sums for each in moments)
            weighted = (n / sums[:, 0]) @ p
            centred = with_later - means * means[:, -1:]  # covariances with the number of steps
            value = value + steps @ tilts - n @ (sums.log() + peak)[:, 0]
            gradient[:q] -= n @ means[:, :q]
            gradient[q:] += (steps - n * means[:, -1]) @ u
            of_base = (features.T * weighted) @ features - (means.T * n) @ means
            curvature[:q, :q] += of_base[:q, :q]
            curvature.diagonal()[:q] += second @ weighted
            curvature[:q, q:] += (centred[:, :q].T * n) @ u
            curvature[q:, q:] += (u.T * (n * centred[:, -1])) @ u
        (value, gradient, curvature), _ = all_reduce_sum([value, gradient, curvature])
        curvature[q:, :q] = curvature[:q, q:].T
        gradient[q:] -= self.ridge * slopes
        curvature.diagonal()[q:] += self.ridge
        return float(value - 0.5 * self.ridge * slopes.square().sum()), gradient, curvature

    def expected_factors(self, log_weights: Tensor, slopes: Tensor) -> Tensor:
        """Return ``Σ n exp((w · u) (d - 1)) / Z`` over all first steps and processes, ``(D,)``.

        Biased segments have d times the term. Multiplied by the weights h(d), these are the expected counts under them.

        Args:
            log_weights: log h(d), ``(D,)``.
            slopes: the slopes w, ``(F,)``.
        """
        later = self.later
        total, size = torch.zeros_like(later), max(1, NUMBERS_AT_ONCE // len(later))
        parts = zip(*(t.split(size) for t in (self.design, self.segments, self.is_biased)), strict=True)
        for u, n, is_biased in parts:
            factors = (u @ slopes)[:, None] * later + is_biased[:, None] * (later + 1).log()
            log_z = torch.logsumexp(log_weights + factors, 1)
            total += n @ (factors - log_z[:, None]).exp()
        (total,), _ = all_reduce_sum([total])
        return total

    def with_pseudocounts(self, added: Tensor) -> DurationRegression:
        """Return the regression with ``added (D,)`` segments of each duration where all inputs are zero."""
        if not is_rank_zero():  # because sums are over all processes
            return self
        none, total = self.steps.new_zeros(1), added.sum()[None]
        return replace(
            self,
            counts=self.counts + added,
            design=torch.cat([self.design, self.design.new_zeros(1, self.design.shape[1])]),
            segments=torch.cat([self.segments, total]),
            steps=torch.cat([self.steps, none]),
            is_biased=torch.cat([self.is_biased, none.bool()]),
        )

    def total_counts(self) -> Tensor:
        """Return the counts summed over all processes, ``(D,)``."""
        (total,), _ = all_reduce_sum([self.counts])
        return total


def maximised_numbers(
    regression: DurationRegression,
    derivatives: Derivatives,
    ranges: Sequence[tuple[float, float]],
    numbers: Tensor,
    slopes: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the Q numbers of a state's durations and its slopes that maximise the objective.

    It is Newton's method with steps that are projected on the ranges of the numbers, halved until they gain something
    (Bertsekas 1982, *Projected Newton methods for optimization problems with simple constraints*). A number at the end
    of its range stays there while the objective rises beyond it. The result is never worse than what it starts from.

    Args:
        regression: expected counts of the state's segments.
        derivatives: function of the numbers that returns the logarithms of weights, with their derivatives.
        ranges: the smallest and the largest value of each number.
        numbers: the numbers to start from, ``(Q,)``.
        slopes: the slopes to start from, ``(F,)``.
    """
    q, at = len(numbers), torch.cat([numbers, slopes])
    none = [(-torch.inf, torch.inf)] * len(slopes)
    low, high = torch.tensor([*ranges, *none], dtype=at.dtype, device=at.device).T

    def terms(at: Tensor) -> tuple[float, Tensor, Tensor]:
        return regression.terms(*derivatives(at[:q]), at[q:])

    value, gradient, curvature = terms(at)
    for _ in range(MOST_STEPS):
        is_held = ((at <= low) & (gradient < 0)) | ((at >= high) & (gradient > 0))
        free = (~is_held).nonzero()[:, 0]
        change = _bounded(uphill(curvature[free[:, None], free], gradient[free]))
        if not float(gradient[free] @ change) > NEGLIGIBLE_GAIN * max(1.0, abs(value)):
            break
        for _ in range(HALVINGS):
            moved = at.index_add(0, free, change).clamp(low, high)
            better = terms(moved)
            if better[0] > value:
                break
            change = 0.5 * change
        else:
            break
        at, (value, gradient, curvature) = moved, better
    return at[:q], at[q:]


def maximised_probabilities(
    regression: DurationRegression, pseudocount: float, probabilities: Tensor, slopes: Tensor
) -> tuple[Tensor, Tensor]:
    """Return free probabilities of durations at inputs of zero, ``(D,)``, and slopes that maximise the objective.

    Newton's method starts from a step of iterative scaling, which raises the objective too: with ``-log Z`` replaced by
    its tangent, the maximum over the weights is ``counts / Σ n exp((w · u) (d - 1)) / Z`` (Darroch and Ratcliff 1972,
    *Generalized iterative scaling for log-linear models*). With slopes of zero this is the maximum itself.

    Args:
        regression: expected counts of the state's segments.
        pseudocount: count that is added to each possible duration at inputs of zero.
        probabilities: the probabilities to start from, ``(D,)``; those that are zero stay so.
        slopes: the slopes to start from, ``(F,)``.
    """
    regression = regression.with_pseudocounts(pseudocount * (probabilities > 0))
    counts = regression.total_counts()
    is_met = counts > 0
    weights = counts / regression.expected_factors(probabilities.log(), slopes)
    features = torch.eye(len(counts), dtype=counts.dtype, device=counts.device)[is_met]

    def derivatives(numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_weights = torch.full_like(counts, -torch.inf)
        log_weights[is_met] = numbers
        return log_weights, features, torch.zeros_like(features)

    ranges = [(-torch.inf, torch.inf)] * len(features)
    log_weights, slopes = maximised_numbers(regression, derivatives, ranges, weights[is_met].log(), slopes)
    result = torch.zeros_like(counts)
    result[is_met] = log_weights.softmax(0)
    return result, slopes


def _bounded(step: Tensor) -> Tensor:
    return step * (LONGEST_STEP / step.abs().max()).clamp(max=1.0) if len(step) else step
