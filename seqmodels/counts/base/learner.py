"""Learners of the sequence that is read (``Learner``), and the histories between which they can be moved.

Tables that are learned from a sequence are too large to be copied at every step. So the state of a cursor keeps only
the history of each sequence and shares learners. A learner is at one history and can be moved to another: it takes back
events until the two histories meet, or starts anew if that is too far back, and learns the events that follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

MAX_UNDO = 256  # most events that a ``StepLearner`` can take back; beyond, the sequence is read again


@dataclass(frozen=True, eq=False, slots=True)
class ReadHistory:
    """A sequence that has been read, as a linked list of events, each a symbol or the end; compared by identity.

    Each element holds the last event and the element before it.

    Attributes:
        recent: the last k symbols, as many as the longest context has, including the start, ``(k,)``.
        n: number of events read.
        before: history before the last event; None before the first.
        event: last event; -1 before the first.
        source: source of the sequence (the symbols before its first event); None after the first event.
    """

    recent: np.ndarray
    n: int = 0
    before: ReadHistory | None = None
    event: int = -1
    source: np.ndarray | None = None

    @classmethod
    def start(cls, source: np.ndarray | None, size: int, n_recent: int) -> ReadHistory:
        """Return the history before the first event of a sequence.

        Args:
            source: symbols that come before the events; None if there are none.
            size: number of symbols V, which is also the code of the start symbol.
            n_recent: number of last symbols to keep.
        """
        symbols = np.array([size]) if source is None else np.append(size, source)
        return cls(symbols[max(0, len(symbols) - n_recent) :], source=source)

    def followed_by(self, event: int, n_recent: int) -> ReadHistory:
        """Return the history after one more event.

        Args:
            event: the next symbol, or V (the number of symbols) for the end.
            n_recent: number of last symbols that ``recent`` of the result keeps.
        """
        first_kept = max(0, len(self.recent) + 1 - n_recent)
        recent = np.append(self.recent[first_kept:], event) if n_recent else self.recent
        return ReadHistory(recent, self.n + 1, self, event)

    def from_start(self) -> list[ReadHistory]:
        """Return the histories after 0, 1, 2, ... events of this sequence; the last one is this history."""
        histories = [self]
        while histories[-1].before is not None:
            histories.append(histories[-1].before)
        return histories[::-1]


class Learner(ABC):
    """The base class of learners, which hold what a model has learned from one sequence on top of its fit.

    A learner reads events (symbols, or the end of the sequence) and can take them back. To add one, define the abstract
    methods here; or subclass ``StepLearner`` if single events are learned and taken back.

    Attributes:
        at: history (all events read so far) that it has learned from; None before ``move_to``.
    """

    at: ReadHistory | None = None

    @abstractmethod
    def begin(self, start: ReadHistory) -> None:
        """Forget everything learned and go to the start of a sequence.

        Args:
            start: history of the sequence before its first event.
        """

    @abstractmethod
    def learn(self, histories: Sequence[ReadHistory]) -> None:
        """Learn one event after another.

        Args:
            histories: history after each event, which is its last; each is one event longer than the one before it.
        """

    @abstractmethod
    def undo(self, n: int) -> bool:
        """Take back what was learned from the last n events (symbols, or the end of the sequence), and return True.

        Return False, with nothing changed, if that is impossible.
        """

    @abstractmethod
    def another(self) -> Self:
        """Return a learner that can be moved to other histories independently of this one.

        It is at the same history as this one, or at none yet. Return this learner itself if there can be no more.
        """

    @abstractmethod
    def predict(self, history: ReadHistory) -> np.ndarray:
        """Return the log-probability in nats of every event after ``history``, ``(V,)``, or ``(V + 1,)`` with the end.

        V is the number of symbols. The learner must have learned from ``history`` already (``move_to``). It may return
        other numbers, such as counts, if ``Learners.log_probs`` converts them to log-probabilities.
        """

    def way_to(self, history: ReadHistory) -> tuple[ReadHistory | None, list[ReadHistory]]:
        """Return how to get to ``history``: the history to go back to, and the histories to learn from there.

        The first is the last history that both have in common, None if there is none. The others are one event longer
        each and end with ``history``.
        """
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
        """Make this learner hold what it would have learned from ``history``, which lists all events read.

        It takes back events that ``history`` does not contain, and learns the others. If they cannot be taken back, it
        reads the sequence again from its start.
        """
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
    """A base class of learners of one event (a symbol or the end) at a time, in tables small enough to be copied.

    To add one, define ``clear``, ``learn_event``, ``undo_event``, ``copy`` and ``predict``.

    Args:
        is_adaptive: if False, nothing is learned.

    Attributes:
        steps: what ``learn_event`` returned for each of the last 256 events, so that they can be taken back.
    """

    is_adaptive: bool
    # The arguments of ``undo_event`` for the last events.
    steps: deque[Any] = field(default_factory=lambda: deque(maxlen=MAX_UNDO), init=False)

    @abstractmethod
    def clear(self) -> None:
        """Set all counts to zero, as before the first sequence."""

    @abstractmethod
    def learn_event(self, before: ReadHistory, event: int) -> Any:
        """Learn one event, and return what ``undo_event`` needs to take it back.

        Args:
            before: history of the sequence before the event.
            event: the symbol that came, or V (the number of symbols) for the end.
        """

    @abstractmethod
    def undo_event(self, step: Any) -> None:
        """Take back the event that was learned last.

        Args:
            step: what ``learn_event`` returned for this event.
        """

    @abstractmethod
    def copy(self) -> Self:
        """Return a learner with the same counts, of which one can be changed without the other."""

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
    """Return ``predicted`` unchanged, as the ``log_probs`` of ``Learners`` that predict log-probabilities directly.

    Args:
        histories: not used.
        predicted: predictions of the learners at n histories, ``(n, ...)``.
    """
    return predicted


@dataclass(frozen=True)
class Learners:
    """A description of how a fitted model learns from sequences: how to make learners, and what they predict.

    V is the number of symbols.

    Attributes:
        new: function that returns a learner that has read nothing.
        n_recent: number of last symbols that contexts contain.
        log_probs: function from n histories and the predictions of learners at them, ``(n, ...)``, to float64
            log-probabilities of the next events in nats, ``(n, V)``, or ``(n, V + 1)`` with the end last.
    """

    new: Callable[[], Learner]
    n_recent: int
    log_probs: Callable[[Sequence[ReadHistory], np.ndarray], np.ndarray] = as_predicted
