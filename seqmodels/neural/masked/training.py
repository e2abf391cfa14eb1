"""Training by predicting hidden symbols: batches hidden anew every time, and held-out ones hidden once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from seqmodels.neural.batches import Batching, Row
from seqmodels.neural.masked.bidirectional import BidirectionalModule, batches, log_prob_of, pad
from seqmodels.neural.masked.masking import Masking
from seqmodels.neural.masked.pseudo import STEPS_AT_ONCE
from seqmodels.preparation import ENOUGH
from seqmodels.training import Checkpoints, Recipe, Step, train


@dataclass(frozen=True)
class HiddenBatch:
    """What is shown (B, T), where it is real (B, T), where it is hidden (B, T), and the N hidden symbols row by row."""

    shown: Tensor
    real: Tensor
    hidden: Tensor
    answers: Tensor

    @classmethod
    def of(
        cls, pieces: list[np.ndarray], masking: Masking, module: BidirectionalModule, rng: np.random.Generator
    ) -> HiddenBatch:
        """Hide in each piece of symbols and marks what ``masking`` says."""
        device = module.head.weight.device
        shown, hidden = zip(*(masking.hide(piece, module.n_symbols, rng) for piece in pieces), strict=True)
        steps, real = pad(list(shown), device)
        answers = np.concatenate([piece[at] for piece, at in zip(pieces, hidden, strict=True)])
        return cls(steps, real, pad(list(hidden), device)[0], torch.as_tensor(answers, device=device))


@dataclass(frozen=True)
class MaskedObjective:
    """``Σ log p(hidden symbol | what is shown)`` of a batch."""

    module: BidirectionalModule

    def __call__(self, batch: HiddenBatch) -> Step:
        """Every hidden symbol weighs the same; the units are hidden symbols."""
        total = self.log_prob(batch).sum()
        n = len(batch.answers)
        return Step(total, float(n), total.detach().double(), float(n), floor_hits=torch.zeros(()))

    def log_prob(self, batch: HiddenBatch) -> Tensor:
        """(N,) nats."""
        return log_prob_of(self.module(batch.shown, batch.real, batch.hidden), batch.answers)


def train_masked(
    module: BidirectionalModule,
    rows: list[np.ndarray],
    held_out: list[np.ndarray],
    masking: Masking,
    batching: Batching,
    recipe: Recipe,
    random_state: int,
    checkpoints: Checkpoints,
    generator: torch.Generator,
) -> tuple[pd.DataFrame, bool]:
    """Train on rows of symbols and marks; the history (nats per hidden symbol), and whether training stopped by itself."""
    spans = [Row(row, 0, None, 1.0, False) for row in rows]

    def epoch(number: int) -> Iterator[HiddenBatch]:
        rng = np.random.default_rng([random_state, number])
        for batch, _continues in batching.epoch(spans, rng):
            yield HiddenBatch.of([rows[s.row][s.begin : s.end] for s in batch], masking, module, rng)

    check = _held_out_batches(held_out, masking, module, batching.bptt, random_state)
    evaluate = (lambda: _nats_per_symbol(module, check)) if check else None
    n_chunks = batching.n_batches(spans)
    return train(
        module, epoch, MaskedObjective(module), evaluate, recipe, n_chunks, checkpoints=checkpoints, generator=generator
    )


def _held_out_batches(
    rows: list[np.ndarray], masking: Masking, module: BidirectionalModule, length: int, random_state: int
) -> list[HiddenBatch]:
    """The first pieces, hidden once: every evaluation asks the same."""
    pieces = [row[begin : begin + length] for row in rows for begin in range(0, len(row), length)]
    enough = int(np.searchsorted(np.cumsum([len(piece) for piece in pieces]), ENOUGH)) + 1
    rng, kept = np.random.default_rng(random_state), pieces[:enough]
    parts = batches([len(piece) for piece in kept], STEPS_AT_ONCE)
    return [HiddenBatch.of([kept[i] for i in part], masking, module, rng) for part in parts]


@torch.no_grad()
def _nats_per_symbol(module: BidirectionalModule, check: list[HiddenBatch]) -> float:
    module.eval()
    objective = MaskedObjective(module)
    total = sum(float(objective.log_prob(batch).double().sum()) for batch in check)
    return total / sum(len(batch.answers) for batch in check)
