"""The base class of models that are fitted by reading sequences once, and may go on learning while they score."""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch

from seqmodels.counts.base.cursor import LearningCursor, merged
from seqmodels.counts.base.event_row import EventRow
from seqmodels.counts.base.learner import Learners
from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import DTYPES
from seqmodels.encodings.step_maps import VectorEncoding
from seqmodels.generation import Cursor, CursorState, MergedStates, event_log_probs
from seqmodels.model.model import SequenceModel
from seqmodels.observations import Categorical, Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import MemoryKind


class CountModel(SequenceModel, ABC):
    """The base class of models of symbols and text that count, or learn as they read, all training sequences once.

    ``warm_start`` is refused, because there is no starting point. If ``adaptive`` is True, the model goes on learning
    within each sequence that it scores, starting from the fitted model; its ``Learner`` does this.

    To add one, define a dataclass with the hyperparameter ``adaptive``, and ``_check_options``, ``_learn``,
    ``_learners`` (with a ``StepLearner``), ``context_``, ``n_parameters_``, ``_state`` and ``_restore``. Scores, a
    cursor and reading y given x then follow from the learner; override ``_steps`` if whole sequences can be scored
    faster.
    """

    _uses_validation: ClassVar[bool] = False
    adaptive: bool  # a hyperparameter; each family declares it at its own place, with its own default

    @property
    def memory_(self) -> MemoryKind:
        return "adaptive" if self.adaptive else "static"

    @abstractmethod
    def _check_options(self) -> None:
        """Raise ValueError if an argument of this class is invalid."""

    @abstractmethod
    def _learn(self, train: list[Example]) -> float:
        """Fit the model to the examples ``train`` and return their log-probability in nats per unit."""

    @abstractmethod
    def _learners(self) -> Learners:
        """Return the description of how the fitted model learns from sequences that it reads."""

    def _context_of(self, n_symbols: int) -> int | None:
        """Return the number of raw steps that a prediction depends on; None means all.

        An encoded step may itself depend on earlier raw steps, as a difference does.

        Args:
            n_symbols: number of encoded steps before the predicted one that the model reads.
        """
        encoding = vars(self).get("encoding_")
        n_past = encoding.n_past if isinstance(encoding, VectorEncoding) else 0
        return None if n_past is None else n_symbols + n_past

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        cursor, steps = self._learning_cursor(torch.float64), []
        for example, row in zip(examples, self._rows(examples), strict=True):
            log_p = event_log_probs(cursor, np.asarray(example.values), example.source)
            steps.append(log_p[np.arange(len(row.events)), row.events])
        return steps

    def cursor(self, n_steps: int | None = None) -> Cursor:
        self._setting()
        return self._learning_cursor(DTYPES[self.dtype])

    def _learning_cursor(self, dtype: torch.dtype) -> LearningCursor:
        return LearningCursor(self._learners(), self.encoding_.size, self.observation_, self._device(), dtype)

    def _merge_states(self, log_weights: list[float], states: list[CursorState]) -> MergedStates:
        if self.context_ is None:
            return super()._merge_states(log_weights, states)
        return merged(states, (state.recent for state in states))

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors":
            raise ValueError(
                f"{type(self).__name__} counts symbols and text, but the sequences are vectors; pass "
                "encoding=encodings.Quantize(), which reads them as symbols, or use an HMM or a network"
            )
        return Categorical()

    def _check_hyperparameters(self) -> None:
        self._check_options()
        name = type(self).__name__
        if self.warm_start:
            raise ValueError(
                f"warm_start=True, but {name} has nothing to start from; fit it on all of the data at once"
            )
        if self.observation != "auto" and repr(self.observation) != repr(Categorical()):
            raise ValueError(
                f"observation is {self.observation!r}, but {name} predicts symbols by its own estimates; leave "
                "observation='auto'"
            )

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        import pandas as pd

        began = time.perf_counter()
        log_prob = self._learn(train)
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

    def _nats_per_unit(self, examples: list[Example]) -> float:
        weights = (example.weight for example in examples)
        log_prob = sum(map(operator.mul, weights, self._sums_of_steps(examples).tolist()))
        return log_prob / n_weighted_units(examples) if examples else np.nan

    def _rows(self, examples: list[Example]) -> Iterator[EventRow]:
        return (EventRow.of(example, self.encoding_.size, self.length_ == "stop") for example in examples)

    def _repeated(self, examples: list[Example]) -> list[Example]:
        """Return the examples, each as many times as its weight says.

        Raises:
            ValueError: if a weight is not a whole number.
        """
        broken = [example.weight for example in examples if example.weight % 1]
        if broken:
            raise ValueError(
                f"sample_weight has {broken[0]}, but {type(self).__name__} reads whole sequences, as often as their "
                "weight says; pass whole numbers"
            )
        return [example for example in examples for _ in range(int(example.weight))]


def n_weighted_units(examples: list[Example]) -> float:
    """Return the number of raw units of all examples (characters of text, say), each times the example's weight."""
    return sum(example.weight * example.n_units for example in examples)
