"""The arguments of training by gradient: their checks, what ``"auto"`` comes to, and the loop's configuration."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np
import torch

from seqmodels.common import distributed
from seqmodels.common.main_memory import memory_of_process
from seqmodels.common.parameters import Configurable
from seqmodels.common.progress import Verbose
from seqmodels.training import (
    AdamW,
    GradientTraining,
    Muon,
    Parallel,
    TrainConfig,
    Trapezoid,
)
from seqmodels.training.gradient_training import Compile

Function = TypeVar("Function", bound=Callable[..., Any])

# Of float32: the weight, its gradient, the optimiser's two moments, and a copy of the best weights.
BYTES_PER_WEIGHT = 20
ROOM_FOR_WEIGHTS = 0.6  # part of the memory of a process, of which activations take the rest
DEFAULT_STEPS = 2_000
DEFAULT_WIDTH = 256  # of d_model="auto"; with max_seconds alone that for as many steps of data,
STEPS_OF_DEFAULT_WIDTH = 400_000
MIN_WIDTH = 32  # and for fewer a smaller one, down to this (experiments/sizes.py)
SHORT_SERIES = 1_000  # frames together of one or few series, whose
MOST_SHORT_SERIES = 5  # number this is at most; on them 2000 steps of 256 features would learn the frames by heart:
STEPS_ON_SHORT_SERIES = 200  # held-out frames (experiments/series_defaults.py) are predicted best after some ten passes
STEPS_WITHOUT_VALIDATION = 25  # on them, where no held-out frames end training before it learns the noise
SMALL_DATA = 300_000  # steps of training data: 2000 steps of training go over fewer several times, and on them
DEFAULT_DROPOUT = 0.1
DROPOUT_OF_SMALL_DATA = 0.3  # more has to be dropped
AVERAGING_OF_SMALL_DATA = 0.1  # and the mean of the weights is better than the last (experiments/small_data.py)
MANY_PASSES = 7.0  # over the data, as 2000 steps go over that many; where seconds are given their number is measured
FEW_PASSES = 2.0  # below which nothing is learned by heart, and dropping only slows what is learned
FEW_PASSES_OF_PAIRS = 4.0  # the same for pairs (experiments/spelling_tuning.py)
FEWEST_BATCHES = 300  # in which a network of the default width learns more than one of half of it, which takes more
WIDTH_OF_FEW_BATCHES = 128  # batches in the same seconds (experiments/given_seconds.py)
STEPS_PER_BATCH = 1_024  # of the data; small batches learn more per second on a CPU
COMPILE_CHOICES: tuple[Compile, ...] = (False, True, "reduce-overhead", "max-autotune")
LISTED_LAST = (
    *("lr", "batch_size", "max_steps", "max_epochs", "max_seconds", "inputs", "observation", "encoding", "length"),
    *("architecture", "training", "random_state", "device", "dtype", "warm_start", "verbose"),
    *("source_encoding", "ignore_source"),
)  # what all networks share, behind what each has of its own
MAY_CHANGE = frozenset({"max_steps", "max_epochs", "patience"})  # in a run that is resumed


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingOptions(Configurable):
    """The arguments of training that users of a network change most often, and ``training``, which has all others.

    Args:
        lr: peak learning rate.
        batch_size: number of sequences (parts of long ones) in a batch. ``"auto"``: as many as have about 1024 steps,
            from 8 to 64.
        max_steps: number of optimiser steps after which training ends; None: no limit. ``"auto"``: 2000, or 200 for up
            to five series of vectors that have at most 1000 frames together (25 if nothing is held out), unless epochs
            or seconds are given. Two runs with equally many steps have the same result up to rounding.
        max_epochs: number of passes over the data after which training ends; None: no limit.
        max_seconds: seconds after which training ends; given alone, the learning-rate schedule follows time. None: no
            limit.
        verbose: True shows progress, after a line on the values chosen for ``"auto"``; False shows nothing; ``"auto"``
            shows progress in a terminal or a notebook when training takes longer than three seconds.
        training: everything else about training, such as patience, optimiser, checkpoints and compilation.
    """

    lr: float = 3e-3
    batch_size: int | Literal["auto"] = "auto"
    max_steps: int | Literal["auto"] | None = "auto"
    max_epochs: int | None = None
    max_seconds: float | None = None
    training: GradientTraining = field(default_factory=GradientTraining)
    verbose: Verbose = "auto"

    _weight_decay: ClassVar[float] = 0.05  # what training.weight_decay=None comes to
    _optimizer: ClassVar[AdamW | Muon] = AdamW()  # what training.optimizer=None comes to
    _listed_last: ClassVar[tuple[str, ...]] = LISTED_LAST


def check_training_options(options: TrainingOptions) -> None:
    """Raise ``ValueError`` if an argument of training is out of range, or if no limit would ever end training."""
    options.training.check()
    if options.batch_size != "auto" and options.batch_size < 1:
        raise ValueError(f"batch_size is {options.batch_size}; pass at least 1")
    for name in ("max_steps", "max_epochs", "max_seconds"):
        limit = getattr(options, name)
        if not (limit is None or limit == "auto") and limit <= 0:
            raise ValueError(f"{name} is {limit}; pass a number above zero, or None for no limit")
    if not 0 <= options.lr < math.inf:
        raise ValueError(f"lr is {options.lr}; pass a finite number, 0 or more")
    check_compile(options.training.compile)
    if options.max_steps is None and options.max_epochs is None and options.max_seconds is None:
        raise ValueError("training would never end; give max_steps, max_epochs or max_seconds")


def sequences_per_batch(options: TrainingOptions, lengths: Sequence[int], longest: int) -> int:
    """Return the number of sequences in a training batch: ``batch_size``, or for ``"auto"`` a number from 8 to 64.

    Args:
        options: arguments of training; ``batch_size="auto"`` chooses it so that a batch has about 1024 steps.
        lengths: number of steps of each sequence.
        longest: number of steps to which longer sequences are cut.
    """
    if options.batch_size != "auto":
        return options.batch_size
    typical = np.mean([min(length, longest) for length in lengths])
    return int(np.clip(STEPS_PER_BATCH / typical, 8, 64))


def width_for(n_steps: int) -> int:
    """Return the hidden width for ``n_steps`` steps of training data, with about one weight for each step.

    It is ``256 sqrt(n_steps / 400000)``, rounded to a power of two from 32 to 256; the number of weights of a layer is
    proportional to the square of its width.

    >>> [width_for(n) for n in (300, 10_000, 50_000, 100_000, 1_000_000)]
    [32, 32, 64, 128, 256]
    """
    width = DEFAULT_WIDTH * math.sqrt(n_steps / STEPS_OF_DEFAULT_WIDTH)
    return int(np.clip(2 ** round(math.log2(max(1.0, width))), MIN_WIDTH, DEFAULT_WIDTH))


def learns_by_heart(options: TrainingOptions, n_steps: int) -> bool:
    """Return True if the default number of optimiser steps makes several passes over the data, so that it may overfit.

    Args:
        options: arguments of training; if any limit is given, the result is False.
        n_steps: number of steps of the training data; below 300,000 the passes are several.
    """
    is_automatic = options.max_steps == "auto" and options.max_epochs is None and options.max_seconds is None
    return is_automatic and n_steps < SMALL_DATA


def only_time_is_given(options: TrainingOptions) -> bool:
    """Return True if ``max_seconds`` is the only limit of training that is given."""
    return options.max_seconds is not None and options.max_steps in ("auto", None) and options.max_epochs is None


def passes_by_steps(options: TrainingOptions, n_batches: int) -> float:
    """Return the number of passes over the data that training may make by its limits of steps and epochs.

    Args:
        options: arguments of training, whose limits are not of time alone.
        n_batches: number of batches of one pass over the data.
    """
    passes = math.inf if options.max_epochs is None else float(options.max_epochs)
    automatic = DEFAULT_STEPS if options.max_epochs is None and options.max_seconds is None else None
    n_steps = automatic if options.max_steps == "auto" else options.max_steps
    return passes if n_steps is None else min(passes, n_steps / n_batches)


def dropout_for(passes: float) -> float:
    """Return the fraction that ``dropout="auto"`` drops if training makes this number of ``passes`` over the data.

    >>> [dropout_for(n) for n in (0.5, 3.0, 20.0)]
    [0.0, 0.1, 0.3]
    """
    if passes < FEW_PASSES:
        return 0.0
    return DEFAULT_DROPOUT if passes < MANY_PASSES else DROPOUT_OF_SMALL_DATA


def train_config(
    options: TrainingOptions, default_steps: int = DEFAULT_STEPS, *, learns_by_heart: bool = False
) -> TrainConfig:
    """Return the arguments of training as the training loop takes them, with every ``"auto"`` replaced by its value.

    Args:
        options: arguments of training.
        default_steps: number of steps that ``max_steps="auto"`` stands for.
        learns_by_heart: True if ``averaging="auto"`` averages the weights, as is done on small data.
    """
    training, averaging = options.training, options.training.averaging
    if averaging == "auto":
        averaging = AVERAGING_OF_SMALL_DATA if learns_by_heart else 0.0
    automatic = default_steps if options.max_epochs is None and options.max_seconds is None else None
    return TrainConfig(
        automatic if options.max_steps == "auto" else options.max_steps,
        options.max_epochs,
        options.max_seconds,
        options.lr,
        options._weight_decay if training.weight_decay is None else training.weight_decay,
        training.patience,
        progress=options.verbose,
        optimizer=training.optimizer or options._optimizer,
        schedule=training.schedule or Trapezoid(),
        accumulate=training.accumulate,
        averaging=averaging,
        callbacks=tuple(training.callbacks),
    )


# -- several processes -----------------------------------------------------------------------------------------


def parallel_of(options: TrainingOptions, n_parameters: int, device: torch.device) -> Parallel | None:
    """Return how several processes train a network together: ``"shard"`` or ``"replicate"``; None for one process.

    All processes call this at once.

    Args:
        options: arguments of training.
        n_parameters: number of parameters of the network.
        device: device of this process; ``parallel="auto"`` shards the weights if its memory is too small for all.
    """
    if not distributed.is_distributed():
        return None
    if options.training.parallel != "auto":
        return options.training.parallel
    needed = n_parameters * (BYTES_PER_WEIGHT + 4 * (options.training.averaging not in (0, "auto")))
    room = memory_of_process(device) * ROOM_FOR_WEIGHTS
    return "shard" if distributed.of_rank_zero(needed > room) else "replicate"


# -- torch.compile ---------------------------------------------------------------------------------------------


def check_compile(how: object) -> None:
    """Raise ``ValueError`` if ``how`` is an unknown mode of ``torch.compile``, or if there is no C++ compiler."""
    if how not in COMPILE_CHOICES:
        raise ValueError(f"compile is {how!r}; pass one of {', '.join(map(repr, COMPILE_CHOICES))}")
    if how and shutil.which(_compiler()) is None:
        raise ValueError(
            f"compile={how!r} needs a C++ compiler, but there is no {_compiler()!r} on the path; install one, name one "
            "in the environment variable CXX, or pass compile=False"
        )


def compiled(function: Function, how: Compile) -> Function:
    """Return a function compiled by ``torch.compile``; unchanged if ``how`` is False.

    Shapes are dynamic because the first shorter batch would otherwise be compiled for anew, which takes longer than
    fixed shapes save.

    Args:
        function: the function.
        how: False, True for the default mode, or the name of a mode of ``torch.compile``.
    """
    if not how:
        return function
    return cast(Function, torch.compile(function, dynamic=True, mode=None if how is True else how))


def _compiler() -> str:
    return os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
