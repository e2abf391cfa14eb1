"""Counts with excess zeros, ``p(x_d) = w_d 1{x_d = 0} + (1 - w_d) q_d(x_d)`` for each feature."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.observations.base import FullConditionals, Observation, full_conditionals_of_independent
from seqmodels.sequences.measure import Values


@dataclass(eq=False, repr=False)
class ZeroInflated(Observation):
    """Independent counts, each of which is 0 with probability w and is drawn from a distribution of counts otherwise.

    The output parameters of a state are D logits of w, then the output parameters of the distribution of counts,
    feature by feature.

    Args:
        observation: the distribution of counts, ``Poisson`` or ``NegativeBinomial``; it is used D times, with one
            feature each.

    NaN is a missing value, which is marginalised out. Fitted attributes in raw units: ``zero_weights_ (K, D)`` and the
    attributes of the distribution. Reference: Lambert (1992), *Zero-inflated Poisson regression*.

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
        counts: Values = "counts"
        return (counts,) * size

    def check(self, size: int) -> None:
        inner = self.observation
        counts = isinstance(inner, Observation) and inner.emits == "vectors" and inner.values(1) == ("counts",)
        if not counts or inner.n_past or not inner.sums_out_missing or isinstance(inner, ZeroInflated):
            raise ValueError(
                f"observation is {inner!r}; pass a distribution of counts, such as Poisson() or NegativeBinomial(). "
                "For amounts that are sometimes 0, use two columns, one with 1 or 0 for whether there is an amount and "
                "one with the amount or NaN: Columns([(Bernoulli(), 1), (Gamma(), 1)])"
            )
        inner.check(1)

    def locations(self, size: int) -> list[slice]:
        width = self.observation.n_output_parameters(1)
        starts = (size + d * width for d in range(size))
        return [slice(at + s.start, at + s.stop) for at in starts for s in self.observation.locations(1)]

    def n_output_parameters(self, size: int) -> int:
        return size * (1 + self.observation.n_output_parameters(1))

    def unpack(self, output_parameters: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Split parameters into the logits of the weights of zero and the parameters of the distributions of counts.

        Args:
            output_parameters: the P parameters of each vector's distribution, ``(..., P)``.
            size: number of features D.

        Returns:
            The logits ``(..., D)``, and the Q parameters of each feature's distribution of counts ``(..., D, Q)``.
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
            x: vectors of D counts, ``(..., D)``.
        """
        log_zero, log_count = self.components(output_parameters, x)
        either = torch.where(x == 0, torch.logaddexp(log_zero, log_count), log_count)
        return torch.where(torch.isnan(x), 0.0, either)

    def components(self, output_parameters: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``log w`` and ``log (1 - w) q(x)`` of each feature in nats, each ``(..., D)``.

        w is the weight of the excess zeros, and q the distribution of counts.

        Args:
            output_parameters: the P parameters of each vector's distribution, ``(..., P)``.
            x: vectors of D counts, ``(..., D)``.
        """
        logits, inner = self.unpack(output_parameters, x.shape[-1])
        log_prob = self.observation.log_prob(inner, x.unsqueeze(-1))
        log_zero = torch.nn.functional.logsigmoid(logits)
        return log_zero.expand(log_prob.shape), torch.nn.functional.logsigmoid(-logits) + log_prob

    @property
    def has_marginal_cdfs(self) -> bool:
        return self.observation.has_marginal_cdfs

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        logits, inner = self.unpack(output_parameters, x.shape[-1])
        of_counts = self.observation.marginal_cdfs(inner, x.unsqueeze(-1)).squeeze(-1)
        weight = torch.sigmoid(logits.double().cpu())
        return torch.where(x.cpu() < 0, 0.0, weight + (1 - weight) * of_counts)

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

        The distribution of counts has its own starting point.

        Args:
            size: number of features.
            generator: source of random numbers, if the distribution of counts needs any.
        """
        inner = [self.observation.starting_point(1, generator) for _ in range(size)]
        return torch.cat([torch.full((size,), -2.2), *inner])

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        logits, inner = self.unpack(start, len(total))
        near = [self.observation.starting_near(row, each, n) for row, each in zip(inner, total.split(1), strict=True)]
        return torch.cat([logits, *near])
