"""A model that counts, added in one file: a Markov chain of order two that learns while it reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from seqmodels.counts.base import CountModel, Learners, ReadHistory, StepLearner
from seqmodels.encodings.examples import Example


@dataclass(eq=False)
class MarkovLearner(StepLearner):
    """``prior`` and ``counts``, ``(V + 1, V + 1, V)`` or with ends ``V + 1``, of two symbols and what follows."""

    prior: np.ndarray
    counts: np.ndarray

    def clear(self) -> None:
        self.counts = np.zeros_like(self.prior)

    def learn_event(self, before: ReadHistory, event: int) -> Any:
        at = (before.recent[0], before.recent[-1], event)  # at first the start is both
        self.counts[at] += 1
        return at

    def undo_event(self, step: Any) -> None:
        self.counts[step] -= 1

    def copy(self) -> MarkovLearner:
        return replace(self, counts=self.counts.copy())

    def predict(self, history: ReadHistory) -> np.ndarray:
        n = (self.prior + self.counts)[history.recent[0], history.recent[-1]]
        return np.log(n / n.sum())


@dataclass(eq=False, repr=False)
class Markov(CountModel):
    """``p(z | x y) = (n_xyz + alpha) / (n_xy + alpha n)``, one of n events, the end among them if it is one."""

    alpha: float = 0.5
    adaptive: bool = True

    @property
    def context_(self) -> int | None:
        return None if self.adaptive else 2

    @property
    def n_parameters_(self) -> int:
        return self.counts_.size

    def _check_options(self) -> None:
        if not self.alpha > 0:
            raise ValueError(f"alpha is {self.alpha}; pass a number above 0")

    def _learn(self, train: list[Example]) -> float:
        size = self.encoding_.size
        self.counts_ = np.zeros((size + 1, size + 1, size + (self.length_ == "stop")))
        for row in self._rows(self._repeated(train)):
            before = np.append(size, row.symbols)[row.begin - 1 : row.begin + len(row.events)]
            np.add.at(self.counts_, (before[:-1], before[1:], row.events), 1)
        return self._nats_per_unit(train)

    def _learners(self) -> Learners:
        prior = self.counts_ + self.alpha
        return Learners(partial(MarkovLearner, self.adaptive, prior, prior), n_recent=2)

    def _state(self) -> dict[str, Any]:
        return {"counts": self.counts_}

    def _restore(self, state: dict[str, Any]) -> None:
        self.counts_ = np.asarray(state["counts"])
