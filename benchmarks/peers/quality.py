"""Training for a number of processor seconds, and the held-out scores of what was learnt, alike for all peers."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

CONTEXT, BATCH = 64, 12
PEAK, LEAST, WARM_UP = 1e-3, 1e-4, 0.05  # rates of nanoGPT's recipe, and the part of the time over which they rise
Loss = Callable[[Tensor, Tensor], Tensor]  # the mean loss of targets (B, T) after symbols (B, T)


def symbols() -> tuple[np.ndarray, np.ndarray, int]:
    """Training and test part of the file of symbols that is the process's first argument, and how many kinds."""
    with np.load(Path(sys.argv[1])) as parts:
        train, test = parts["train"], parts["test"]
    return train, test, int(max(train.max(), test.max())) + 1


def seed() -> int:
    """The process's third argument, with which torch draws from here on."""
    given = int(sys.argv[3])
    torch.manual_seed(given)
    return given


def rate(progress: float, peak: float = PEAK, least: float = LEAST) -> float:
    """A linear rise, then a cosine."""
    if progress < WARM_UP:
        return peak * (progress + 1e-3) / WARM_UP
    return least + (peak - least) * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))) / 2


def train_for(optimizer: torch.optim.Optimizer, losses: Iterator[Tensor], rate: Callable[[float], float]) -> int:
    """Steps taken in the seconds that are the process's second argument, the batches' drawing included."""
    seconds, began, steps = float(sys.argv[2]), time.process_time(), 0
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    while (progress := (time.process_time() - began) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate(progress)
        next(losses).backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps += 1
    return steps


def losses_of_windows(loss: Loss, train: np.ndarray, seed: int) -> Iterator[Tensor]:
    """Those of batches of windows that begin anywhere."""
    rng = np.random.default_rng(seed)
    while True:
        begins = rng.integers(0, len(train) - CONTEXT - 1, BATCH)
        window = torch.from_numpy(np.stack([train[i : i + CONTEXT + 1] for i in begins]))
        yield loss(window[:, :-1], window[:, 1:])


@torch.no_grad()
def of_windows(loss: Loss, test: np.ndarray) -> float:
    """Nats a symbol in windows side by side, each with the symbol before it for a first input."""
    n = (len(test) - 1) // CONTEXT
    windows = torch.from_numpy(np.lib.stride_tricks.sliding_window_view(test, CONTEXT + 1)[::CONTEXT][:n].copy())
    parts = [(float(loss(part[:, :-1], part[:, 1:])), len(part)) for part in windows.split(100)]
    return float(np.average([value for value, _ in parts], weights=[size for _, size in parts]))


def report(name: str, model: nn.Module, **found: float) -> None:
    """One line of JSON."""
    parameters = sum(weight.numel() for weight in model.parameters())
    print(json.dumps({"model": name, "parameters": parameters, **found}))
