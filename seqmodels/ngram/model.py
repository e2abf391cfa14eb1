"""``NGram``: counts of short strings as a ``SequenceModel``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np

from seqmodels.generation import CursorState, MergedStates
from seqmodels.model import SequenceModel
from seqmodels.ngram.counts import count
from seqmodels.ngram.cursor import NGramCursor, merged_states
from seqmodels.ngram.events import Events
from seqmodels.ngram.smoothing import Smoothing
from seqmodels.ngram.tables import Tables
from seqmodels.observations import Categorical, Observation
from seqmodels.precision import DTYPES
from seqmodels.preparation import Example
from seqmodels.sequences import Kind


@dataclass(eq=False, repr=False)
class NGram(SequenceModel):
    """``p(x_t | the n - 1 symbols before)``, interpolated with all shorter contexts, down to the uniform distribution.

    Modified Kneser-Ney (Kneser & Ney 1995; Chen & Goodman 1999) or Witten-Bell (1991). Each sequence comes after a
    start symbol that contexts may reach back to, so the first steps have shorter ones. Every symbol of the alphabet,
    and under ``length="stop"`` the end, has a probability above zero everywhere.

    Args:
        order: n, the longest string counted: ``n - 1`` symbols and what follows them.
        smoothing: ``"kneser-ney"``: shorter contexts count before how many different symbols a string stood, not how
            often; ``"witten-bell"``: what is unseen gets as much as was new.

    The other arguments are those of ``SequenceModel``. For symbols and text. With targets what is counted is y, in
    contexts that reach back into x. There is nothing to start from, so ``warm_start`` is refused; ``sample_weight``
    repeats sequences, so under Kneser-Ney, which asks what was seen once and twice, it takes whole numbers.
    ``n_parameters_`` is the number of different strings counted, of all lengths. Sums are float64 whatever ``dtype``
    is.

    >>> model = NGram(2, smoothing="witten-bell", length="given").fit([np.array([0, 1, 0, 1])])
    >>> [round(float(p), 3) for p in model.predict_next(np.array([0])).probs]  # after a zero: twice a one, nothing else
    [0.167, 0.833]
    """

    order: int = 5
    smoothing: Smoothing = "kneser-ney"

    _uses_validation: ClassVar[bool] = False

    @property
    def context_(self) -> int | None:
        return self.order - 1

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.tables_.n_grams

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors":
            raise ValueError("NGram counts symbols and text, but the sequences are vectors; use an HMM or a network")
        return Categorical()

    def _check_hyperparameters(self) -> None:
        if self.order < 1:
            raise ValueError(f"order is {self.order}; pass at least 1")
        if self.smoothing not in get_args(Smoothing):
            raise ValueError(f"smoothing is {self.smoothing!r}; pass 'kneser-ney' or 'witten-bell'")
        if self.warm_start:
            raise ValueError("warm_start=True, but an n-gram has nothing to start from; fit on all of the data at once")
        if self.observation != "auto" and repr(self.observation) != repr(Categorical()):
            raise ValueError(
                f"observation is {self.observation!r}, but NGram emits symbols by its own smoothing; leave "
                "observation='auto'"
            )

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        import pandas as pd

        began = time.perf_counter()
        counted = [example for example in train if example.weight > 0]
        self._check_weights(counted)
        size, has_end = self.encoding_.size, self.length_ == "stop"
        counts = count(Events.from_examples(counted, size, has_end), self.order, size)
        self.tables_ = Tables.from_counts(counts, size, has_end, self.smoothing)
        log_prob = self._nats_per_unit(train)
        self.converged_ = True
        self.history_ = pd.DataFrame(
            {
                "step": [1],
                "seconds": [time.perf_counter() - began],
                "log_prob": [log_prob],
                "validation": [self._nats_per_unit(validation)],
                "objective": [log_prob],
                "floor_hits": [0],
            }
        )

    def _check_weights(self, examples: list[Example]) -> None:
        broken = [example.weight for example in examples if example.weight % 1]
        if broken and self.smoothing == "kneser-ney":
            raise ValueError(
                f"sample_weight has {broken[0]}, but Kneser-Ney counts whole sequences; pass whole numbers, or "
                "smoothing='witten-bell'"
            )

    def _nats_per_unit(self, examples: list[Example]) -> float:
        log_prob = sum(e.weight * float(steps.sum()) for e, steps in zip(examples, self._steps(examples), strict=True))
        return log_prob / sum(e.weight * e.n_units for e in examples) if examples else np.nan

    # -- many sequences at once ----------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        if not examples:
            return []
        tables = self.tables_
        events = Events.from_examples(examples, tables.size, tables.has_end)
        context_ids = tables.context_ids(events.contexts())
        log_p = np.log(tables.probability(context_ids, events.event))
        if tables.has_end:  # the first step is not the end, for certain
            first = np.flatnonzero(events.is_first)
            ends = tables.probability([ids[first] for ids in context_ids], np.full(len(first), tables.size))
            log_p[first] -= np.log1p(-ends)
        return events.split(log_p)

    def _event_log_probs(self, examples: list[Example]) -> list[np.ndarray]:
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

    def cursor(self, n_steps: int | None = None) -> NGramCursor:
        self._setting()
        return NGramCursor(self.tables_, self.observation_, self._device(), DTYPES[self.dtype])

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        return merged_states(states)

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return self.tables_.to_state()

    def _restore(self, state: dict[str, Any]) -> None:
        self.tables_ = Tables.from_state(state, self.encoding_.size, self.length_ == "stop")
