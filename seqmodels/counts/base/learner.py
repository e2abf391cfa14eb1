"""What a model learns from the sequence that it reads, and takes back: ``Learner``, which is at one ``ReadHistory``.

Tables that are learned from a sequence are too large to be copied at every step. So a state of a cursor keeps the
history of each sequence alone, and shares learners, each of which is at one history and can be moved to another: it
takes back events to where both part, or begins anew where that is too far back, and learns those that follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

MAX_UNDO = 256  # events that a ``StepLearner`` can take back; from further back a sequence is read again


@dataclass(frozen=True, eq=False, slots=True)
class ReadHistory:
    """What was read of a sequence: its last event, and the history before that; told apart by identity.

    Attributes:
        recent: ``(k,)`` the last symbols, as far as contexts reach back, the start among them.
        n: events that were read.
        before: the history before the last event; None before the first.
        event: the last.
        source: what the sequence is given; None after the first event.
    """

    recent: np.ndarray
    n: int = 0
    before: ReadHistory | None = None
    event: int = -1
    source: np.ndarray | None = None

    @classmethod
    def start(cls, source: np.ndarray | None, size: int, n_recent: int) -> ReadHistory:
        """Before the first event, after the start symbol ``size`` and a source; with so many recent symbols."""
        symbols = np.array([size]) if source is None else np.append(size, source)
        return cls(symbols[max(0, len(symbols) - n_recent) :], source=source)

    def followed_by(self, event: int, n_recent: int) -> ReadHistory:
        """The history after one more event, with so many recent symbols."""
        first_kept = max(0, len(self.recent) + 1 - n_recent)
        recent = np.append(self.recent[first_kept:], event) if n_recent else self.recent
        return ReadHistory(recent, self.n + 1, self, event)

    def from_start(self) -> list[ReadHistory]:
        """All histories on the way to this one, which is the last."""
        histories = [self]
        while histories[-1].before is not None:
            histories.append(histories[-1].before)
        return histories[::-1]


class Learner(ABC):
    """What a model has learned from one sequence, on top of its fit.

    To add one, define what is abstract here; or subclass ``StepLearner``, where an event is learned, and taken back, by
    itself.

    Attributes:
        at: the history that it has learned from; None before ``move_to``.
    """

    at: ReadHistory | None = None

    @abstractmethod
    def begin(self, start: ReadHistory) -> None:
        """Forget what was learned, and stand at the start of a sequence."""

    @abstractmethod
    def learn(self, histories: Sequence[ReadHistory]) -> None:
        """Learn the events by which these histories, at least one, each go on from the one before."""

    @abstractmethod
    def undo(self, n: int) -> bool:
        """Take back the last n events; False, and nothing is changed, where it cannot."""

    @abstractmethod
    def another(self) -> Self:
        """One that is moved apart from this, here or nowhere yet; or this one, where there can be no more."""

    @abstractmethod
    def predict(self, history: ReadHistory) -> np.ndarray:
        """The log-probabilities of what may come after ``history``, which it has learned from.

        Or what ``Learners.log_probs`` makes them of, for many histories at once.
        """

    def way_to(self, history: ReadHistory) -> tuple[ReadHistory | None, list[ReadHistory]]:
        """The last history that is before both, if there is one, and those after it that lead to ``history``."""
        here: ReadHistory | None = self.at
        there: ReadHistory | None = history
        ahead: list[ReadHistory] = []
        while here is not there:
            if there is not None and (here is None or there.n >= here.n):
                ahead.append(there)
                there = there.before
            else:
                assert here is not None, "or both are None"
                here = here.before
        return here, ahead[::-1]

    def move_to(self, history: ReadHistory) -> None:
        """Take back what is not of this history, and learn the rest."""
        shared, ahead = self.way_to(history)
        n_back = self.at.n - shared.n if self.at is not None and shared is not None else 0
        self.at = None  # if learning is interrupted
        if shared is not None and n_back > 0 and not self.undo(n_back):
            ahead, shared = [*shared.from_start(), *ahead], None
        if shared is None:
            self.begin(ahead.pop(0))
        if ahead:
            self.learn(ahead)
        self.at = history


@dataclass(eq=False)
class StepLearner(Learner, ABC):
    """A learner of one event at a time, in tables that are small enough to be copied.

    To add one, define ``clear``, ``learn_event``, ``undo_event``, ``copy`` and ``predict``.

    Args:
        is_adaptive: without it nothing is learned.
    """

    is_adaptive: bool
    # Of the last events what ``undo_event`` needs.
    steps: deque[Any] = field(default_factory=lambda: deque(maxlen=MAX_UNDO), init=False)

    @abstractmethod
    def clear(self) -> None:
        """Forget all that was learned."""

    @abstractmethod
    def learn_event(self, before: ReadHistory, event: int) -> Any:
        """Learn that an event came after a history; returns what ``undo_event`` needs."""

    @abstractmethod
    def undo_event(self, step: Any) -> None:
        """Take back the last event, ``step`` being what ``learn_event`` returned."""

    @abstractmethod
    def copy(self) -> Self:
        """With tables of its own."""

    def begin(self, start: ReadHistory) -> None:
        self.clear()
        self.steps.clear()

    def learn(self, histories: Sequence[ReadHistory]) -> None:
        if self.is_adaptive:
            for history in histories:
                assert history.before is not None, "it ends with an event"
                self.steps.append(self.learn_event(history.before, history.event))

    def undo(self, n: int) -> bool:
        if n > len(self.steps):
            return not self.is_adaptive
        for _ in range(n):
            self.undo_event(self.steps.pop())
        return True

    def another(self) -> Self:
        other = self.copy()
        other.at, other.steps = self.at, self.steps.copy()
        return other


def as_predicted(histories: Sequence[ReadHistory], predicted: np.ndarray) -> np.ndarray:
    """Log-probabilities of learners that predict them."""
    return predicted


@dataclass(frozen=True)
class Learners:
    """How a fitted model learns from sequences.

    Attributes:
        new: a learner that has read nothing.
        n_recent: how many of the last symbols its contexts hold.
        log_probs: ``(n, V)``, or ``(n, V + 1)`` where ends are events, float64 nats of what may come after each of n
            histories, from what learners at them predict, ``(n, ...)``.
    """

    new: Callable[[], Learner]
    n_recent: int
    log_probs: Callable[[Sequence[ReadHistory], np.ndarray], np.ndarray] = as_predicted
