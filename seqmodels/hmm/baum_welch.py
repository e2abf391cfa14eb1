"""Baum-Welch: EM for hidden Markov models (Baum et al. 1970; Rabiner 1989, section III.C)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from seqmodels.distributed import add_up, several
from seqmodels.hmm.blocks import Block
from seqmodels.hmm.constraints import Constraints, Tying
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.inference.trellis import Posterior
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.posterior import block_posterior
from seqmodels.hmm.priors import Pseudocounts, as_pseudocounts
from seqmodels.training import Checkpoints, Interruption, interruptible

Observe = Callable[[dict[str, float]], None]  # is shown each line of a history


@dataclass(frozen=True)
class Expectations:
    """One E-step: log p(x), and the expected counts. Those of two blocks add."""

    log_prob: float
    initial: Tensor
    xi: Tensor
    final: Tensor
    emission: Statistics

    def __add__(self, other: Expectations) -> Expectations:
        return Expectations(
            self.log_prob + other.log_prob,
            self.initial + other.initial,
            self.xi + other.xi,
            self.final + other.final,
            tuple(a + b for a, b in zip(self.emission, other.emission, strict=True)),
        )

    def scaled(self, factor: float) -> Expectations:
        """Of so many times the data."""
        return Expectations(
            factor * self.log_prob,
            factor * self.initial,
            factor * self.xi,
            factor * self.final,
            tuple(factor * s for s in self.emission),
        )

    def arrays(self) -> dict[str, Any]:
        """By name, to be stored."""
        chain = {"initial": self.initial, "xi": self.xi, "final": self.final}
        return {
            "log_prob": self.log_prob,
            **{name: tensor.cpu().numpy() for name, tensor in chain.items()},
            "emission": {str(i): s.cpu().numpy() for i, s in enumerate(self.emission)},
        }

    @classmethod
    def of(cls, arrays: Mapping[str, Any], device: torch.device) -> Expectations:
        """What ``arrays`` returned."""
        initial, xi, final = (torch.tensor(arrays[name], device=device) for name in ("initial", "xi", "final"))
        emission = arrays["emission"]
        sums = tuple(torch.tensor(emission[str(i)], device=device) for i in range(len(emission)))
        return cls(arrays["log_prob"], initial, xi, final, sums)


def everywhere(found: Sequence[Expectations], first: Sequence[float]) -> tuple[list[Expectations], list[float]]:
    """The sums over all processes, of each its share of the sequences; and the numbers ``first`` of process 0."""
    if not several():
        return list(found), list(first)
    own = [[e.initial.new_tensor([e.log_prob]), e.initial, e.xi, e.final, *e.emission] for e in found]
    sums, numbers = add_up([tensor for tensors in own for tensor in tensors], first)
    each = [sums[i : i + len(own[0])] for i in range(0, len(sums), len(own[0]))]
    return [Expectations(float(e[0]), e[1], e[2], e[3], tuple(e[4:])) for e in each], numbers


@dataclass(frozen=True)
class Memory:
    """Statistics of ``n_batches`` batches, a weighted mean, ``mean`` a frame; ``n_frames`` seen in all, by weight."""

    mean: Expectations
    n_batches: int
    n_frames: float

    @classmethod
    def of(cls, found: Expectations, n_frames: float) -> Memory:
        """Of one batch."""
        return cls(found.scaled(1 / n_frames), 1, n_frames)

    def add(self, found: Expectations, n_frames: float, *, decay: float, least: float = 0.0) -> Memory:
        """With one more batch."""
        step = max((self.n_batches + 2) ** -decay, least)
        mean = self.mean.scaled(1 - step) + found.scaled(step / n_frames)
        return Memory(mean, self.n_batches + 1, self.n_frames + n_frames)

    def arrays(self) -> dict[str, Any]:
        """By name, to be stored."""
        return {"mean": self.mean.arrays(), "n_batches": self.n_batches, "n_frames": self.n_frames}

    @classmethod
    def restored(cls, arrays: Mapping[str, Any], device: torch.device) -> Memory:
        """What ``arrays`` returned."""
        return cls(Expectations.of(arrays["mean"], device), arrays["n_batches"], arrays["n_frames"])


def expect_each(
    chains: Sequence[Parameters], emission: Emission, block: Block, dtype: torch.dtype
) -> list[Expectations]:
    """The E-step of several chains on one block, side by side: densities of all their states in one table."""
    n, table = len(chains), torch.cat([chain.table for chain in chains])  # (R·K, P)
    densities, memo = emission.evaluate(table, block.x, block.past, dtype, block.scratch)
    together = chains[0] if n == 1 else Parameters.stack(chains)
    found = block_posterior(together, densities if n == 1 else densities.chains(n), block)
    gamma = found.gamma.mT.flatten(0, -2).T  # (N, R·K)
    sums = emission.statistics(table, block.x, block.past, gamma, memo)
    each = zip(found.chains, *(s.chunk(n) for s in sums), strict=True)
    return [_weighted(posterior, statistics, block.weight) for posterior, *statistics in each]


def _weighted(found: Posterior, sums: Sequence[Tensor], w: float) -> Expectations:
    return Expectations(
        w * float(found.log_prob.sum()),
        w * found.initial,
        w * found.xi,
        w * found.final,
        tuple(w * s for s in sums),
    )


def maximise(
    parameters: Parameters,
    emission: Emission,
    found: Expectations,
    pseudocount: float | Pseudocounts,
    constraints: Constraints | None = None,
) -> Parameters:
    """The M-step. Transitions that are zero stay zero; a state that was never left keeps its row."""
    k, held = len(parameters.initial), constraints or Constraints.none(len(parameters.initial))
    starts, arcs, ends = as_pseudocounts(pseudocount).counts(parameters)
    initial = _normalise(found.initial + starts, parameters.initial)
    arcs, before = found.xi + arcs, parameters.transition
    if parameters.final is not None and ends is not None:
        arcs = torch.cat([arcs, (found.final + ends).unsqueeze(1)], 1)
        before = torch.cat([before, parameters.final.unsqueeze(1)], 1)
    rows = _normalise(arcs, before)
    final = None if parameters.final is None else rows[:, k].contiguous()
    table = _maximise_emission(parameters.table, emission, found.emission, held.tying)
    return held.frozen.keep(parameters, Parameters(initial, rows[:, :k].contiguous(), final, table))


def _maximise_emission(table: Tensor, emission: Emission, found: Statistics, tying: Tying) -> Tensor:
    """States that share an emission put their statistics together."""
    if tying.is_free:
        return emission.maximise(found, table)
    return tying.spread(emission.maximise(tying.pool(found), tying.one_each(table)))


def _normalise(counts: Tensor, before: Tensor) -> Tensor:
    total = counts.sum(-1, keepdim=True)
    return torch.where(total > 0, counts / total, before)


def log_prior(
    parameters: Parameters,
    emission: Emission,
    pseudocount: float | Pseudocounts,
    constraints: Constraints | None = None,
) -> float:
    """What the objective adds to the log-likelihood, in nats, up to a constant; an emission that states share counts once."""
    tying = (constraints or Constraints.none(len(parameters.initial))).tying
    table = parameters.table if tying.is_free else tying.one_each(parameters.table)
    return float(emission.log_prior(table) + as_pseudocounts(pseudocount).log_prior(parameters))


@dataclass(frozen=True)
class Schedule:
    """When EM stops: after ``max_iter`` steps, ``max_seconds``, or an improvement below ``tol`` nats per unit (0: never)."""

    max_iter: int
    tol: float
    max_seconds: float | None


@dataclass(frozen=True)
class Fitted:
    """Where EM ended. History line i holds the figures of the parameters before M-step i, the last line those of ``parameters``."""

    parameters: Parameters
    history: pd.DataFrame
    converged: bool
    memory: Memory | None  # of the last E-steps, for more to come
    interrupted: bool = False  # ended by a signal

    @property
    def rank(self) -> tuple[bool, float]:
        """By which starts are compared: off the floor first, then the objective."""
        last = self.history.iloc[-1]
        return bool(last["floor_hits"] == 0), float(last["objective"])

    def arrays(self) -> dict[str, Any]:
        """By name, to be stored."""
        return {
            "parameters": self.parameters.to(torch.device("cpu")).arrays(),
            "history": [dict(zip(self.history, row, strict=True)) for row in self.history.to_numpy(float).tolist()],
            "types": {name: str(dtype) for name, dtype in self.history.dtypes.items()},
            "converged": self.converged,
            "memory": None if self.memory is None else self.memory.arrays(),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, Any], device: torch.device) -> Fitted:
        """What ``arrays`` returned."""
        memory = None if arrays["memory"] is None else Memory.restored(arrays["memory"], device)
        history = pd.DataFrame(arrays["history"], columns=list(arrays["types"])).astype(arrays["types"])
        return cls(Parameters.of(arrays["parameters"]).to(device), history, arrays["converged"], memory)


@dataclass
class _Climb:
    """EM from one start, so far; ``memory`` is of its last E-step, once it has ended.

    ``last``: the parameters that the last line of ``rows`` is of, and their E-step.
    """

    parameters: Parameters
    rows: list[dict[str, float]] = field(default_factory=list)
    converged: bool = False
    memory: Memory | None = None
    last: tuple[Parameters, Expectations] | None = None
    interrupted: bool = False

    def note(self, row: dict[str, float], schedule: Schedule) -> bool:
        """Add a line to the history; whether to stop there."""
        before = self.rows[-1]["objective"] if self.rows else -math.inf
        self.rows.append(row)
        self.converged = schedule.tol > 0 and row["objective"] - before < schedule.tol
        out_of_time = schedule.max_seconds is not None and row["seconds"] > schedule.max_seconds
        return self.converged or out_of_time or row["step"] == schedule.max_iter

    def stop(self, found: Expectations) -> None:
        """Where the last E-step found it."""
        n_frames = float(found.xi.sum() + found.initial.sum())
        self.memory = Memory(found.scaled(1 / n_frames), len(self.rows), n_frames)

    def interrupt(self) -> None:
        """End with the parameters whose figures are known."""
        self.interrupted = True
        if self.last is not None:
            self.parameters, found = self.last
            self.stop(found)

    @property
    def fitted(self) -> Fitted:
        """Where it ended."""
        return Fitted(self.parameters, pd.DataFrame(self.rows), self.converged, self.memory, self.interrupted)

    def state(self) -> dict[str, Any]:
        """To be stored."""
        return {
            "parameters": self.parameters.to(torch.device("cpu")).arrays(),
            "rows": self.rows,
            "converged": self.converged,
            "memory": None if self.memory is None else self.memory.arrays(),
            "last": None
            if self.last is None
            else {"parameters": self.last[0].to(torch.device("cpu")).arrays(), "found": self.last[1].arrays()},
        }

    @classmethod
    def of(cls, state: Mapping[str, Any], device: torch.device) -> _Climb:
        """What ``state`` returned."""
        memory = None if state["memory"] is None else Memory.restored(state["memory"], device)
        last = state["last"] and (
            Parameters.of(state["last"]["parameters"]).to(device),
            Expectations.of(state["last"]["found"], device),
        )
        parameters = Parameters.of(state["parameters"]).to(device)
        return cls(parameters, list(state["rows"]), state["converged"], memory, last)


def baum_welch(
    starts: Sequence[Parameters],
    emission: Emission,
    blocks: list[Block],
    *,
    pseudocount: float | Pseudocounts,
    schedule: Schedule,
    dtype: torch.dtype,
    n_units: float,
    log_det: float,
    observe: Observe,
    constraints: Constraints | None = None,
    checkpoints: Checkpoints | None = None,
) -> list[Fitted]:
    """EM from each start, side by side, until it converges; histories are in nats per raw unit, and ``observe`` sees the best.

    The E-step is one for all that are still climbing; seconds are those of all. A signal ends it between two blocks of data, where
    starts that have no line of history yet are left out.
    """
    kept = checkpoints or Checkpoints()
    climbs, seconds = [_Climb(start) for start in starts], 0.0
    if kept.state is not None:
        device, states = starts[0].initial.device, kept.state["climbs"]
        climbs = [_Climb.of(states[str(i)], device) for i in range(len(states))]
        seconds = kept.state["seconds"]
    began = time.perf_counter() - seconds

    def state() -> dict[str, Any]:
        every = {str(i): climb.state() for i, climb in enumerate(climbs)}
        return {"climbs": every, "seconds": time.perf_counter() - began}

    with interruptible() as interruption:
        going = [climb for climb in climbs if climb.memory is None]
        while going:
            all_found = _expect_all([climb.parameters for climb in going], emission, blocks, dtype, interruption)
            if all_found is None:
                break
            priors = [log_prior(climb.parameters, emission, pseudocount, constraints) for climb in going]
            # When EM stops hangs on the clock and the rounding of process 0 alone, or one would stop without the others.
            all_found, (seconds, *priors) = everywhere(all_found, [time.perf_counter() - began, *priors])
            for climb, found, prior in zip(going, all_found, priors, strict=True):
                log_prob = (found.log_prob + log_det) / n_units
                row = {
                    "step": len(climb.rows),
                    "seconds": seconds,
                    "log_prob": log_prob,
                    "objective": log_prob + prior / n_units,
                    "floor_hits": int(emission.floor_hits(climb.parameters.table).sum()),
                }
                climb.last = climb.parameters, found
                if climb.note(row, schedule):
                    climb.stop(found)
                else:
                    climb.parameters = maximise(climb.parameters, emission, found, pseudocount, constraints)
            observe(max((climb.rows[-1] for climb in going), key=lambda row: row["objective"]))
            going = [climb for climb in going if climb.memory is None]
            interruption.hold()
            if interruption.asked:
                break
            if kept.due and going:
                kept.write(state())
    if going:
        kept.write(state())
        for climb in going:
            climb.interrupt()
    return [climb.fitted for climb in climbs if climb.rows]


def _expect_all(
    chains: Sequence[Parameters],
    emission: Emission,
    blocks: list[Block],
    dtype: torch.dtype,
    interruption: Interruption | None = None,
) -> list[Expectations] | None:
    """The E-step on all blocks; None if a signal came between two blocks."""
    total = expect_each(chains, emission, blocks[0], dtype)
    for block in blocks[1:]:
        if interruption is not None and interruption.asked:
            return None
        more = expect_each(chains, emission, block, dtype)
        total = [a + b for a, b in zip(total, more, strict=True)]
    return total
