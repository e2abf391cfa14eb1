"""The gradient loop: steps, learning rates, validation, early stopping and checkpoints."""

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
KINDS = ("weights", "average", "best_weights", "optimizers")  # the groups of tensors in a checkpoint
MAX_LAST_EVALUATION = 1.0  # most seconds for one more evaluation after a signal to end training
SHARE_OF_EVALUATIONS = 0.05  # of max_seconds, where nothing else limits training: what is evaluated does not learn


@dataclass(frozen=True)
class TrainConfig:
    """The settings of the training loop by gradient: its limits, learning rate, optimiser and evaluations.

    Training ends at the first of ``max_steps``, ``max_epochs`` and ``max_seconds`` that is reached; None is no limit.

    Args:
        max_steps: most steps of the optimiser.
        max_epochs: most passes over the data.
        max_seconds: most seconds. If it is the only limit, the learning-rate schedule follows time, otherwise steps.
        lr: peak learning rate.
        weight_decay: decoupled weight decay of matrices.
        patience: number of evaluations without improvement on held-out data after which training stops.
        max_grad_norm: gradients with a larger norm, all weights together, are scaled down to it.
        evaluations: number of rows of the history, spread evenly over training; fewer where time is the only limit and
            evaluations would take more than a twentieth of it.
        progress: True to show a progress bar, False for none, and ``"auto"`` if there is a terminal and training is
            long.
        optimizer: the rule by which gradients change the weights.
        schedule: how the learning rate changes over training.
        accumulate: number of batches whose gradients are averaged for one step.
        averaging: fraction of the steps so far over which a running mean of the weights is taken; evaluation and the
            result use the mean. 0 uses the weights themselves.
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
    """The function that training maximises, called with one batch at a time."""

    def __call__(self, batch: Any, /) -> BatchResult:
        """Return the weighted log-probability of one batch of the training loop, with its weights and counts."""


class CarriesState(Protocol):
    """An objective that carries a state, nested tuples of tensors, from one batch to the next.

    With several processes each carries the state of its rows of the batch (the first axis of each tensor), as
    ``distributed.shard`` distributes them; None if it has no rows.

    Attributes:
        carried_state: the state after the last batch.
    """

    carried_state: Any


@dataclass(frozen=True)
class BatchResult:
    """The result of an objective on one batch: its log-probability, with weights and counts.

    Training maximises ``weighted_log_prob / weight``; the history shows ``log_prob / n_units``.

    Attributes:
        weighted_log_prob: Σ weight · log p of the steps as the model reads them, in nats, plus the batch's share of the
            log-prior if there is one; differentiable.
        weight: Σ weight of these steps.
        log_prob: log-probability of the data before encoding, in nats, without a prior. Networks count each step once,
            HMMs by its weight, as EM does.
        n_units: number of units (frames, bytes or symbols of the data) of ``log_prob``, counted in the same way.
        floor_hits: number of densities whose variance is at its lower bound.
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
    """Maximize ``objective`` over the batches of ``epoch(0), epoch(1), ...``, and return the history.

    Ctrl-C or SIGTERM ends training after the current step, with a last row of history.

    Args:
        module: the module whose weights are trained, in place.
        epoch: returns the batches of an epoch with a given number. They must be the same each time, so that training
            can resume from a checkpoint in the middle of an epoch.
        objective: the log-probability of a batch.
        evaluate: returns nats per unit on held-out data; the module ends with the weights that did best there. None
            keeps the last weights.
        config: the settings of the loop.
        steps_per_epoch: number of batches in an epoch.
        carrier: the object that carries a state from batch to batch, to be kept in checkpoints; None if there is none.
        checkpoints: where the state of the run is written, and the state to resume from; None writes none.
        generator: the generator from which the objective draws; None is torch's default one.
        parallel: how several processes share the work. The objective then takes a part of every batch in each, and a
            ``BatchResult`` has the ``weight`` of the whole batch; ``evaluate`` returns the same in all. None means that
            this process trains alone. Under ``"shard"`` the module's parameters are ``DTensor`` afterwards.
        units: parts of the module that ``"shard"`` gathers one after the other.

    Returns:
        The history, one row for each evaluation (step, seconds, log_prob, validation, objective, floor_hits; nats per
        unit), and True if training stopped by itself because validation figures no longer improved.

    Raises:
        RuntimeError: a gradient is not finite.
        ValueError: ``checkpoints`` resume from the state of another module.
    """
    keep_freed_memory(module)
    checkpoints = checkpoints or Checkpoints()
    processes = _processes(module, parallel if distributed.is_distributed() else None, units)
    loop = _Loop(module, objective, evaluate, config, steps_per_epoch, carrier, generator, processes, checkpoints)
    with interruptible() as interruption, closing(processes), loop.bar:  # a bar left open would hide later ones
        if checkpoints.state is not None:
            loop.restore(checkpoints.state)
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
    """Return the processes that train ``module`` together.

    Args:
        module: the module.
        parallel: ``"replicate"``: each process holds all weights; ``"shard"``: each holds a part; None: this process
            alone.
        units: parts of the module that ``"shard"`` gathers one after the other.
    """
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
        # Process 0 knows if there are checkpoints and if one is due, and all processes take part in writing it.
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
        self.epoch = self.in_epoch = self.batches = 0  # in_epoch counts batches of this epoch, batches all of them
        self.next_record = 0.0  # the progress at which the next row of history is due
        self.ended = self.converged = False
        self.best = -math.inf  # the best validation figure
        self.stale = 0  # evaluations since the best one
        self.best_weights: dict[str, Any] | None = None
        self.rows: list[dict[str, float]] = []
        self.sums = {"log_prob": 0.0, "n_units": 0.0, "floor_hits": 0.0}  # figures summed since the last row
        self.uncounted = dict(self.sums)  # figures of this process since the last sum over processes
        self.on_device: dict[str, Tensor] = {}  # figures that a GPU has summed and that are not yet in ``sums``
        self.began = time.perf_counter()
        self.seconds_at_sum = 0.0  # seconds of process 0 at the last sum over processes
        self.evaluation_seconds = 0.0  # seconds that the last evaluation took
        self.bar = ProgressBar(100, config.progress if self.leads else False, "training")
        module.train()

    @property
    def n_steps(self) -> int:
        return self.batches // self.config.accumulate

    @property
    def at_step_end(self) -> bool:
        """True if the last batch completed a step, so that no accumulated gradients wait for one."""
        return self.batches % self.config.accumulate == 0

    def progress(self) -> float:
        """Return the progress of training from 0 to 1, by steps if their number is limited, otherwise by time."""
        if self.n_batches is not None:
            return self.batches / self.n_batches
        assert self.config.max_seconds is not None
        return self.seconds() / self.config.max_seconds

    def seconds(self) -> float:
        """Return the seconds since training began, by the clock of process 0, so that all processes stop together."""
        return self.seconds_at_sum if self.processes.shares else time.perf_counter() - self.began

    def step(self, batch: Any) -> None:
        """Process one batch: add its gradients and, if it is the last of ``accumulate`` batches, update the weights."""
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
        """Return the weighted log-probability of a batch to differentiate, and the ``BatchResult`` with it detached.

        They are separate so that a wrapper around the call, such as that of sharded weights (FSDP), need not know
        ``BatchResult``.
        """
        result = self.objective(batch)
        return result.weighted_log_prob, replace(result, weighted_log_prob=result.weighted_log_prob.detach())

    def _seed_draws(self) -> None:
        """Seed the random generator from the run's seed, the number of batches so far and the rank of the process.

        So every process draws its own numbers, and a resumed run draws the same ones as a run without a break.
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
            else:  # summed on the GPU, because reading a figure waits for it
                total = self.on_device.get(name)
                self.on_device[name] = figure.double() if total is None else total + figure

    def _read_figures(self) -> None:
        """Add the log-probability and floor hits that the GPU has summed to ``sums``; check the last gradient's norm.

        Floor hits are variances at their lower bound. This waits for the GPU.
        """
        for name, total in self.on_device.items():
            self.sums[name] += float(total)
        self.on_device.clear()
        if self.queued_clip is not None:
            self.queued_clip.check()

    def _sum_figures(self) -> None:
        """Sum log-probability, units and floor hits since the last call over all processes, and add them to ``sums``.

        Floor hits are variances at their lower bound. The time, and whether a checkpoint is due, are taken from process
        0.
        """
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
        """End training after Ctrl-C or SIGTERM, with a last row of history if any batch was read since the row before.

        The checkpoint is written before that row, so that a resumed run does not have it.
        """
        if self.at_step_end:
            self.write()
        self.ended = True
        if self.sums["n_units"]:
            self.record(evaluates=self.evaluation_seconds <= MAX_LAST_EVALUATION)

    def record(self, *, evaluates: bool = True) -> None:
        """Add a row to the history: mean log-probability per unit since the last row, and that of held-out data.

        Held-out data are scored under averaged weights, and the best weights so far are kept. Callbacks get the row.

        Args:
            evaluates: False leaves held-out data out; their figure is then NaN.
        """
        self._read_figures()
        log_prob = self.sums["log_prob"] / max(self.sums["n_units"], 1)
        validation = math.nan
        if self.evaluate is not None and evaluates:
            began = time.perf_counter()
            with self.average.applied():
                validation = self.processes.call(self.evaluate)
                self._keep_best(validation)
            self.module.train()
            (self.evaluation_seconds,) = self._of_first([time.perf_counter() - began])
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
        self.next_record = self.progress() + self._until_next_record()
        said = f"{validation if self.evaluate else log_prob:.3f} nats per unit"
        self.bar.move(round(100 * self.progress()), said)
        for callback in self.config.callbacks if self.leads else ():
            callback(row)

    def _until_next_record(self) -> float:
        """Return the progress from this row of the history to the next one.

        It is one of ``evaluations`` equal parts of training. Where time is the only limit, it is longer if evaluations
        would otherwise take more than a twentieth of that time.
        """
        equal = 1 / self.config.evaluations
        if self.n_batches is not None or self.config.max_seconds is None:
            return equal
        return max(equal, self.evaluation_seconds / (SHARE_OF_EVALUATIONS * self.config.max_seconds))

    def _keep_best(self, validation: float) -> None:
        if validation > self.best:
            self.best, self.stale = validation, 0
            self.best_weights = copy.deepcopy(self.module.state_dict())
            return
        self.stale += 1
        if self.stale >= self.config.patience:
            self.ended = self.converged = True

    def finish(self) -> tuple[pd.DataFrame, bool]:
        """Load the averaged or best weights into the module, and return the history and True if training converged."""
        import pandas as pd

        self.average.swap()
        if self.best_weights is not None:
            self.module.load_state_dict(self.best_weights)
        self.module.eval()
        return pd.DataFrame(self.rows), self.converged

    # -- checkpoints ---------------------------------------------------------------------------------------

    _COUNTS = ("epoch", "in_epoch", "batches", "next_record", "best", "stale", "converged")

    def write(self) -> None:
        """Write a checkpoint if the run has a file for it; all processes contribute, and process 0 writes."""
        self._read_figures()
        if self.writes:
            tensors = self._tensors()
            shards = {name: t for name, t in tensors.items() if self.processes.is_sharded(t)}
            self.checkpoints.write(self.state(), shards)
            self.checkpoint_due = False

    def state(self) -> dict[str, Any]:
        """Return all that the next step depends on, except sharded tensors, as arrays and JSON values by name."""
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
        """Return weights, their mean, the best weights and the optimisers' tensors, by ``"kind/name"``.

        The kinds are ``weights``, ``average``, ``best_weights`` and ``optimizers``.
        """
        kinds = {
            "weights": self.module.state_dict(),
            "average": self.average.weights,
            "best_weights": self.best_weights or {},
            "optimizers": checkpoint.optimizer_state(self.optimizers),
        }
        return {f"{kind}/{name}": tensor for kind, tensors in kinds.items() for name, tensor in tensors.items()}

    def _whole_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return the tensors that this process holds whole, by kind (such as ``weights``) and then by name."""
        return _by_kind({name: t for name, t in self._tensors().items() if not self.processes.is_sharded(t)})

    def _stored_tensors(self, state: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of a checkpoint by kind and then by name, placed and sharded as this process needs them.

        The kinds are ``weights``, ``average``, ``best_weights`` and ``optimizers``. Any number of processes may have
        written the checkpoint.

        Args:
            state: content of the checkpoint, which also names the folder of sharded tensors, if there is one.

        Raises:
            ValueError: the weights do not fit the module.
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
        """Load the state of a checkpoint, as the method ``state`` returned it, and its folder of sharded tensors."""
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
    """Return values whose names are ``"kind/name"`` as nested dictionaries, by kind and then by name."""
    kinds: dict[str, dict[str, Value]] = {kind: {} for kind in KINDS}
    for name, value in named.items():
        kind, rest = name.split("/", 1)
        kinds[kind][rest] = value
    return kinds
