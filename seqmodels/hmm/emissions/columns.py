"""EM for groups of columns, which are independent given the state, so that each group has its own M-step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.base import Emission, Statistics, emission_of, empty_by_state
from seqmodels.observations import Columns

Value = TypeVar("Value")


def names_among_groups(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return for each group of features a mapping from the names of its arrays to names that are unique among all
    groups.

    A name stays as it is unless several groups have an array of that name; then the number of the group is added.

    Args:
        groups: arrays of each group by name.

    >>> names_among_groups([{"means_": 0, "rates_": 0}, {"means_": 0}])
    [{'means_': 'means_0_', 'rates_': 'rates_'}, {'means_': 'means_1_'}]
    """
    times = Counter(name for group in groups for name in group)

    def numbered(name: str, i: int) -> str:
        return f"{name}{i}_" if name.endswith("_") else f"{name}_{i}"

    return [{name: name if times[name] == 1 else numbered(name, i) for name in group} for i, group in enumerate(groups)]


def merged(groups: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """Return the arrays of all groups of features in one mapping; names that several groups have get the group's
    number.
    """
    named = zip(names_among_groups(groups), groups, strict=True)
    return {names[name]: value for names, group in named for name, value in group.items()}


@emission_of.register(Columns)
class ColumnsEmission(Emission):
    """EM computations for ``Columns``, a distribution whose groups of features are independent given the state.

    Log-densities of the groups are added, and their statistics are concatenated.

    Args:
        observation: the distribution.
        size: number of features of all groups.
        parts: emission of each group; None makes them.
        columns: numbers of the columns of a table that each group reads; None means its output parameters.
    """

    observation: Columns

    def __init__(
        self,
        observation: Columns,
        size: int,
        parts: Sequence[Emission] | None = None,
        columns: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(observation, size)
        self.groups = list(observation.parts())
        self.parts = [emission_of(g.observation, g.size) for g in self.groups] if parts is None else parts
        self.columns = [g.outputs for g in self.groups] if columns is None else columns

    @property
    def shares(self) -> bool:
        return any(part.shares for part in self.parts)

    def tie(self, table: Tensor) -> Tensor:
        return torch.cat([part.tie(table[:, g.outputs]) for g, part in zip(self.groups, self.parts, strict=True)], 1)

    # -- E-step --------------------------------------------------------------------------------------------

    def n_densities(self, n_states: int) -> int:
        return sum(part.n_densities(n_states) for part in self.parts)

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        log_b = empty_by_state(len(table), len(x), dtype, x.device).zero_()
        for g, part, columns in zip(self.groups, self.parts, self.columns, strict=True):
            log_b += part.log_prob(table[:, columns], g.of(x), g.before(past), dtype)
        return log_b

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        statistics: list[Tensor] = []
        for g, part, columns in zip(self.groups, self.parts, self.columns, strict=True):
            sums = part.statistics(table[:, columns], g.of(x), g.before(past), gamma)
            assert len(sums) == part.n_statistics
            statistics.extend(sums)
        return tuple(statistics)

    @property
    def n_statistics(self) -> int:
        return sum(part.n_statistics for part in self.parts)

    # -- M-step --------------------------------------------------------------------------------------------

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        remaining = statistics
        updated = []
        for g, part in zip(self.groups, self.parts, strict=True):
            updated.append(part.maximise(remaining[: part.n_statistics], table[:, g.outputs]))
            remaining = remaining[part.n_statistics :]
        return torch.cat(updated, dim=1)

    def log_prior(self, table: Tensor) -> Tensor:
        priors = [part.log_prior(table[:, g.outputs]) for g, part in zip(self.groups, self.parts, strict=True)]
        return torch.stack(priors).sum()

    def floor_hits(self, table: Tensor) -> Tensor:
        hits = [part.floor_hits(table[:, g.outputs]) for g, part in zip(self.groups, self.parts, strict=True)]
        return torch.stack(hits).any(0)

    # -- the start -----------------------------------------------------------------------------------------

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        tables = [
            part.from_labels(g.of(x), g.before(past), labels, n_states, generator)
            for g, part in zip(self.groups, self.parts, strict=True)
        ]
        return torch.cat(tables, dim=1)

    # -- for users -----------------------------------------------------------------------------------------

    def n_parameters(self, n_states: int) -> int:
        return sum(part.n_parameters(n_states) for part in self.parts)

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        raw = [
            part.raw_parameters(table[:, g.outputs], shift[g.columns], scale[g.columns])
            for g, part in zip(self.groups, self.parts, strict=True)
        ]
        return merged(raw)

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        names_of_groups = names_among_groups([part.example_of_raw(1) for part in self.parts])
        tables = [
            part.table_of_raw(
                {name: raw[among_all] for name, among_all in names.items()}, shift[g.columns], scale[g.columns]
            )
            for g, part, names in zip(self.groups, self.parts, names_of_groups, strict=True)
        ]
        return torch.cat(tables, 1)

    def by_state(
        self, table: Tensor, shift: np.ndarray, scale: np.ndarray, names: Sequence[str]
    ) -> Mapping[str, np.ndarray]:
        parts = (
            part.by_state(table[:, g.outputs], shift[g.columns], scale[g.columns], names[g.columns])
            for g, part in zip(self.groups, self.parts, strict=True)
        )
        return {column: values for part in parts for column, values in part.items()}
