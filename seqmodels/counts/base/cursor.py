"""The cursor of models that learn while they read: its state is the history of each sequence, from which learned tables
are reconstructed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from seqmodels.counts.base.learner import Learner, Learners, ReadHistory
from seqmodels.generation import CursorState, MergedStates, Prediction, Source, source_of_each
from seqmodels.observations import Observation

MAX_STEPS_BACK = 4  # a history further back than this gets a learner of its own, if there can be another


@dataclass(frozen=True)
class Histories:
    """The state of a ``LearningCursor`` for n sequences: what was read of each, and learners that hold its counts.

    An event is a symbol or the end of a sequence. A learner holds the counts of one history at a time and is moved to
    another when a prediction is needed. It may be shared by several histories, also of other states.

    Attributes:
        histories: history (all events read so far) of each sequence; equal sequences share one object.
        learners: learner for each different history.
        moving: lock held while a learner is moved, shared by all states that share learners.
        predicted: predictions computed so far, by history.
    """

    histories: list[ReadHistory]
    learners: dict[ReadHistory, Learner]
    moving: Lock = field(repr=False, compare=False)
    predicted: dict[ReadHistory, np.ndarray] = field(default_factory=dict)

    def advance(self, events: list[int], n_recent: int) -> Histories:
        """Return the state after one more event of each sequence.

        Args:
            events: the next event of each sequence: a symbol, or V (the number of symbols) for the end.
            n_recent: number of last symbols that each history keeps, enough for the longest context.
        """
        following: dict[tuple[ReadHistory, int], ReadHistory] = {}
        for pair in zip(self.histories, events, strict=True):
            if pair not in following:
                following[pair] = pair[0].followed_by(pair[1], n_recent)
        histories = [following[pair] for pair in zip(self.histories, events, strict=True)]
        learners = {after: self.learners[before] for (before, _), after in following.items()}
        return Histories(histories, learners, self.moving)

    def select(self, rows: list[int]) -> Histories:
        histories = [self.histories[i] for i in rows]
        return Histories(histories, {each: self.learners[each] for each in histories}, self.moving, self.predicted)

    @property
    def recent(self) -> tuple[bytes, bool]:
        """The pair of the last symbols of a single sequence as bytes, and True if no event has been read yet.

        Without learning within sequences, two states with equal results have the same future.
        """
        (history,) = self.histories
        return history.recent.tobytes(), history.n == 0

    def predict(self, history: ReadHistory) -> np.ndarray:
        """Return what the learner predicts for the event after ``history``, usually the log-probability of each event.

        Args:
            history: one of this state's histories.
        """
        with self.moving:
            if history not in self.predicted:
                learner = self._learner_near(history)
                learner.move_to(history)
                self.predicted[history] = learner.predict(history)
            return self.predicted[history]

    def _learner_near(self, history: ReadHistory) -> Learner:
        learner = self.learners[history]
        if learner.at is not None:
            shared, _ = learner.way_to(history)
            if shared is None or learner.at.n - shared.n > MAX_STEPS_BACK:
                self.learners[history] = learner.another()
        return self.learners[history]


@dataclass(frozen=True)
class LearningCursor:
    """A cursor, which reads sequences step by step and predicts the next symbol, of a model that learns while it reads.

    Args:
        learners: description of how the fitted model learns.
        size: number of symbols V.
        observation: the model's distribution of symbols, which the predictions contain.
        device, dtype: device and precision of the predictions.
    """

    learners: Learners
    size: int
    observation: Observation
    device: torch.device
    dtype: torch.dtype

    def start(self, source: Source = None, n: int = 1) -> Histories:
        size, n_recent = self.size, self.learners.n_recent
        if isinstance(source, list):
            histories = [ReadHistory.start(each, size, n_recent) for each in source_of_each(source, n)]
        else:
            histories = [ReadHistory.start(source, size, n_recent)] * n
        return Histories(histories, dict.fromkeys(histories, self.learners.new()), Lock())

    def advance(self, state: Histories, x: Tensor) -> Histories:
        return state.advance(x.tolist(), self.learners.n_recent)

    def distribution(self, state: Histories) -> Prediction:
        number = {history: i for i, history in enumerate(dict.fromkeys(state.histories))}
        log_p = self.learners.log_probs([*number], np.stack([state.predict(history) for history in number]))
        of_each = torch.as_tensor(log_p[[number[history] for history in state.histories]], device=self.device)
        is_first = state.histories[0].n == 0  # the same for all sequences
        return prediction_of_symbols(self.observation, of_each, is_first, self.size, self.dtype)

    def select(self, state: Histories, index: Tensor) -> Histories:
        return state.select(index.tolist())


def prediction_of_symbols(
    observation: Observation, log_p: Tensor, is_first: bool, size: int, dtype: torch.dtype
) -> Prediction:
    """Return a ``Prediction`` of the next symbol of n sequences from its log-probabilities.

    Args:
        observation: the model's distribution of symbols.
        log_p: log-probabilities in nats, float64, ``(n, V)``; or ``(n, V + 1)`` with the end of the sequence last.
        is_first: True before the first symbol; the end is then excluded, because sequences are not empty.
        size: number of symbols V.
        dtype: precision of the prediction.
    """
    log_weights = torch.zeros(len(log_p), 1, dtype=dtype, device=log_p.device)
    log_end = log_p[:, size] if log_p.shape[1] > size else None
    if log_end is not None and is_first:
        log_end = torch.full_like(log_end, -torch.inf)
    return Prediction(observation, log_p[:, None, :size].to(dtype), log_weights, None, log_end)


def merged(states: Sequence[CursorState], keys: Iterable[Hashable]) -> MergedStates:
    """Merge cursor states with equal keys, because their futures are the same.

    Args:
        states: cursor states of one sequence each.
        keys: key of each state, equal if the states predict the same.

    Returns:
        For each different key, the indices of its states and the first of these states.
    """
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return [(group, states[group[0]]) for group in groups.values()]
