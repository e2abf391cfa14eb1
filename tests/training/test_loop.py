from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from seqmodels.training import AdamW, BatchResult, Checkpoints, Muon, Objective, TrainConfig, Trapezoid, train
from seqmodels.training.optimizers import FusedAdamW

CONFIG = TrainConfig(max_steps=40, max_epochs=None, max_seconds=None, lr=0.1, weight_decay=0.0, patience=100)


class Point(nn.Module):
    """One number, to be moved to where the data are; ``dropout`` makes training random."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.zeros(1))
        self.dropout = nn.Dropout(0.5)

    @property
    def position(self) -> float:
        return float(self.at.detach())


def objective(module: Point) -> Objective:
    def weigh(batch: Any) -> BatchResult:
        log_prob = -0.5 * (batch - module.at - 0.1 * module.dropout(torch.ones(1))).square()
        hits = torch.tensor(2)
        return BatchResult(log_prob.sum(), len(batch), log_prob.detach().sum(), 2 * len(batch), hits)

    return weigh


def batches(seed: int = 0) -> Callable[[int], Iterator[torch.Tensor]]:
    def epoch(number: int) -> Iterator[torch.Tensor]:
        rng = np.random.default_rng([seed, number])
        return (torch.as_tensor(rng.normal(1.0, 0.1, 8), dtype=torch.float32) for _ in range(10))

    return epoch


def run(config: TrainConfig, evaluate: Callable[[Point], float] | None = None) -> tuple[Point, Any, bool]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = Point()
        held_out = None if evaluate is None else lambda: evaluate(module)
        history, converged = train(module, batches(), objective(module), held_out, config, steps_per_epoch=10)
    return module, history, converged


def test_steps_follow_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []
    take = FusedAdamW.step

    def watch(self: FusedAdamW, *arguments: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return take(self, *arguments)

    monkeypatch.setattr(FusedAdamW, "step", watch)
    run(CONFIG)
    assert rates == pytest.approx([0.1 * Trapezoid().at(k / 40) for k in range(40)])


def test_evaluations_take_a_twentieth_of_the_time() -> None:
    def slow(module: Point) -> float:
        time.sleep(0.03)
        return module.position

    in_time = replace(CONFIG, max_steps=None, max_seconds=0.6)
    history = run(in_time, slow)[1]
    assert len(history) <= 3  # at the first step, at the end, and at most one between them; of 20 otherwise
    assert len(run(replace(in_time, max_seconds=0.3), lambda module: module.position)[1]) > 5
    assert len(run(replace(CONFIG, max_seconds=60.0), slow)[1]) == 18  # 40 steps have as many as ever


def test_training_maximises_and_keeps_a_history() -> None:
    module, history, converged = run(replace(CONFIG, max_steps=200))
    assert module.position == pytest.approx(0.9, abs=0.05)  # dropout adds 0.1 on average
    assert not converged
    assert not module.training
    assert list(history) == ["step", "seconds", "log_prob", "validation", "objective", "floor_hits"]
    assert history["step"].iloc[-1] == 200
    assert 20 <= len(history) <= 22
    assert history["log_prob"].iloc[-1] > history["log_prob"].iloc[0]
    assert history["floor_hits"].sum() == 2 * 200  # every step's are counted
    assert history["validation"].isna().all()
    assert (np.diff(history["seconds"]) >= 0).all()


def test_log_prob_is_a_mean_over_units() -> None:
    _, history, _ = run(replace(CONFIG, max_steps=1))
    first = next(batches()(0))
    possible = [float(-0.5 * (first - 0.1 * dropped).square().sum() / 16) for dropped in (0.0, 2.0)]
    assert min(abs(history["log_prob"][0] - value) for value in possible) < 1e-6


def test_epochs_are_passes() -> None:
    asked: list[int] = []
    module = Point()
    data = batches()

    def epoch(number: int) -> Iterator[torch.Tensor]:
        asked.append(number)
        return data(number)

    config = replace(CONFIG, max_steps=None, max_epochs=3)
    history, _ = train(module, epoch, objective(module), None, config, steps_per_epoch=10)
    assert asked == [0, 1, 2]
    assert history["step"].iloc[-1] == 30
    both = replace(CONFIG, max_steps=12, max_epochs=3)
    assert run(both)[1]["step"].iloc[-1] == 12


def test_the_best_weights_are_kept() -> None:
    seen: list[tuple[float, float]] = []

    def near_half(module: Point) -> float:
        assert module.at.requires_grad
        seen.append((-abs(module.position - 0.5), module.position))
        return seen[-1][0]

    module, history, _ = run(replace(CONFIG, max_steps=200), near_half)
    best, at = max(seen)
    assert module.position == at
    assert at != seen[-1][1]  # training went on past the best
    assert history["validation"].max() == best


def test_patience_ends_training() -> None:
    figures = iter([1.0, 3.0, 2.0, 3.0, 2.5, 9.0])
    _, history, converged = run(replace(CONFIG, patience=3), lambda module: next(figures))
    assert converged
    assert history["validation"].tolist() == [1.0, 3.0, 2.0, 3.0, 2.5]
    assert history["step"].iloc[-1] < 40


def test_figures_that_are_not_numbers_are_never_best() -> None:
    figures = itertools.chain([1.0], itertools.repeat(math.nan))
    ats: list[float] = []

    def evaluate(module: Point) -> float:
        ats.append(module.position)
        return next(figures)

    module, _, converged = run(replace(CONFIG, patience=2), evaluate)
    assert converged
    assert module.position == ats[0]


def test_seconds_end_training_and_alone_set_the_schedule() -> None:
    began = time.perf_counter()
    _, history, _ = run(replace(CONFIG, max_steps=None, max_seconds=0.3))
    assert 0.3 <= time.perf_counter() - began < 3
    assert history["seconds"].iloc[-1] >= 0.3
    assert len(history) > 5  # spread over the time
    began = time.perf_counter()
    _, capped, _ = run(replace(CONFIG, max_steps=10**9, max_seconds=0.2))
    assert time.perf_counter() - began < 3
    assert capped["step"].iloc[-1] < 10**9


def test_equal_runs_repeat_exactly() -> None:
    first, history, _ = run(CONFIG)
    again, other, _ = run(CONFIG)
    assert first.position == again.position
    pd.testing.assert_frame_equal(history.drop(columns="seconds"), other.drop(columns="seconds"), rtol=1e-4, atol=1e-4)


def test_only_matrices_decay() -> None:
    module = nn.Linear(2, 2)
    with torch.no_grad():
        module.weight.fill_(1.0)
        module.bias.fill_(1.0)

    def still(batch: Any) -> BatchResult:
        total = 0.0 * (module.weight.sum() + module.bias.sum())
        return BatchResult(total, 1.0, total.detach(), 1.0, torch.tensor(0))

    train(module, lambda _: iter([0] * 10), still, None, replace(CONFIG, weight_decay=0.5), steps_per_epoch=10)
    assert (module.weight < 0.9).all()
    assert (module.bias == 1.0).all()


def test_a_gradient_that_is_not_finite_stops_training() -> None:
    module = Point()

    def broken(batch: Any) -> BatchResult:
        total = torch.log(module.at - module.at).sum()
        return BatchResult(total, 1.0, total.detach(), 1.0, torch.tensor(0))

    with pytest.raises(RuntimeError, match="non-finite"):
        train(module, batches(), broken, None, CONFIG, steps_per_epoch=10)


class Carrier:
    """An objective whose figures depend on what it handed from batch to batch."""

    def __init__(self, module: Point) -> None:
        self.module, self.carried_state = module, (torch.zeros(1), None, (torch.zeros(2),))

    def __call__(self, batch: torch.Tensor) -> BatchResult:
        self.carried_state = (0.5 * self.carried_state[0] + batch.mean(), None, (self.carried_state[2][0] + 1,))
        return objective(self.module)(batch + 0.1 * self.carried_state[0])


@pytest.mark.parametrize(
    "changes",
    [{}, {"averaging": 0.3}, {"accumulate": 2}, {"optimizer": Muon()}],
    ids=["plain", "averaging", "accumulate", "muon"],
)
@pytest.mark.parametrize("held_out", [False, True])
def test_training_goes_on_from_a_checkpoint(tmp_path: Path, changes: dict[str, Any], held_out: bool) -> None:
    config, path = replace(CONFIG, evaluations=7, **changes), tmp_path / "checkpoint"

    def go(config: TrainConfig, resume_from: Path | None = None) -> tuple[dict[str, torch.Tensor], Any]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = Point()
            module.inner = nn.Linear(3, 3)
            carrier = Carrier(module)
            evaluate = (lambda: -abs(module.position - 0.5)) if held_out else None
            kept = Checkpoints.from_arguments(path, 0.0, resume_from, {})
            history, _ = train(module, batches(), carrier, evaluate, config, 10, carrier=carrier, checkpoints=kept)
        return module.state_dict(), history

    class Interrupted(Exception):
        pass

    def interrupt(row: dict[str, float]) -> None:
        if row["step"] > 20:
            raise Interrupted  # before the checkpoint of this step: the run goes on from the one before

    straight, whole = go(config)
    with pytest.raises(Interrupted):
        go(replace(config, callbacks=[interrupt]))
    weights, history = go(config, path)
    torch.testing.assert_close(weights, straight, rtol=1e-4, atol=1e-4)
    pd.testing.assert_frame_equal(history.drop(columns="seconds"), whole.drop(columns="seconds"), rtol=1e-4, atol=1e-4)


def test_a_checkpoint_of_another_module_is_refused(tmp_path: Path) -> None:
    path, point = tmp_path / "checkpoint", Point()
    train(
        point,
        batches(),
        objective(point),
        None,
        CONFIG,
        10,
        checkpoints=Checkpoints.from_arguments(path, 0.0, None, {}),
    )
    other, kept = nn.Linear(2, 2), Checkpoints.from_arguments(None, 0.0, path, {})
    with pytest.raises(ValueError, match="other hyperparameters"):
        train(other, batches(), objective(Point()), None, CONFIG, 10, checkpoints=kept)


def test_accumulated_batches_are_one_step() -> None:
    taken = []

    class Counting(AdamW):
        def build(self, module: nn.Module, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
            (optimizer,) = super().build(module, lr, weight_decay)
            optimizer.register_step_post_hook(lambda *_: taken.append(module.at.item()))
            return [optimizer]

    _, history, _ = run(replace(CONFIG, max_steps=6, accumulate=3, optimizer=Counting()))
    assert len(taken) == 6
    assert history["step"].iloc[-1] == 6
    assert history["floor_hits"].sum() == 2 * 18


def test_the_mean_of_the_weights_is_what_is_kept() -> None:
    ats: list[float] = []
    seen: list[float] = []

    def evaluate(module: Point) -> float:
        seen.append(module.position)
        return len(seen)

    class Watching(AdamW):
        def build(self, module: nn.Module, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
            (optimizer,) = super().build(module, lr, weight_decay)
            optimizer.register_step_post_hook(lambda *_: ats.append(module.at.item()))
            return [optimizer]

    module, _, _ = run(replace(CONFIG, averaging=0.25, optimizer=Watching()), evaluate)
    mean = 0.0
    for t, at in enumerate(ats, start=1):
        mean += (at - mean) / max(1.0, 0.25 * t)
    assert module.position == pytest.approx(mean, rel=1e-5)
    assert module.position == seen[-1]
    assert module.position != pytest.approx(ats[-1], rel=1e-5)


def test_callbacks_are_called_with_every_row() -> None:
    heard: list[dict[str, float]] = []
    _, history, _ = run(replace(CONFIG, callbacks=[heard.append]))
    assert [row["step"] for row in heard] == history["step"].tolist()
