"""Context mixing as a ``SequenceModel``: the mixed predictions of many contexts."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

import numpy as np

from seqmodels.common.array_checks import array_of
from seqmodels.common.compiled import warn_if_slow
from seqmodels.counts.base import CountModel, Learners, n_weighted_units
from seqmodels.counts.context_mixing import tables
from seqmodels.counts.context_mixing.tables import BUCKET, MixingTables
from seqmodels.encodings.binary_code import BinaryCode, limited
from seqmodels.encodings.examples import Example
from seqmodels.encodings.text import Bytes, Text
from seqmodels.generation import SymbolCoder

if TYPE_CHECKING:
    from seqmodels.counts.context_mixing.reader import Readers

MAKING = threading.Lock()  # held while the tables of a loaded model are built, because several threads may need them
MIN_BUCKETS, MAX_BUCKETS = 2**6, 2**19  # buckets of a context under n_buckets="auto"


@dataclass(eq=False, repr=False)
class ContextMixing(CountModel):
    """A model of ``p(x_t | x_<t)`` as a product of binary decisions, each predicted by a mixture of many contexts.

    A symbol of an alphabet of V symbols is ``ceil(log2 V)`` decisions, without those that have no alternative, and the
    end is one more decision below symbol 0, so that the probabilities of all symbols and the end sum to one. Contexts
    are the last 0 to 6 symbols; in text also the last 8, strings with gaps, the word, the words before it and what
    stands above in the last line; and the longest string that occurred before. Each context keeps adaptive
    probabilities and bit histories. Logistic mixing, ``p = 1 / (1 + exp(-w · log(p_i / (1 - p_i))))``, has weights that
    are selected by parts of the context and follow the gradient of ``log p``. A second mixer combines the sets of
    weights, and tables of earlier predictions and their outcomes refine the result (Mahoney 2005, "Adaptive weighing of
    context models for lossless data compression"; Knoll and de Freitas 2012, "A machine learning perspective on
    predictive coding with PAQ8"). If bytes turn out to be lines of fields, or not text, contexts of fields, or of
    records and machine instructions, replace some of the contexts of words. If they turn out to be samples of a picture
    or of sound, they are also predicted as numbers, by recursive least squares.

    Args:
        adaptive: if True, the model goes on learning from each sequence that it reads, starting from the fitted model;
            if False, it is frozen after ``fit``. A change after ``fit`` has no effect on scores.
        n_buckets: number of buckets of each context, slots of a hash table of counters. A bucket has room for 3
            decisions after a string and takes 32 bytes; when all are in use, strings replace others. ``"auto"`` takes
            four for each step of the training data, at most 524,288 (16 MiB for each context).

    The other arguments are described in ``SequenceModel``. The model is for symbols and text. With targets it learns y,
    in contexts that reach back into x. ``fit`` reads the sequences once, in their order; ``sample_weight`` repeats
    them, so it takes whole numbers, and ``warm_start`` is refused. Computations are in float64 on the CPU for any
    ``dtype`` and ``device``, in compiled loops if numba is installed (the extra ``adaptive``), far more slowly
    otherwise. ``n_parameters_`` is the number of counters, weights and map entries that training has changed.

    >>> model = ContextMixing(length="given").fit([np.tile([0, 1, 2], 10)])
    >>> [round(float(p), 1) for p in model.predict_next(np.array([0, 1])).probs]
    [0.0, 0.0, 1.0]
    """

    adaptive: bool = True
    n_buckets: int | Literal["auto"] = "auto"

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        self._setting()
        start = self._empty(self.tables_.symbols)
        end = start.row_counts_at or len(start.floats)  # the counts of how often weights were learned do not count
        changed = (
            self.tables_.counters != start.counters,
            self.tables_.floats[:end] != start.floats[:end],
            self.tables_.integers != start.integers,
        )
        return sum(int(np.count_nonzero(each)) for each in changed)

    def _check_options(self) -> None:
        if type(self.adaptive) is not bool:
            raise ValueError(f"adaptive is {self.adaptive!r}; pass True or False")
        if self.n_buckets != "auto" and not 2 <= self.n_buckets <= 2**25:
            raise ValueError(f"n_buckets is {self.n_buckets}; pass from 2 to {2**25:,}, or 'auto'")

    def _learn(self, train: list[Example]) -> float:
        from seqmodels.counts.context_mixing.fit import learn_from

        rows = list(self._rows(self._repeated(train)))
        self.n_steps_ = sum(len(row.symbols) - row.begin for row in rows)
        warn_if_slow("ContextMixing", self.n_steps_)
        self.places_ = tables.PLACES
        self.has_numbers_ = self.counts_rows_ = self.follows_layout_ = True
        n_symbols = sum(len(row.symbols) for row in rows)  # each row has a separator in the place of its start
        learned = self._empty(np.zeros(n_symbols, dtype=np.int64))
        self.n_learned_, total = learn_from(learned, rows)
        self._set_tables(learned)
        return total / n_weighted_units(train)

    def _read_nothing(self, n_steps: int) -> None:
        """Set the arrays of a model that was not fitted; their sizes are those for reading ``n_steps`` steps."""
        self.n_steps_, self.n_learned_ = n_steps, 0
        self.places_ = tables.PLACES
        self.has_numbers_ = self.counts_rows_ = self.follows_layout_ = True
        self._set_tables(self._empty(np.zeros(0, dtype=np.int64)))

    def _empty(self, symbols: np.ndarray, *, has_counters: bool = True) -> MixingTables:
        """Return tables in which nothing is learned yet, of the fitted model's sizes, for the training ``symbols``.

        ``has_counters`` False leaves out the counters, by far the largest part, to be added later.
        """
        automatic = min(max(4 * self.n_steps_, MIN_BUCKETS), MAX_BUCKETS)
        n_buckets = tables.power_of_two(automatic if self.n_buckets == "auto" else self.n_buckets)
        spelling = self.encoding_.spelling() if isinstance(self.encoding_, Text) else None
        if spelling is not None and any(len(text.decode(errors="replace")) > 1 for text in spelling):
            spelling = None  # pieces of words
        has_numbers = self.has_numbers_ and isinstance(self.encoding_, Bytes)
        return tables.empty(
            self.encoding_.size,
            self.n_steps_,
            n_buckets,
            symbols,
            spelling,
            self.places_,
            has_numbers=has_numbers,
            counts_rows=self.counts_rows_,
            follows_layout=self.follows_layout_,
            has_counters=has_counters,
        )

    def _set_tables(self, learned: MixingTables) -> None:
        for name in ("_of_file", "_made_readers"):
            self.__dict__.pop(name, None)
        self._tables = learned

    @property
    def tables_(self) -> MixingTables:
        """The counters, probability maps and weights that were learned; for a loaded model they are built at first use.

        A file contains only the buckets (slots of the hash table of counters) that are in use.
        """
        self._setting()  # refuses a model that is not fitted
        with MAKING:
            if "_tables" not in vars(self):
                made, used, buckets = self._of_file
                learned = tables.with_counters(made)
                learned.counters.reshape(-1, BUCKET)[used] = buckets
                self._set_tables(learned)
            return self._tables

    @property
    def _readers(self) -> Readers:
        from seqmodels.counts.context_mixing.reader import Readers

        if "_made_readers" not in vars(self):
            self._made_readers = Readers(self.tables_, self.n_learned_, self.measure_.memory == "adaptive")
        return self._made_readers

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        warn_if_slow("ContextMixing", sum(len(example.values) for example in examples))
        readers = self._readers.at_each(self._rows(examples))
        return [reader.read(events, first_end) for reader, events, first_end in readers]

    def _event_log_probs(self, examples: list[Example]) -> list[np.ndarray]:
        n = self.encoding_.size + (self.length_ == "stop")
        readers = self._readers.at_each(self._rows(examples))
        return [reader.read_all(events, first_end)[:, :n] for reader, events, first_end in readers]

    def _decision_log_odds(self, code: BinaryCode, examples: list[Example]) -> list[np.ndarray]:
        readers = self._readers.at_each(self._rows(examples))
        return [limited(reader.read_decisions(events, first_end)) for reader, events, first_end in readers]

    def _symbol_coder(self) -> SymbolCoder:
        from seqmodels.counts.context_mixing.arithmetic_coding import BitCoder

        return BitCoder(self._readers, self.length_ == "stop")

    def _learners(self) -> Learners:
        from seqmodels.counts.context_mixing.learner import MixingLearner

        return Learners(partial(MixingLearner, self._readers, self.length_ == "stop", WeakSet()), 0)

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        buckets = self.tables_.counters.reshape(-1, BUCKET)
        used = np.flatnonzero(buckets[:, 0])
        return {
            "n_steps": self.n_steps_,
            "n_learned": self.n_learned_,
            "places": self.places_,
            "has_numbers": self.has_numbers_,
            "counts_rows": self.counts_rows_,
            "follows_layout": self.follows_layout_,
            "used": used,
            "buckets": buckets[used],
            "floats": self.tables_.floats,
            "integers": self.tables_.integers,
            "symbols": self.tables_.symbols,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.n_steps_, self.n_learned_ = int(state["n_steps"]), int(state["n_learned"])
        if not max(self.n_steps_, self.n_learned_) < 2**63:
            raise ValueError(f"the file says that {max(self.n_steps_, self.n_learned_):.3g} steps were read")
        self.places_ = int(state.get("places", tables.EARLIER_PLACES))
        if self.places_ not in (tables.EARLIER_PLACES, tables.PLACES):
            raise ValueError(f"places is {self.places_}, and should be {tables.EARLIER_PLACES} or {tables.PLACES}")
        self.has_numbers_ = bool(state.get("has_numbers", False))
        self.counts_rows_ = bool(state.get("counts_rows", False))
        self.follows_layout_ = bool(state.get("follows_layout", False))
        tables.check_room(self.encoding_.size, self.n_steps_, np.size(state["floats"]), np.size(state["integers"]))
        learned = self._empty(np.asarray(state["symbols"], dtype=np.int64), has_counters=False)
        for name in ("floats", "integers"):
            if np.shape(state[name]) != getattr(learned, name).shape:
                raise ValueError(f"{name} of shape {np.shape(state[name])} do not belong to the model's sizes")
            getattr(learned, name)[:] = state[name]
        used, buckets = array_of(state, "used", np.int64, (None,)), array_of(state, "buckets", np.int32, (None, BUCKET))
        n_buckets = tables.buckets_of(learned)
        if len(used) != len(buckets) or ((used < 0) | (used >= n_buckets)).any():
            raise ValueError(f"the buckets that are used are not {len(buckets):,} of {n_buckets:,}")
        for name in ("_tables", "_made_readers"):
            self.__dict__.pop(name, None)
        self._of_file = learned, used, buckets
