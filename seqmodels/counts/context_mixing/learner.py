"""The learner of context mixing: the tables of a reader that follow one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakSet, finalize

import numpy as np

from seqmodels.counts.base import Learner, ReadHistory
from seqmodels.counts.context_mixing.reader import Readers

READER_BYTES = 2**28  # most memory of the readers for several sequences at once
MAX_READERS = 64


class MixingLearner(Learner):
    """A learner of one sequence for context mixing, which borrows a ``Reader`` with arrays of its own while in use.

    A reader's arrays are as large as the whole model, so they can neither be copied at each step nor exist for each of
    many sequences. ``another`` therefore returns a learner that reads its sequence from the start, or this one if no
    memory is left.

    Args:
        readers: store of readers of the fitted model.
        has_end: True if the end is an event.
        of_cursor: all learners of the cursor, which share the memory.
    """

    def __init__(self, readers: Readers, has_end: bool, of_cursor: WeakSet[MixingLearner]) -> None:
        self.readers, self.has_end, self.of_cursor = readers, has_end, of_cursor
        self.reader = readers.take()
        finalize(self, readers.give, self.reader)
        of_cursor.add(self)

    def begin(self, start: ReadHistory) -> None:
        self.reader.begin()
        if start.source is not None:
            self.reader.read_source(start.source)

    def learn(self, histories: Sequence[ReadHistory]) -> None:
        first_end = len(histories) if not self.has_end else 1 if histories[0].n == 1 else 0
        self.reader.read(np.array([history.event for history in histories]), first_end)

    def undo(self, n: int) -> bool:
        if self.reader.can_roll_back():
            self.reader.roll_back(n)
            return True
        return False

    def another(self) -> MixingLearner:
        most = max(1, min(MAX_READERS, READER_BYTES // self.reader.n_bytes))
        return self if len(self.of_cursor) >= most else MixingLearner(self.readers, self.has_end, self.of_cursor)

    def predict(self, history: ReadHistory) -> np.ndarray:
        log_probs = self.reader.next_log_probs(self.has_end and history.n > 0)
        return log_probs if self.has_end else log_probs[:-1]
