"""Rounded values, ``p(x) = Π_d (F_d(x_d + w_d / 2) - F_d(x_d - w_d / 2))`` over a grid of width w."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seqmodels.observations.base import LinearOutputs, LinearPrediction, Observation
from seqmodels.observations.interval_probabilities import gauss_legendre
from seqmodels.observations.intervals import OfIntervals
from seqmodels.observations.quantile_search import quantiles_by_search
from seqmodels.sequences.measure import Values

EDGE_LEVELS = 1 / (1 + np.exp(-np.linspace(-28.0, 28.0, 57)))  # levels of the quantiles that divide an integral
N_NODES = 8  # for each part of the integral
N_CELLS_BESIDE = 60  # on either side of the cell in which the density bends most


@dataclass(eq=False, repr=False)
class Rounded(OfIntervals):
    """A density of values of which only the nearest point of a grid is known: sensors of some bits, times in seconds.

    A value x stands for the cell ``[x - width/2, x + width/2)`` and has the probability of that cell under the density,
    so the probabilities sum to one over the grid. They are at most 1 however narrow the density becomes, and can be
    compared with those of another ``Rounded`` of the same width but not with densities. Values that are not on the grid
    are refused.

    Args:
        observation: a density with known probabilities of intervals: ``GaussianMixture`` of diagonal or spherical
            covariances, ``StudentT``, ``Gamma``, ``LogNormal`` or ``Beta``.
        width: width of a cell in raw units, one number or a list with one for each feature.
        origin: a point of the grid in raw units, one number or a list with one for each feature; 0.5, for example, for
            ages in whole years to which 0.5 has been added because they are rounded down.
        scale: number of raw units in one encoded unit of each feature. ``fit`` sets it; leave it None.

    The lower bound of variances is that of ``observation``; a state whose variance is at this bound puts its
    probability on one or two cells. The output parameters and the fitted attributes are those of ``observation``. NaN
    is a missing value, which is marginalised out. Under an HMM the M-step is the density's M-step with expected moments
    within the cells (Dempster, Laird and Rubin 1977, *Maximum likelihood from incomplete data via the EM algorithm*,
    section 4.2). Reference: Heitjan (1989), *Inference from grouped continuous data: a review*.

    >>> from seqmodels import GaussianMixture
    >>> Rounded(GaussianMixture(1), width=0.5).grid(2)
    (0.5, 0.5)
    """

    observation: Observation
    width: float | list[float] = 1.0
    origin: float | list[float] = 0.0
    scale: list[float] | None = None

    def check(self, size: int) -> None:
        super().check(size)
        for name, is_positive in (("width", True), ("origin", False), ("scale", True)):
            value = getattr(self, name)
            if name == "scale" and value is None:
                continue
            numbers = np.asarray(value, dtype=np.float64)
            is_each = numbers.shape == (size,) or (name != "scale" and not numbers.ndim)
            if not is_each or not np.isfinite(numbers).all() or (is_positive and not (numbers > 0).all()):
                what = "numbers above 0" if is_positive else "finite numbers"
                raise ValueError(f"{name} is {value!r}; pass {what}: one, or one for each of the {size} features")

    def n_features(self, size: int) -> int:
        return size

    def values(self, size: int) -> tuple[Values, ...]:
        rounded: Values = "rounded"
        return (rounded,) * size

    def grid(self, size: int) -> tuple[float, ...]:
        return tuple(np.broadcast_to(np.asarray(self.width, dtype=np.float64), (size,)).tolist())

    def in_units(self, scale: tuple[float, ...]) -> Rounded:
        return replace(self, scale=list(scale))

    def ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        point, width = self._nearest(x)
        return point - 0.5 * width, point + 0.5 * width

    def nearest(self, x: Tensor) -> Tensor:
        return self._nearest(x)[0]

    # -- each feature by itself ----------------------------------------------------------------------------

    @property
    def has_marginal_cdfs(self) -> bool:
        return self.observation.has_marginal_cdfs

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        """Return the cumulative probability ``P(X_d <= x_d)`` of each rounded feature by itself, ``(..., D)`` float64.

        It is the cdf of the density before rounding at the upper end of the cell of ``x_d``.

        Args:
            output_parameters: the P parameters of each density, ``(..., P)``.
            x: encoded points of the grid for D features, ``(..., D)``.
            past: not used.
        """
        return self.observation.marginal_cdfs(output_parameters, x.double() + 0.5 * self._nearest(x)[1])

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        """Return the mean of each rounded feature, ``(..., D)``: the mean of the density plus the effect of rounding.

        Between two ends A and B, rounding adds the error of the trapezoidal rule,
        ``∫_A^B F dx - w Σ_cells (F(low) + F(high)) / 2``, for the cdf F, the density p and cells of width w. Beyond
        them it adds ``w²/12 (p(B) - p(A))`` (Euler, Maclaurin). The ends enclose the cells in which the density is not
        close to a straight line.

        Args:
            output_parameters: the P parameters of each density of D features, ``(..., P)``.
        """
        means = self.observation.marginal_means(output_parameters)

        def cdf(x: Tensor) -> Tensor:
            return self.observation.marginal_cdfs(output_parameters, x)

        def cdf_and_density(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            at = torch.from_numpy(x)
            log_density = self.observation.marginal_log_probs(output_parameters, at)
            return cdf(at).numpy(), log_density.exp().cpu().numpy()

        edges = torch.from_numpy(quantiles_by_search(cdf_and_density, EDGE_LEVELS, tuple(means.shape)))
        # The cells are placed where F bends: at the median for reals, at the smallest quantile for positive values.
        middle, width = self._nearest(edges[len(edges) // 2 if self.kind == "reals" else 0])
        cells = torch.arange(-N_CELLS_BESIDE, N_CELLS_BESIDE + 2.0).view(-1, *[1] * means.ndim) - 0.5
        ends = middle + width * cells
        edges = torch.cat([ends[:1], edges.clamp(ends[0], ends[-1]), ends[-1:]])
        nodes, log_weights = (each.view(-1, 1, *[1] * means.ndim) for each in gauss_legendre(N_NODES))
        lengths = edges.diff(dim=0)
        within = cdf(edges[:-1] + 0.5 * lengths * (1 + nodes))
        integral = (log_weights.exp() * lengths * within).sum((0, 1))
        at_ends = cdf(ends)
        trapezoids = width * (at_ends.sum(0) - 0.5 * (at_ends[0] + at_ends[-1]))
        slopes = cdf(ends[[0, -1]] + 0.5 * width) - cdf(ends[[0, -1]] - 0.5 * width)
        return means + integral - trapezoids + width / 12 * (slopes[1] - slopes[0])

    def _nearest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoded point of the grid nearest to each value, and the encoded width of a cell, float64.

        The encoding shifts by a multiple of the width, so that encoded points are ``(origin + k width) / scale``.

        Args:
            x: encoded vectors of D features, ``(..., D)``.

        Returns:
            Points ``(..., D)`` and widths ``(D,)``, or ``()`` if all features have one width.
        """
        scale = x.new_tensor(1.0 if self.scale is None else self.scale, dtype=torch.float64)
        width, origin = (x.new_tensor(each, dtype=torch.float64) / scale for each in (self.width, self.origin))
        return origin + width * torch.round((x.double() - origin) / width), width

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return self._nearest(self.observation.sample(output_parameters, None, generator))[0].to(output_parameters.dtype)

    # -- starts and floors ---------------------------------------------------------------------------------

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        return self.observation.starting_near(start, total, n)

    @property
    def starts_linear(self) -> bool:
        return self.observation.starts_linear

    def starting_linear(self, start: Tensor, linear: LinearPrediction) -> LinearOutputs:
        return self.observation.starting_linear(start, linear)

    def with_floor(self, factor: float) -> Rounded:
        return replace(self, observation=self.observation.with_floor(factor))
