"""The gradient loop: steps, learning rates, validation and early stopping, with checkpoints it can go on from."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.common import distributed
from seqmodels.common.main_memory import keep_freed_memory
from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.training import checkpoint
from seqmodels.training.averaging import WeightAverage
from seqmodels.training.callbacks import Callback
from seqmodels.training.checkpoint import Checkpoints
from seqmodels.training.interruption import interruptible
from seqmodels.training.optimizers import AdamW, Optimizer, QueuedClip, clip
from seqmodels.training.parallel import OneProcess, Parallel, Processes, Replicas
from seqmodels.training.schedules import Schedule, Trapezoid

if TYPE_CHECKING:
    import pandas as pd

Value = TypeVar("Value")
KINDS = ("weights", "average", "best_weights", "optimizers")  # of tensors in a checkpoint
MAX_LAST_EVALUATION = 1.0  # seconds that one more evaluation may take after a signal to end training


@dataclass(frozen=True)
class TrainConfig:
    """The settings of the training loop.

    Args:
        max_steps, max_epochs, max_seconds: limits on steps, passes over the data and seconds, of which the first that
            is reached ends training; None: no limit. The schedule follows steps, or time if only ``max_seconds`` is
            given.
        lr: peak learning rate.
        weight_decay: decoupled decay of matrices.
        patience: number of evaluations without a better validation figure after which training stops.
        accumulate: number of batches whose gradients make one step.
        max_grad_norm: gradients longer than this are scaled down to it.
        evaluations: number of rows of the history, spread evenly over training.
        averaging: fraction of the steps taken over which the running mean of the weights reaches, which is then
            evaluated and kept; 0: the weights themselves are.
        callbacks: functions that are called with every row of the history.
    """

    max_steps: int | None
    max_epochs: int | None
    max_seconds: float | None
    lr: float
    weight_decay: float
    patience: int
    max_grad_norm: float = 1.0
    evaluations: int = 20
    progress: Verbose = False
    optimizer: Optimizer = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=Trapezoid)
    accumulate: int = 1
    averaging: float = 0.0
    callbacks: Sequence[Callback] = ()


class Objective(Protocol):
    """The function that training maximises. Only ``weighted_log_prob`` of its result is differentiated."""

    def __call__(self, batch: Any, /) -> BatchResult:
        """Return the weighted log-probability of one batch, with the figures for the history."""


class CarriesState(Protocol):
    """An objective that carries a state, nested tuples of tensors, from one batch to the next.

    The rows of a batch are the first axis of each tensor. Where several processes train, each carries the state of its
    own rows, as ``distributed.shard`` deals them out, and None if it has none.
    """

    carried_state: Any


@dataclass(frozen=True)
class BatchResult:
    """The result of an objective for one batch: what is maximised, and the figures for the history.

    Training maximises ``weighted_log_prob / weight``; the history records ``log_prob / n_units``.

    Attributes:
        weighted_log_prob: Σ weight · log p over the encoded steps, and the batch's share of the log prior if there is
            one; differentiable.
        weight: Σ weight over the same steps.
        log_prob: log-probability in nats in raw units, without a prior. Networks count each step once, and HMMs by its
            weight, as under EM.
        n_units: number of raw units of ``log_prob``, counted in the same way.
        floor_hits: number of densities that lie on a floor.
    """

    weighted_log_prob: Tensor
    weight: float
    log_prob: Tensor
    n_units: float
    floor_hits: Tensor


def train(
    module: nn.Module,
    epoch: Callable[[int], Iterable[Any]],
    objective: Objective,
    evaluate: Callable[[], float] | None,
    config: TrainConfig,
    steps_per_epoch: int,
    *,
    carrier: CarriesState | None = None,
    checkpoints: Checkpoints | None = None,
    generator: torch.Generator | None = None,
    parallel: Parallel | None = None,
    units: Sequence[nn.Module] = (),
) -> tuple[pd.DataFrame, bool]:
    """Maximise ``objective`` over the batches of ``epoch(0), epoch(1), ...``.

    Args:
        module: the module whose weights are trained, in place.
        epoch: function that returns the batches of an epoch by its number. They must be the same each time, so that
            training can go on from a checkpoint in the middle of an epoch.
        objective: function that returns the log-probability of a batch.
        evaluate: function that returns nats per unit on held-out data; the module ends with the weights that did best
            there. None: nothing is held out.
        config: how to train.
        steps_per_epoch: number of batches in an epoch.
        carrier: object that carries a state from batch to batch, to be kept in checkpoints; None: nothing does.
        checkpoints: where the run's state is written, and the state to go on from; None: neither.
        generator: generator that the objective draws from; None: torch's default one.
        parallel: how several processes share the work. The objective then takes a part of every batch in each, and a
            ``BatchResult`` has the ``weight`` of the whole batch; ``evaluate`` returns the same in all. None: this
            process trains alone. Under ``"shard"`` the module's parameters are ``DTensor`` afterwards.
        units: parts of the module that ``"shard"`` gathers one after the other.

    Returns:
        The history, and True if training stopped by itself, because validation figures no longer improved.

    A signal ends training after the step it is at (``seqmodels.training.interruption``), with a last row of history.

    Raises:
        RuntimeError: a gradient is not finite.
        ValueError: ``checkpoints`` go on from the state of another module.
    """
    keep_freed_memory(module)
    checkpoints = checkpoints or Checkpoints()
    processes = _processes(module, parallel if distributed.is_distributed() else None, units)
    loop = _Loop(module, objective, evaluate, config, steps_per_epoch, carrier, generator, processes, checkpoints)
    if checkpoints.state is not None:
        loop.restore(checkpoints.state)
    with interruptible() as interruption, closing(processes):
        stopped = False
        while not loop.ended:
            for batch in islice(epoch(loop.epoch), loop.in_epoch, None):
                loop.step(batch)
                interruption.hold()
                if interruption.requested and (loop.at_step_end or not loop.writes):
                    stopped = True
                    loop.interrupt()
                if loop.ended:
                    break
                if loop.at_step_end and (loop.checkpoint_due if processes.shares else checkpoints.due):
                    loop.write()
            else:
                loop.epoch, loop.in_epoch = loop.epoch + 1, 0
        if not stopped:
            loop.write()
        return loop.finish()


def _processes(module: nn.Module, parallel: Parallel | None, units: Sequence[nn.Module]) -> Processes:
    """Return the processes that train ``module``; ``parallel`` None means this process alone."""
    if parallel is None:
        return OneProcess()
    if parallel == "replicate":
        return Replicas(module)
    from seqmodels.training.shards import Shards  # torch takes seconds to import what it needs

    return Shards(module, units)


class _Loop:
    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        evaluate: Callable[[], float] | None,
        config: TrainConfig,
        steps_per_epoch: int,
        carrier: CarriesState | None,
        generator: torch.Generator | None,
        processes: Processes,
        checkpoints: Checkpoints,
    ) -> None:
        self.module = module
        self.objective = objective
        self.evaluate = evaluate
        self.config = config
        self.carrier = carrier
        self.generator = generator or torch.default_generator
        self.seed = None if generator is None else generator.initial_seed()
        self.processes = processes
        self.checkpoints = checkpoints
        self.leads = not processes.shares or distributed.is_rank_zero()
        # Whether there are checkpoints, and whether one is due: the first process knows, and all have to write it.
        self.writes = bool(self._of_first([float(checkpoints.path is not None)])[0])
        self.checkpoint_due = False
        epochs = None if config.max_epochs is None else config.max_epochs * steps_per_epoch
        limits = [None if config.max_steps is None else config.max_steps * config.accumulate, epochs]
        self.n_batches = min((limit for limit in limits if limit is not None), default=None)
        self.optimizers = config.optimizer.build(module, config.lr, config.weight_decay)
        self.queued_clip: QueuedClip | None = None
        if not processes.shares and QueuedClip.can_clip(self.optimizers):
            self.queued_clip = QueuedClip(self.optimizers, config.max_grad_norm)
        self.weights = list(module.parameters())
        self.average = WeightAverage(module, config.averaging)
        self.epoch = self.in_epoch = self.batches = 0  # in_epoch: batches of this epoch, batches: of all
        self.next_record = 0.0  # the progress at which it is due
        self.ended = self.converged = False
        self.best = -math.inf  # validation figure
        self.stale = 0  # evaluations since
        self.best_weights: dict[str, Any] | None = None
        self.rows: list[dict[str, float]] = []
        self.sums = {"log_prob": 0.0, "n_units": 0.0, "floor_hits": 0.0}  # since the last row
        self.uncounted = dict(self.sums)  # of this process, since figures of all were last added up
        self.on_device: dict[str, Tensor] = {}  # those of ``sums`` that a GPU has added up since they were last read
        self.began = time.perf_counter()
        self.seconds_at_sum = 0.0  # of the first process, when it last told the others
        self.evaluation_seconds = 0.0  # that the last one took
        self.bar = ProgressBar(100, config.progress if self.leads else False, "training")
        module.train()

    @property
    def n_steps(self) -> int:
        """Number of optimiser steps so far."""
        return self.batches // self.config.accumulate

    @property
    def at_step_end(self) -> bool:
        """True if no gradients are accumulated for a step that is still to be taken."""
        return self.batches % self.config.accumulate == 0

    def progress(self) -> float:
        """Return the progress of training from 0 to 1, by steps if their number is limited, and otherwise by time."""
        if self.n_batches is not None:
            return self.batches / self.n_batches
        assert self.config.max_seconds is not None
        return self.seconds() / self.config.max_seconds

    def seconds(self) -> float:
        """Return the seconds since training began, by the clock of the first process, with which all stop."""
        return self.seconds_at_sum if self.processes.shares else time.perf_counter() - self.began

    def step(self, batch: Any) -> None:
        """Add the gradients of one batch, and take the optimiser's step if it is the last batch of one."""
        ends_step = (self.batches + 1) % self.config.accumulate == 0
        if self.processes.shares:
            self._seed_draws()
        log_prob, result = self.processes.call(lambda: self._maximised(batch))
        if self.processes.shares:
            self._count(result)
            if ends_step:
                self._sum_figures()
        loss = -log_prob / max(result.weight, 1e-30)
        self.processes.backward(loss, ends_step=ends_step)
        if not self.processes.shares:
            self._count(result)
        self.batches, self.in_epoch = self.batches + 1, self.in_epoch + 1
        if ends_step:
            self._optimizer_step()
        limit = self.config.max_seconds
        out_of_time = limit is not None and self.seconds() >= limit
        done = self.progress() >= 1 or out_of_time
        self.ended = done
        if done and not ends_step and self.processes.shares:
            self._sum_figures()
        if done or (ends_step and self.progress() >= self.next_record):
            self.record()

    def _maximised(self, batch: Any) -> tuple[Tensor, BatchResult]:
        """Return the tensor to differentiate apart, because what wraps the call does not know ``BatchResult``."""
        result = self.objective(batch)
        return result.weighted_log_prob, replace(result, weighted_log_prob=result.weighted_log_prob.detach())

    def _seed_draws(self) -> None:
        """Seed the draws of this process for this step.

        They depend on the seed, the step and the process alone, so that processes draw apart, and a run that goes on
        from a checkpoint draws as one that did not stop.
        """
        if self.seed is not None:
            words = np.random.SeedSequence([self.seed, self.batches, distributed.rank()]).generate_state(1, np.uint64)
            self.generator.manual_seed(int(words[0] >> np.uint64(1)))

    def _count(self, result: BatchResult) -> None:
        figures = self.uncounted if self.processes.shares else self.sums
        figures["n_units"] += result.n_units
        for name, figure in (("log_prob", result.log_prob), ("floor_hits", result.floor_hits)):
            if self.processes.shares or figure.device.type == "cpu":
                figures[name] += float(figure)
            else:  # to read the figures of a GPU is to wait for it
                total = self.on_device.get(name)
                self.on_device[name] = figure.double() if total is None else total + figure

    def _read_figures(self) -> None:
        """Wait for the figures that the device has added up, and for the norm of the last gradient."""
        for name, total in self.on_device.items():
            self.sums[name] += float(total)
        self.on_device.clear()
        if self.queued_clip is not None:
            self.queued_clip.check()

    def _sum_figures(self) -> None:
        """Add up the figures of all processes; time and due checkpoints are those of the first process."""
        device = next(self.module.parameters()).device
        figures = torch.tensor(list(self.uncounted.values()), dtype=torch.float64, device=device)
        seconds = time.perf_counter() - self.began
        numbers = [seconds, self.evaluation_seconds, float(self.checkpoints.due)]
        (total,), (self.seconds_at_sum, self.evaluation_seconds, due) = distributed.all_reduce_sum([figures], numbers)
        self.checkpoint_due = bool(due)
        for name, value in zip(self.uncounted, total.tolist(), strict=True):
            self.sums[name] += value
            self.uncounted[name] = 0.0

    def _of_first(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the numbers that the first process has."""
        return distributed.all_reduce_sum([], numbers)[1] if self.processes.shares else numbers

    def _optimizer_step(self) -> None:
        n = self.config.accumulate
        rate = self.config.lr * self.config.schedule.at(self._progress_at_start(n))
        gradients = [p.grad for p in self.weights if p.grad is not None]
        if n > 1:
            torch._foreach_div_(gradients, n)
        if self.queued_clip is not None:
            self.queued_clip(gradients)
        else:
            clip(gradients, self.config.max_grad_norm, self.processes.norm)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.average.update(self.n_steps)

    def _progress_at_start(self, n: int) -> float:
        return self.progress() if self.n_batches is None else (self.batches - n) / self.n_batches

    def interrupt(self) -> None:
        """End training here, with a last row of history if there is anything to record, which no checkpoint has."""
        if self.at_step_end:
            self.write()
        self.ended = True
        if self.sums["n_units"]:
            self.record(evaluates=self.evaluation_seconds <= MAX_LAST_EVALUATION)

    def record(self, *, evaluates: bool = True) -> None:
        """Add a row of history: means over the steps since the last row, and the validation figure if ``evaluates``."""
        self._read_figures()
        log_prob = self.sums["log_prob"] / max(self.sums["n_units"], 1)
        validation = math.nan
        if self.evaluate is not None and evaluates:
            began = time.perf_counter()
            with self.average.applied():
                validation = self.processes.call(self.evaluate)
                self._keep_best(validation)
            self.module.train()
            self.evaluation_seconds = time.perf_counter() - began
        row = {
            "step": self.n_steps,
            "seconds": time.perf_counter() - self.began,
            "log_prob": log_prob,
            "validation": validation,
            "objective": log_prob,
            "floor_hits": self.sums["floor_hits"],
        }
        self.rows.append(row)
        self.sums = dict.fromkeys(self.sums, 0.0)
        self.next_record = self.progress() + 1 / self.config.evaluations
        said = f"{validation if self.evaluate else log_prob:.3f} nats per unit"
        self.bar.move(round(100 * self.progress()), said)
        for callback in self.config.callbacks if self.leads else ():
            callback(row)

    def _keep_best(self, validation: float) -> None:
        if validation > self.best:
            self.best, self.stale = validation, 0
            self.best_weights = copy.deepcopy(self.module.state_dict())
            return
        self.stale += 1
        if self.stale >= self.config.patience:
            self.ended = self.converged = True

    def finish(self) -> tuple[pd.DataFrame, bool]:
        """Give the module its mean or best weights. Return the history, and True if training stopped by itself."""
        import pandas as pd

        self.bar.close()
        self.average.swap()
        if self.best_weights is not None:
            self.module.load_state_dict(self.best_weights)
        self.module.eval()
        return pd.DataFrame(self.rows), self.converged

    # -- checkpoints ---------------------------------------------------------------------------------------

    _COUNTS = ("epoch", "in_epoch", "batches", "next_record", "best", "stale", "converged")

    def write(self) -> None:
        """Write a checkpoint if a file is asked for: all processes give what they hold, and the first writes."""
        self._read_figures()
        if self.writes:
            tensors = self._tensors()
            shards = {name: t for name, t in tensors.items() if self.processes.is_sharded(t)}
            self.checkpoints.write(self.state(), shards)
            self.checkpoint_due = False

    def state(self) -> dict[str, Any]:
        """Return everything that the next step depends on, but for sharded tensors, as arrays and JSON values."""
        structure: Any = None
        carried: dict[str, Tensor] = {}
        if self.carrier is not None:
            structure, carried = checkpoint.flatten_state(self.carrier.carried_state)
            if self.processes.shares:
                structure, carried = checkpoint.join_rows(structure, carried)
        return {
            "counts": {name: getattr(self, name) for name in self._COUNTS},
            "seconds": time.perf_counter() - self.began,
            "sums": dict(self.sums),
            "rows": self.rows,
            **{kind: checkpoint.to_arrays(whole) for kind, whole in self._whole_tensors().items()},
            "random": checkpoint.random_state(self.generator),
            "memory": {"shape": structure, "tensors": checkpoint.to_arrays(carried)},
        }

    def _tensors(self) -> dict[str, Tensor]:
        """Return weights, their mean, the best weights and the optimisers' state as tensors by ``kind/name``."""
        kinds = {
            "weights": self.module.state_dict(),
            "average": self.average.weights,
            "best_weights": self.best_weights or {},
            "optimizers": checkpoint.optimizer_state(self.optimizers),
        }
        return {f"{kind}/{name}": tensor for kind, tensors in kinds.items() for name, tensor in tensors.items()}

    def _whole_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return the tensors that are not sharded by kind and name."""
        return _by_kind({name: t for name, t in self._tensors().items() if not self.processes.is_sharded(t)})

    def _stored_tensors(self, state: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of a written state by kind and name, held as this process holds them.

        Any number of processes may have written them.
        """
        stored = {
            f"{kind}/{name}": tensor for kind in KINDS for name, tensor in checkpoint.to_tensors(state[kind]).items()
        }
        shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
        folder = state.get("shards")
        if folder is not None:
            from seqmodels.training.shards import names_and_shapes, read_shards

            in_shards = names_and_shapes(folder)
            shapes |= in_shards
        checkpoint.check_weights(self.module, _by_kind(shapes)["weights"])
        weights: dict[str, Tensor] = dict(self.module.state_dict())

        def like(name: str) -> Tensor:
            kind, rest = name.split("/", 1)
            if kind == "optimizers":
                return checkpoint.weight_of_state(self.optimizers, rest).detach()
            return weights[rest].detach()

        for name, tensor in stored.items():
            if tensor.shape == like(name).shape:
                stored[name] = self.processes.placed(tensor, like(name))
        if folder is not None:
            stored |= read_shards(folder, {name: like(name) for name in in_shards})
        return _by_kind(stored)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Give the run back a state that ``state`` returned, and the sharded tensors that it names."""
        tensors = self._stored_tensors(state)
        self.module.load_state_dict(tensors["weights"])
        checkpoint.restore_optimizers(self.optimizers, tensors["optimizers"])
        checkpoint.restore_random_state(self.generator, state["random"])
        for name in self._COUNTS:
            setattr(self, name, state["counts"][name])
        self.sums = dict(state["sums"])
        self.rows, self.began = list(state["rows"]), time.perf_counter() - state["seconds"]
        self.seconds_at_sum = state["seconds"]
        device = next(self.module.parameters()).device
        self.best_weights = tensors["best_weights"] or None
        self.average.restore(tensors["average"])
        if self.carrier is not None:
            carried = {n: t.to(device) for n, t in checkpoint.to_tensors(state["memory"]["tensors"]).items()}
            structure = state["memory"]["shape"]
            if self.processes.shares:
                structure, carried = checkpoint.rows_of_process(structure, carried)
            self.carrier.carried_state = checkpoint.unflatten_state(structure, carried)
        self.ended = self.converged or self.progress() >= 1


def _by_kind(named: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """Return values that are named ``kind/name`` in a dictionary for each kind."""
    kinds: dict[str, dict[str, Value]] = {kind: {} for kind in KINDS}
    for name, value in named.items():
        kind, rest = name.split("/", 1)
        kinds[kind][rest] = value
    return kinds
