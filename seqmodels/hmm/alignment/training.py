"""EM for the alignment model: from IBM's model 1 over jumps to ever finer contexts, the objective never falling."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from seqmodels.training import Checkpoints, Interruption, interruptible


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
        self._began, self._rows, self._converged = time.perf_counter(), list[dict[str, float]](), True
        self._kept, self._interruption = Checkpoints(), Interruption(may_hold=False)
        self._noted: Model | None = None  # that of the last line

    def run(self, *, verbose: bool = False, checkpoints: Checkpoints | None = None) -> Fitted:
        """A level after the other; the first begins as IBM's model 1, whose jumps are all alike.

        A signal ends it before an E-step or between two blocks of one, with the model that the last line of history is of.
        """
        self._kept, self._noted = checkpoints or Checkpoints(), None
        most = self.schedule.max_iter * (len(self.model.ladder.rungs) + 1)
        with tqdm(total=most, disable=not verbose, desc="EM") as self._bar, interruptible() as self._interruption:
            return self._run()

    def _run(self) -> Fitted:
        rungs, n_target, state = self.model.ladder.rungs, self.model.ladder.n_target, self._kept.state
        if state is not None:
            self._restore(state)
        self._drawn = [self.model.pull.drawn(b.landings) for b in self.blocks]
        places, now = self._coarser()
        visits = None if state is not None else self._expect(now)
        if visits is not None:
            self._note(visits, 0.0, np.nan)
        while len(self.model.ladder.levels) < len(rungs):
            rung = rungs[len(self.model.ladder.levels)]
            stages = [True] if self.model.ladder.levels else [False, True]  # whether jumps and pulls move
            if state is None:
                assert visits is not None
                sites = self._sites(places, [seen.gamma for seen in visits], now)
                climb = Climb.begin(sites, n_target, self.pseudocounts.emission)
            else:
                climb = Climb.again(self._sites(places, now, now), state["climb"], n_target)
                stages = stages[stages.index(state["moves"]) :]
            for moves in stages:
                if state is None and moves and rung.columns and self.model.pull.rungs:
                    self._widen()
                begun, state = None if state is None else state["n_done"], None
                climb, visits, done = self._climb(climb, visits, moves=moves, begun=begun)
                if visits is None:
                    assert self._noted is not None
                    self.model = self._noted
                    return Fitted(self.model, pd.DataFrame(self._rows), False)
            self._converged &= done
            places, now = [c.place for c in climb.cells], [climb.probability(i) for i in range(len(self.blocks))]
            self.model = replace(self.model, ladder=self.model.ladder.with_level(climb.level))
        self._kept.write(self._state())
        return Fitted(self.model, pd.DataFrame(self._rows), self._converged)

    def _coarser(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Of each block, ``(N, S')``: where contexts stand in the last finished level, and the probabilities of steps there."""
        ladder = self.model.ladder
        now = [ladder.probability(b.around, b.previous[:, None], b.y[:, None]) for b in self.blocks]
        places = [np.zeros(p.shape, np.int64) for p in now]
        for i, b in enumerate(self.blocks):
            for place in ladder.places(b.around, b.previous[:, None]):
                places[i] = place
        return places, now

    def _state(self, climb: Climb | None = None, n_done: int = 0, *, moves: bool = False) -> dict[str, Any]:
        """To be stored: after an M-step, the E-step of which is to come; or after all."""
        model = self.model
        return {
            "model": {"jumps": model.jumps.arrays(), "pull": model.pull.arrays(), "ladder": model.ladder.arrays()},
            "climb": None if climb is None else climb.arrays(),
            "n_done": n_done,
            "moves": moves,
            "converged": self._converged,
            "rows": self._rows,
            "seconds": time.perf_counter() - self._began,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``_state``, the climb apart."""
        found, (jumps, pull, ladder) = state["model"], (self.model.jumps, self.model.pull, self.model.ladder)
        self.model = Model(
            Jumps.of(found["jumps"], jumps.max_jump, stops=jumps.stops),
            Pull.of(found["pull"], pull.rungs, pull.n_source),
            Ladder.of(found["ladder"], ladder.rungs, ladder.n_source, ladder.n_target),
        )
        self._converged, self._rows = bool(state["converged"]), list(state["rows"])
        self._began = time.perf_counter() - state["seconds"]

    def _widen(self) -> None:
        """One more rung of the pulls."""
        wider = self.model.pull.wider([b.landings for b in self.blocks])
        self.model = replace(self.model, pull=wider)
        self._drawn = [wider.drawn(b.landings) for b in self.blocks]

    def _sites(
        self, places: Sequence[np.ndarray], gammas: Sequence[np.ndarray], now: Sequence[np.ndarray]
    ) -> list[Site]:
        """What the next level finds."""
        ladder = self.model.ladder
        return [
            Site.of(block, ladder, place, gamma, p)
            for block, place, gamma, p in zip(self.blocks, places, gammas, now, strict=True)
        ]

    def _climb(
        self, climb: Climb, visits: list[Visits] | None, *, moves: bool, begun: int | None = None
    ) -> tuple[Climb, list[Visits] | None, bool]:
        """One stage: the level, and jumps and pulls if they are to move. No visits: a signal came.

        ``begun``: the step whose M-step an earlier run has taken.
        """
        for i in range(begun or 0, self.schedule.max_iter):
            if begun is None:
                assert visits is not None
                climb = climb.maximised(climb.count(self.blocks, [v.gamma for v in visits]))
                if moves:
                    self._move(visits)
            begun = None
            if self._kept.due:
                self._interruption.hold()  # from here on there is something to keep
                self._kept.write(self._state(climb, i, moves=moves))
            visits = self._expect([climb.probability(b) for b in range(len(self.blocks))])
            if visits is None:
                self._kept.write(self._state(climb, i, moves=moves))
                return climb, None, False
            before = self._rows[-1]["objective"]
            self._note(visits, climb.log_prior(), climb.strength)
            self._noted = replace(self.model, ladder=self.model.ladder.with_level(climb.level))
            self._interruption.hold()
            if self.schedule.tol > 0 and self._rows[-1]["objective"] - before < self.schedule.tol:
                return climb, visits, True
        return climb, visits, False

    def _expect(self, p: Sequence[np.ndarray]) -> list[Visits] | None:
        """The E-step on all blocks; None if a signal came and there is a model to keep."""
        jumps, pull, visits = self.model.jumps, self.model.pull, list[Visits]()
        for block, drawn, here in zip(self.blocks, self._drawn, p, strict=True):
            if self._interruption.asked and self._noted is not None:
                return None
            visits.append(Alignment.of(block, jumps, pull.at(drawn), here, self.dtype).visits())
        return visits

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
