"""Prediction by partial matching one step at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Prediction, Source
from seqmodels.generation import source_of_each as each_source
from seqmodels.generation.histories import Histories, LearnerAt, ReadHistory
from seqmodels.observations import Observation
from seqmodels.ppm.tables import FittedPPM, PPMReader, StepUndo


@dataclass(frozen=True)
class PPMStep:
    """The history before a step, and what undoes it."""

    before: ReadHistory
    undo: StepUndo


def reader_after(history: ReadHistory, model: FittedPPM, *, is_adaptive: bool) -> PPMReader:
    """A reader that has read the events of a history, after its source."""
    events = []
    while history.parent is not None:
        events.append(history.event)
        history = history.parent
    reader = model.reader(can_undo=True)
    reader.read_source(history.recent, is_adaptive=is_adaptive)
    reader.read(np.array(events[::-1], dtype=np.int64), is_adaptive=is_adaptive, is_first=True)
    return reader


@dataclass
class PPMLearner:
    """What one sequence has taught, if it teaches, and the state of its longest context."""

    reader: PPMReader
    is_adaptive: bool

    def learn(self, before: ReadHistory, event: int) -> PPMStep:
        """Read the event after ``before``; returns what undoes that."""
        return PPMStep(before, self.reader.learn(event, is_adaptive=self.is_adaptive, is_first=before.n == 0))

    def undo(self, step: PPMStep) -> None:
        """Take back the last event; where too much changed for that, read again what came before."""
        if step.undo.is_whole:
            self.reader.undo(step.undo)
        else:
            self.reader = reader_after(step.before, self.reader.model, is_adaptive=self.is_adaptive)

    def copy(self) -> PPMLearner:
        """With arrays that are a copy."""
        return PPMLearner(self.reader.copy(), self.is_adaptive)


PPMState = Histories[PPMLearner]


@dataclass(frozen=True)
class PPMCursor:
    """A fitted model as a chain of one-step predictions, which are on ``device`` in ``dtype``."""

    model: FittedPPM
    is_adaptive: bool
    observation: Observation
    device: torch.device
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> PPMState:
        """Before the first event of ``n`` sequences, each after its ``source``."""
        nothing = np.zeros(0, np.int64)
        first = [ReadHistory(nothing if each is None else np.asarray(each)) for each in each_source(source, n)]
        return Histories(first, [LearnerAt(self._learner(each), each) for each in first], Lock())

    def advance(self, state: PPMState, x: Tensor) -> PPMState:
        """After each sequence's next symbol, ``x (n,)``."""
        return state.advance(x.tolist(), 1)

    def distribution(self, state: PPMState) -> Prediction:
        """The next symbol, given that there is one, and the end."""
        rows = [
            state.with_learner(i, partial(self._learner, history), partial(_log_probs, history))
            for i, history in enumerate(state.histories)
        ]
        log_p = torch.as_tensor(np.stack(rows), device=self.device)  # (n, V or V + 1)
        size = self.model.size
        log_end = log_p[:, size] if self.model.has_end else None
        log_weights = torch.zeros(len(rows), 1, dtype=self.dtype, device=self.device)
        return Prediction(self.observation, log_p[:, None, :size].to(self.dtype), log_weights, None, log_end)

    def select(self, state: PPMState, index: Tensor) -> PPMState:
        """Of sequences ``index (m,)``."""
        return state.select(index.tolist())

    def _learner(self, history: ReadHistory) -> PPMLearner:
        """At the start of the sequence of a history, after its source."""
        while history.parent is not None:
            history = history.parent
        return PPMLearner(reader_after(history, self.model, is_adaptive=self.is_adaptive), self.is_adaptive)


def _log_probs(history: ReadHistory, learner: PPMLearner) -> np.ndarray:
    return learner.reader.outcome_log_probs(is_first=history.n == 0)
