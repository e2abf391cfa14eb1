"""What everything that is trained by gradient lets its users choose: checked, and as the training loop takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from seqmodels.training import (
    AdamW,
    Callback,
    Optimizer,
    Resumable,
    Schedule,
    TrainConfig,
    Trapezoid,
    check_checkpoint_arguments,
)

DEFAULT_STEPS = 2_000
STEPS_PER_BATCH = 1_024  # of the data; small batches learn more per second on a CPU
MAY_CHANGE = frozenset({"max_steps", "max_epochs", "patience"})  # in a run that is resumed


class TrainingOptions(Resumable, Protocol):
    """Arguments of training; those of checkpoints are ``Resumable``'s.

    Attributes:
        max_steps: optimiser steps; ``"auto"``: 2000 unless epochs or seconds are given. Runs of equal steps repeat
            exactly.
        max_epochs: passes over the data.
        max_seconds: a cap on time; given alone, the learning-rate schedule follows time.
        batch_size: sequences (parts of long ones) in a batch; ``"auto"``: about 1024 steps, from 8 to 64 sequences.
        lr: peak learning rate.
        weight_decay: of matrices, decoupled.
        patience: evaluations (20 a run) without improvement on held-out data before training stops.
        optimizer: how weights move; None: ``AdamW()``.
        schedule: the learning rate against progress; None: ``Trapezoid()``.
        accumulate: batches whose gradients make one step.
        averaging: part of the steps taken over which the running mean of the weights reaches, which then is the model;
            0: none.
        callbacks: called with each row of the history, a dictionary.
        verbose: show progress.

    A run that goes on with ``resume_from`` may be given another ``max_steps``, ``max_epochs``, ``max_seconds`` and
    ``patience``: from there on the learning rate follows the new length.
    """

    max_steps: int | Literal["auto"] | None
    max_epochs: int | None
    max_seconds: float | None
    batch_size: int | Literal["auto"]
    lr: float
    weight_decay: float
    patience: int
    optimizer: Optimizer | None
    schedule: Schedule | None
    accumulate: int
    averaging: float
    callbacks: Sequence[Callback]
    verbose: bool


def check_training_options(options: TrainingOptions) -> None:
    """Raise ``ValueError`` for values that cannot be."""
    check_checkpoint_arguments(options)
    for name in ("batch_size", "patience", "accumulate"):
        if getattr(options, name) != "auto" and getattr(options, name) < 1:
            raise ValueError(f"{name} is {getattr(options, name)}; pass at least 1")
    for name in ("max_steps", "max_epochs", "max_seconds"):
        limit = getattr(options, name)
        if not (limit is None or limit == "auto") and limit <= 0:
            raise ValueError(f"{name} is {limit}; pass a number above zero, or None for no limit")
    if not 0 <= options.averaging < 1:
        raise ValueError(f"averaging is {options.averaging}; pass a fraction from 0 up to 1")
    if options.max_steps is None and options.max_epochs is None and options.max_seconds is None:
        raise ValueError("training would never end; give max_steps, max_epochs or max_seconds")


def sequences_per_batch(options: TrainingOptions, lengths: Sequence[int], longest: int) -> int:
    """Of sequences of these lengths, which are cut to at most ``longest`` steps."""
    if options.batch_size != "auto":
        return options.batch_size
    typical = np.mean([min(length, longest) for length in lengths])
    return int(np.clip(STEPS_PER_BATCH / typical, 8, 64))


def train_config(options: TrainingOptions) -> TrainConfig:
    """The options as the training loop takes them."""
    automatic = DEFAULT_STEPS if options.max_epochs is None and options.max_seconds is None else None
    return TrainConfig(
        automatic if options.max_steps == "auto" else options.max_steps,
        options.max_epochs,
        options.max_seconds,
        options.lr,
        options.weight_decay,
        options.patience,
        progress=options.verbose,
        optimizer=options.optimizer or AdamW(),
        schedule=options.schedule or Trapezoid(),
        accumulate=options.accumulate,
        averaging=options.averaging,
        callbacks=tuple(options.callbacks),
    )
