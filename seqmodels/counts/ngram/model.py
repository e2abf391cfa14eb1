"""n-gram models: counts of short strings as a ``SequenceModel``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, get_args

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.counts.base import CountModel, Learners, merged, n_weighted_units
from seqmodels.counts.ngram.counts import count
from seqmodels.counts.ngram.counts_in_parts import count_streams, fitting_min_count
from seqmodels.counts.ngram.cursor import NGramCursor, adaptive_log_probs
from seqmodels.counts.ngram.events import Events
from seqmodels.counts.ngram.interpolation import Components, Interpolation, components
from seqmodels.counts.ngram.read_counts import CountLearner, ReadCounts, read_counts
from seqmodels.counts.ngram.smoothing import Smoothing
from seqmodels.counts.ngram.stream_counts import EventStream
from seqmodels.counts.ngram.stream_scoring import log_prob_of_training, write_stream_steps
from seqmodels.counts.ngram.tables import Tables
from seqmodels.encodings.examples import Example
from seqmodels.encodings.on_disk import OnDisk
from seqmodels.encodings.precision import DTYPES
from seqmodels.generation import Cursor, CursorState, MergedStates
from seqmodels.sequences.mapped import StepsSum, steps_arrays
from seqmodels.sequences.sequences import PAST_OF_TEST

MIN_SEQUENCES_TO_HOLD_OUT = 10  # with fewer sequences, the last tenth of each is held out
MIN_STEPS_TO_CUT = 20
MAX_HELD_OUT = 200_000  # steps on which weights are learned
MAX_STRINGS_FROM_DISK = 3 << 22  # default; a fit with a third more, of 100,000 symbols, took 2.2 GB


@dataclass(eq=False, repr=False)
class NGram(CountModel):
    """An n-gram model ``p(x_t | the n - 1 symbols before)``, interpolated with all shorter contexts and the uniform
    distribution.

    Smoothing is modified Kneser-Ney (Kneser and Ney 1995; Chen and Goodman 1999) or Witten-Bell (1991). Each sequence
    follows a start symbol, which contexts may contain, so the first steps have shorter contexts. Every symbol of the
    alphabet, and under ``length="stop"`` the end, has a probability above zero everywhere.

    Args:
        order: n, the length of the longest strings counted: ``n - 1`` symbols and the symbol after them.
        smoothing: ``"kneser-ney"`` estimates shorter contexts from the number of different symbols that precede a
            string, instead of how often it occurs; ``"witten-bell"`` gives unseen symbols as much as was new in a
            context.
        adaptive: if True, the model goes on counting within a sequence; at the start of each sequence it is the fitted
            n-gram again. With ``c`` the counts of the sequence so far and ``f`` the trained shares of a context, ``p(w
            | h) = a c(h w) / c(h) + b f(w | h) + (1 - a - b) p(w | h without its oldest symbol)``. ``fit`` learns the
            weights by EM on a tenth of the training data, which is not counted meanwhile (Jelinek and Mercer 1980).
            They depend on the length of the context, on how much the trained context leaves to shorter ones, on how
            often it was read, and on how many different symbols followed.
        min_count: strings of two or more symbols that occur less often are left out of the tables, for less memory and
            smaller files. Their shares go to shorter contexts, so that probabilities still sum to one. Discounts and
            the counts of shorter contexts are computed from all strings, as under ``--prune`` of KenLM (Heafield et al.
            2013).
        max_strings: most strings of two or more symbols, which take some 50 bytes each while they are counted. If there
            are more, the rarest are left out by raising ``min_count`` (``min_count_`` and a warning say to what). None
            means 12.6 million for sequences on disk, and all for sequences in memory.

    The other arguments are described in ``SequenceModel``. The model is for symbols and text. With targets it counts y,
    in contexts that reach back into x. ``warm_start`` is refused, because there is no starting point. ``sample_weight``
    repeats sequences; under Kneser-Ney, which depends on strings seen once and twice, weights must be whole numbers.
    ``n_parameters_`` is the number of different strings of all lengths in the tables. Sums are float64 for any
    ``dtype``.

    >>> model = NGram(2, smoothing="witten-bell", length="given").fit([np.array([0, 1, 0, 1])])
    >>> [round(float(p), 3) for p in model.predict_next(np.array([0])).probs]  # after a zero: twice a one, nothing else
    [0.167, 0.833]
    """

    order: int = 5
    smoothing: Smoothing = "kneser-ney"
    adaptive: bool = False
    min_count: int = 1
    max_strings: int | None = None

    _bounded_by_data: ClassVar[Mapping[str, str]] = {"order": "longest"}
    _reads_from_disk: ClassVar[bool] = True

    @property
    def context_(self) -> int | None:
        return None if self.adaptive else self._context_of(self.order - 1)

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.tables_.n_grams

    def _check_options(self) -> None:
        if self.order < 1:
            raise ValueError(f"order is {self.order}; pass at least 1")
        if self.smoothing not in get_args(Smoothing):
            raise ValueError(f"smoothing is {self.smoothing!r}; pass 'kneser-ney' or 'witten-bell'")
        if self.min_count < 1:
            raise ValueError(f"min_count is {self.min_count}; pass at least 1, which leaves nothing out")
        if self.max_strings is not None and self.max_strings < 1:
            raise ValueError(f"max_strings is {self.max_strings}; pass at least 1, or None")

    def _learn(self, train: list[Example]) -> float:
        counted = [example for example in train if example.weight > 0]
        self._check_weights(counted)
        self.tables_, self.min_count_ = self._tables(counted)
        if self.min_count_ > self.min_count:
            warn_caller(
                f"there are more than {self._most_strings(counted):,} different strings of 2 to {self.order} symbols; "
                f"those that occur less than {self.min_count_} times are left out (min_count_). Pass a larger "
                "max_strings if memory holds them",
            )
        self.interpolation_ = self._interpolation(counted) if self.adaptive else None
        return self._nats_per_unit_of_training(train)

    def _tables(self, examples: list[Example]) -> tuple[Tables, int]:
        """Return the tables fitted to the examples, and the smallest count of an n-gram of two or more symbols in them.

        It is ``min_count``, or more if there would be more than ``max_strings`` such n-grams.
        """
        size, has_end, most = self.encoding_.size, self.length_ == "stop", self._most_strings(examples)
        if _are_on_disk(examples):
            streams = self._streams(examples)
            counts, min_count = count_streams(streams, self.order, self.smoothing, self.min_count, most)
        else:
            counts = count(Events.from_examples(examples, size, has_end), self.order, size)
            min_count = fitting_min_count(counts[1:], self.min_count, most)
        return Tables.from_counts(counts, size, has_end, self.smoothing, min_count), min_count

    def _most_strings(self, examples: list[Example]) -> int:
        if self.max_strings is None:
            return MAX_STRINGS_FROM_DISK if _are_on_disk(examples) else sys.maxsize
        return self.max_strings

    def _interpolation(self, examples: list[Example]) -> Interpolation:
        """Return interpolation weights learned on a tenth of the examples, with tables of the others.

        They are default weights if there are too few examples.
        """
        before = Interpolation.before_learning(len(self.tables_.levels))
        kept, held_out = _hold_out(examples, self.random_state)
        if not kept or not held_out:
            return before
        tables, _ = self._tables(kept)
        events = Events.from_examples(held_out, tables.size, tables.has_end)
        n_past = np.repeat([example.n_past for example in held_out], events.lengths)
        is_scored = np.concatenate([np.arange(n) for n in events.lengths]) >= n_past
        levels = [level.take(is_scored) for level in _components(tables, events)]
        return before.learn(levels, tables.uniform, events.weight[is_scored])

    def _check_weights(self, examples: list[Example]) -> None:
        broken = [example.weight for example in examples if example.weight % 1]
        if broken and self.smoothing == "kneser-ney":
            raise ValueError(
                f"sample_weight has {broken[0]}, but Kneser-Ney counts whole sequences; pass whole numbers, or "
                "smoothing='witten-bell'"
            )

    def _nats_per_unit_of_training(self, examples: list[Example]) -> float:
        counted = [example for example in examples if example.weight > 0]
        if self.adaptive or not _are_on_disk(counted):
            return self._nats_per_unit(examples)
        return log_prob_of_training(self.tables_, self._streams(counted)) / n_weighted_units(counted)

    def _streams(self, examples: list[Example]) -> list[EventStream]:
        return [EventStream(example, self.encoding_.size, self.length_ == "stop") for example in examples]

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        if not examples:
            return []
        if not self.adaptive and _are_on_disk(examples):
            streams = self._streams(examples)
            results = steps_arrays(list(map(len, streams)))
            for stream, steps in zip(streams, results, strict=True):
                write_stream_steps(self.tables_, stream, steps)
            return results
        tables = self.tables_
        if self.adaptive:
            return _adaptive_steps(tables, self._learned_interpolation(), examples)
        events = Events.from_examples(examples, tables.size, tables.has_end)
        context_ids = tables.context_ids(events.contexts())
        log_p = np.log(tables.probability(context_ids, events.event))
        if tables.has_end:  # the first step is not the end, for certain
            first = np.flatnonzero(events.is_first)
            ends = tables.probability([ids[first] for ids in context_ids], np.full(len(first), tables.size))
            log_p[first] -= np.log1p(-ends)
        return events.split(log_p)

    def _sums_of_steps(self, examples: list[Example]) -> np.ndarray:
        if self.adaptive or not _are_on_disk(examples):
            return super()._sums_of_steps(examples)
        sums = [StepsSum(first=example.n_past) for example in examples]
        for stream, steps in zip(self._streams(examples), sums, strict=True):
            write_stream_steps(self.tables_, stream, steps)
        return np.array([steps.value for steps in sums])

    def _event_log_probs(self, examples: list[Example]) -> list[np.ndarray]:
        if self.adaptive:
            return super()._event_log_probs(examples)
        tables = self.tables_
        results = []
        for example in examples:
            events = Events.from_examples([example], tables.size, tables.has_end)
            with np.errstate(divide="ignore"):
                log_p = np.log(tables.probability_of_all(tables.context_ids(events.contexts())))
                if tables.has_end:  # the first step is not the end, for certain
                    log_p[0, :-1] -= np.log1p(-np.exp(log_p[0, -1]))
                    log_p[0, -1] = -np.inf
            results.append(log_p)
        return results

    # -- one step at a time --------------------------------------------------------------------------------

    def cursor(self, n_steps: int | None = None) -> Cursor:
        if self.adaptive:
            return super().cursor(n_steps)
        self._setting()
        return NGramCursor(self.tables_, self.observation_, self._device(), DTYPES[self.dtype])

    def _learners(self) -> Learners:
        tables, order = self.tables_, len(self.tables_.levels)
        log_probs = partial(adaptive_log_probs, tables, self._learned_interpolation())
        return Learners(partial(CountLearner, True, order, tables.size + 1), order - 1, log_probs)

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        if self.adaptive:
            return super()._merge_states(log_weights, states)
        return merged(states, ((state.recent.tobytes(), state.is_first) for state in states))

    def _learned_interpolation(self) -> Interpolation:
        if self.interpolation_ is None:
            raise ValueError("adaptive=True, but the model was fitted with adaptive=False; fit it anew")
        return self.interpolation_

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        tables = self.tables_.to_state()
        state: dict[str, Any] = {}
        if self.interpolation_ is not None:
            state["interpolation"] = vars(self.interpolation_)
        if self.min_count_ > self.min_count:
            state["min_count"] = self.min_count_
        return {"tables": tables, **state} if state else tables

    def _restore(self, state: dict[str, Any]) -> None:
        self.interpolation_ = None
        tables = state.get("tables", state)
        self.tables_ = Tables.from_state(tables, self.encoding_.size, self.length_ == "stop")
        self.min_count_ = int(state.get("min_count", self.min_count))
        if "interpolation" in state:
            self.interpolation_ = Interpolation.from_state(state["interpolation"], len(self.tables_.levels))


def _are_on_disk(examples: list[Example]) -> bool:
    """Return True if the examples are read from disk slice by slice; sources are always read whole."""
    types: set[type] = {type(e.values) for e in examples}
    return OnDisk in types and all(e.source is None for e in examples)


def _hold_out(examples: list[Example], random_state: int) -> tuple[list[Example], list[Example]]:
    """Split examples into those to count, and those to learn interpolation weights on, about a tenth of the steps.

    If there are few examples, the last tenth of each long one is held out, else whole examples, chosen at random.
    """
    if len(examples) < MIN_SEQUENCES_TO_HOLD_OUT:
        long = [example for example in examples if len(example.values) >= MIN_STEPS_TO_CUT]
        short = [example for example in examples if len(example.values) < MIN_STEPS_TO_CUT]
        at = [len(e.values) - min(len(e.values) // 10, MAX_HELD_OUT // len(long)) for e in long]
        kept = [replace(e, values=np.asarray(e.values)[:t]) for e, t in zip(long, at, strict=True)]
        return [*kept, *short], [_tail(e, t) for e, t in zip(long, at, strict=True)]
    order = np.random.default_rng(random_state).permutation(len(examples))
    lengths = np.array([len(examples[i].values) for i in order])
    n_before = np.cumsum(lengths) - lengths
    is_held_out = n_before < min(lengths.sum() / 10, MAX_HELD_OUT)
    return [examples[i] for i in order[~is_held_out]], [examples[i] for i in order[is_held_out]]


def _tail(example: Example, at: int) -> Example:
    """Return the steps of an example from ``at`` on, with earlier steps as their past, which is read but not scored.

    After a source the past is all earlier steps, otherwise the last ``PAST_OF_TEST``.
    """
    begin = max(0, at - PAST_OF_TEST) if example.source is None else 0
    return replace(example, values=np.asarray(example.values)[begin:], n_past=at - begin)


def _components(tables: Tables, events: Events) -> list[Components]:
    counts = read_counts(events, len(tables.levels), tables.size + 1)
    return components(tables, tables.context_ids(events.contexts()), events.event, counts)


def _adaptive_steps(tables: Tables, interpolation: Interpolation, examples: list[Example]) -> list[np.ndarray]:
    events = Events.from_examples(examples, tables.size, tables.has_end)
    log_p = np.log(interpolation.probability(_components(tables, events), tables.uniform))
    if tables.has_end:  # the first step is not the end, for certain; nothing was read before it
        first = np.flatnonzero(events.is_first)
        nothing = np.zeros(len(first), np.int64)
        context_ids = [ids[first] for ids in tables.context_ids(events.contexts())]
        unread = repeat(ReadCounts(nothing, nothing, nothing))
        levels = components(tables, context_ids, np.full(len(first), tables.size), unread)
        log_p[first] -= np.log1p(-interpolation.probability(levels, tables.uniform))
    return events.split(log_p)
