"""Pyro distributions for mixtures that Pyro lacks: of any observation, of products over groups, and after a power.

They are in a module of their own because Pyro is slow to import.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from seqmodels.sequences.measure import Values, is_atom


class Density(Protocol):
    """The protocol of the methods of an ``Observation`` that ``MixtureOfObservations`` uses."""

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor: ...
    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor: ...
    def values(self, size: int) -> tuple[Values, ...]: ...
    def marginal_means(self, output_parameters: Tensor) -> Tensor: ...
    def trigonometric_moments(self, output_parameters: Tensor) -> Tensor: ...


class MixtureOfObservations(TorchDistribution):
    """A Pyro distribution over raw vectors ``y = shift + scale x`` that is a mixture of any observation's densities.

    The density is ``p(y) = Σ_k w_k p(x | output_parameters_k, past_k) / Π_d scale_d``. For probabilities
    (``is_density=False``, or amounts of 0) the division by the scales is left out. The observation computes the
    density, the draws and, if it knows them, the means.

    Args:
        observation: an ``Observation`` of vectors.
        output_parameters: the P parameters of the density of each of K components, ``(K, P)``.
        log_weights: normalised log-weights of the components, ``(K,)``.
        past: the last p encoded steps before, oldest first, ``(K or 1, p, D)``; None for an observation that does not
            depend on them.
        shift, scale: map from encoded to raw units, each ``(D,)``.
        is_density: True if the observation has a density, False if it has probabilities.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (torch declares it so)
    support = constraints.real_vector

    def __init__(
        self,
        observation: Density,
        output_parameters: Tensor,
        *,
        log_weights: Tensor,
        past: Tensor | None,
        shift: Tensor,
        scale: Tensor,
        is_density: bool = True,
    ) -> None:
        self.observation = observation
        self.output_parameters = output_parameters
        self.log_weights = log_weights
        self.past = past
        self.shift = shift
        self.scale = scale
        self.log_dets = -scale.log() if is_density else torch.zeros_like(scale)
        super().__init__(event_shape=shift.shape, validate_args=False)

    @torch.no_grad()
    def log_prob(self, value: Tensor) -> Tensor:
        x = ((value - self.shift) / self.scale).to(self.output_parameters.dtype).unsqueeze(-2)
        each = self.observation.log_prob(self.output_parameters, x, self.past)  # (..., K)
        log_dets = torch.where(is_atom(value, self.observation.values(len(self.shift))), 0.0, self.log_dets)
        return torch.logsumexp(each + self.log_weights, dim=-1) + log_dets.sum(-1)

    @torch.no_grad()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draw independent vectors, ``(*sample_shape, D)``.

        Torch's global generator, which is also Pyro's, seeds the draws.

        Args:
            sample_shape: shape of the array of draws; ``()`` for a single vector.
        """
        shape = torch.Size(sample_shape)
        k = torch.multinomial(self.log_weights.exp(), max(1, shape.numel()), replacement=True)
        generator = torch.Generator(self.log_weights.device).manual_seed(int(torch.randint(2**31, ())))
        past = None if self.past is None else self.past.expand(len(self.log_weights), -1, -1)[k]
        x = self.observation.sample(self.output_parameters[k], past, generator)
        return (self.shift + self.scale * x).view(*shape, -1)

    @property
    def mean(self) -> Tensor:
        """The mean of each feature, ``(D,)``, NaN if it does not exist; for angles the mean direction, from -π to π.

        Raises:
            NotImplementedError: if the observation does not know its mean in closed form.
        """
        return mean_of_moments(self.first_moments)

    @property
    def first_moments(self) -> Tensor:
        """The mean of each feature in raw units, ``(D,)``; for angles the complex mean of ``exp(i x)``."""
        is_angle = set(self.observation.values(len(self.shift))) == {"angles"}
        kept = self.log_weights > -torch.inf
        table = self.output_parameters[kept]
        if is_angle:
            each = self.observation.trigonometric_moments(table)[:, 0]
        else:
            means = self.observation.marginal_means(table)
            each = self.shift.double().cpu() + self.scale.double().cpu() * means
        weights = self.log_weights[kept].double().exp().cpu()
        return (weights.unsqueeze(-1) * each).sum(0).to(self.shift.device)

    @property
    def variance(self) -> Tensor:
        """The variance of each feature, which is not available for these mixtures.

        Raises:
            NotImplementedError: always; the message says how to estimate the variance.
        """
        raise NotImplementedError(
            f"the variance of {self.observation!r} is not known; estimate it from draws: sample([10_000]).var(0)"
        )


NO_DIRECTION = 1e-9  # length of a mean resultant below which no direction is more probable than its opposite


def mean_of_moments(moments: Tensor) -> Tensor:
    """Return the mean of each feature, given its first moment; for angles the mean direction, ``(D,)``.

    The direction is NaN if no direction is more probable than its opposite.

    Args:
        moments: the mean of each feature itself, or for angles the complex mean of ``exp(i x)``, ``(D,)``.
    """
    if not moments.is_complex():
        return moments
    return torch.where(moments.abs() > NO_DIRECTION, moments.angle(), torch.nan)


class MixtureOfProducts(TorchDistribution):
    """A Pyro mixture over vectors whose groups of features are independent given the component.

    The density is ``p(x) = Σ_k w_k Π_g p_kg(x_g)`` for K components and groups g of features.

    Args:
        log_weights: normalised log-weights of the components, ``(K,)``.
        components: for each component k, a list with a distribution for each group of features, without batch axes.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (torch declares it so)
    support = constraints.real_vector

    def __init__(self, log_weights: Tensor, components: list[list[Any]]) -> None:
        self.log_weights = log_weights
        self.weights = log_weights.exp()
        self.components = components
        self.sizes = [part.event_shape[0] for part in components[0]]
        super().__init__(event_shape=torch.Size([sum(self.sizes)]), validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        groups = value.split(self.sizes, dim=-1)
        each = [sum(p.log_prob(x) for p, x in zip(parts, groups, strict=True)) for parts in self.components]
        return torch.logsumexp(torch.stack(each, dim=-1) + self.log_weights, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        chosen = torch.multinomial(self.weights, max(1, shape.numel()), replacement=True).tolist()
        draws = [torch.cat([part.sample() for part in self.components[k]]) for k in chosen]
        return torch.stack(draws).view(*shape, -1)

    @property
    def mean(self) -> Tensor:
        """The mean of each feature, ``(D,)``, NaN if it does not exist; for angles the mean direction, from -π to π."""
        return torch.cat([self._mean_of_group([parts[g] for parts in self.components]) for g in range(len(self.sizes))])

    def _mean_of_group(self, parts: list[Any]) -> Tensor:
        each = torch.stack([p.first_moments if isinstance(p, MixtureOfObservations) else p.mean for p in parts])
        weighted = torch.where(self.weights.unsqueeze(-1) > 0, self.weights.unsqueeze(-1) * each, 0.0)
        return mean_of_moments(weighted.sum(0))

    @property
    def variance(self) -> Tensor:
        """The variance of each feature, ``(D,)``.

        Raises:
            NotImplementedError: if the variance of a group of features is not known.
        """
        means = self._moments("mean")
        return self.weights @ (self._moments("variance") + means.square()) - self.mean.square()

    def _moments(self, name: str) -> Tensor:
        return torch.stack([torch.cat([getattr(part, name) for part in parts]) for parts in self.components])


class PowerTransformed(TorchDistribution):
    """A Pyro distribution over vectors x whose power transform ``h(x)`` has the distribution ``base``.

    ``h(x) = (sign(x) |x|^λ - 1) / λ``, or log x if λ is 0.

    Args:
        base: Pyro distribution over vectors ``(D,)``.
        powers: power λ of each feature, ``(D,)``, none negative.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (torch declares it so)
    support = constraints.real_vector

    def __init__(self, base: Any, powers: Tensor) -> None:
        self.base, self.powers = base, powers
        super().__init__(event_shape=base.event_shape, validate_args=False)

    @torch.no_grad()
    def log_prob(self, value: Tensor) -> Tensor:
        value = value.to(self.powers)
        is_log = self.powers == 0
        is_possible = (value > 0) | (~is_log & (value != 0))
        x, safe = torch.where(is_possible, value, 1.0), torch.where(is_log, 1.0, self.powers)
        h = torch.where(is_log, x.abs().log(), (x.sign() * x.abs() ** safe - 1) / safe)
        log_prob = self.base.log_prob(h) + ((self.powers - 1) * x.abs().log()).sum(-1)
        return torch.where(is_possible.all(-1), log_prob, -torch.inf)

    @torch.no_grad()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        h = self.base.sample(torch.Size(sample_shape)).to(self.powers)
        is_log = self.powers == 0
        safe = torch.where(is_log, 1.0, self.powers)
        base = 1 + safe * h
        return torch.where(is_log, h.exp(), base.sign() * base.abs() ** (1 / safe))
