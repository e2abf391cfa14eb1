"""Training by predicting masked symbols: training batches are masked anew every time, held-out ones once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seqmodels.neural.batches import Batching, Row
from seqmodels.neural.masked.inference import MAX_BATCH_STEPS, batches_by_length
from seqmodels.neural.masked.masking import Masking
from seqmodels.neural.masked.network import BidirectionalNetwork, log_prob_of
from seqmodels.neural.ops.padding import pad_right
from seqmodels.preparation import MAX_HELD_OUT
from seqmodels.training import BatchResult, Checkpoints, TrainConfig, train

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class MaskedBatch:
    """A padded batch.

    Attributes:
        inputs: (B, T), symbols of which some are replaced.
        mask: (B, T), True where real.
        masked: (B, T), True where a symbol is to be predicted.
        targets: (N,), the symbols to be predicted, row by row.
    """

    inputs: Tensor
    mask: Tensor
    masked: Tensor
    targets: Tensor

    @classmethod
    def of(
        cls, windows: list[np.ndarray], masking: Masking, network: BidirectionalNetwork, rng: np.random.Generator
    ) -> MaskedBatch:
        """Mask each window of symbols, special ones too, as ``masking`` says."""
        device = network.head.weight.device
        inputs, masked = zip(*(masking.apply(window, network.n_symbols, rng) for window in windows), strict=True)
        padded, mask = pad_right(list(inputs), device)
        targets = np.concatenate([window[at] for window, at in zip(windows, masked, strict=True)])
        return cls(padded, mask, pad_right(list(masked), device)[0], torch.as_tensor(targets, device=device))


@dataclass(frozen=True)
class MaskedObjective:
    """``Σ log p(masked symbol | inputs)`` of a batch."""

    network: BidirectionalNetwork

    def __call__(self, batch: MaskedBatch) -> BatchResult:
        """Every masked symbol has the same weight; the units are masked symbols."""
        total = self.log_prob(batch).sum()
        n = len(batch.targets)
        return BatchResult(total, float(n), total.detach().double(), float(n), floor_hits=torch.zeros(()))

    def log_prob(self, batch: MaskedBatch) -> Tensor:
        """Log-probability (N,) of each target, nats."""
        return log_prob_of(self.network(batch.inputs, batch.mask, batch.masked), batch.targets)


@dataclass(frozen=True)
class MaskedData:
    """Rows of symbols to train on and to evaluate on, what is masked in them, and how they are batched."""

    rows: list[np.ndarray]
    held_out: list[np.ndarray]
    masking: Masking
    batching: Batching
    random_state: int

    def epoch(self, number: int, network: BidirectionalNetwork) -> Iterator[MaskedBatch]:
        """The training batches of one epoch."""
        rng = np.random.default_rng([self.random_state, number])
        for batch, _continues in self.batching.epoch(self.batching_rows, rng):
            windows = [self.rows[span.row][span.begin : span.end] for span in batch]
            yield MaskedBatch.of(windows, self.masking, network, rng)

    @cached_property
    def batching_rows(self) -> list[Row]:
        """The training rows as ``Batching`` takes them."""
        return [Row(row, 0, None, 1.0, False) for row in self.rows]

    def held_out_batches(self, network: BidirectionalNetwork) -> list[MaskedBatch]:
        """The first held-out windows, masked once: every evaluation has the same targets."""
        length = self.batching.bptt
        windows = [row[begin : begin + length] for row in self.held_out for begin in range(0, len(row), length)]
        n_kept = int(np.searchsorted(np.cumsum([len(window) for window in windows]), MAX_HELD_OUT)) + 1
        kept = windows[:n_kept]
        rng = np.random.default_rng(self.random_state)
        parts = batches_by_length([len(window) for window in kept], MAX_BATCH_STEPS)
        return [MaskedBatch.of([kept[i] for i in part], self.masking, network, rng) for part in parts]


def train_masked(
    network: BidirectionalNetwork,
    data: MaskedData,
    config: TrainConfig,
    checkpoints: Checkpoints,
    generator: torch.Generator,
) -> tuple[pd.DataFrame, bool]:
    """Train; returns the history (nats per masked symbol) and whether training converged."""
    held_out = data.held_out_batches(network)
    return train(
        network,
        lambda number: data.epoch(number, network),
        MaskedObjective(network),
        (lambda: _nats_per_symbol(network, held_out)) if held_out else None,
        config,
        data.batching.n_batches(data.batching_rows),
        checkpoints=checkpoints,
        generator=generator,
    )


@torch.no_grad()
def _nats_per_symbol(network: BidirectionalNetwork, batches: list[MaskedBatch]) -> float:
    network.eval()
    objective = MaskedObjective(network)
    total = sum(float(objective.log_prob(batch).double().sum()) for batch in batches)
    return total / sum(len(batch.targets) for batch in batches)
