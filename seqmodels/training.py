"""The gradient loop: AdamW, warm-up and decay, clipping, early stopping, the best weights kept."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        max_steps, max_epochs, max_seconds: whichever comes first ends training. The schedule follows steps, or
            time where only ``max_seconds`` is given.
        lr: peak learning rate: rises over the first 3 %, is constant to 40 %, then falls linearly to zero.
        patience: evaluations without a better validation figure before training stops.
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


class Objective(Protocol):
    """What is maximised. ``total`` is differentiable; the rest is for the record."""

    def __call__(self, batch: Any) -> Step:
        """The weighted log-probability of one batch."""


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
) -> tuple[pd.DataFrame, bool]:
    """Maximise ``objective`` over batches of ``epoch(0), epoch(1), ...``; returns the history and whether it stopped by itself.

    With ``evaluate`` (nats per unit on held-out data) the module ends with the weights that did best there.
    """
    loop = _Loop(module, objective, evaluate, recipe, steps_per_epoch)
    number = 0
    while not loop.ended:
        for batch in epoch(number):
            loop.step(batch)
            if loop.ended:
                break
        number += 1
    return loop.finish()


class _Loop:
    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        evaluate: Callable[[], float] | None,
        recipe: Recipe,
        steps_per_epoch: int,
    ) -> None:
        self.module, self.objective, self.evaluate, self.recipe = module, objective, evaluate, recipe
        limits = [recipe.max_steps, None if recipe.max_epochs is None else recipe.max_epochs * steps_per_epoch]
        self.n_steps = min((limit for limit in limits if limit is not None), default=None)
        self.optimizer = _optimizer(module, recipe)
        self.taken, self.next_record, self.ended, self.converged = 0, 0.0, False, False
        self.best, self.stale = -math.inf, 0
        self.best_weights: dict[str, Any] | None = None
        self.rows: list[dict[str, float]] = []
        self.sums = {"log_prob": 0.0, "n_units": 0.0, "floor_hits": 0.0}
        self.began = time.perf_counter()
        self.bar = tqdm(
            total=100, disable=not recipe.progress, unit="%", bar_format="{l_bar}{bar}| {elapsed}<{remaining} {postfix}"
        )

    def progress(self) -> float:
        """From 0 to 1, by steps where their number is set, otherwise by time."""
        if self.n_steps is not None:
            return self.taken / self.n_steps
        assert self.recipe.max_seconds is not None
        return (time.perf_counter() - self.began) / self.recipe.max_seconds

    def step(self, batch: Any) -> None:
        self.module.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr * schedule(self.progress())
        result = self.objective(batch)
        (-result.total / max(result.weight, 1e-30)).backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), self.recipe.max_grad_norm, error_if_nonfinite=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.taken += 1
        self.sums["log_prob"] += float(result.log_prob)
        self.sums["n_units"] += result.n_units
        self.sums["floor_hits"] += float(result.floor_hits)
        out_of_time = (
            self.recipe.max_seconds is not None and time.perf_counter() - self.began >= self.recipe.max_seconds
        )
        done = self.progress() >= 1 or out_of_time
        if done or self.progress() >= self.next_record:
            self.record()
        self.ended = self.ended or done

    def record(self) -> None:
        """One line of history: the mean over the steps since the last line, and the validation figure."""
        log_prob = self.sums["log_prob"] / max(self.sums["n_units"], 1)
        validation = math.nan if self.evaluate is None else self.evaluate()
        self.rows.append(
            {
                "step": self.taken,
                "seconds": time.perf_counter() - self.began,
                "log_prob": log_prob,
                "validation": validation,
                "objective": log_prob,
                "floor_hits": self.sums["floor_hits"],
            }
        )
        self.sums = dict.fromkeys(self.sums, 0.0)
        self.next_record = self.progress() + 1 / self.recipe.evaluations
        self.bar.set_postfix_str(f"{validation if self.evaluate else log_prob:.3f} nats per unit")
        self.bar.update(min(100, round(100 * self.progress())) - self.bar.n)
        if self.evaluate is not None:
            self._keep_best(validation)

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
        if self.best_weights is not None:
            self.module.load_state_dict(self.best_weights)
        self.module.eval()
        return pd.DataFrame(self.rows), self.converged


def schedule(progress: float) -> float:
    """Learning rate over its peak: up over the first 3 %, constant to 40 %, linear to zero."""
    return min(1.0, (progress + 1e-3) / 0.03) * min(1.0, max(0.0, 1 - progress) / 0.6)


def _optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Weight decay on matrices only: biases, norms and embeddings of one row are left alone."""
    matrices = [p for p in module.parameters() if p.ndim >= 2]
    others = [p for p in module.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.99), fused=True)
