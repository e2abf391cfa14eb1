"""Counts with excess zeros, or amounts that are sometimes 0: ``p(x_d) = w_d 1{x_d = 0} + (1 - w_d) q_d(x_d)``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.observations.base import FullConditionals, Observation, full_conditionals_of_independent
from seqmodels.sequences.measure import Values


@dataclass(eq=False, repr=False)
class ZeroInflated(Observation):
    """Independent features, each of which is 0 with probability w and is drawn from another distribution otherwise.

    The other distribution q is one of counts, or a density of values above 0. Counts of 0 have the probability
    ``w + (1 - w) q(0)``. A density has none at 0: such amounts are exactly 0 with probability w (a day without rain, an
    animal at rest), and have the density ``(1 - w) q(x)`` above it. Their log-likelihood sums logarithms of
    probabilities at zeros and of densities elsewhere, so that it is comparable only between models of the same kind
    (``Measure.space`` is ``"({0}+R)^1"``), and another unit changes it at values above 0 alone.

    The output parameters of a state are D logits of w, then the output parameters of q, feature by feature.

    Args:
        observation: the distribution q, ``Poisson`` or ``NegativeBinomial`` for counts, ``Gamma`` or ``LogNormal`` for
            amounts; it is used D times, with one feature each.

    NaN is a missing value, which is marginalised out. Fitted attributes in raw units: ``zero_weights_ (K, D)`` and the
    attributes of q. References: Lambert (1992), *Zero-inflated Poisson regression*; for amounts Aitchison (1955), *On
    the distribution of a positive random variable having a discrete probability mass at the origin*.

    >>> from seqmodels import Poisson
    >>> ZeroInflated(Poisson()).n_output_parameters(3)
    6
    """

    observation: Observation
    emits = "vectors"

    @property
    def sums_out_missing(self) -> bool:
        return True

    def values(self, size: int) -> tuple[Values, ...]:
        kind: Values = "amounts" if self._is_of_amounts else "counts"
        return (kind,) * size

    @property
    def _is_of_amounts(self) -> bool:
        return self.observation.values(1) == ("positive",)

    def check(self, size: int) -> None:
        inner = self.observation
        is_known = isinstance(inner, Observation) and inner.emits == "vectors"
        is_known = is_known and inner.values(1) in (("counts",), ("positive",))
        if not is_known or inner.n_past or not inner.sums_out_missing or isinstance(inner, ZeroInflated):
            raise ValueError(
                f"observation is {inner!r}; pass a distribution of counts, such as Poisson() or NegativeBinomial(), or "
                "for amounts that are sometimes 0 a density of values above 0: Gamma() or LogNormal()"
            )
        inner.check(1)

    def locations(self, size: int) -> list[slice]:
        width = self.observation.n_output_parameters(1)
        starts = (size + d * width for d in range(size))
        return [slice(at + s.start, at + s.stop) for at in starts for s in self.observation.locations(1)]

    def n_output_parameters(self, size: int) -> int:
        return size * (1 + self.observation.n_output_parameters(1))

    def unpack(self, output_parameters: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Split parameters into the logits of the weights of zero and the parameters of the other distributions.

        Args:
            output_parameters: the P parameters of each vector's distribution, ``(..., P)``.
            size: number of features D.

        Returns:
            The logits ``(..., D)``, and the Q parameters of each feature's other distribution ``(..., D, Q)``.
        """
        logits, rest = output_parameters[..., :size], output_parameters[..., size:]
        return logits, rest.unflatten(-1, (size, -1))

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        logits, inner = self.unpack(table, size)
        is_distribution = self.observation.is_valid(inner.flatten(0, 1), 1).all(-1).view(logits.shape)
        return torch.cat([~logits.isnan(), is_distribution], -1)

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        return self._terms(output_parameters, x).sum(-1)

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        return full_conditionals_of_independent(self._terms(output_parameters, x))

    def _terms(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        """Return the log-probability of each feature in nats, ``(..., D)``; 0 for a missing feature (NaN).

        Args:
            output_parameters: the P parameters of each vector's distribution, ``(..., P)``.
            x: vectors of D counts or amounts, ``(..., D)``.
        """
        log_zero, log_other = self.components(output_parameters, x)
        # A sum with a density of 0 would have no second derivatives.
        at_zero = log_zero if self._is_of_amounts else torch.logaddexp(log_zero, log_other)
        either = torch.where(x == 0, at_zero, log_other)
        return torch.where(torch.isnan(x), 0.0, either)

    def components(self, output_parameters: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``log w`` and ``log (1 - w) q(x)`` of each feature in nats, each ``(..., D)``.

        w is the weight of the excess zeros, and q the other distribution, whose density is 0 at amounts of 0.

        Args:
            output_parameters: the P parameters of each vector's distribution, ``(..., P)``.
            x: vectors of D counts or amounts, ``(..., D)``.
        """
        logits, inner = self.unpack(output_parameters, x.shape[-1])
        log_prob = self.observation.log_prob(inner, x.unsqueeze(-1))
        if self._is_of_amounts:
            log_prob = torch.where(x == 0, -torch.inf, log_prob)
        log_zero = torch.nn.functional.logsigmoid(logits)
        return log_zero.expand(log_prob.shape), torch.nn.functional.logsigmoid(-logits) + log_prob

    @property
    def has_marginal_cdfs(self) -> bool:
        return self.observation.has_marginal_cdfs

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        logits, inner = self.unpack(output_parameters, x.shape[-1])
        of_other = self.observation.marginal_cdfs(inner, x.unsqueeze(-1)).squeeze(-1)
        weight = torch.sigmoid(logits.double().cpu())
        return torch.where(x.cpu() < 0, 0.0, weight + (1 - weight) * of_other)

    def marginal_log_probs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        return self._terms(output_parameters.double(), x.double())

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        size = output_parameters.shape[-1] // (1 + self.observation.n_output_parameters(1))
        logits, inner = self.unpack(output_parameters, size)
        return torch.sigmoid(-logits.double().cpu()) * self.observation.marginal_means(inner).squeeze(-1)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        size = output_parameters.shape[-1] // (1 + self.observation.n_output_parameters(1))
        logits, inner = self.unpack(output_parameters, size)
        x = self.observation.sample(inner.flatten(0, -2), None, generator).view(logits.shape)
        return torch.where(torch.rand_like(logits, generator=generator) < torch.sigmoid(logits), 0.0, x)

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the parameters ``(P,)`` from which gradient training starts: w is about 0.1 for each feature.

        The other distribution has its own starting point.

        Args:
            size: number of features.
            generator: source of random numbers, if the other distribution needs any.
        """
        inner = [self.observation.starting_point(1, generator) for _ in range(size)]
        return torch.cat([torch.full((size,), -2.2), *inner])

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        logits, inner = self.unpack(start, len(total))
        near = [self.observation.starting_near(row, each, n) for row, each in zip(inner, total.split(1), strict=True)]
        return torch.cat([logits, *near])
