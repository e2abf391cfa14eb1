"""Drawing raw sequences from any fitted model, many at once or one piece by piece."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from seqmodels.encodings.text import Text
from seqmodels.generation.decoding import Decoding
from seqmodels.generation.generative import Generative
from seqmodels.generation.sampling import sample_steps, stream_steps
from seqmodels.generation.text import Watch, pieces_of_text
from seqmodels.sequences import Item


class Drawing(Generative, ABC):
    """``sample`` and ``generate``. What a model defines is what ``Generative`` asks for.

    >>> from seqmodels import HMM
    >>> model = HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.9, 0.1]])
    >>> model.sample(temperature=0)  # after a symbol the end is likelier than another
    [array([0])]
    >>> [int(symbol) for symbol in model.generate([1], length=4, top_k=1)]
    [0, 0, 0]
    """

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
                forced length masks the end, which is not p(x | T). A tagger needs none: its source has it.
            random_state: seed; None takes the model's.
            temperature, top_k, top_p, min_p: what is drawn from instead of the model's own distribution: see ``Decoding``.
            stop: strings, for text: a text ends after the first of them that is completed by what is drawn, and contains it.
        """
        steps, context = self._encode_one(prefix), self._encode_source(source)
        length = self._length(length, context)
        watch = self._watch(stop, steps, n)
        drawn = sample_steps(
            self._holding(steps, context)._cursor(),
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
        length = self._length(length, context)
        watch = self._watch(stop, steps, 1)
        drawn = stream_steps(
            self._holding(steps, context)._cursor(),
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
