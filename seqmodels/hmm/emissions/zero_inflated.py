"""EM for zero-inflated values: a zero counts for the other distribution by the probability that it is drawn from it."""

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
from seqmodels.observations import ZeroInflated

LARGEST_LOGIT = 40.0  # bound of the log-odds of an extra zero, which have no finite maximum without zeros
ROUNDS = 10  # rounds of EM with the guessed states held fixed


@emission_of.register(ZeroInflated)
class ZeroInflatedEmission(Emission):
    """EM computations for ``ZeroInflated``: each of D features is an extra zero, or else drawn from another
    distribution.

    The statistics are the expected number of extra zeros and of observed frames of each feature, ``(K, D, 2)`` for K
    states, and then the statistics of the other distribution of each feature, in which a frame weighs the probability
    that it is not an extra zero. An amount of 0 is surely one.
    """

    observation: ZeroInflated

    def __init__(self, observation: ZeroInflated, size: int) -> None:
        super().__init__(observation, size)
        self.inner = emission_of(observation.observation, 1)

    @property
    def n_statistics(self) -> int:
        return 1 + self.size * self.inner.n_statistics

    def log_prob(self, table: Tensor, x: Tensor, past: Tensor | None, dtype: torch.dtype) -> Tensor:
        result = empty_by_state(len(table), len(x), dtype, x.device)
        for rows in row_blocks(len(x), 2 * table.numel(), x.device):
            result[rows] = self.observation.log_prob(table, x[rows].unsqueeze(1)).to(dtype)
        return result

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        x, gamma = x.double(), gamma.double()
        _, inner = self.observation.unpack(table, self.size)
        zeros: list[Tensor] = []
        sums: list[Tensor] = []
        for d, values in enumerate(x.split(1, dim=1)):  # (N, 1)
            of_feature = torch.cat([table[:, d : d + 1], inner[:, d]], 1)
            log_zero, log_other = (
                each.squeeze(-1) for each in self.observation.components(of_feature, values[:, None])
            )
            extra = torch.where(values == 0, torch.sigmoid(log_zero - log_other), 0.0)  # (N, K)
            observed = (~torch.isnan(values)).double()
            zeros.append(torch.stack([(gamma * extra).sum(0), (gamma * observed).sum(0)], 1))
            sums.extend(self.inner.statistics(inner[:, d], values, None, gamma * (1 - extra)))
        return (torch.stack(zeros, 1), *sums)  # (K, D, 2), ...

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        logits, inner = self.observation.unpack(table, self.size)
        extra, frames = statistics[0].unbind(-1)
        updated = (extra.log() - (frames - extra).clamp(min=0.0).log()).clamp(-LARGEST_LOGIT, LARGEST_LOGIT)
        logits = torch.where(frames > NOT_VISITED, updated, logits)
        n, rest = self.inner.n_statistics, statistics[1:]
        parts = [self.inner.maximise(rest[d * n : (d + 1) * n], inner[:, d]) for d in range(self.size)]
        return torch.cat([logits, *parts], 1)

    def log_prior(self, table: Tensor) -> Tensor:
        _, inner = self.observation.unpack(table, self.size)
        return torch.stack([self.inner.log_prior(inner[:, d]) for d in range(self.size)]).sum()

    def from_labels(
        self, x: Tensor, past: Tensor | None, labels: Tensor, n_states: int, generator: torch.Generator
    ) -> Tensor:
        return table_of_labels(self, x, past, labels, n_states, ROUNDS)

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        logits, inner = self.observation.unpack(table, self.size)
        each = [self.inner.raw_parameters(inner[:, d], shift[d : d + 1], scale[d : d + 1]) for d in range(self.size)]
        joined = {name: np.concatenate([raw[name] for raw in each], 1) for name in each[0]}
        return {"zero_weights_": torch.sigmoid(logits).cpu().numpy(), **joined}

    def table_of_raw(self, raw: Mapping[str, np.ndarray], shift: np.ndarray, scale: np.ndarray) -> Tensor:
        of_other = {name: values for name, values in raw.items() if name != "zero_weights_"}
        parts = [
            self.inner.table_of_raw(
                {name: values[:, d : d + 1] for name, values in of_other.items()}, shift[d : d + 1], scale[d : d + 1]
            )
            for d in range(self.size)
        ]
        return torch.cat([torch.as_tensor(raw["zero_weights_"]).logit(), *parts], 1)
