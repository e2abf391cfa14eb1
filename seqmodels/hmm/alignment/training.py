"""EM for the alignment model: from IBM's model 1 over jumps to ever finer contexts, the objective never falling."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from seqmodels.hmm.alignment.blocks import Block
from seqmodels.hmm.alignment.climbing import Climb, Site, Strength
from seqmodels.hmm.alignment.inference import Alignment, Visits
from seqmodels.hmm.alignment.jumps import Chain, Jumps
from seqmodels.hmm.alignment.ladder import Ladder
from seqmodels.hmm.alignment.pull import Pull


@dataclass(frozen=True)
class Schedule:
    """Of each stage: at most ``max_iter`` steps, until one betters the objective by less than ``tol`` nats a unit (0: never)."""

    max_iter: int
    tol: float


@dataclass(frozen=True)
class Pseudocounts:
    """Of emissions (or ``"auto"``), of each jump, of each pull; see ``AlignmentHMM``."""

    emission: Strength
    jump: float
    pull: float


@dataclass(frozen=True)
class Model:
    """All that EM learns."""

    jumps: Jumps
    pull: Pull
    ladder: Ladder

    @property
    def n_parameters(self) -> int:
        """Of all parts."""
        return self.jumps.n_parameters + self.pull.n_parameters + self.ladder.n_parameters


@dataclass(frozen=True)
class Fitted:
    """Where EM ended. History line i holds the figures before M-step i, the last line those of the end."""

    model: Model
    history: pd.DataFrame
    converged: bool


class Training:
    """EM on blocks of pairs; ``model.ladder`` has the levels that are finished."""

    def __init__(
        self,
        blocks: Sequence[Block],
        model: Model,
        pseudocounts: Pseudocounts,
        schedule: Schedule,
        dtype: torch.dtype,
        n_units: float,
    ) -> None:
        self.blocks, self.model, self.pseudocounts, self.schedule = blocks, model, pseudocounts, schedule
        self.dtype, self.n_units = dtype, n_units
        self._began, self._rows = time.perf_counter(), list[dict[str, float]]()

    def run(self, *, verbose: bool = False) -> Fitted:
        """A level after the other; the first begins as IBM's model 1, whose jumps are all alike."""
        most = self.schedule.max_iter * (len(self.model.ladder.rungs) + 1)
        with tqdm(total=most, disable=not verbose, desc="EM") as self._bar:
            return self._run()

    def _run(self) -> Fitted:
        converged, rungs, n_target = True, self.model.ladder.rungs, self.model.ladder.n_target
        now = [np.full((len(b.y), b.n_places + b.null), 1 / n_target) for b in self.blocks]
        places = [np.zeros(p.shape, np.int64) for p in now]
        self._drawn = [self.model.pull.drawn(b.landings) for b in self.blocks]
        visits = self._expect(now)
        self._note(visits, 0.0, np.nan)
        for i, rung in enumerate(rungs):
            climb = Climb.begin(self._sites(places, visits, now), n_target, self.pseudocounts.emission)
            if not i:
                climb, visits, _ = self._climb(climb, visits, moves=False)
            if rung.columns and self.model.pull.rungs:
                self._widen()
            climb, visits, done = self._climb(climb, visits, moves=True)
            converged &= done
            places, now = [c.place for c in climb.cells], [climb.probability(i) for i in range(len(self.blocks))]
            self.model = replace(self.model, ladder=self.model.ladder.with_level(climb.level))
        return Fitted(self.model, pd.DataFrame(self._rows), converged)

    def _widen(self) -> None:
        """One more rung of the pulls."""
        wider = self.model.pull.wider([b.landings for b in self.blocks])
        self.model = replace(self.model, pull=wider)
        self._drawn = [wider.drawn(b.landings) for b in self.blocks]

    def _sites(self, places: Sequence[np.ndarray], visits: Sequence[Visits], now: Sequence[np.ndarray]) -> list[Site]:
        """What the next level finds."""
        ladder = self.model.ladder
        return [
            Site.of(block, ladder, place, seen.gamma, p)
            for block, place, seen, p in zip(self.blocks, places, visits, now, strict=True)
        ]

    def _climb(self, climb: Climb, visits: list[Visits], *, moves: bool) -> tuple[Climb, list[Visits], bool]:
        """One stage: the level, and jumps and pulls if they are to move."""
        for _ in range(self.schedule.max_iter):
            climb = climb.maximised(climb.count(self.blocks, [v.gamma for v in visits]))
            if moves:
                self._move(visits)
            visits = self._expect([climb.probability(i) for i in range(len(self.blocks))])
            before = self._rows[-1]["objective"]
            self._note(visits, climb.log_prior(), climb.strength)
            if self.schedule.tol > 0 and self._rows[-1]["objective"] - before < self.schedule.tol:
                return climb, visits, True
        return climb, visits, False

    def _expect(self, p: Sequence[np.ndarray]) -> list[Visits]:
        """The E-step on all blocks."""
        jumps, pull = self.model.jumps, self.model.pull
        return [
            Alignment.of(block, jumps, pull.at(drawn), here, self.dtype).visits()
            for block, drawn, here in zip(self.blocks, self._drawn, p, strict=True)
        ]

    def _move(self, visits: Sequence[Visits]) -> None:
        """The M-step of the pulls, and then, with what is predicted now, of the jumps."""
        if self.model.pull.rungs:
            self.model = replace(self.model, pull=self._pulled(visits))
        chains, pressure = dict[int, Chain](), dict[int, np.ndarray]()
        for block, drawn, seen in zip(self.blocks, self._drawn, visits, strict=True):
            pull, n = self.model.pull.at(drawn), block.n_places
            chain = seen.expected.weighted(block.weight)
            here = block.weight * (seen.departures / self.model.jumps.sums(pull)).T @ pull
            chains[n] = chains[n] + chain if n in chains else chain
            pressure[n] = pressure[n] + here if n in pressure else here
        moved = self.model.jumps.maximised(chains, pressure, self.pseudocounts.jump)
        self.model = replace(self.model, jumps=moved)

    def _pulled(self, visits: Sequence[Visits]) -> Pull:
        pull, jumps = self.model.pull, self.model.jumps
        n = len(pull.factors[-1])
        arrived, predicted = np.zeros(n), np.zeros(n)
        for block, drawn, seen in zip(self.blocks, self._drawn, visits, strict=True):
            here, place = pull.at(drawn), drawn.place.ravel()
            coming = here * ((seen.departures / jumps.sums(here)) @ jumps.table(block.n_places))
            arrived += block.weight * np.bincount(place, seen.arrivals.ravel(), n)
            predicted += block.weight * np.bincount(place, coming.ravel(), n)
        return pull.maximised(arrived, predicted, self.pseudocounts.pull)

    def _note(self, visits: Sequence[Visits], log_prior: float, strength: float) -> None:
        total = sum(b.weight * v.log_prob for b, v in zip(self.blocks, visits, strict=True))
        log_prior += self.model.jumps.log_prior(self.pseudocounts.jump)
        log_prior += self.model.pull.log_prior(self.pseudocounts.pull)
        row = {
            "step": len(self._rows),
            "seconds": time.perf_counter() - self._began,
            "log_prob": total / self.n_units,
            "objective": (total + log_prior) / self.n_units,
            "level": len(self.model.ladder.levels) + 1,
            "pseudocount": strength,
            "floor_hits": 0,
        }
        self._rows.append(row)
        self._bar.set_postfix_str(f"{row['log_prob']:.4f} nats per unit")
        self._bar.update()
