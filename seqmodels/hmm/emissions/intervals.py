"""EM for values known by intervals: the density's M-step on moments that are expected within each interval.

The hidden part of the data is the place of a value in its interval (Dempster, Laird and Rubin 1977, section 4.2). Equal
frames, which are frequent when values are rounded, are counted first and computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.base import Emission, Statistics, emission_of, empty_by_state, row_blocks
from seqmodels.inference.chains.densities import Densities, LogDensities
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import FeatureMoments, GaussianMixture, OfIntervals
from seqmodels.observations.interval_probabilities import gaussian_moments
from seqmodels.observations.intervals import BOUNDS
from seqmodels.sequences.measure import Values

NODES = 128  # approximate number of nodes of an integral over an interval
MISSING = 1e30  # replaces NaN in comparisons, because NaN is equal to nothing
ROUNDS = 20  # rounds of EM for the Gaussian under which values are expected
SMALLEST_VARIANCE = 1e-8  # smallest variance of that Gaussian, needed if all values are in one interval


@dataclass(frozen=True)
class DistinctFrames:
    """The U distinct rows of N frames with D columns, so that equal frames are computed once.

    Attributes:
        values: the distinct rows, ``(U, D)``.
        index: index of each frame's row in ``values``, ``(N,)``.
    """

    values: Tensor
    index: Tensor

    @classmethod
    def of(cls, x: Tensor) -> DistinctFrames:
        """Return the distinct rows of the frames ``x (N, D)``, with the index of each frame's row.

        If most rows are distinct, every row is kept in its place, because little would be gained.
        """
        values, index = torch.unique(torch.where(x.isnan(), MISSING, x), dim=0, return_inverse=True)
        if 2 * len(values) > len(x):
            return cls(x, torch.arange(len(x), device=x.device))
        return cls(torch.where(values == MISSING, torch.nan, values), index)

    def summed(self, gamma: Tensor) -> Tensor:
        """Return the posteriors ``gamma (N, K)`` of K states summed over equal frames, ``(U, K)`` float64."""
        total = torch.zeros(len(self.values), gamma.shape[1], dtype=torch.float64, device=gamma.device)
        return total.index_add_(0, self.index, gamma.double())


class IntervalEmission(Emission):
    """Base class of EM computations for values of which only an interval is known (censored or rounded values).

    To add one, define ``_sums``, the expected statistics within the intervals. All else comes from ``inner``, the
    emission of the density itself.
    """

    observation: OfIntervals

    def __init__(self, observation: OfIntervals, size: int) -> None:
        super().__init__(observation, size)
        self.inner = emission_of(observation.observation, observation.n_features(size))

    def _sums(self, table: Tensor, low: Tensor, high: Tensor, weights: Tensor) -> Tensor:
        """Return the expected statistics of ``inner`` when each value lies in its interval from ``low`` to ``high``.

        ``low`` and ``high``: ends of U distinct rows of intervals, ``(U, D)``; ``weights``: posterior of each state,
        summed over the frames that have the row, ``(U, K)``.
        """
        raise NotImplementedError

    # -- E-step --------------------------------------------------------------------------------------------

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        return self._log_prob(table, DistinctFrames.of(x), dtype)

    def _log_prob(self, table: Tensor, frames: DistinctFrames, dtype: torch.dtype) -> Tensor:
        distinct = torch.empty(len(table), len(frames.values), dtype=dtype, device=frames.index.device)
        for rows in row_blocks(len(frames.values), NODES * table.numel(), distinct.device):
            distinct[:, rows] = self.observation.log_prob(table, frames.values[rows].unsqueeze(1)).T.to(dtype)
        result = empty_by_state(len(table), len(frames.index), dtype, distinct.device)
        torch.index_select(distinct, 1, frames.index, out=result.T)
        return result

    def evaluate(
        self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype, scratch: Scratch
    ) -> tuple[Densities, Any]:
        frames = scratch.once(x, DistinctFrames.of)
        return LogDensities(self._log_prob(table, frames, dtype)), frames

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        frames = memo if isinstance(memo, DistinctFrames) else DistinctFrames.of(x)
        weights, (low, high) = frames.summed(gamma), self.observation.ends(frames.values)
        blocks = row_blocks(len(low), NODES * table.numel(), x.device)
        return (torch.stack([self._sums(table, low[b], high[b], weights[b]) for b in blocks]).sum(0),)

    # -- M-step, and methods of the density -----------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        return self.inner.maximise(statistics, table)

    def log_prior(self, table: Tensor) -> Tensor:
        return self.inner.log_prior(table)

    def floor_hits(self, table: Tensor) -> Tensor:
        return self.inner.floor_hits(table)

    def n_parameters(self, n_states: int) -> int:
        return self.inner.n_parameters(n_states)

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        columns = self.size // self.inner.size  # columns of each feature
        return self.inner.raw_parameters(table, shift[::columns], scale[::columns])

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        columns = self.size // self.inner.size
        return self.inner.table_of_raw(raw, shift[::columns], scale[::columns])

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        columns = self.size // self.inner.size
        return self.inner.by_state(table, shift[::columns], scale[::columns], names[::columns])

    # -- the start -----------------------------------------------------------------------------------------

    def labels(self, x: Tensor, n_states: int, generator: torch.Generator) -> Tensor:
        return self.inner.labels(self._values(x), n_states, generator)

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        return self.inner.from_labels(self._values(x), None, labels, n_states, generator)

    def _values(self, x: Tensor) -> Tensor:
        """Return the expected value of each feature in its interval, ``(N, D)``; NaN where that is the whole line."""
        frames = DistinctFrames.of(x)
        low, high = self.observation.ends(frames.values)
        counts = torch.bincount(frames.index, minlength=len(low)).double()
        values = expected_values(low, high, counts, self.observation.kind)
        return values[frames.index].to(x.dtype)


class GaussianIntervalEmission(IntervalEmission):
    """EM computations for ``GaussianMixture`` emissions of values of which only an interval is known.

    The expected statistics are sums of E[x], of E[x²], of whether each feature was observed, and of 1, for each
    component.
    """

    def _sums(self, table: Tensor, low: Tensor, high: Tensor, weights: Tensor) -> Tensor:
        density = cast(GaussianMixture, self.observation.observation)
        log_joint = density.interval_components(table, low.unsqueeze(1), high.unsqueeze(1))  # (U, K, M)
        # A frame that no component can emit has a posterior of zero in all of them.
        posterior = torch.softmax(log_joint, -1).nan_to_num() * weights.unsqueeze(-1)
        posterior = posterior[..., : density.n_components]  # without the background
        _, means, shapes = density.unpack(table, self.inner.size)
        log_deviations = 0.5 * shapes.clamp(min=np.log(density.min_covariance))
        x, squares = gaussian_moments(low[:, None, None], high[:, None, None], means, log_deviations)  # (U, K, M, D)
        observed = (~low.isnan()).double()[:, None, None].expand_as(x)
        features = torch.cat([observed * x, observed * squares, observed, torch.ones_like(x[..., :1])], -1)
        return torch.einsum("ukm,ukmf->kmf", posterior, features)


def expected_values(low: Tensor, high: Tensor, counts: Tensor, kind: Values) -> Tensor:
    """Return the expected value within each interval, ``(U, D)``, under one Gaussian for each feature.

    The Gaussian is fitted to all intervals: to the logarithms of positive values, and to the logits of proportions. The
    result is NaN where an interval is the whole line.

    Args:
        low, high: ends of the intervals of D features in U distinct rows, ``(U, D)`` float64.
        counts: how often each row occurs, ``(U,)``.
        kind: kind of the values, such as ``"reals"`` or ``"positive"``.
    """
    to_line = {"positive": torch.log, "proportions": torch.logit}.get(kind, torch.clone)
    from_line = {"positive": torch.exp, "proportions": torch.sigmoid}.get(kind, torch.clone)
    a, b = (to_line(end.clamp(*BOUNDS[kind])) for end in (low, high))
    is_known = ~low.isnan() & (a.isfinite() | b.isfinite())
    a, b = torch.where(is_known, a, 0.0), torch.where(is_known, b, 1.0)
    weights = counts.unsqueeze(-1) * is_known
    total = weights.sum(0).clamp(min=1.0)
    middle = torch.where(a.isinf(), b, torch.where(b.isinf(), a, 0.5 * (a + b)))
    # The start gives narrow intervals more weight, because they are more informative.
    narrow = weights / (b - a)
    narrow = torch.where(narrow.sum(0) > 0, narrow, weights)
    share = narrow / narrow.sum(0).clamp(min=torch.finfo(narrow.dtype).tiny)
    mean = (share * middle).sum(0)
    variance = (share * (middle - mean).square()).sum(0)
    for _ in range(ROUNDS):
        values, squares = gaussian_moments(a, b, mean, 0.5 * variance.clamp(min=SMALLEST_VARIANCE).log())
        mean = (weights * values).sum(0) / total
        variance = (weights * squares).sum(0) / total - mean.square()
    return torch.where(is_known, from_line(values), torch.nan)


class MomentIntervalEmission(IntervalEmission):
    """EM computations for ``FeatureMoments`` emissions of values of which only an interval is known.

    The expected statistics are sums of the expected moments, and of whether each feature was observed, for each state.
    """

    def _sums(self, table: Tensor, low: Tensor, high: Tensor, weights: Tensor) -> Tensor:
        density = cast(FeatureMoments, self.observation.observation)
        observed = ~low.isnan()
        a, b = torch.where(observed, low, -np.inf), torch.where(observed, high, np.inf)
        moments = density.interval_moments(density.unpack(table), a.unsqueeze(1), b.unsqueeze(1))  # (U, K, S, D)
        counted = torch.einsum("uk,uksd->ksd", weights, torch.where(observed[:, None, None], moments, 0.0))
        return torch.cat([counted, (weights.T @ observed.double()).unsqueeze(1)], 1)


@emission_of.register(OfIntervals)
def _(observation: OfIntervals, size: int) -> Emission:
    observation.check(size)
    inner = observation.observation
    if isinstance(inner, GaussianMixture):
        return GaussianIntervalEmission(observation, size)
    if isinstance(inner, FeatureMoments):
        return MomentIntervalEmission(observation, size)
    raise ValueError(f"EM cannot fit intervals of {inner!r}; use GaussianMixture or a FeatureMoments, such as StudentT")
