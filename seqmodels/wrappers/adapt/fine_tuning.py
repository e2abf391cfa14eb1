"""Options and batches for fine-tuning a network of tokens, made elsewhere, with this library's training loop."""

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
    """Options for training a network of tokens by AdamW on the log-probability of the training sequences.

    With these, ``fit`` trains a copy of the network, starting from its weights, and keeps the weights that did best on
    the held-out sequences (``validation``). Every step of a sequence is predicted once in an epoch, in the windows in
    which it is scored.

    Args:
        max_steps: number of optimiser steps.
        batch_size: number of windows in a step.
        lr: peak learning rate: about 1e-3 for untrained weights, 5e-5 for a large published model.
        weight_decay: decoupled weight decay of matrices.
        patience: number of evaluations without a better held-out figure after which training stops.
        evaluations: number of rows of ``history_``, spread evenly over training.
    """

    max_steps: PositiveInt = 500
    batch_size: PositiveInt = 16
    lr: PositiveFloat = 3e-4
    weight_decay: NotNegativeFloat = 0.01
    patience: PositiveInt = 5
    evaluations: PositiveInt = 10

    def config(self, *, progress: Verbose) -> TrainConfig:
        """Return the options in the form that the training loop takes.

        Args:
            progress: how progress is shown, the argument ``verbose`` of the model.
        """
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
    """One training sequence as tokens, in the form that a network reads.

    Attributes:
        inputs: S input tokens, ``(S,)``.
        targets: column of the logits that each input should predict, ``(S,)``.
        weight: weight of the sequence in the objective.
        n_units: number of units of the whole sequence, for the history.
        n_past: number of first targets that are read and not predicted.
        begins: True if the first target is the first step of a sequence, at which it cannot end.
    """

    inputs: np.ndarray
    targets: np.ndarray
    weight: float
    n_units: float
    n_past: int
    begins: bool  # the first target is the first step of a sequence, at which it cannot end


@dataclass(frozen=True)
class WindowsOfRows:
    """The training objective of fine-tuning: calling the object scores a batch of windows of the training sequences.

    A window is a range of steps that the network reads at once. B is the number of windows in a batch, T their length,
    and W the number of logits.

    Attributes:
        network: network from tokens ``(B, T)`` to logits ``(B, T, W)``.
        rows: training sequences.
        windowing: how they are cut into windows.
        batch_size: number of windows in a batch.
        columns: True for the logits that are normalised, the symbols and, if it is predicted, the end: ``(W,)`` bool.
        end: column of the end of a sequence; None if it is not predicted.
    """

    network: nn.Module
    rows: list[TrainingRow]
    windowing: Windowing
    batch_size: int
    columns: Tensor
    end: int | None

    def windows(self) -> list[tuple[int, int, int, int]]:
        """Return every window that predicts a step, as ``(row, begin, end, scored)``.

        ``row`` is the index of its sequence. The window has the steps ``begin`` to ``end - 1``, of which those from
        ``scored`` on are predicted.
        """
        each = ((i, *window) for i, row in enumerate(self.rows) for window in self.windowing.windows(len(row.inputs)))
        predicted = ((i, a, b, max(scored, self.rows[i].n_past)) for i, a, b, scored in each)
        return [(i, a, b, scored) for i, a, b, scored in predicted if scored < b]

    def epoch(self, seed: int) -> Callable[[int], Iterator[list[tuple[int, int, int, int]]]]:
        """Return a function from an epoch's number to an iterator over its batches of windows, shuffled by ``seed``."""
        windows = self.windows()

        def batches(number: int) -> Iterator[list[tuple[int, int, int, int]]]:
            order = np.random.default_rng([seed, number]).permutation(len(windows))
            for first in range(0, len(order), self.batch_size):
                yield [windows[i] for i in order[first : first + self.batch_size]]

        return batches

    def __call__(self, batch: list[tuple[int, int, int, int]]) -> BatchResult:
        device, length = self.columns.device, max(end - begin for _, begin, end, _ in batch)
        inputs = torch.zeros(len(batch), length, dtype=torch.int64)  # padded on the right by a valid token
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
