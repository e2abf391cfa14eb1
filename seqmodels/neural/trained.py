"""The arguments of everything that is trained by gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqmodels.parameters import Configurable
from seqmodels.training import AdamW, Listener, Optimizer, Recipe, Schedule, Trapezoid, check_checkpoint_arguments

DEFAULT_STEPS = 2_000
MAY_CHANGE = frozenset({"max_steps", "max_epochs", "patience"})  # in a run that is resumed
STEPS_A_BATCH = 1_024  # small batches learn more per second on a CPU


@dataclass(kw_only=True, eq=False, repr=False)
class Trained(Configurable):
    """Arguments of training; those of checkpoints are described in ``training.Resumable``.

    Args:
        max_steps: optimiser steps; ``"auto"``: 2000 unless epochs or seconds are given. Runs of equal steps repeat exactly.
        max_epochs: passes over the data.
        max_seconds: a cap on time; given alone, the learning-rate schedule follows time.
        batch_size: sequences (pieces of long ones) in a batch; ``"auto"``: about 1024 steps, from 8 to 64 sequences.
        lr: peak learning rate.
        weight_decay: of matrices, decoupled.
        patience: evaluations (20 a run) without improvement on held-out data before training stops.
        optimizer: how weights move; None: ``AdamW()``.
        schedule: the learning rate against progress; None: ``Trapezoid()``.
        accumulate: batches whose gradients make one step.
        averaging: part of the steps taken over which the running mean of the weights reaches, which then is the model; 0: none.
        callbacks: called with each line of the history, a dictionary.
        verbose: show progress.

    A run that goes on with ``resume_from`` may be given another ``max_steps``, ``max_epochs``, ``max_seconds`` and ``patience``: from there on
    the learning rate follows the new length.
    """

    checkpoint: str | None = None
    checkpoint_seconds: float = 300.0
    resume_from: str | None = None
    max_steps: int | Literal["auto"] | None = "auto"
    max_epochs: int | None = None
    max_seconds: float | None = None
    batch_size: int | Literal["auto"] = "auto"
    lr: float = 3e-3
    weight_decay: float = 0.05
    patience: int = 5
    optimizer: Optimizer | None = None
    schedule: Schedule | None = None
    accumulate: int = 1
    averaging: float = 0.0
    callbacks: Sequence[Listener] = ()
    verbose: bool = False

    def _check_training(self) -> None:
        """Raise ``ValueError`` for what cannot be."""
        check_checkpoint_arguments(self)
        for name in ("batch_size", "patience", "accumulate"):
            if getattr(self, name) != "auto" and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least 1")
        for name in ("max_steps", "max_epochs", "max_seconds"):
            limit = getattr(self, name)
            if not (limit is None or limit == "auto") and limit <= 0:
                raise ValueError(f"{name} is {limit}; pass a number above zero, or None for no limit")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging is {self.averaging}; pass a fraction from 0 up to 1")
        if self.max_steps is None and self.max_epochs is None and self.max_seconds is None:
            raise ValueError("training would never end; give max_steps, max_epochs or max_seconds")

    def _rows_a_batch(self, lengths: Sequence[int], longest: int) -> int:
        """Of rows of these lengths, cut to pieces of at most ``longest``."""
        if self.batch_size != "auto":
            return self.batch_size
        typical = np.mean([min(length, longest) for length in lengths])
        return int(np.clip(STEPS_A_BATCH / typical, 8, 64))

    def _recipe(self) -> Recipe:
        automatic = DEFAULT_STEPS if self.max_epochs is None and self.max_seconds is None else None
        return Recipe(
            automatic if self.max_steps == "auto" else self.max_steps,
            self.max_epochs,
            self.max_seconds,
            self.lr,
            self.weight_decay,
            self.patience,
            progress=self.verbose,
            optimizer=self.optimizer or AdamW(),
            schedule=self.schedule or Trapezoid(),
            accumulate=self.accumulate,
            averaging=self.averaging,
            listeners=tuple(self.callbacks),
        )
