"""EM for zero-inflated counts: a zero is one of the distribution's with a probability, by which it counts there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.base import Emission, Statistics, emission_of, empty_by_state, row_blocks, table_of_labels
from seqmodels.observations import ZeroInflated

NOT_VISITED = 1e-10  # frames of a state that has none
LARGEST_LOGIT = 40.0
ROUNDS = 10  # of EM within the guessed states


@emission_of.register(ZeroInflated)
class ZeroInflatedEmission(Emission):
    """Statistics are, for each feature, how many zeros are extra and how many frames show it, and the distribution's,
    of a frame by the probability that its count is drawn from that.
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
            log_zero, log_count = (
                each.squeeze(-1) for each in self.observation.components(of_feature, values[:, None])
            )
            extra = torch.where(values == 0, torch.sigmoid(log_zero - log_count), 0.0)  # (N, K)
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
