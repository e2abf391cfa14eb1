"""A product of observations over groups of features, independent given the state: ``p(x) = Π_g p_g(x_g)``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqmodels.observations.autoregressive import AutoregressiveGaussian
from seqmodels.observations.base import FullConditionals, Observation
from seqmodels.sequences.measure import Values


@dataclass(frozen=True)
class Group:
    """One group of features in ``Columns``, with its columns of x and its entries in the output parameters.

    Attributes:
        observation: distribution of the group.
        size: number of features of the group.
        columns: slice of the group's features in a vector x of all features.
        outputs: slice of the group's entries in the output parameters of all groups.
    """

    observation: Observation
    size: int
    columns: slice
    outputs: slice

    def of(self, x: Tensor) -> Tensor:
        """Return the columns of the group's features from vectors of all features, ``(..., D_g)``.

        Args:
            x: vectors of all D features, ``(..., D)``.
        """
        return x[..., self.columns]

    def before(self, past: Tensor | None) -> Tensor | None:
        """Return the last q steps of the group's D_g features, on which its density depends, ``(..., q, D_g)``.

        Return None if it depends on no past step.

        Args:
            past: the last p steps of all D features, oldest first, ``(..., p, D)``, or None.
        """
        n = self.observation.n_past
        return None if past is None or n == 0 else past[..., -n:, self.columns]


@dataclass(eq=False, repr=False)
class Columns(Observation):
    """A product of observations over consecutive groups of features, for data whose features are of different kinds.

    Args:
        groups: list of ``(observation, n_features)`` in the order of the columns. Every observation emits vectors, and
            the numbers add up to all features.

    Reals are standardised, bits and counts are not, so the measure is a product such as ``R^3 x {0,1}^5``. The output
    parameters of a state are those of the groups, one group after another. An HMM shows fitted parameters under their
    usual names; a name that several groups share gets the number of the group: ``means_0_``, ``means_1_``.

    >>> from seqmodels import Bernoulli, GaussianMixture
    >>> Columns([(GaussianMixture(2), 3), (Bernoulli(), 5)]).n_output_parameters(8)
    19
    """

    groups: list[tuple[Observation, int]]
    emits = "vectors"

    @property
    def n_past(self) -> int:
        return max(observation.n_past for observation, _ in self.groups)

    @property
    def sums_out_missing(self) -> bool:
        return all(observation.sums_out_missing for observation, _ in self.groups)

    @property
    def has_marginal_cdfs(self) -> bool:
        return all(observation.has_marginal_cdfs for observation, _ in self.groups)

    def values(self, size: int) -> tuple[Values, ...]:
        return tuple(value for observation, n in self.groups for value in observation.values(n))

    def has_heavy_tails(self, size: int) -> tuple[bool, ...]:
        return tuple(is_heavy for observation, n in self.groups for is_heavy in observation.has_heavy_tails(n))

    def check(self, size: int) -> None:
        if not self.groups:
            raise ValueError("groups is empty; pass [(observation, n_features), ...]")
        for g, (observation, n) in enumerate(self.groups):
            if observation.emits != "vectors":
                raise ValueError(
                    f"group {g}, {observation!r}, emits {observation.emits}; every group must emit vectors"
                )
            if set(observation.values(n)) & {"rounded", "ends"}:
                raise ValueError(
                    f"group {g}, {observation!r}, is of intervals, whose encoding does not combine with others; "
                    "pass it as the observation of all features"
                )
            if n < 1:
                raise ValueError(f"group {g}, {observation!r}, has {n} features; pass at least 1")
            observation.check(n)
            if isinstance(observation, AutoregressiveGaussian) and observation.predictive == "posterior":
                raise ValueError(
                    f"group {g}, {observation!r}, is of an HMM of one state that was fitted by itself; pass it with "
                    "predictive='auto'"
                )
        total = sum(n for _, n in self.groups)
        if total != size:
            raise ValueError(
                f"the groups of {self!r} have {total} features but the sequences have {size}; they must agree"
            )

    def parts(self) -> Iterator[Group]:
        """Yield each group of features with its slices of the columns and of the output parameters."""
        column = parameter = 0
        for observation, n in self.groups:
            width = observation.n_output_parameters(n)
            yield Group(observation, n, slice(column, column + n), slice(parameter, parameter + width))
            column, parameter = column + n, parameter + width

    def shared(self, size: int) -> nn.Module | None:
        every = {str(i): g.observation.shared(g.size) for i, g in enumerate(self.parts())}
        modules = {i: module for i, module in every.items() if module is not None}
        return nn.ModuleDict(modules) if modules else None

    def bound(self, shared: nn.Module | None) -> Columns:
        if shared is None:
            return self
        modules = dict(shared.named_children())
        return Columns([(observation.bound(modules.get(str(i))), n) for i, (observation, n) in enumerate(self.groups)])

    def on_cpu(self) -> Columns:
        return Columns([(observation.on_cpu(), n) for observation, n in self.groups])

    def locations(self, size: int) -> list[slice]:
        of_each = ((g.outputs.start, each) for g in self.parts() for each in g.observation.locations(g.size))
        return [slice(at + each.start, at + each.stop) for at, each in of_each]

    def n_output_parameters(self, size: int) -> int:
        return sum(observation.n_output_parameters(n) for observation, n in self.groups)

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        return torch.cat([g.observation.is_valid(table[:, g.outputs], g.size) for g in self.parts()], -1)

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        each = [
            g.observation.log_prob(output_parameters[..., g.outputs], g.of(x), g.before(past)) for g in self.parts()
        ]
        return torch.stack(each).sum(0)

    def has_full_conditionals(self, size: int) -> bool:
        return all(observation.has_full_conditionals(n) for observation, n in self.groups)

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        joint, parts = [], []
        for g in self.parts():
            numbers, values, before = output_parameters[..., g.outputs], g.of(x), g.before(past)
            joint.append(g.observation.log_prob(numbers, values, before).unsqueeze(-1))
            parts.append(g.observation.full_conditionals(numbers, values, before))
        others = [
            part.others + sum(log_prob for j, log_prob in enumerate(joint) if j != i) for i, part in enumerate(parts)
        ]
        return FullConditionals(torch.cat([part.each for part in parts], -1), torch.cat(others, -1))

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        each = [g.observation.tempered(output_parameters[..., g.outputs], temperature) for g in self.parts()]
        return torch.cat(each, -1)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        drawn = [
            g.observation.sample(output_parameters[..., g.outputs], g.before(past), generator) for g in self.parts()
        ]
        return torch.cat(drawn, dim=-1)

    def distribution(
        self, output_parameters: Tensor, *, log_weights: Tensor, past: Tensor | None, shift: Tensor, scale: Tensor
    ) -> Any:
        from seqmodels.observations.pyro_mixtures import MixtureOfProducts  # lazily: it imports Pyro

        one_component = torch.zeros_like(log_weights[:1])
        factors = [
            [
                g.observation.distribution(
                    row[:, g.outputs],
                    log_weights=one_component,
                    past=g.before(past),
                    shift=shift[g.columns],
                    scale=scale[g.columns],
                )
                for g in self.parts()
            ]
            for row in output_parameters.split(1)
        ]
        return MixtureOfProducts(log_weights, factors)

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        return torch.cat([g.observation.starting_point(g.size, generator) for g in self.parts()])

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        each = [g.observation.starting_near(start[g.outputs], g.of(total), n) for g in self.parts()]
        return torch.cat(each)

    def with_floor(self, factor: float) -> Columns:
        return Columns([(observation.with_floor(factor), n) for observation, n in self.groups])

    def on_floor(self, output_parameters: Tensor, size: int, factor: float) -> Tensor:
        moved = [g.observation.on_floor(output_parameters[..., g.outputs], g.size, factor) for g in self.parts()]
        return torch.cat(moved, dim=-1)

    def floor_hits(self, output_parameters: Tensor, size: int) -> Tensor:
        hits = [g.observation.floor_hits(output_parameters[..., g.outputs], g.size) for g in self.parts()]
        return torch.stack(hits).any(0)
