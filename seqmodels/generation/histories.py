"""States of cursors that learn while they read: histories are values; what was learned moves between them.

A table that is learned from a sequence is too large to be copied at every step. So a state keeps the history alone, and
shares with others a ``Learner``, which is at one history and can be moved to another: it undoes steps back to the
history that both began with, and learns those that follow. Where that is far back it is copied, or made anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

MAX_STEPS_BACK = 4  # that are undone in the place of a copy
MAX_UNDO = 256  # steps that can be undone; from further back a sequence is read again


@dataclass(frozen=True, eq=False)
class ReadHistory:
    """A sequence: its last event, and the history before that.

    Attributes:
        recent: ``(k,)`` the last symbols, as far as contexts reach back, the start among them.
        n: events that were read.
        parent: the history before the last event; None before the first.
        event: the last.
    """

    recent: np.ndarray
    n: int = 0
    parent: ReadHistory | None = None
    event: int = -1

    def followed_by(self, event: int, n_recent: int) -> ReadHistory:
        """The history after one more event, with so many recent symbols."""
        recent = np.append(self.recent, event)
        return ReadHistory(recent[max(0, len(recent) - n_recent) :], self.n + 1, self, event)


class Learner(Protocol):
    """What a model has learned from one sequence, and can take back event by event."""

    def learn(self, before: ReadHistory, event: int) -> Any:
        """Learn that an event came after a history; returns what ``undo`` needs."""

    def undo(self, step: Any) -> None:
        """Take back the last event, ``step`` being what ``learn`` returned."""

    def copy(self) -> Self:
        """The same, apart from what becomes of this one."""


LearnerT = TypeVar("LearnerT", bound=Learner)


@dataclass
class LearnerAt(Generic[LearnerT]):
    """A learner, and the history that it has learned from."""

    learner: LearnerT
    at: ReadHistory
    steps: deque[Any] = field(default_factory=lambda: deque(maxlen=MAX_UNDO))  # the last, as ``undo`` needs them

    def way_to(self, history: ReadHistory) -> tuple[int, list[ReadHistory]]:
        """How many steps to undo to come to a history on the way to ``history``, and what to learn from there on."""
        here, n_back, ahead = self.at, 0, []
        while here is not history:
            if here.n >= history.n:
                assert here.parent is not None, "histories of one start"
                here, n_back = here.parent, n_back + 1
            else:
                assert history.parent is not None
                ahead.append(history)
                history = history.parent
        return n_back, ahead[::-1]

    def move(self, n_back: int, ahead: list[ReadHistory]) -> None:
        """Undo ``n_back`` events, then learn those that end the histories ``ahead``."""
        for _ in range(n_back):
            assert self.at.parent is not None
            self.learner.undo(self.steps.pop())
            self.at = self.at.parent
        for history in ahead:
            self.steps.append(self.learner.learn(self.at, history.event))
            self.at = history

    def copy(self) -> LearnerAt[LearnerT]:
        """The same, apart from what becomes of this one."""
        return LearnerAt(self.learner.copy(), self.at, self.steps.copy())


@dataclass(frozen=True)
class Histories(Generic[LearnerT]):
    """The state of a cursor: the history of each of n sequences, and learners that are at or near them."""

    histories: list[ReadHistory]
    learners: list[LearnerAt[LearnerT]]
    moving: Lock = field(repr=False, compare=False)  # one for all states that share learners

    @classmethod
    def start(cls, histories: list[ReadHistory], new: Callable[[], LearnerT]) -> Histories[LearnerT]:
        """The state before the first event of each sequence, with a ``new()`` learner each."""
        return cls(histories, [LearnerAt(new(), each) for each in histories], Lock())

    def advance(self, events: list[int], n_recent: int) -> Histories[LearnerT]:
        """After one more event of each."""
        histories = [each.followed_by(event, n_recent) for each, event in zip(self.histories, events, strict=True)]
        return Histories(histories, [*self.learners], self.moving)

    def select(self, rows: list[int]) -> Histories[LearnerT]:
        """The state of the sequences ``rows``; learners are shared until one moves."""
        return Histories([self.histories[i] for i in rows], [self.learners[i] for i in rows], self.moving)

    def with_learner(self, i: int, new: Callable[[], LearnerT], use: Callable[[LearnerT], np.ndarray]) -> np.ndarray:
        """What ``use`` makes of a learner that has learned from history ``i``; ``new`` makes one that knows nothing."""
        history = self.histories[i]
        with self.moving:
            n_back, ahead = self.learners[i].way_to(history)
            if n_back > len(self.learners[i].steps):
                first = history
                while first.parent is not None:
                    first = first.parent
                self.learners[i] = LearnerAt(new(), first)
                n_back, ahead = self.learners[i].way_to(history)
            elif n_back > MAX_STEPS_BACK:
                self.learners[i] = self.learners[i].copy()
            self.learners[i].move(n_back, ahead)
            return use(self.learners[i].learner)
