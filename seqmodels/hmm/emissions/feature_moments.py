"""EM for independent features whose M-step averages moments over the frames that show the feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.base import (
    NOT_VISITED,
    Emission,
    Statistics,
    emission_of,
    empty_by_state,
    row_blocks,
    table_of_labels,
)
from seqmodels.observations.independent_features import STAND_IN, FeatureMoments, IndependentFeatures

ROUNDS = 10  # rounds of EM with the guessed states held fixed, where moments depend on parameters


class IndependentEmission(Emission):
    """Base class of EM computations for emission distributions with independent features.

    To add one, subclass it and define ``statistics`` and ``maximise``.
    """

    observation: IndependentFeatures

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        result = empty_by_state(len(table), len(x), dtype, x.device)
        for rows in row_blocks(len(x), 2 * table.numel(), x.device):
            result[rows] = self.observation.log_prob(table, x[rows].unsqueeze(1)).to(dtype)
        return result

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        return table_of_labels(self, x, past, labels, n_states, self.n_starting_rounds)

    @property
    def n_starting_rounds(self) -> int:
        """Number of M-steps in ``from_labels``, which estimates EM's first parameters from guessed states."""
        return ROUNDS

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        units = (torch.as_tensor(each, dtype=torch.float64) for each in (shift, scale))
        raw = self.observation.raw_parameters(self.observation.unpack(table.cpu()), *units)
        return {name: value.numpy() for name, value in raw.items()}

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        arrays = {name: torch.as_tensor(values) for name, values in raw.items()}
        units = (torch.as_tensor(each, dtype=torch.float64) for each in (shift, scale))
        return self.observation.of_raw_parameters(arrays, *units).flatten(-2)


@emission_of.register(FeatureMoments)
class FeatureMomentEmission(IndependentEmission):
    """EM computations for ``FeatureMoments``: the M-step averages S moments of each feature over frames that have its
    value.

    The expected statistics are ``Σ_t γ_t s_d(x_td)`` and ``Σ_t γ_t`` over the frames t in which feature d is not
    missing, with γ_t the posterior of a state: ``(K, S + 1, D)`` for K states and D features.
    """

    observation: FeatureMoments

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        theta = self.observation.unpack(table)
        width = table.numel() if self.observation.is_of_state else 4 * self.size
        sums: list[Tensor] = []
        for rows in row_blocks(len(x), 2 * width, x.device):
            weights, observed = gamma[rows].double(), ~torch.isnan(x[rows])
            values = torch.where(observed, x[rows], STAND_IN).double()
            if self.observation.is_of_state:
                moments = self.observation.moments(theta, values.unsqueeze(1))  # (n, K, S, D)
                weighted = torch.einsum("nk,nksd->ksd", weights, torch.where(observed[:, None, None], moments, 0.0))
            else:
                moments = self.observation.moments(theta, values)  # (n, S, D)
                weighted = torch.einsum("nk,nsd->ksd", weights, torch.where(observed[:, None], moments, 0.0))
            sums.append(torch.cat([weighted, (weights.T @ observed.double()).unsqueeze(1)], 1))
        return (torch.stack(sums).sum(0),)  # (K, S + 1, D)

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        sums, frames = statistics[0][:, :-1], statistics[0][:, -1:]
        is_visited = frames > NOT_VISITED
        # A feature that no frame of a state shows keeps its parameters; the average over all states avoids 0 / 0.
        averages = torch.where(is_visited, sums / torch.where(is_visited, frames, 1.0), sums.sum(0) / frames.sum(0))
        theta = self.observation.from_averages(averages)
        return torch.where(is_visited, theta, self.observation.unpack(table)).flatten(1)

    @property
    def n_starting_rounds(self) -> int:
        return ROUNDS if self.observation.is_of_state else 1
