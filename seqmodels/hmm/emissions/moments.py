"""EM for observations fitted by moments: the M-step matches the average sufficient statistics of each state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.emissions.base import NOT_VISITED, Emission, Statistics, emission_of, row_blocks
from seqmodels.observations.moment_matching import MomentMatching


@emission_of.register(MomentMatching)
class MomentEmission(Emission):
    """EM computations for ``MomentMatching`` distributions: the M-step matches each state's average of the statistics
    ``s(x)``.

    The expected statistics of a state are ``Σ_t γ_t s(x_t)`` and ``Σ_t γ_t``, with γ_t its posterior in frame t.
    """

    observation: MomentMatching

    def statistics(self, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor, memo: Any = None) -> Statistics:
        sums = []
        for rows in row_blocks(len(x), 4 * self.size, x.device):
            moments = self.observation.moments(x[rows].double())
            features = torch.cat([moments, moments.new_ones(len(moments), 1)], dim=1)
            sums.append(gamma[rows].T.double() @ features)
        return (torch.stack(sums).sum(0),)  # (K, S + 1)

    def maximise(self, statistics: Statistics, table: Tensor) -> Tensor:
        sums, frames = statistics[0][:, :-1], statistics[0][:, -1:]
        is_visited = frames > NOT_VISITED
        # A state without frames keeps its parameters; the average over all states avoids 0 / 0.
        averages = torch.where(is_visited, sums / torch.where(is_visited, frames, 1.0), sums.sum(0) / frames.sum())
        return torch.where(is_visited, self.observation.from_averages(averages), table)

    def raw_parameters(self, table: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        return self.observation.raw_parameters(table.cpu().numpy(), shift, scale)
