"""Any fitted model as a cursor, and what one can ask of it step by step, over raw sequences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sized
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings import Encoding
from seqmodels.precision import is_beyond_float32, refuse_beyond_float64
from seqmodels.generation.cursor import Cursor, CursorState, begin, select_rows
from seqmodels.generation.given import Given
from seqmodels.generation.prediction import Prediction
from seqmodels.generation.stream import Stream
from seqmodels.measure import Length, Measure
from seqmodels.observations import Observation
from seqmodels.parameters import Configurable
from seqmodels.preparation import Data, Example, Setting
from seqmodels.sequences import Sequences, as_array
from seqmodels.tagging import length_like


class Generative(Configurable, ABC):
    """A model as a cursor over encoded steps, and what follows from that, over raw ones.

    To add one, define the cursor (``start``, ``advance``, ``distribution``); ``_cursor`` may return another, faster one.
    """

    encoding_: Encoding
    source_encoding_: Encoding | None
    measure_: Measure
    length_: Length
    random_state: int

    _aligned: ClassVar[bool] = False  # whether targets have a step for each of their source's
    _pads_sources: ClassVar[bool] = False  # whether the cursor starts from sources of several lengths at once

    @abstractmethod
    def start(self, source: Given = None, n: int = 1) -> CursorState:
        """The cursor before the first step of ``n`` sequences, given one encoded ``source`` for all, or a list of n of equal length."""

    @abstractmethod
    def advance(self, state: CursorState, x: Tensor) -> CursorState:
        """The cursor after ``x (n, D)`` or ``(n,)``, encoded."""

    @abstractmethod
    def distribution(self, state: CursorState) -> Prediction:
        """What the model says of the next encoded step."""

    def select(self, state: CursorState, index: Tensor) -> CursorState:
        """The cursor of the sequences ``index (m,)``, in this order."""
        return select_rows(state, index)

    def _cursor(self) -> Cursor:
        """A cursor for many steps: what they share may be computed once."""
        return self

    @abstractmethod
    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        """For each example S (under ``stop`` S + 1, the last the end) float64 log-probabilities of encoded steps."""

    @abstractmethod
    def _setting(self) -> Setting:
        """How data are encoded and measured; raises ``NotFittedError``."""

    @abstractmethod
    def _missing_is_summed_out(self, observation: Observation) -> bool:
        """Whether frames may have missing values."""

    @abstractmethod
    def _device(self) -> torch.device:
        """Where the model computes."""

    @abstractmethod
    def _in_float64(self) -> Self:
        """The same model, computing in float64."""

    @abstractmethod
    def _affine(self) -> tuple[Tensor, Tensor]:
        """``(shift, scale)`` from encoded to raw values."""

    # -- what comes next -------------------------------------------------------------------------------------

    def predict_next(self, prefix: Any = None, *, source: Any = None) -> Any:
        """A Pyro distribution over the raw step after ``prefix`` (None: the first step), given ``source``.

        Its ``p_end`` is the probability that the sequence ends here instead, 0 under ``length="given"``. Symbols under ``"stop"``
        have the end as one more category, the last, so that ``log_prob(x)`` is what ``stream().update(x)`` returns. A density
        has no such place: of vectors the distribution is given that the sequence goes on, and
        ``update(x) == log(1 - p_end) + log_prob(x)``.
        """
        steps, context = self._encode_one(prefix), self._encode_source(source)
        model = self._holding(steps, context)
        return model.distribution(begin(model, context, steps, 1)).as_distribution(*model._affine())

    def stream(self, *, source: Any = None) -> Stream:
        """A listener: ``s.update(x_t)`` is ``log p(x_t | past)`` in nats, ``s.predict_next()`` what comes next."""
        context = self._encode_source(source)
        model = self._holding(context)
        return Stream(model._cursor(), self._encode_step, model._affine(), context)

    # -- inside ----------------------------------------------------------------------------------------------

    def _length(self, length: int | None, source: np.ndarray | None) -> int | None:
        """How many steps are asked for; None: until the end."""
        if not (length is None or (isinstance(length, int | np.integer) and length >= 0)):
            raise ValueError(f"length is {length!r}; pass a number of steps")
        if self._aligned and source is not None:
            return length_like(source, length)
        if length is None and self.length_ == "given":
            raise ValueError('the model was fitted with length="given", so it has no ends; pass length=')
        return length

    def _holding(self, *encoded: np.ndarray | None) -> Self:
        """This model, or the same in float64 where float32 cannot hold what it is to read.

        Raises:
            ValueError: nor can float64.
        """
        large = [values for values in encoded if values is not None and is_beyond_float32(values)]
        for values in large:
            refuse_beyond_float64(values, "what comes before")
        return self._in_float64() if large else self

    def _encode_one(self, item: Any) -> np.ndarray:
        setting = self._setting()
        if item is None or (isinstance(item, Sized) and len(item) == 0):
            shape = (0, self.encoding_.size) if self.encoding_.reads == "vectors" else (0,)
            return np.zeros(shape, dtype=np.float64 if self.encoding_.reads == "vectors" else np.int64)
        sequences = Sequences([item])
        setting.check(Data.of(sequences), self._missing_is_summed_out(setting.observation))
        return self.encoding_.encode(sequences.items[0])

    def _encode_source(self, source: Any) -> np.ndarray | None:
        if (source is not None) != self._setting().measure.conditional:
            wanted = "p(y | x): pass source=" if self.measure_.conditional else "p(x): leave source out"
            raise ValueError(f"the model was fitted as {wanted}")
        reads = self.source_encoding_
        if source is None or reads is None:
            return None
        setting, one = self._setting(), Sequences([source])
        setting.check_sources(one, self._missing_is_summed_out(setting.observation))
        return reads.encode(one.items[0])

    def _encode_step(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        item = x if isinstance(x, str) else as_array(0, x)[None]
        if not isinstance(item, str) and np.ma.is_masked(item):
            item = np.ma.filled(item.astype(np.float64), np.nan)
        steps = self._encode_one(item)
        return steps, np.broadcast_to(self.encoding_.log_det(item), len(steps))
