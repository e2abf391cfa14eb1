"""Densities that are log-concave in a variable y on the whole line, with probabilities of intervals by quadrature.

An interval in which the density hardly changes is integrated over x. Any other interval is integrated over y, in panels
that grow with the distance from the maximum of the density, up to where it is negligible. So nothing overflows or
cancels, and the derivative in every parameter is that of the integrand. Both use Gauss-Legendre quadrature.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from seqmodels.observations.independent_features import FeatureMoments
from seqmodels.observations.interval_probabilities import NEGLIGIBLE, gauss_legendre

NARROW_ON_LINE = 0.5  # an interval is narrow if it is shorter than this in y
NARROW_IN_NATS = 4.0  # and its log-density varies by less than this; few nodes then suffice
N_NODES_OF_NARROW = 24
N_PANELS, GROWTH, N_NODES_OF_PANEL = 8, 3.0, 20
SHORTEST, LONGEST, N_HALVINGS = 1e-13, 1e6, 12  # range and steps of the search for a negligible density


class LineDensity(FeatureMoments, ABC):
    """The base class of densities whose probabilities of intervals are computed by quadrature over the whole real line.

    The values x are mapped to ``y = to_line(θ, x)``, which runs from -inf to inf and in which the density is
    log-concave. To add one, define the methods below. The methods of ``FeatureMoments`` take x; those named ``line_``
    take y ``(..., D)``, float64, and work also where x would underflow.
    """

    @abstractmethod
    def to_line(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return y ``(..., D)``, a function of ``x (..., D)`` that increases from -inf to inf over the range of x.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.
            x: encoded values.
        """

    @abstractmethod
    def line_mode(self, theta: Tensor) -> Tensor:
        """Return the mode ``(..., D)`` of the density of y, the values mapped to the whole line by ``to_line``.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.
        """

    @abstractmethod
    def line_log_prob(self, theta: Tensor, y: Tensor) -> Tensor:
        """Return the log-density of y, the values mapped to the whole line by ``to_line``, in nats, ``(..., D)``.

        It must be concave with slopes that do not tend to zero.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.
            y: values on the line, ``(..., D)``.
        """

    @abstractmethod
    def line_moments(self, theta: Tensor, y: Tensor) -> Tensor:
        """Return the statistics of ``moments``, computed from ``y = to_line(θ, x)`` instead of x, ``(..., S, D)``.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.
            y: values on the line, ``(..., D)``.
        """

    def log_prob_along(self, theta: Tensor, fixed: Tensor, y: Tensor) -> Tensor:
        """Return ``log p(x | theta) + log dx/dy``, the log-density of ``y = to_line(fixed, x)``, in nats, ``(..., D)``.

        Override the method if ``to_line`` depends on the parameters.

        Args:
            theta: the Q unconstrained parameters of the density of each of D features, ``(..., Q, D)``.
            fixed: the same values, which are not differentiated, so that quadrature nodes stay in place while
                parameters change.
            y: values on the line, ``(..., D)``.
        """
        return self.line_log_prob(theta, y)

    # -- intervals -----------------------------------------------------------------------------------------

    @property
    def has_interval_probabilities(self) -> bool:
        return True

    def feature_interval_log_prob(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        def log_prob(terms: Tensor, theta: Tensor, at: Tensor, is_on_line: bool) -> Tensor:
            return torch.logsumexp(terms, 0)

        return self._over_nodes(theta, low, high, log_prob, ())

    def interval_moments(self, theta: Tensor, low: Tensor, high: Tensor) -> Tensor:
        def average(terms: Tensor, theta: Tensor, at: Tensor, is_on_line: bool) -> Tensor:
            moments = self.line_moments(theta, at) if is_on_line else self.moments(theta, at)  # (N, n, S, 1)
            weights = torch.softmax(terms, 0).unsqueeze(-2)
            # A moment may be infinite where the weight has underflowed.
            return torch.where(weights > 0, weights * moments, 0.0).sum(0)

        n_moments = self.moments(theta[..., :1], torch.full_like(theta[..., 0, :1], 0.5)).shape[-2]
        return self._over_nodes(theta, low, high, average, (n_moments,))

    def _over_nodes(
        self,
        theta: Tensor,
        low: Tensor,
        high: Tensor,
        reduce: Callable[[Tensor, Tensor, Tensor, bool], Tensor],
        added: tuple[int, ...],
    ) -> Tensor:
        """Apply ``reduce`` to the quadrature nodes of each interval ``low <= x < high``; return ``(..., *added, D)``.

        Args:
            theta: parameters of the density, ``(..., Q, D)``.
            low, high: ends of the intervals, ``(..., D)``.
            reduce: function of the log-density plus log-weight of N nodes of n intervals ``(N, n, 1)``, the parameters
                ``(n, Q, 1)``, the nodes ``(N, n, 1)``, and whether nodes are values of y (True) or of x (False).
            added: shape of the result of ``reduce`` for one interval; ``()`` for a single number.
        """
        shape = torch.broadcast_shapes(theta[..., 0, :].shape, low.shape)
        n_per_feature = theta.shape[-2]
        flat = theta.expand(*shape[:-1], n_per_feature, shape[-1]).movedim(-2, -1).reshape(-1, n_per_feature, 1)
        a, b = (end.expand(shape).reshape(-1, 1) for end in (low, high))
        fixed = flat.detach()
        on_line = self.to_line(fixed, a), self.to_line(fixed, b)
        is_narrow = self._is_narrow(fixed, *on_line).squeeze(-1)
        out = flat.new_zeros(len(flat), *added, 1)
        for rows, is_on_line in ((is_narrow.nonzero()[:, 0], False), ((~is_narrow).nonzero()[:, 0], True)):
            if not len(rows):
                continue
            its = flat[rows]
            if is_on_line:
                at, log_weights = self._panels(fixed[rows], on_line[0][rows], on_line[1][rows])
                terms = self.log_prob_along(its, fixed[rows], at) + log_weights
            else:
                at, log_weights = _nodes(a[rows], b[rows])
                terms = self.feature_log_prob(its, at) + log_weights
            out = out.index_copy(0, rows, reduce(terms, its, at, is_on_line))
        return out.squeeze(-1).reshape(*shape, *added).movedim(len(shape) - 1, -1)

    def _is_narrow(self, theta: Tensor, a: Tensor, b: Tensor) -> Tensor:
        finite = a.isfinite() & b.isfinite()
        a, b = torch.where(finite, a, 0.0), torch.where(finite, b, 1.0)
        top = self.line_mode(theta).clamp(a, b)
        lowest = torch.minimum(self.line_log_prob(theta, a), self.line_log_prob(theta, b))
        drop = self.line_log_prob(theta, top) - lowest
        return finite & (b - a < NARROW_ON_LINE) & (drop < NARROW_IN_NATS)

    def _panels(self, theta: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return N quadrature nodes y for each of n intervals, ``(N, n, 1)``, and the logarithms of their weights.

        Args:
            theta: the Q unconstrained parameters of each interval's density, ``(n, Q, 1)``.
            a, b: ends of the intervals in y, each ``(n, 1)``.
        """
        top = self.line_mode(theta).clamp(a, b)
        largest = self.line_log_prob(theta, top)
        edges = GROWTH ** torch.arange(1 - N_PANELS, 1, dtype=torch.float64, device=top.device)
        edges = torch.cat([edges.new_zeros(1), edges]).view(-1, 1, 1)  # 0 to 1, from the top outwards
        nodes, log_weights = [], []
        for sign, end in ((-1.0, a), (1.0, b)):
            shortest, longest = torch.full_like(top, math.log(SHORTEST)), torch.full_like(top, math.log(LONGEST))
            for _ in range(N_HALVINGS):
                middle = 0.5 * (shortest + longest)
                is_negligible = ~(largest - self.line_log_prob(theta, top + sign * middle.exp()) < NEGLIGIBLE)
                shortest = torch.where(is_negligible, shortest, middle)
                longest = torch.where(is_negligible, middle, longest)
            length = torch.minimum(longest.exp(), sign * (end - top))
            at, log_weight = _nodes(length * edges[:-1], length * edges[1:], N_NODES_OF_PANEL)  # (N, panels, n, 1)
            nodes.append(top + sign * at.flatten(0, 1))
            log_weights.append(log_weight.flatten(0, 1))
        return torch.cat(nodes), torch.cat(log_weights)


def _nodes(a: Tensor, b: Tensor, n: int = N_NODES_OF_NARROW) -> tuple[Tensor, Tensor]:
    """Return n Gauss-Legendre nodes from a to b, ``(n, ...)``, and the logarithms of their weights.

    The weights sum to ``b - a``.

    Args:
        a, b: ends of the intervals of integration, each ``(...)``.
        n: number of nodes.
    """
    nodes, log_weights = (each.to(a.device).view(-1, *[1] * a.ndim) for each in gauss_legendre(n))
    half = 0.5 * (b - a)
    return a + half * (1 + nodes), log_weights + (b - a).log()
