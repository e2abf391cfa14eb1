"""The probability of a text over all its spellings, of any fitted model of text."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np

from seqmodels.encodings.text import Text
from seqmodels.generation.cursor import CursorState
from seqmodels.generation.generative import Generative
from seqmodels.generation.spellings import Best, Drawn, Lattice, Merged, Pruning, log_prob_of_spellings
from seqmodels.preparation import Data, Example


class Marginal(Generative, ABC):
    """``log_prob_marginal``. What a model defines is what ``Generative`` asks for, and ``log_prob``.

    It is the model's and not the encoding's: how much the other spellings weigh is for the model to say.
    """

    @abstractmethod
    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """``(n,)`` nats of each sequence."""

    def log_prob_marginal(
        self,
        X: Any,
        y: Any = None,
        *,
        beam: int | None = 8,
        pruning: Literal["best", "drawn"] = "best",
        random_state: int = 0,
    ) -> np.ndarray:
        """``(n,)`` nats of each text (of ``y`` given ``X``), summed over its spellings in pieces; never less than ``log_prob``.

        ``log_prob`` is that of the usual spelling, which the merges of a ``BPE`` give. The model may also write the text in other
        pieces, so what is said of the text is more (Cao & Rimell 2021, *You should evaluate your language model on marginal
        likelihood over tokenisations*). The figure is one a text: a spelling has its steps, a sum over spellings has none. Under
        ``length="given"`` it is that of the text as the beginning of an endless one, with a piece's end at its end. The cost is
        that of ``beam`` steps of the model for each byte, one after the other. Where symbols have one spelling: ``log_prob``.

        Args:
            beam: beginnings of spellings that go on from each byte, besides the usual one. None: all, which is exact; their number
                doubles with every byte or so, but an HMM makes all into one belief, and an n-gram those that end alike, so these
                two are exact for long texts too.
            pruning: ``"best"`` follows the most probable: a lower bound for certain. In a long text a beam holds few of the
                combinations of its choices, so the gain a byte goes to nothing. ``"drawn"`` draws which to follow, so that the
                probability is right in the mean: then the logarithm lies below the truth in the mean, and above it by x nats with
                probability ``exp(-x)`` at most. For long texts take that.
            random_state: seed of the drawing; a text's figure does not depend on which others there are.

        Raises:
            ValueError: a tagger, whose pieces are as many as its source's steps; a beam below 1; another ``pruning``.
        """
        self._check_marginal(beam, pruning)
        usual = self.log_prob(X, y)
        if self.measure_.kind == "exact":
            return usual
        assert isinstance(self.encoding_, Text), "only text has several spellings"
        examples, spelling = self._setting().examples(Data.of(X, y)), self.encoding_.spelling()
        found = [self._over_spellings(e, spelling, _pruning(pruning, random_state, e.values), beam) for e in examples]
        return np.maximum(usual, found)  # the cursor's road may round lower than the batched one

    def _merged(self, log_weights: list[float], states: list[CursorState]) -> Merged:
        """Histories made one, where ``Σ_i w_i p(future | state_i)`` stays what it is; as they are, if nothing is known of that."""
        return [([i], state) for i, state in enumerate(states)]

    def _over_spellings(self, example: Example, spelling: list[bytes], pruning: Pruning, beam: int | None) -> float:
        lattice, stops = Lattice.of(example.values, spelling), self.length_ == "stop"
        return log_prob_of_spellings(
            self._holding(example.source)._cursor(),
            self._merged,
            lattice,
            pruning,
            beam,
            stops=stops,
            source=example.source,
        )

    def _check_marginal(self, beam: int | None, pruning: str) -> None:
        if beam is not None and beam < 1:
            raise ValueError(f"beam is {beam}; pass at least 1, or None for all spellings")
        if pruning not in ("best", "drawn"):
            raise ValueError(f"pruning is {pruning!r}; pass 'best' or 'drawn'")
        if self._aligned:
            raise ValueError(
                f"the targets of a {type(self).__name__} have a piece for each step of their source, so other spellings "
                "are other targets; take log_prob"
            )


def _pruning(name: Literal["best", "drawn"], random_state: int, steps: np.ndarray) -> Pruning:
    return Best() if name == "best" else Drawn(np.random.default_rng([random_state, zlib.crc32(steps.tobytes())]))
