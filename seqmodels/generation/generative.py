"""What one can ask of any fitted model a step at a time: what comes next, samples, streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodels.encodings import Encoding
from seqmodels.encodings.text import Text
from seqmodels.generation.cursor import Cursor, CursorState, begin, select_rows
from seqmodels.generation.decoding import Decoding
from seqmodels.generation.prediction import Prediction
from seqmodels.generation.sampling import sample_steps, stream_steps
from seqmodels.generation.stream import Stream
from seqmodels.generation.text import Watch, pieces_of_text
from seqmodels.measure import Length, Measure
from seqmodels.observations import Observation
from seqmodels.parameters import Configurable
from seqmodels.preparation import Data, Setting
from seqmodels.sequences import Item, Sequences


class Generative(Configurable, ABC):
    """A model as a cursor over encoded steps, and what follows from that, over raw ones.

    To add one, define the cursor (``start``, ``advance``, ``distribution``); ``_cursor`` may return another, faster one.
    """

    encoding_: Encoding
    measure_: Measure
    length_: Length
    random_state: int

    @abstractmethod
    def start(self, source: np.ndarray | None = None, n: int = 1) -> CursorState:
        """The cursor before the first step of ``n`` sequences, all given the same encoded ``source``."""

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
    def _setting(self) -> Setting:
        """How data are encoded and measured; raises ``NotFittedError``."""

    @abstractmethod
    def _missing_is_summed_out(self, observation: Observation) -> bool:
        """Whether frames may have missing values."""

    @abstractmethod
    def _device(self) -> torch.device:
        """Where the model computes."""

    @abstractmethod
    def _affine(self) -> tuple[Tensor, Tensor]:
        """``(shift, scale)`` from encoded to raw values."""

    # -- what comes next -------------------------------------------------------------------------------------

    def predict_next(self, prefix: Any = None, *, source: Any = None) -> Any:
        """A Pyro distribution over the raw step after ``prefix`` (None: the first step), given ``source``.

        Symbols under ``length="stop"`` have one more category, the last: the end.
        """
        steps, context = self._encode_one(prefix), self._encode_source(source)
        return self.distribution(begin(self, context, steps, 1)).as_distribution(*self._affine())

    def stream(self, *, source: Any = None) -> Stream:
        """A listener: ``s.update(x_t)`` is ``log p(x_t | past)`` in nats, ``s.predict_next()`` what comes next."""
        context = self._encode_source(source)
        return Stream(self._cursor(), self._encode_step, self._affine(), context)

    # -- drawing ---------------------------------------------------------------------------------------------

    def sample(
        self,
        n: int = 1,
        *,
        length: int | None = None,
        prefix: Any = None,
        source: Any = None,
        max_length: int = 1000,
        random_state: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        stop: Sequence[str] | None = None,
    ) -> list[Item]:
        """Draw ``n`` raw sequences, continuing ``prefix``, given ``source``.

        Args:
            length: number of encoded steps; None draws until the end (``length="stop"`` only), at most ``max_length``. A
                forced length masks the end, which is not p(x | T).
            random_state: seed; None takes the model's.
            temperature, top_k, top_p, min_p: what is drawn from instead of the model's own distribution: see ``Decoding``.
            stop: strings, for text: a text ends after the first of them that is completed by what is drawn, and contains it.
        """
        steps, context = self._encode_one(prefix), self._encode_source(source)
        self._check_length(length)
        watch = self._watch(stop, steps, n)
        drawn = sample_steps(
            self._cursor(),
            n,
            prefix=steps,
            source=context,
            length=length,
            max_length=max_length,
            generator=self._generator(random_state),
            decoding=self._decoding(temperature, top_k, top_p, min_p),
            watch=watch,
        )
        if watch is not None:
            return [watch.cut(each).decode(errors="replace") for each in drawn]
        return [self.encoding_.decode(each) for each in drawn]

    def generate(
        self,
        prefix: Any = None,
        *,
        source: Any = None,
        length: int | None = None,
        max_length: int = 1000,
        random_state: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        stop: Sequence[str] | None = None,
    ) -> Iterator[Any]:
        """What ``sample(1)`` of the same arguments draws after ``prefix``, piece by piece as it comes.

        Frames ``(D,)``, symbols, or pieces of text: whole characters (bytes of an unfinished one are held back), never empty.
        """
        steps, context = self._encode_one(prefix), self._encode_source(source)
        self._check_length(length)
        watch = self._watch(stop, steps, 1)
        drawn = stream_steps(
            self._cursor(),
            prefix=steps,
            source=context,
            length=length,
            max_length=max_length,
            generator=self._generator(random_state),
            decoding=self._decoding(temperature, top_k, top_p, min_p),
        )
        if isinstance(self.encoding_, Text):
            return pieces_of_text(drawn, self.encoding_.spelling(), watch)
        return (self.encoding_.decode(step[None])[0] for step in drawn)

    def _check_length(self, length: int | None) -> None:
        if length is None and self.length_ == "given":
            raise ValueError('the model was fitted with length="given", so it has no ends; pass length=')

    def _generator(self, random_state: int | None) -> torch.Generator:
        seed = self.random_state if random_state is None else random_state
        return torch.Generator(self._device()).manual_seed(seed)

    def _decoding(self, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None) -> Decoding:
        decoding = Decoding(temperature, top_k, top_p, min_p)
        if self.encoding_.reads == "vectors":
            decoding.check_for_vectors()
        return decoding

    def _watch(self, stop: Sequence[str] | None, prefix: np.ndarray, n: int) -> Watch | None:
        if stop is None:
            return None
        if not isinstance(self.encoding_, Text):
            raise ValueError(f"stop is for text, but the model was fitted on {self.encoding_.reads}; leave it out")
        return Watch(stop, self.encoding_.spelling(), prefix, n)

    # -- encoding --------------------------------------------------------------------------------------------

    def _encode_one(self, item: Any) -> np.ndarray:
        setting = self._setting()
        if item is None or len(item) == 0:
            shape = (0, self.encoding_.size) if self.encoding_.reads == "vectors" else (0,)
            return np.zeros(shape, dtype=np.float64 if self.encoding_.reads == "vectors" else np.int64)
        sequences = Sequences([item])
        setting.check(Data.of(sequences), self._missing_is_summed_out(setting.observation))
        return self.encoding_.encode(sequences.items[0])

    def _encode_source(self, source: Any) -> np.ndarray | None:
        if (source is not None) != self._setting().measure.conditional:
            wanted = "p(y | x): pass source=" if self.measure_.conditional else "p(x): leave source out"
            raise ValueError(f"the model was fitted as {wanted}")
        return None if source is None else self._encode_one(source)

    def _encode_step(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        item = x if isinstance(x, str) else np.asarray(x)[None]
        steps = self._encode_one(item)
        return steps, np.broadcast_to(self.encoding_.log_det(item), len(steps))
