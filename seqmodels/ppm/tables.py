"""The fitted automaton, and how a sequence is read with it: predicted step by step, and learned from on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from seqmodels.array_checks import array_of, check_between, check_codes
from seqmodels.compiled import warn_if_slow
from seqmodels.ppm import kernels
from seqmodels.ppm.kernels import EventBuffers, Fitted, PPMRule, Read

ROOM = 64  # events of a sequence whose length is not known; it doubles when they have been read
MAX_LOGGED = 4096  # changes of a step that can be undone; after more the sequence is read again
LARGEST_COUNT = 1e6  # that a file may hold

# A sequence: its source, if it has one, and its events, perhaps with an end.
Row = tuple[np.ndarray, np.ndarray]


class StepUndo(NamedTuple):
    """What undoes a step: the state before it, sizes, and what changed places were; ``is_whole``: all of them."""

    last: int
    n_states: int
    n_edges: int
    log_of: np.ndarray
    log_values: np.ndarray
    is_whole: bool


@dataclass
class PPMReader:
    """One sequence, or all of a fit: what it has taught so far, and the state of its longest context.

    Of new arrays only what is used is in memory: the system gives pages when they are written to.
    """

    model: FittedPPM
    arrays: Read
    buffers: EventBuffers
    room: int
    n_read: int = 0
    last: int = kernels.ANCHOR

    def make_room(self, n: int) -> None:
        """For ``n`` more events."""
        if self.n_read + n > self.room:
            self.room = max(2 * self.room, self.n_read + n)
            self.arrays, self.buffers = self.model.arrays(self.room, like=self.arrays), self.model.buffers(self.room)

    def read(
        self, outcomes: np.ndarray, *, is_adaptive: bool, is_first: bool = False, of_all: bool = False
    ) -> np.ndarray:
        """The log-probability of each event before it is learned from, ``(T,)``; ``of_all``: ``(T, N)`` of all.

        ``is_first``: the first event is that of a sequence, which is not its end.
        """
        model = self.model
        self.make_room(len(outcomes))
        log_probs = np.zeros((len(outcomes), model.n_outcomes if of_all else 1))
        self.last = kernels.read_steps(
            self.last,
            np.ascontiguousarray(outcomes, np.int64),
            is_adaptive,
            model.end if is_first else -1,
            model.end,
            tuple(model.fitted),
            tuple(self.arrays),
            model.escapes,
            tuple(model.rule),
            tuple(self.buffers),
            log_probs,
            of_all,
        )
        self._have_read(len(outcomes))
        return log_probs if of_all else log_probs[:, 0]

    def read_source(self, symbols: np.ndarray, *, is_adaptive: bool) -> None:
        """Go on to the contexts after symbols that are not predicted."""
        self.make_room(len(symbols))
        fitted, symbols = tuple(self.model.fitted), np.ascontiguousarray(symbols, np.int64)
        self.last = int(kernels.read_source(self.last, symbols, is_adaptive, fitted, tuple(self.arrays)))
        self._have_read(len(symbols))

    def _have_read(self, n: int) -> None:
        self.n_read += n
        if self.arrays.sizes[kernels.IS_FULL]:
            raise ValueError("the automaton is none of sequences: the file that it is from was changed")

    def read_row(self, row: Row, *, is_adaptive: bool, of_all: bool = False) -> np.ndarray:
        """As ``read``, of a sequence from its start."""
        source, outcomes = row
        self.last = kernels.ANCHOR
        self.n_read += 1  # the start
        self.read_source(source, is_adaptive=is_adaptive)
        return self.read(outcomes, is_adaptive=is_adaptive, is_first=True, of_all=of_all)

    def learn(self, event: int, *, is_adaptive: bool, is_first: bool) -> StepUndo:
        """Read one event; returns what undoes that."""
        self.make_room(1)
        sizes = self.arrays.sizes
        last, n_states, n_edges = self.last, int(sizes[kernels.N_STATES]), int(sizes[kernels.N_EDGES])
        sizes[kernels.N_LOGGED] = 0
        self.read(np.array([event]), is_adaptive=is_adaptive, is_first=is_first)
        n, log_of, log_values = int(sizes[kernels.N_LOGGED]), self.arrays.log_of, self.arrays.log_values
        return StepUndo(last, n_states, n_edges, log_of[:n].copy(), log_values[:n].copy(), n <= len(log_of))

    def undo(self, step: StepUndo) -> None:
        """Take back the last event."""
        kernels.take_back(step.log_of, step.log_values, step.n_states, step.n_edges, tuple(self.arrays))
        self.last = step.last
        self.n_read -= 1

    def copy(self) -> PPMReader:
        """The same, apart from what becomes of this one."""
        arrays, buffers = self.model.arrays(self.room, like=self.arrays), self.model.buffers(self.room)
        return PPMReader(self.model, arrays, buffers, self.room, self.n_read, self.last)

    def outcome_log_probs(self, *, is_first: bool) -> np.ndarray:
        """``(N,)`` of the next event."""
        model = self.model
        log_probs = np.zeros(model.n_outcomes)
        kernels.predict(
            kernels.NONE,
            self.last,
            model.end if is_first else -1,
            tuple(model.fitted),
            tuple(self.arrays),
            model.escapes,
            tuple(model.rule),
            tuple(self.buffers),
            log_probs,
        )
        return log_probs


@dataclass(frozen=True)
class FittedPPM:
    """The automaton of the training sequences, and the log-odds of escapes.

    Args:
        size: V, of the alphabet; V is also the end as an outcome.
        has_end: whether ends are events.
        rule: constants of estimates and updates.
        fitted: the automaton; the edges of a state follow each other, by rising symbols.
        escapes: ``(N_TABLES, N_CLASSES, N_CLASSES, N_CLASSES)``; what is added up for the log-odds of an escape.
        n_read: symbols of all training sequences, with sources, starts and ends.
    """

    size: int
    has_end: bool
    rule: PPMRule
    fitted: Fitted
    escapes: np.ndarray
    n_read: int

    @classmethod
    def fit(cls, rows: list[Row], size: int, has_end: bool, rule: PPMRule) -> tuple[Self, np.ndarray]:
        """Read training sequences one after the other, learning all the time; also the log-probability of each."""
        warn_if_slow("PPM.fit", sum(len(outcomes) for _, outcomes in rows))
        nothing = Fitted(np.zeros((0, 3), np.int32), np.zeros((0, 3), np.int32), np.zeros(0))
        escapes = kernels.initial_escapes()
        n_read = sum(1 + len(source) + len(outcomes) for source, outcomes in rows)
        model = cls(size, has_end, rule, nothing, escapes, 0)
        reader = model.reader(n_read)
        for link, length in ((kernels.NONE, 0), (kernels.ROOT, 1)):  # the root and the anchor
            kernels.new_state(kernels.NONE, link, length, tuple(nothing), tuple(reader.arrays))
        log_prob = [reader.read_row(row, is_adaptive=True).sum() for row in rows]
        scoring = rule._replace(escape_rate=0.0)
        return cls(size, has_end, scoring, _in_order(reader.arrays), escapes, n_read), np.array(log_prob)

    @property
    def n_outcomes(self) -> int:
        """N: the symbols and, where ends are events, the end."""
        return self.size + self.has_end

    @property
    def end(self) -> int:
        """The end as an outcome; -1 where it is no event."""
        return self.size if self.has_end else -1

    @property
    def n_counts(self) -> int:
        """Pairs of a state and a symbol that followed."""
        return int((self.fitted.counts > 0).sum())

    def buffers(self, room: int) -> EventBuffers:
        """What a kernel writes on, of one thread, in sequences of so many events."""
        n = self.n_outcomes
        marks, chain = np.zeros((n, 2), np.int64), np.empty(room + 4, np.int64)
        return EventBuffers(marks, np.zeros(n), chain, np.empty(room + 4), np.zeros(1, np.int64))

    def arrays(self, room: int, *, like: Read | None = None, n_logged: int = 0) -> Read:
        """With room for so many events: what others hold, or nothing yet; ``n_logged`` changes can be logged.

        An automaton of sequences of n symbols, starts and ends among them, has at most ``2 n + 2`` states. The edges of
        the longest ways to its states are a tree, and of the others each has a suffix of its own, so there are at most
        ``3 n + 2`` edges. A sequence has copies of those of the fit, at most, and those that it adds.
        """
        n_fitted = len(self.fitted.states)
        n_states = n_fitted + 2 * room + 4
        n_edges = 3 * (self.n_read + room) + 4
        states, edges = np.empty((n_states, 3), np.int32), np.empty((n_edges, 3), np.int32)
        counts = np.empty(n_edges)
        if like is None:
            copies, sizes = np.zeros(n_fitted, np.int32), np.zeros(4, np.int64)
        else:
            copies, sizes, n_logged = like.copies.copy(), like.sizes.copy(), len(like.log_of)
            some, many = int(sizes[kernels.N_STATES]), int(sizes[kernels.N_EDGES])
            states[:some], edges[:many], counts[:many] = like.states[:some], like.edges[:many], like.counts[:many]
        return Read(states, edges, counts, copies, np.empty((n_logged, 3), np.int64), np.empty(n_logged), sizes)

    def reader(self, room: int = ROOM, *, can_undo: bool = False) -> PPMReader:
        """At the start of a sequence, with room for so many events to begin with."""
        return PPMReader(self, self.arrays(room, n_logged=MAX_LOGGED * can_undo), self.buffers(room), room)

    def to_state(self) -> dict[str, Any]:
        """Arrays; edges by state and symbol."""
        states, edges, counts = self.fitted
        (with_edges,) = np.nonzero(states[:, kernels.FIRST] >= 0)
        n_edges = np.diff(np.append(states[with_edges, kernels.FIRST], len(edges)))
        return {
            "links": states[:, kernels.LINK].copy(),
            "lengths": states[:, kernels.LENGTH].copy(),
            "edges": np.repeat(with_edges, n_edges) * self.n_outcomes + edges[:, kernels.SYMBOL],
            "targets": edges[:, kernels.TARGET].copy(),
            "counts": counts,
            "escapes": self.escapes,
            "n_read": self.n_read,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], size: int, has_end: bool, rule: PPMRule) -> Self:
        """What ``to_state`` gave; ``ValueError`` for what no fit could have found."""
        links = array_of(state, "links", np.int32, (None,))
        n_states = len(links)
        lengths = array_of(state, "lengths", np.int32, (n_states,))
        is_root = np.arange(n_states) == kernels.ROOT
        within = is_root | ((links >= 0) & (links < n_states))
        if n_states < 2 or not within.all() or (lengths[links] >= lengths)[~is_root].any() or links[0] != -1:
            raise ValueError("'links' should go from each state to one of shorter contexts, and end at the first")
        if lengths[0] != 0:
            raise ValueError("'lengths' should be 0 of the first state, the empty context")
        n_outcomes = size + has_end
        codes = check_codes("edges", array_of(state, "edges", np.int64, (None,)), n_states, n_outcomes)
        owner, symbols = codes // n_outcomes, codes % n_outcomes
        targets = array_of(state, "targets", np.int32, (len(codes),))
        is_end = symbols == (size if has_end else -1)
        good = np.where(is_end, targets == -1, (targets > 0) & (targets < n_states))
        if not good.all():
            raise ValueError("'targets' should be states, and -1 after an end")
        counts = check_between("counts", array_of(state, "counts", np.float64, (len(codes),)), 0, LARGEST_COUNT)
        shape = (kernels.N_TABLES, *[kernels.N_CLASSES] * 3)
        escapes = check_between("escapes", array_of(state, "escapes", np.float64, shape), -MAX_ESCAPE, MAX_ESCAPE)
        n_read = state.get("n_read")
        if type(n_read) is not int or not n_states <= 2 * n_read + 2 or not len(codes) <= 3 * n_read + 2 < 2**31:
            raise ValueError(f"'n_read' is {n_read!r}, which cannot be with {n_states} states and {len(codes)} edges")
        return cls(size, has_end, rule, _automaton(links, lengths, owner, symbols, targets, counts), escapes, n_read)


MAX_ESCAPE = 1e3  # far more than gradient steps come to


def _automaton(
    links: np.ndarray,
    lengths: np.ndarray,
    owner: np.ndarray,
    symbols: np.ndarray,
    targets: np.ndarray,
    counts: np.ndarray,
) -> Fitted:
    """From edges in the order of their states."""
    states = np.full((len(links), 3), kernels.NONE, np.int32)
    n_edges = np.bincount(owner, minlength=len(links))
    states[:, kernels.FIRST] = np.where(n_edges > 0, np.cumsum(n_edges) - n_edges, kernels.NONE)
    states[:, kernels.LINK], states[:, kernels.LENGTH] = links, lengths
    following = np.arange(1, len(owner) + 1)
    following[np.cumsum(n_edges)[n_edges > 0] - 1] = kernels.NONE
    edges = np.column_stack([symbols, targets, following]).astype(np.int32)
    return Fitted(states, np.ascontiguousarray(edges), np.ascontiguousarray(counts))


def _in_order(arrays: Read) -> Fitted:
    """The automaton of a fit, its edges by state and symbol."""
    n_states, n_edges = (int(n) for n in arrays.sizes[[kernels.N_STATES, kernels.N_EDGES]])
    owner = np.full(n_edges, kernels.NONE, np.int64)
    kernels.owners(arrays.states[:n_states], arrays.edges[:n_edges], owner)
    order = np.lexsort((arrays.edges[:n_edges, kernels.SYMBOL], owner))
    edges = arrays.edges[order]
    states = arrays.states[:n_states]
    return _automaton(
        states[:, kernels.LINK],
        states[:, kernels.LENGTH],
        owner[order],
        edges[:, kernels.SYMBOL],
        edges[:, kernels.TARGET],
        arrays.counts[order],
    )
