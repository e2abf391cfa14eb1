"""Components emitted by one of several observations, for the predictions of a mixture of different models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.observations.base import FullConditionals, Observation
from seqmodels.sequences.measure import Values

HEADER = 2  # entries before the output parameters: the index of the observation and their number


@dataclass(eq=False, repr=False)
class OneOf(Observation):
    """A distribution of vectors in which each row of a table of parameters belongs to one of several observations.

    A row is ``(i, P_i, the P_i output parameters of observation i, zeros)``, and its density is that of observation i
    given the past steps that observation i needs. It is used for predictions whose components come from several models;
    no model learns it.

    Args:
        observations: observations of vectors. All must emit the same kinds of values, so that densities and
            probabilities are not mixed.

    >>> from seqmodels import AutoregressiveGaussian, GaussianMixture
    >>> OneOf([GaussianMixture(2), AutoregressiveGaussian(1)]).n_past
    1
    """

    observations: list[Observation]
    emits = "vectors"

    @property
    def n_past(self) -> int:
        return max(observation.n_past for observation in self.observations)

    def on_cpu(self) -> OneOf:
        return OneOf([observation.on_cpu() for observation in self.observations])

    @property
    def sums_out_missing(self) -> bool:
        return self.n_past == 0 and all(observation.sums_out_missing for observation in self.observations)

    def values(self, size: int) -> tuple[Values, ...]:
        return self.observations[0].values(size)

    def has_heavy_tails(self, size: int) -> tuple[bool, ...]:
        return self.observations[0].has_heavy_tails(size)

    def check(self, size: int) -> None:
        if not self.observations:
            raise ValueError("observations is empty; pass a list of observations")
        for observation in self.observations:
            if observation.emits != "vectors":
                raise ValueError(f"{observation!r} emits {observation.emits}; every observation must emit vectors")
            observation.check(size)
            if observation.values(size) != self.values(size):
                raise ValueError(
                    f"{self.observations[0]!r} and {observation!r} emit values of different kinds: probabilities "
                    "of whole numbers and densities of reals cannot be mixed"
                )

            if observation.grid(size) != self.grid(size):
                raise ValueError(f"{self.observations[0]!r} and {observation!r} have grids of different widths")

    def nearest(self, x: Tensor) -> Tensor:
        return self.observations[0].nearest(x)

    def grid(self, size: int) -> tuple[float, ...] | None:
        return self.observations[0].grid(size)

    def in_units(self, scale: tuple[float, ...]) -> OneOf:
        return OneOf([observation.in_units(scale) for observation in self.observations])

    def starting_point(self, size: int, generator: torch.Generator) -> Tensor:
        """Raise ValueError, because a network that is trained has a single observation and not one of several."""
        raise ValueError(
            f"no network learns {self!r:.200}, which is what a Mixture of models of vectors predicts with; pass one of "
            "its observations, or a Mixture of networks of one observation each"
        )

    def n_output_parameters(self, size: int) -> int:
        return HEADER + max(observation.n_output_parameters(size) for observation in self.observations)

    def join(self, output_parameters: list[Tensor]) -> Tensor:
        """Join the parameters of densities of several observations into one table, ``(n, K_1 + K_2 + .., P)``.

        Each row begins with the number of its observation and the number of its parameters, and ends with zeros up to P
        numbers.

        Args:
            output_parameters: for each observation i, in order, the P_i parameters of its K_i densities,
                ``(n, K_i, P_i)``.
        """
        width = HEADER + max(each.shape[-1] for each in output_parameters)
        rows = []
        for i, each in enumerate(output_parameters):
            padded = each.new_zeros(*each.shape[:-1], width)
            padded[..., 0], padded[..., 1] = i, each.shape[-1]
            padded[..., HEADER : HEADER + each.shape[-1]] = each
            rows.append(padded)
        return torch.cat(rows, dim=-2)

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        rows = _Rows.broadcast(output_parameters, x, past)
        result = output_parameters.new_empty(len(rows.output_parameters))
        for observation, mask, part in self._parts(rows):
            assert part.x is not None, "features are given"
            result[mask] = observation.log_prob(part.output_parameters, part.x, part.past).to(result)
        return result.view(rows.shape)

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        drawn: Tensor | None = None
        rows = _Rows(output_parameters, None, past, output_parameters.shape[:-1])
        for observation, mask, part in self._parts(rows):
            x = observation.sample(part.output_parameters, part.past, generator)
            drawn = x.new_zeros(len(mask), x.shape[-1]) if drawn is None else drawn
            drawn[mask] = x.to(drawn)
        assert drawn is not None, "every row belongs to one of the observations"
        return drawn

    @property
    def has_marginal_cdfs(self) -> bool:
        return self.n_past == 0 and all(observation.has_marginal_cdfs for observation in self.observations)

    def marginal_cdfs(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        return self._marginals(output_parameters, x, lambda observation, *at: observation.marginal_cdfs(*at))

    def marginal_log_probs(self, output_parameters: Tensor, x: Tensor) -> Tensor:
        return self._marginals(output_parameters, x, lambda observation, *at: observation.marginal_log_probs(*at))

    def _marginals(
        self, output_parameters: Tensor, x: Tensor, function: Callable[[Observation, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Return a result for each feature of all rows, computed by the observation of each row, ``(..., D)`` float64.

        Args:
            output_parameters: rows of parameters, ``(..., P)``.
            x: encoded vectors of D features, ``(..., D)``.
            function: takes an observation, the parameters of the rows that belong to it and their vectors, and returns
                an array with an entry for each feature of these rows.
        """
        rows = _Rows.broadcast(output_parameters, x, None)
        assert rows.x is not None, "features are given"
        result = torch.empty(rows.x.shape, dtype=torch.float64)
        for observation, mask, part in self._parts(rows):
            assert part.x is not None, "features are given"
            result[mask.cpu()] = function(observation, part.output_parameters, part.x).cpu()
        return result.view(*rows.shape, -1)

    def marginal_means(self, output_parameters: Tensor) -> Tensor:
        parts = self._of_rows(output_parameters, lambda observation, table: observation.marginal_means(table))
        return torch.stack([row for _, row in sorted(parts, key=lambda part: part[0])])

    def trigonometric_moments(self, output_parameters: Tensor) -> Tensor:
        parts = self._of_rows(output_parameters, lambda observation, table: observation.trigonometric_moments(table))
        n = max(len(row) for _, row in parts)
        padded = {i: torch.nn.functional.pad(row, (0, 0, 0, n - len(row))) for i, row in parts}
        return torch.stack([padded[i] for i in sorted(padded)])

    def _of_rows(
        self, output_parameters: Tensor, function: Callable[[Observation, Tensor], Tensor]
    ) -> list[tuple[int, Tensor]]:
        """Return pairs of a row's index and its result of a function, grouped by observation.

        Args:
            output_parameters: rows of parameters, ``(N, P)``.
            function: called once for each observation, with the observation and the parameters of all rows that belong
                to it; returns a result with one row for each of them.
        """
        rows = _Rows(output_parameters, None, None, output_parameters.shape[:-1])
        return [
            (i, row)
            for observation, mask, part in self._parts(rows)
            for i, row in zip(mask.nonzero()[:, 0].tolist(), function(observation, part.output_parameters), strict=True)
        ]

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        """Return the parameters ``(..., P)`` of the normalised densities ``p^(1/temperature)``, each of its own kind.

        Args:
            output_parameters: rows of parameters, ``(..., P)``.
            temperature: a number above 0; below 1 densities become sharper, above 1 flatter.

        Raises:
            ValueError: if the density of one of the rows has no such power.
        """
        result = output_parameters.flatten(0, -2).clone()
        rows = _Rows(output_parameters.flatten(0, -2), None, None, output_parameters.shape[:-1])
        for observation, mask, part in self._parts(rows):
            width = part.output_parameters.shape[-1]
            changed = result[mask]
            changed[:, HEADER : HEADER + width] = observation.tempered(part.output_parameters, temperature)
            result[mask] = changed
        return result.view(output_parameters.shape)

    def has_full_conditionals(self, size: int) -> bool:
        return all(observation.has_full_conditionals(size) for observation in self.observations)

    def full_conditionals(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> FullConditionals:
        rows = _Rows.broadcast(output_parameters, x, past)
        assert rows.x is not None, "features are given"
        each = torch.empty_like(rows.x, dtype=torch.float64)
        others = torch.empty_like(each)
        for observation, mask, part in self._parts(rows):
            assert part.x is not None, "features are given"
            conditionals = observation.full_conditionals(part.output_parameters, part.x, part.past)
            each[mask], others[mask] = conditionals.each.double(), conditionals.others.double()
        return FullConditionals(each.view(*rows.shape, -1), others.view(*rows.shape, -1))

    def with_floor(self, factor: float) -> OneOf:
        return OneOf([observation.with_floor(factor) for observation in self.observations])

    def _parts(self, rows: _Rows) -> Iterator[tuple[Observation, Tensor, _Rows]]:
        """Yield each observation that has rows, the mask ``(N,)`` of its rows, and these rows without their header."""
        index = rows.output_parameters[:, 0]
        for i, observation in enumerate(self.observations):
            mask = index == i
            if bool(mask.any()):
                yield observation, mask, rows.take(mask, observation.n_past)


@dataclass(frozen=True)
class _Rows:
    """Rows of parameters of ``OneOf`` with their steps and past steps, flattened from leading axes ``shape`` to N.

    Arrays are output parameters ``(N, P)``, steps ``(N, D)`` and the last p steps before ``(N, p, D)``.
    """

    output_parameters: Tensor
    x: Tensor | None
    past: Tensor | None
    shape: torch.Size

    @classmethod
    def broadcast(cls, output_parameters: Tensor, x: Tensor, past: Tensor | None) -> _Rows:
        shape = torch.broadcast_shapes(output_parameters.shape[:-1], x.shape[:-1])
        if past is not None:
            past = past.expand(*shape, *past.shape[-2:]).reshape(-1, *past.shape[-2:])
        output_parameters = output_parameters.expand(*shape, -1).reshape(-1, output_parameters.shape[-1])
        return cls(output_parameters, x.expand(*shape, -1).reshape(-1, x.shape[-1]), past, shape)

    def take(self, mask: Tensor, n_past: int) -> _Rows:
        """Return the rows in a mask without the leading two numbers and the padding, with fewer past steps.

        Args:
            mask: True for the rows to take, which belong to one observation, ``(N,)``.
            n_past: number of past steps that the observation depends on.
        """
        table = self.output_parameters[mask]
        table = table[:, HEADER : HEADER + int(table[0, 1])]
        past = None if self.past is None or n_past == 0 else self.past[mask][:, -n_past:]
        return _Rows(table, None if self.x is None else self.x[mask], past, torch.Size([len(table)]))
