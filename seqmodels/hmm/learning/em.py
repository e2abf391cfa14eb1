"""Baum-Welch: EM for hidden Markov models (Baum et al. 1970; Rabiner 1989, section III.C).

The E-step sums, over all sequences, the expected counts of initial states, transitions and ends and the sufficient
statistics of the emissions; the M-step divides. What is maximised is ``log p(x) + log prior`` (``MAPObjective``); a
``StopRule`` says when to end, a ``History`` keeps the figures of each step. Several starts run side by side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.distributed import all_reduce_sum, is_distributed
from seqmodels.hmm.corpus import PackedBatch, refuse
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.learning.constraints import Constraints, Tying
from seqmodels.hmm.learning.first_state import Start, log_stationary, stationary_initial, stationary_rows
from seqmodels.hmm.learning.given_inputs import (
    InputOptions,
    InputStatistics,
    maximised_emissions,
    maximised_initial,
    maximised_transitions,
)
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.learning.stationary_given_inputs import maximised_stationary_transitions
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.threads import in_threads
from seqmodels.training import Checkpoints, Interruption, interruptible

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, float]
Callback = Callable[[Row], None]  # called with each row of a history

# -- what is maximised, and when to stop ---------------------------------------------------------------------


@dataclass(frozen=True)
class MAPObjective:
    """``log p(x) + log prior``, and the raw units that its figures are reported in.

    Attributes:
        emission: the EM side of the observation.
        pseudocount: Dirichlet priors of the chain; the emission has its own.
        constraints: what the M-step must leave as it is.
        n_units: raw units of the data, by weight.
        log_det: nats, by weight, that the encoding adds to ``log p`` of encoded data.
        start: what the distribution of the first state is.
        inputs: what is regressed on inputs.
    """

    emission: Emission
    pseudocount: Pseudocounts
    constraints: Constraints
    n_units: float
    log_det: float
    start: Start = "free"
    inputs: InputOptions = field(default_factory=InputOptions)

    def log_prior(self, parameters: Parameters) -> float:
        """Nats, up to a constant; an emission that states share counts once."""
        tying = self.constraints.tying
        table = parameters.table if tying.is_free else tying.one_each(parameters.table)
        of_tables = float(self.emission.log_prior(table) + self.pseudocount.log_prior(parameters))
        return of_tables + float(self.inputs.log_prior(parameters))

    def row(self, step: float, seconds: float, log_prob: float, log_prior: float, table: Tensor) -> Row:
        """A row of the history, in nats per raw unit, from ``log_prob`` in nats of encoded data and the ``table``."""
        return self.figures(step, seconds, log_prob, log_prior, int(self.emission.floor_hits(table).sum()))

    def figures(self, step: float, seconds: float, log_prob: float, log_prior: float, floor_hits: int) -> Row:
        """A row of the history, given the number of states that a floor bounds."""
        per_unit = (log_prob + self.log_det) / self.n_units
        return {
            "step": step,
            "seconds": seconds,
            "log_prob": per_unit,
            "objective": per_unit + log_prior / self.n_units,
            "floor_hits": floor_hits,
        }

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """The parameters that maximise the expected log-probability and the prior."""
        return m_step(parameters, expectations, self)


class EMObjective(Protocol):
    """What the M-steps of a run raise; figures of ``log_prob`` and ``log_prior`` are nats of encoded data."""

    def log_prior(self, parameters: Parameters) -> float:
        """What is added to the log-probability."""

    def row(self, step: float, seconds: float, log_prob: float, log_prior: float, table: Tensor) -> Row:
        """A row of the history."""

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """The parameters that raise the objective most, given expected counts."""


@dataclass
class History:
    """A row a step: ``step``, ``seconds``, ``log_prob``, ``objective`` (both nats per raw unit), ``floor_hits``."""

    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Append one row to the history."""
        self.rows.append(row)

    @property
    def improvement(self) -> float:
        """By how much the last row's objective is above that of the row before; infinite for the first row."""
        previous = self.rows[-2]["objective"] if len(self.rows) > 1 else -math.inf
        return self.rows[-1]["objective"] - previous

    def frame(self) -> pd.DataFrame:
        """As ``history_`` of a model has it."""
        import pandas as pd

        return pd.DataFrame(self.rows)


@dataclass(frozen=True)
class StopRule:
    """When to stop: after ``max_iter`` steps, ``max_seconds``, or an improvement below ``tol`` nats per unit (0:
    never).
    """

    max_iter: int
    tol: float
    max_seconds: float | None = None

    def converged(self, history: History) -> bool:
        """Whether the last step improved the objective too little."""
        return self.tol > 0 and history.improvement < self.tol

    def out_of_time(self, seconds: float) -> bool:
        """Whether so many seconds are more than there are."""
        return self.max_seconds is not None and seconds > self.max_seconds


# -- the E-step ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expectations:
    """One E-step: log p(x), and the expected counts. Those of two batches of sequences add.

    ``given_inputs``: where transitions are regressed on inputs, those of each step, of this process.
    """

    log_prob: float
    initial: Tensor
    xi: Tensor
    final: Tensor
    emission: Statistics
    given_inputs: InputStatistics | None = None

    def __add__(self, other: Expectations) -> Expectations:
        both = (self.given_inputs, other.given_inputs)
        return Expectations(
            self.log_prob + other.log_prob,
            self.initial + other.initial,
            self.xi + other.xi,
            self.final + other.final,
            tuple(a + b for a, b in zip(self.emission, other.emission, strict=True)),
            None if both[0] is None or both[1] is None else both[0] + both[1],
        )

    def scaled(self, factor: float) -> Expectations:
        """Those of ``factor`` times the data."""
        return Expectations(
            factor * self.log_prob,
            factor * self.initial,
            factor * self.xi,
            factor * self.final,
            tuple(factor * s for s in self.emission),
            None if self.given_inputs is None else self.given_inputs.scaled(factor),
        )

    def arrays(self) -> dict[str, Any]:
        """By name, to be stored."""
        tensors = {"initial": self.initial, "xi": self.xi, "final": self.final}
        return {
            "log_prob": self.log_prob,
            **{name: tensor.cpu().numpy() for name, tensor in tensors.items()},
            "emission": {str(i): s.cpu().numpy() for i, s in enumerate(self.emission)},
            **({} if self.given_inputs is None else {"given_inputs": self.given_inputs.arrays()}),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], device: torch.device) -> Expectations:
        """The inverse of ``arrays``."""
        initial, xi, final = (torch.tensor(arrays[name], device=device) for name in ("initial", "xi", "final"))
        emission = arrays["emission"]
        statistics = tuple(torch.tensor(emission[str(i)], device=device) for i in range(len(emission)))
        of_inputs = arrays.get("given_inputs")
        given_inputs = None if of_inputs is None else InputStatistics.from_arrays(of_inputs, device)
        return cls(arrays["log_prob"], initial, xi, final, statistics, given_inputs)


@torch.no_grad()
def e_step(
    chains: Sequence[Parameters],
    emission: Emission,
    batches: Sequence[PackedBatch],
    dtype: torch.dtype,
    interruption: Interruption | None = None,
) -> list[Expectations] | None:
    """The expectations of several chains, side by side: the densities of all their states are one table.

    Returns:
        The sum over all batches, for each chain; None if a signal came between two batches.

    Raises:
        ValueError: a sequence of probability zero, named by its place among all of them.
    """
    stacked = chains[0] if len(chains) == 1 else Parameters.stack(chains)
    table = torch.cat([parameters.table for parameters in chains])  # (R·K, P)

    def expectations(batch: PackedBatch) -> tuple[list[Expectations], list[int]]:
        return _expectations(stacked, table, len(chains), emission, batch, dtype)

    sums: list[Expectations] = []
    for batch in batches:
        if sums and interruption is not None and interruption.requested:
            return None
        dealt = batch.dealt(len(chains), stacked.transition.shape[-1], dtype)
        results = [expectations(batch)] if len(dealt) == 1 else in_threads(dealt, expectations)
        refuse([i for _, impossible in results for i in impossible])
        for of_chains, _ in results:
            sums = [a + b for a, b in zip(sums, of_chains, strict=True)] if sums else of_chains
    return sums


def _expectations(
    stacked: Parameters, table: Tensor, n_chains: int, emission: Emission, batch: PackedBatch, dtype: torch.dtype
) -> tuple[list[Expectations], list[int]]:
    """Those of one batch, for each chain; and the sequences of probability zero: where there are any, nothing else."""
    if stacked.table_slopes is None:
        densities, memo = emission.evaluate(table, batch.x, batch.past, dtype, batch.scratch)
    else:  # of one chain
        densities, memo = batch.densities(emission, stacked, dtype), None
    of_each = densities if n_chains == 1 else densities.chains(n_chains)
    posterior = forward_backward_pass(batch.trellis(stacked, of_each))
    if impossible := batch.impossible(posterior.log_prob):
        return [], impossible
    gamma = posterior.gamma.mT.flatten(0, -2).T  # (N, R·K)
    of_inputs, statistics = None, tuple[Tensor, ...]()
    if batch.inputs is not None:  # of one chain
        of_inputs = InputStatistics(batch.inputs, posterior.transitions)
    if of_inputs is not None and stacked.initial_slopes is not None:
        first = posterior.gamma[batch.segments.first].double()
        of_inputs = replace(of_inputs, first_inputs=batch.first_inputs, first=first)
    if of_inputs is not None and stacked.table_slopes is not None:
        of_inputs = replace(of_inputs, x=batch.x, past=batch.past, gamma=gamma.double())
    else:
        statistics = emission.statistics(table, batch.x, batch.past, gamma, memo)
    of_chains = [
        Expectations(float(p.log_prob.sum()), p.initial, p.xi, p.final, tuple(s), of_inputs).scaled(batch.weight)
        for p, *s in zip(posterior.chains, *(s.chunk(n_chains) for s in statistics), strict=True)
    ]
    return of_chains, []


def sum_over_processes(
    expectations: Sequence[Expectations], numbers: Sequence[float]
) -> tuple[list[Expectations], list[float]]:
    """The sums of all processes' expectations, each of its share of the sequences; and the ``numbers`` of process 0."""
    if not is_distributed():
        return list(expectations), list(numbers)
    tensors = [[e.initial.new_tensor([e.log_prob]), e.initial, e.xi, e.final, *e.emission] for e in expectations]
    sums, numbers = all_reduce_sum([tensor for of_chain in tensors for tensor in of_chain], numbers)
    size = len(tensors[0])
    summed = []
    for i in range(0, len(sums), size):
        log_prob, initial, xi, final, *emission = sums[i : i + size]
        of_inputs = expectations[i // size].given_inputs
        summed.append(Expectations(float(log_prob), initial, xi, final, tuple(emission), of_inputs))
    return summed, numbers


@dataclass(frozen=True)
class RunningStatistics:
    """A weighted mean, a frame, of the expectations of ``n_batches`` batches of ``n_frames`` in all, by weight."""

    mean: Expectations
    n_batches: int
    n_frames: float

    @classmethod
    def first(cls, expectations: Expectations, n_frames: float) -> RunningStatistics:
        """The averages over the frames of a first batch."""
        return cls(expectations.scaled(1 / n_frames), 1, n_frames)

    def add(
        self, expectations: Expectations, n_frames: float, *, decay: float, min_rate: float = 0.0
    ) -> RunningStatistics:
        """With one batch more, which counts ``(n_batches + 2)^-decay``, at least ``min_rate``."""
        rate = max((self.n_batches + 2) ** -decay, min_rate)
        mean = self.mean.scaled(1 - rate) + expectations.scaled(rate / n_frames)
        return RunningStatistics(mean, self.n_batches + 1, self.n_frames + n_frames)

    def arrays(self) -> dict[str, Any]:
        """By name, to be stored."""
        return {"mean": self.mean.arrays(), "n_batches": self.n_batches, "n_frames": self.n_frames}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any] | None, device: torch.device) -> RunningStatistics | None:
        """The inverse of ``arrays``; None of None."""
        if arrays is None:
            return None
        return cls(Expectations.from_arrays(arrays["mean"], device), arrays["n_batches"], arrays["n_frames"])


# -- the M-step ----------------------------------------------------------------------------------------------


def m_step(parameters: Parameters, expectations: Expectations, objective: MAPObjective) -> Parameters:
    """The parameters that maximise the expected objective.

    Transitions that are zero stay zero; a state that was never left keeps its row.
    """
    k, constraints = len(parameters.initial), objective.constraints
    initial_counts, transition_counts, final_counts = objective.pseudocount.counts(parameters)
    first = expectations.initial + initial_counts
    counts, previous = expectations.xi + transition_counts, parameters.transition
    if parameters.final is not None and final_counts is not None:
        counts = torch.cat([counts, (expectations.final + final_counts).unsqueeze(1)], 1)
        previous = torch.cat([previous, parameters.final.unsqueeze(1)], 1)
    if objective.start == "stationary" and parameters.transition_slopes is None:
        is_free = ~constraints.frozen.rows(constraints.frozen.transition, k)
        transition_and_final = stationary_rows(counts, previous, first, is_free)
        initial = stationary_initial(transition_and_final[:, :k], parameters.final)
    else:
        transition_and_final = _normalised(counts, previous)
        initial = _normalised(first, parameters.initial) if objective.start == "free" else parameters.initial
    final = None if parameters.final is None else transition_and_final[:, k].contiguous()
    transition, of_inputs = transition_and_final[:, :k].contiguous(), expectations.given_inputs
    transition_slopes = table_slopes = initial_slopes = None
    if of_inputs is not None and parameters.initial_slopes is not None:
        initial, initial_slopes = maximised_initial(parameters, of_inputs, initial_counts, objective.inputs)
    if of_inputs is not None and parameters.transition_slopes is not None:
        regressed = (parameters, of_inputs, transition_counts, objective.inputs)
        if objective.start == "stationary":
            transition, transition_slopes = maximised_stationary_transitions(*regressed)
            initial = log_stationary(transition.log()).exp()  # where all inputs are at their mean
        else:
            transition, transition_slopes = maximised_transitions(*regressed)
    if of_inputs is not None and parameters.table_slopes is not None:
        table, table_slopes = maximised_emissions(parameters, of_inputs, objective.emission, objective.inputs)
    else:
        table = maximised_table(parameters.table, objective.emission, expectations.emission, constraints.tying)
    updated = Parameters(initial, transition, final, table, transition_slopes, table_slopes, initial_slopes)
    return constraints.frozen.keep(parameters, updated)


def maximised_table(table: Tensor, emission: Emission, statistics: Statistics, tying: Tying) -> Tensor:
    """States that share an emission put their statistics together."""
    if tying.is_free:
        return emission.maximise(statistics, table)
    return tying.spread(emission.maximise(tying.pool(statistics), tying.one_each(table)))


def _normalised(counts: Tensor, previous: Tensor) -> Tensor:
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, counts / total, previous)


# -- Baum-Welch ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FitResult:
    """Where a fit ended: row i of its history has the figures of the parameters before M-step i, the last row those of
    ``parameters``.

    Attributes:
        statistics: of the last E-steps, for ``partial_fit`` to go on from; None after training by gradient.
        interrupted: whether a signal ended it.
        starts: of the best of several, the last row of each start's history, in order.
        start: which of them it is.
    """

    parameters: Parameters
    rows: Sequence[Row]
    converged: bool
    statistics: RunningStatistics | None
    interrupted: bool = False
    starts: tuple[Row, ...] = ()
    start: int = 0

    @cached_property
    def history(self) -> pd.DataFrame:
        """A row of figures for each step."""
        return History(list(self.rows)).frame()

    def history_with(self, **of_last: float) -> pd.DataFrame:
        """Return the history with a column for each of these figures, which are known of the last row alone."""
        import pandas as pd

        n_before = len(self.rows) - 1
        columns = {name: np.array([row[name] for row in self.rows]) for name in self.rows[-1]}
        known = {name: np.append(np.full(n_before, np.nan), value) for name, value in of_last.items()}
        return pd.DataFrame({**columns, **known}, copy=False)

    @property
    def last_row(self) -> Row:
        """Objective, log-probability and floor hits that it ended with."""
        last = self.rows[-1]
        return {name: float(last[name]) for name in ("objective", "log_prob", "floor_hits")}

    @property
    def rank(self) -> tuple[bool, float]:
        """By which starts are compared: off the floor first, then the objective."""
        last = self.rows[-1]
        return last["floor_hits"] == 0, float(last["objective"])

    def arrays(self) -> dict[str, Any]:
        """By name, to be stored."""
        return {
            "parameters": self.parameters.to(torch.device("cpu")).arrays(),
            "history": [{name: float(value) for name, value in row.items()} for row in self.rows],
            "types": {name: "int64" if isinstance(value, int) else "float64" for name, value in self.rows[-1].items()},
            "converged": self.converged,
            "memory": None if self.statistics is None else self.statistics.arrays(),  # the key of earlier checkpoints
            "starts": list(self.starts),
            "start": self.start,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], device: torch.device) -> FitResult:
        """The inverse of ``arrays``."""
        types = {name: int if kind.startswith("int") else float for name, kind in arrays["types"].items()}
        rows = [{name: kind(row[name]) for name, kind in types.items()} for row in arrays["history"]]
        parameters = Parameters.from_arrays(arrays["parameters"]).to(device)
        statistics = RunningStatistics.from_arrays(arrays["memory"], device)
        starts = tuple(arrays.get("starts", ()))  # earlier checkpoints have none
        start = arrays.get("start", 0)
        return cls(parameters, rows, arrays["converged"], statistics, starts=starts, start=start)


@dataclass
class EMRun:
    """EM from one start, so far; ``statistics`` are those of its last E-step, once it has ended.

    ``last_e_step``: the parameters that the last row of ``history`` is of, and their expectations.
    """

    parameters: Parameters
    history: History = field(default_factory=History)
    converged: bool = False
    statistics: RunningStatistics | None = None
    last_e_step: tuple[Parameters, Expectations] | None = None
    interrupted: bool = False

    def step(self, row: Row, expectations: Expectations, objective: EMObjective, stop: StopRule) -> None:
        """Note the figures of the parameters, and end there or take an M-step."""
        self.last_e_step = self.parameters, expectations
        self.history.add(row)
        self.converged = stop.converged(self.history)
        if self.converged or stop.out_of_time(row["seconds"]) or row["step"] == stop.max_iter:
            self.end(self.parameters, expectations)
        else:
            self.parameters = objective.maximised(self.parameters, expectations)

    def interrupt(self) -> None:
        """End with the parameters whose figures are known."""
        self.interrupted = True
        if self.last_e_step is not None:
            self.end(*self.last_e_step)

    def end(self, parameters: Parameters, expectations: Expectations) -> None:
        """End with these parameters, which the ``expectations`` are of."""
        self.parameters = parameters
        n_frames = float(expectations.xi.sum() + expectations.initial.sum())
        summed = replace(expectations, given_inputs=None)  # which grow with the data
        self.statistics = RunningStatistics(summed.scaled(1 / n_frames), len(self.history.rows), n_frames)

    @property
    def result(self) -> FitResult:
        """The fitted parameters and history that the run ended with."""
        return FitResult(self.parameters, self.history.rows, self.converged, self.statistics, self.interrupted)

    def state(self) -> dict[str, Any]:
        """Arrays and JSON values for a checkpoint."""
        cpu = torch.device("cpu")
        last: dict[str, Any] | None = None
        if self.last_e_step is not None:
            parameters, expectations = self.last_e_step
            last = {"parameters": parameters.to(cpu).arrays(), "found": expectations.arrays()}
        return {  # the keys are those of checkpoints already written: "memory" are statistics, "found" expectations
            "parameters": self.parameters.to(cpu).arrays(),
            "rows": self.history.rows,
            "converged": self.converged,
            "memory": None if self.statistics is None else self.statistics.arrays(),
            "last": last,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], device: torch.device) -> EMRun:
        """The inverse of ``state``."""
        last_e_step = state["last"] and (
            Parameters.from_arrays(state["last"]["parameters"]).to(device),
            Expectations.from_arrays(state["last"]["found"], device),
        )
        parameters, history = Parameters.from_arrays(state["parameters"]).to(device), History(list(state["rows"]))
        statistics = RunningStatistics.from_arrays(state["memory"], device)
        return cls(parameters, history, state["converged"], statistics, last_e_step)


def baum_welch(
    starts: Sequence[Parameters],
    objective: EMObjective,
    batches: Sequence[PackedBatch],
    dtype: torch.dtype,
    stop: StopRule,
    *,
    callback: Callback,
    checkpoints: Checkpoints | None = None,
    e_step_of_one: Callable[[Parameters], Expectations] | None = None,
) -> list[FitResult]:
    """EM from each start, side by side, until it converges.

    The E-step is one for all that have not stopped yet, and seconds are those of all, so that ``stop.max_seconds`` is
    of each start. A signal ends it between two batches of data, where starts that have no row of history yet are left
    out.

    Args:
        starts: the parameters to begin with.
        objective: what is maximised.
        batches: the data.
        dtype: the precision of the E-step.
        stop: when each start stops.
        callback: is called with the best row of every step.
        checkpoints: where to write how far it came, and what to resume from.
        e_step_of_one: what takes the place of ``e_step`` and ``batches``: where what is known of missing values depends
            on the parameters, and in variational Bayes; starts are then run one at a time.
    """
    checkpoints = checkpoints or Checkpoints()
    assert e_step_of_one is None or len(starts) == 1, "it is of one chain"
    stop = replace(stop, max_seconds=stop.max_seconds and stop.max_seconds * len(starts))
    runs, seconds = [EMRun(start) for start in starts], 0.0
    if checkpoints.state is not None:
        device, states = starts[0].initial.device, checkpoints.state["climbs"]
        runs = [EMRun.from_state(states[str(i)], device) for i in range(len(states))]
        seconds = checkpoints.state["seconds"]
    began = time.perf_counter() - seconds

    def state() -> dict[str, Any]:
        run_states = {str(i): run.state() for i, run in enumerate(runs)}
        return {"climbs": run_states, "seconds": time.perf_counter() - began}  # the key of checkpoints already written

    with interruptible() as interruption:
        active = [run for run in runs if run.statistics is None]
        while active:
            if e_step_of_one is None:
                assert isinstance(objective, MAPObjective), "another has an E-step of its own"
                e_steps = e_step([run.parameters for run in active], objective.emission, batches, dtype, interruption)
            else:
                e_steps = [e_step_of_one(active[0].parameters)]
            if e_steps is None:
                break
            priors = [objective.log_prior(run.parameters) for run in active]
            # When EM stops depends on the clock and the rounding of process 0 alone, so that all stop together.
            e_steps, (seconds, *priors) = sum_over_processes(e_steps, [time.perf_counter() - began, *priors])
            for run, expectations, prior in zip(active, e_steps, priors, strict=True):
                table, number = run.parameters.table, len(run.history.rows)
                row = objective.row(number, seconds, expectations.log_prob, prior, table)
                run.step(row, expectations, objective, stop)
            callback(max((run.history.rows[-1] for run in active), key=lambda row: row["objective"]))
            active = [run for run in active if run.statistics is None]
            interruption.hold()
            if interruption.requested:
                break
            if checkpoints.due and active:
                checkpoints.write(state())
    if active:
        checkpoints.write(state())
        for run in active:
            run.interrupt()
    return [run.result for run in runs if run.history.rows]
