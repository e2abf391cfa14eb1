"""A cursor that can be checked by hand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source, select_rows, stacked_sources
from seqmodels.observations import Categorical

CHAIN = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.0, 1.0, 0.0]])
FIRST = torch.tensor([0.2, 0.3, 0.5])
IDENTITY = (torch.zeros(1), torch.ones(1))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class MarkovState:
    last: Tensor | None
    n: int
    source: Tensor | None


@dataclass(frozen=True)
class Markov:
    """A chain over three symbols, which may end after any step but not before the first."""

    end: float | None = None

    def start(self, source: Source = None, n: int = 1) -> MarkovState:
        return MarkovState(None, n, stacked_sources(source, n))

    def advance(self, state: MarkovState, x: Tensor) -> MarkovState:
        return MarkovState(x, state.n, state.source)

    def distribution(self, state: MarkovState) -> Prediction:
        probs = FIRST.expand(state.n, -1) if state.last is None else CHAIN[state.last]
        if state.source is not None:
            probs = torch.eye(3)[state.source[:, 0]]
        log_end = None
        if self.end is not None:
            log_end = torch.full((state.n,), 0.0 if state.last is None else self.end, dtype=torch.float64).log()
        return Prediction(Categorical(), probs.log().unsqueeze(1), torch.zeros(state.n, 1), None, log_end)

    def select(self, state: MarkovState, index: Tensor) -> MarkovState:
        return MarkovState(select_rows(state.last, index), len(index), select_rows(state.source, index))
