"""The gradient loop: warm-up and decay, clipping, early stopping, the best weights kept, to be continued from where it stood."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from seqmodels import distributed
from seqmodels.training import checkpoint
from seqmodels.training.average import Average
from seqmodels.training.clipping import clip
from seqmodels.training.interruption import interruptible
from seqmodels.main_memory import keep_freed_memory
from seqmodels.training.optimizers import AdamW, Optimizer
from seqmodels.training.resuming import Checkpoints
from seqmodels.training.schedules import Schedule, Trapezoid

Listener = Callable[[dict[str, float]], None]
PATIENT = 1.0  # seconds that one more evaluation may take of who has asked training to end


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        max_steps, max_epochs, max_seconds: whichever comes first ends training. The schedule follows steps, or
            time where only ``max_seconds`` is given.
        lr: peak learning rate.
        weight_decay: of matrices, decoupled.
        patience: evaluations without a better validation figure before training stops.
        accumulate: batches whose gradients make one step.
        averaging: weights are evaluated and kept as their running mean over about this part of the steps taken; 0: as they are.
        listeners: called with every line of the history.
    """

    max_steps: int | None
    max_epochs: int | None
    max_seconds: float | None
    lr: float
    weight_decay: float
    patience: int
    max_grad_norm: float = 1.0
    evaluations: int = 20
    progress: bool = False
    optimizer: Optimizer = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Trapezoid)
    accumulate: int = 1
    averaging: float = 0.0
    listeners: Sequence[Listener] = ()


class Objective(Protocol):
    """What is maximised. ``total`` is differentiable; the rest is for the record."""

    def __call__(self, batch: Any) -> Step:
        """The weighted log-probability of one batch."""


class Recall(Protocol):
    """Something that hands ``memory``, nested tuples of tensors, from one batch to the next."""

    memory: Any


@dataclass(frozen=True)
class Step:
    """``total``: Σ weight · log p, differentiable; ``weight``: Σ weight; ``log_prob``: Σ log p over ``n_units`` raw units."""

    total: Tensor
    weight: float
    log_prob: Tensor
    n_units: float
    floor_hits: Tensor


def train(
    module: nn.Module,
    epoch: Callable[[int], Iterable[Any]],
    objective: Objective,
    evaluate: Callable[[], float] | None,
    recipe: Recipe,
    steps_per_epoch: int,
    *,
    memory: Recall | None = None,
    checkpoints: Checkpoints | None = None,
    generator: torch.Generator | None = None,
    adds_up: bool = False,
) -> tuple[pd.DataFrame, bool]:
    """Maximise ``objective`` over batches of ``epoch(0), epoch(1), ...``; returns the history and whether it stopped by itself.

    With ``evaluate`` (nats per unit on held-out data) the module ends with the weights that did best there. Each epoch must
    be the same when asked for again, so that training can go on from a checkpoint in the middle of one. A signal ends it after
    the step it is at (``seqmodels.training.interruption``), with a last line of history. ``generator`` is what the objective
    draws from, if anything; None: torch's default one. ``adds_up``: of several processes each has a portion of every batch, in
    float64, and a ``Step`` has the ``weight`` of the whole batch.

    Raises:
        RuntimeError: a gradient is not finite.
        ValueError: ``checkpoints`` go on from the state of another module.
    """
    keep_freed_memory(module)
    kept = checkpoints or Checkpoints()
    together = adds_up and distributed.several()
    draws = generator or torch.default_generator
    loop = _Loop(module, objective, evaluate, recipe, steps_per_epoch, memory, draws, adds_up=together)
    if kept.state is not None:
        loop.restore(kept.state)
    with interruptible() as interruption:
        stopped = False
        while not loop.ended:
            for batch in islice(epoch(loop.epoch), loop.in_epoch, None):
                loop.step(batch)
                interruption.hold()
                if interruption.asked and (loop.is_whole or kept.path is None):
                    stopped = True
                    loop.interrupt(kept)
                if loop.ended:
                    break
                if kept.due and loop.is_whole:
                    kept.write(loop.state())
            else:
                loop.epoch, loop.in_epoch = loop.epoch + 1, 0
        if not stopped:
            kept.write(loop.state())
    return loop.finish()


class _Loop:
    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        evaluate: Callable[[], float] | None,
        recipe: Recipe,
        steps_per_epoch: int,
        memory: Recall | None,
        generator: torch.Generator,
        *,
        adds_up: bool = False,
    ) -> None:
        self.module, self.objective, self.evaluate, self.recipe = module, objective, evaluate, recipe
        self.memory, self.generator, self.adds_up = memory, generator, adds_up
        assert not (adds_up and recipe.accumulate > 1), "gradients are added up at every batch"
        epochs = None if recipe.max_epochs is None else recipe.max_epochs * steps_per_epoch
        limits = [None if recipe.max_steps is None else recipe.max_steps * recipe.accumulate, epochs]
        self.n_batches = min((limit for limit in limits if limit is not None), default=None)
        self.optimizers = recipe.optimizer.build(module, recipe.lr, recipe.weight_decay)
        self.weights = list(module.parameters())
        self.average = Average(module, recipe.averaging)
        self.epoch = self.in_epoch = self.batches = 0
        self.next_record, self.ended, self.converged = 0.0, False, False
        self.best, self.stale = -math.inf, 0
        self.best_weights: dict[str, Any] | None = None
        self.rows: list[dict[str, float]] = []
        self.sums = {"log_prob": 0.0, "n_units": 0.0, "floor_hits": 0.0}
        self.began, self.first_clock, self.evaluation_seconds = time.perf_counter(), 0.0, 0.0
        self.bar = tqdm(
            total=100, disable=not recipe.progress, unit="%", bar_format="{l_bar}{bar}| {elapsed}<{remaining} {postfix}"
        )
        module.train()

    @property
    def taken(self) -> int:
        """Steps of the optimiser."""
        return self.batches // self.recipe.accumulate

    @property
    def is_whole(self) -> bool:
        """Whether no gradients of a step that has begun are waiting for the rest of it."""
        return self.batches % self.recipe.accumulate == 0

    def progress(self) -> float:
        """From 0 to 1, by steps where their number is set, otherwise by time."""
        if self.n_batches is not None:
            return self.batches / self.n_batches
        assert self.recipe.max_seconds is not None
        return (time.perf_counter() - self.began) / self.recipe.max_seconds

    def step(self, batch: Any) -> None:
        result = self.objective(batch)
        (-result.total / max(result.weight, 1e-30)).backward()
        if self.adds_up:
            result = self._added_up(result)
        self.batches, self.in_epoch = self.batches + 1, self.in_epoch + 1
        self.sums["log_prob"] += float(result.log_prob)
        self.sums["n_units"] += result.n_units
        self.sums["floor_hits"] += float(result.floor_hits)
        if self.is_whole:
            self._move()
        limit = self.recipe.max_seconds
        out_of_time = limit is not None and self.seconds() >= limit
        done = self.progress() >= 1 or out_of_time
        self.ended = done
        if done or (self.is_whole and self.progress() >= self.next_record):
            self.record()

    def seconds(self) -> float:
        """Since training began, by the clock of the first process: the others stop when it does."""
        return self.first_clock if self.adds_up else time.perf_counter() - self.began

    def _added_up(self, result: Step) -> Step:
        """Gradients and figures of all processes."""
        gradients = [p.grad for p in self.weights if p.grad is not None]
        figures = gradients[0].new_tensor([float(result.log_prob), result.n_units])
        seconds = time.perf_counter() - self.began
        (*sums, figures), (self.first_clock,) = distributed.add_up([*gradients, figures], [seconds])
        torch._foreach_copy_(gradients, sums)
        log_prob, n_units = figures.unbind()
        return replace(result, log_prob=log_prob, n_units=float(n_units))

    def _move(self) -> None:
        n = self.recipe.accumulate
        rate = self.recipe.lr * self.recipe.schedule.at(self._progress_before(n))
        gradients = [p.grad for p in self.weights if p.grad is not None]
        if n > 1:
            torch._foreach_div_(gradients, n)
        clip(gradients, self.recipe.max_grad_norm)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.average.update(self.taken)

    def _progress_before(self, n: int) -> float:
        return self.progress() if self.n_batches is None else (self.batches - n) / self.n_batches

    def interrupt(self, checkpoints: Checkpoints) -> None:
        """End here, where there is something to say with a last line; the checkpoint is of the run as it would have gone on."""
        if self.is_whole:
            checkpoints.write(self.state())
        self.ended = True
        if self.sums["n_units"]:
            self.record(evaluates=self.evaluation_seconds <= PATIENT)

    def record(self, *, evaluates: bool = True) -> None:
        """One line of history: the mean over the steps since the last line, and the validation figure."""
        log_prob = self.sums["log_prob"] / max(self.sums["n_units"], 1)
        validation = math.nan
        if self.evaluate is not None and evaluates:
            began = time.perf_counter()
            with self.average.in_place():
                validation = self.evaluate()
                self._keep_best(validation)
            self.module.train()
            self.evaluation_seconds = time.perf_counter() - began
        row = {
            "step": self.taken,
            "seconds": time.perf_counter() - self.began,
            "log_prob": log_prob,
            "validation": validation,
            "objective": log_prob,
            "floor_hits": self.sums["floor_hits"],
        }
        self.rows.append(row)
        self.sums = dict.fromkeys(self.sums, 0.0)
        self.next_record = self.progress() + 1 / self.recipe.evaluations
        self.bar.set_postfix_str(f"{validation if self.evaluate else log_prob:.3f} nats per unit")
        self.bar.update(min(100, round(100 * self.progress())) - self.bar.n)
        for listen in self.recipe.listeners:
            listen(row)

    def _keep_best(self, validation: float) -> None:
        if validation > self.best:
            self.best, self.stale = validation, 0
            self.best_weights = copy.deepcopy(self.module.state_dict())
            return
        self.stale += 1
        if self.stale >= self.recipe.patience:
            self.ended = self.converged = True

    def finish(self) -> tuple[pd.DataFrame, bool]:
        self.bar.close()
        self.average.settle()
        if self.best_weights is not None:
            self.module.load_state_dict(self.best_weights)
        self.module.eval()
        return pd.DataFrame(self.rows), self.converged

    # -- to be continued -----------------------------------------------------------------------------------

    _COUNTS = ("epoch", "in_epoch", "batches", "next_record", "best", "stale", "converged")

    def state(self) -> dict[str, Any]:
        """All that the next step depends on."""
        shape, carried = checkpoint.taken_apart(None if self.memory is None else self.memory.memory)
        return {
            "counts": {name: getattr(self, name) for name in self._COUNTS},
            "seconds": time.perf_counter() - self.began,
            "sums": dict(self.sums),
            "rows": self.rows,
            "weights": checkpoint.to_arrays(self.module.state_dict()),
            "average": checkpoint.to_arrays(self.average.weights),
            "best_weights": checkpoint.to_arrays(self.best_weights or {}),
            "optimizers": checkpoint.optimizer_state(self.optimizers),
            "random": checkpoint.random_state(self.generator),
            "memory": {"shape": shape, "tensors": checkpoint.to_arrays(carried)},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state``."""
        checkpoint.load_weights(self.module, state["weights"])
        checkpoint.restore_optimizers(self.optimizers, state["optimizers"])
        checkpoint.restore_random_state(self.generator, state["random"])
        for name in self._COUNTS:
            setattr(self, name, state["counts"][name])
        self.sums = dict(state["sums"])
        self.rows, self.began = list(state["rows"]), time.perf_counter() - state["seconds"]
        device = next(self.module.parameters()).device
        best = {name: tensor.to(device) for name, tensor in checkpoint.to_tensors(state["best_weights"]).items()}
        self.best_weights = best or None
        self.average.restore(checkpoint.to_tensors(state["average"]))
        if self.memory is not None:
            carried = {n: t.to(device) for n, t in checkpoint.to_tensors(state["memory"]["tensors"]).items()}
            self.memory.memory = checkpoint.put_together(state["memory"]["shape"], carried)
        self.ended = self.converged or self.progress() >= 1
