"""EM for the alignment model: from IBM's model 1 over jumps to ever finer contexts, the objective never falling."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from seqmodels.hmm.alignment.blocks import Block
from seqmodels.hmm.alignment.climbing import Cells, Climb, Strength
from seqmodels.hmm.alignment.jumps import Chain, Jumps, Ways
from seqmodels.hmm.alignment.ladder import Ladder
from seqmodels.hmm.forward_backward import posterior_of


@dataclass(frozen=True)
class Expected:
    """One E-step: log p(y | x) of all, posteriors (N, S') of the places of each block's steps, expected chains by length of source."""

    log_prob: float
    gammas: list[np.ndarray]
    chains: dict[int, Chain]


@dataclass(frozen=True)
class Schedule:
    """Of each stage: at most ``max_iter`` steps, until one betters the objective by less than ``tol`` nats a unit (0: never)."""

    max_iter: int
    tol: float


@dataclass(frozen=True)
class Fitted:
    """Where EM ended. History line i holds the figures before M-step i, the last line those of the end."""

    jumps: Jumps
    ladder: Ladder
    strengths: list[float]
    history: pd.DataFrame
    converged: bool


@dataclass
class Training:
    """EM on blocks of pairs; ``ladder`` has the finished levels, ``climb`` is the one that is being fitted."""

    blocks: Sequence[Block]
    jumps: Jumps
    ladder: Ladder
    strength: Strength
    jump_pseudocount: float
    schedule: Schedule
    dtype: torch.dtype
    n_units: float

    def run(self) -> Fitted:
        """All stages."""
        self._began, self._rows, strengths = time.perf_counter(), list[dict[str, float]](), list[float]()
        now = [np.full((len(b.y), b.windows.shape[1]), 1 / self.ladder.n_target) for b in self.blocks]
        nowhere = np.int32(0)
        cells = [Cells(p, p, np.full(p.shape, nowhere)) for p in now]
        found = self._expect(now)
        self._note(found, 0.0)
        moves = False
        for rung in range(len(self.ladder.rungs)):
            climb = Climb.begin(self.blocks, found.gammas, cells, now, self.ladder, self.strength)
            strengths.append(climb.strength)
            stages = (True,) if moves else (False, True)  # first IBM's model 1, whose jumps are all alike
            for moves in stages:
                climb, found, converged = self._climb(climb, found, moves)
            cells, now = climb.cells, [climb.probability(i) for i in range(len(self.blocks))]
            self.ladder = replace(self.ladder, levels=(*self.ladder.levels, climb.level))
        return Fitted(self.jumps, self.ladder, strengths, pd.DataFrame(self._rows), converged)

    def _climb(self, climb: Climb, found: Expected, moves: bool) -> tuple[Climb, Expected, bool]:
        """One stage: the level, and the jumps if they are to move."""
        for _ in range(self.schedule.max_iter):
            climb = climb.maximised(climb.count(self.blocks, found.gammas))
            if moves:
                self.jumps = self.jumps.maximised(Ways.of(self.jumps, found.chains), self.jump_pseudocount)
            found = self._expect([climb.probability(i) for i in range(len(self.blocks))])
            before = self._rows[-1]["objective"]
            self._note(found, climb.log_prior())
            if self.schedule.tol > 0 and self._rows[-1]["objective"] - before < self.schedule.tol:
                return climb, found, True
        return climb, found, False

    def _expect(self, p: Sequence[np.ndarray]) -> Expected:
        log_prob, gammas, chains = 0.0, [], dict[int, Chain]()
        for block, here in zip(self.blocks, p, strict=True):
            found = posterior_of(block.trellis(self.jumps.chain(block.n_places), here, self.dtype))
            log_prob += block.weight * float(found.log_prob.sum())
            gammas.append(block.shares(found.gamma).copy())
            sums = [block.weight * a.cpu().numpy() for a in (found.initial, found.xi, found.final)]
            chain = Chain(sums[0], sums[1], sums[2] if self.jumps.stops else None)
            known = chains.get(block.n_places)
            chains[block.n_places] = chain if known is None else known + chain
        return Expected(log_prob, gammas, chains)

    def _note(self, found: Expected, log_prior: float) -> None:
        log_prior += self.jumps.log_prior(self.jump_pseudocount)
        self._rows.append(
            {
                "step": len(self._rows),
                "seconds": time.perf_counter() - self._began,
                "log_prob": found.log_prob / self.n_units,
                "objective": (found.log_prob + log_prior) / self.n_units,
                "level": len(self.ladder.levels) + 1,
                "floor_hits": 0,
            }
        )
