"""``FineTuning``: how ``fit`` trains a network of tokens that was made elsewhere, by this library's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.common.parameters import Configurable, NotNegativeFloat, PositiveFloat, PositiveInt
from seqmodels.common.progress import Verbose
from seqmodels.neural.batches import Windowing
from seqmodels.training import BatchResult, TrainConfig


@dataclass(eq=False, repr=False)
class FineTuning(Configurable):
    """How a network of tokens is trained: AdamW on the log-probability of the training sequences.

    ``fit`` then trains a copy of the network from the weights that it was given with, and keeps those that did best on
    the held-out sequences (``validation``). Every step of a sequence is predicted once in an epoch, in the windows in
    which it is scored.

    Args:
        max_steps: optimiser steps.
        batch_size: windows in a step.
        lr: peak learning rate: about 1e-3 from nothing, 5e-5 of a large published model.
        weight_decay: of matrices, decoupled.
        patience: evaluations without a better held-out figure before training stops.
        evaluations: rows of ``history_``, spread evenly over training.
    """

    max_steps: PositiveInt = 500
    batch_size: PositiveInt = 16
    lr: PositiveFloat = 3e-4
    weight_decay: NotNegativeFloat = 0.01
    patience: PositiveInt = 5
    evaluations: PositiveInt = 10

    def config(self, *, progress: Verbose) -> TrainConfig:
        """The same as the training loop takes it."""
        return TrainConfig(
            self.max_steps,
            None,
            None,
            self.lr,
            self.weight_decay,
            self.patience,
            evaluations=self.evaluations,
            progress=progress,
        )


@dataclass(frozen=True)
class TrainingRow:
    """One sequence as a network reads it: ``inputs (S,)``, and which logits of each are predicted, ``targets (S,)``.

    ``weight`` counts in what is maximised, ``log_det`` and ``n_units`` of the whole sequence in the history. The first
    ``n_past`` targets are read and not predicted.
    """

    inputs: np.ndarray
    targets: np.ndarray
    weight: float
    n_units: float
    n_past: int
    begins: bool  # whether the first target is the first step of a sequence, at which it cannot end


@dataclass(frozen=True)
class WindowsOfRows:
    """The windows of all rows, in a new order each epoch, and the log-probability of a batch of them.

    Attributes:
        network: tokens ``(B, T)`` to logits ``(B, T, W)``.
        rows: the sequences.
        windowing: how they are cut.
        batch_size: windows in a batch.
        columns: ``(W,)`` booleans: the logits that are normalised: symbols and, where it is an event, the end.
        end: the column of the end; None: it is no event.
    """

    network: nn.Module
    rows: list[TrainingRow]
    windowing: Windowing
    batch_size: int
    columns: Tensor
    end: int | None

    def windows(self) -> list[tuple[int, int, int, int]]:
        """Row, begin, end and the first step that is predicted, of every window in which one is."""
        each = ((i, *window) for i, row in enumerate(self.rows) for window in self.windowing.windows(len(row.inputs)))
        predicted = ((i, a, b, max(scored, self.rows[i].n_past)) for i, a, b, scored in each)
        return [(i, a, b, scored) for i, a, b, scored in predicted if scored < b]

    def epoch(self, seed: int) -> Callable[[int], Iterator[list[tuple[int, int, int, int]]]]:
        """The batches of an epoch by its number."""
        windows = self.windows()

        def batches(number: int) -> Iterator[list[tuple[int, int, int, int]]]:
            order = np.random.default_rng([seed, number]).permutation(len(windows))
            for first in range(0, len(order), self.batch_size):
                yield [windows[i] for i in order[first : first + self.batch_size]]

        return batches

    def __call__(self, batch: list[tuple[int, int, int, int]]) -> BatchResult:
        device, length = self.columns.device, max(end - begin for _, begin, end, _ in batch)
        inputs = torch.zeros(len(batch), length, dtype=torch.int64)  # padded by a token that is valid, on the right
        targets, weights = torch.zeros_like(inputs), torch.zeros(len(batch), length)
        is_first = torch.zeros(len(batch), length, dtype=torch.bool)
        n_units = 0.0
        for b, (i, begin, end, scored_from) in enumerate(batch):
            row = self.rows[i]
            inputs[b, : end - begin] = torch.as_tensor(row.inputs[begin:end])
            targets[b, : end - begin] = torch.as_tensor(row.targets[begin:end])
            weights[b, scored_from - begin : end - begin] = row.weight
            is_first[b, 0] = begin == 0 and row.begins
            n_units += row.n_units * (end - scored_from) / (len(row.targets) - row.n_past)
        inputs, targets, weights, is_first = (t.to(device) for t in (inputs, targets, weights, is_first))
        logits = self.network(inputs).float().masked_fill(~self.columns, -torch.inf)
        if self.end is not None:
            at_end = torch.arange(logits.shape[-1], device=device) == self.end
            logits = logits.masked_fill(is_first.unsqueeze(-1) & at_end, -torch.inf)
        picked = torch.log_softmax(logits, -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        log_prob = torch.where(weights > 0, picked, 0.0)
        weighted = (weights * log_prob).sum()
        return BatchResult(weighted, float(weights.sum()), log_prob.detach().sum(), n_units, torch.zeros(()))
